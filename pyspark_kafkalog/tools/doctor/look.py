"""The look of one process: the driver's, a task's on an executor, or that of the command line."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyspark_kafkalog
from pyspark_kafkalog.broker.fetch.rack import rack_of
from pyspark_kafkalog.codec import library
from pyspark_kafkalog.codec.kernel import kernels as all_kernels
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.filesystem.private import NewFile, remove_file
from pyspark_kafkalog.log.obeyed_configs import not_obeyed, refused_by_brokers
from pyspark_kafkalog.model import Files, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions
from pyspark_kafkalog.options.settings import PlaceOptions, place_options, selection
from pyspark_kafkalog.options.table import BY_NAME, SERVERS, ZOOKEEPER, Use
from pyspark_kafkalog.options.topic_configs import check_topic_configs
from pyspark_kafkalog.options.user_options import UserOptions, is_slip, near_names
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.plugins import shown
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.tools.doctor.report import Finding, State

LOCATIONS = ("stagingLocation", "checkpointLocation", "auditLocation")
"""Options with folders that processes write to."""
_MUST_WRITE = "Let the user of Spark's Python processes write to it, on the driver and on all workers."
_STOPPED = {
    OFFSETS_TOPIC: "Their groups can neither commit nor be listed.",
    TRANSACTIONS_TOPIC: "Their transactions can neither go on nor end.",
    "__share_group_state": "Their share groups can't go on.",
    "__remote_log_metadata": "Brokers can't find what is in tiered storage.",
}
"""The features that do not work while partitions of an internal topic have no leader."""
_LOST_AND_FOUND = re.compile(r"(?:\A|/)lost\+found is not TOPIC")
"""Begins what is said of a mount's own folder; of several log directories, with its path."""
_LIBRARIES = ("pyarrow", "numpy", "pandas", "kafka-python", "zstandard", "cramjam")


def check_options(options: Mapping[str, str]) -> None:
    """Refuse wrong options before any work. Those of readers and writers are welcome alike.

    :raises OptionError: naming the option.
    """
    for name in options:
        if name.lower() in BY_NAME:
            continue
        near = near_names(name, {option.name for option in BY_NAME.values()})
        if not name.lower().startswith("kafka.") or (near and is_slip(name, near[0])):
            hint = f"Did you mean {' or '.join(near)}?" if near else None
            raise OptionError(f"Unknown option {name!r}", hint=hint)
    if has_place(options):
        place_options(options)


def has_place(options: Mapping[str, str]) -> bool:
    """Whether the options name a place."""
    return any(name.lower() in ("path", "paths", SERVERS, ZOOKEEPER) for name in options)


def look(options: Mapping[str, str], mark: str) -> dict[str, Any]:
    """The things that this process sees, for JSON.

    :param mark: the name of the file by which a folder is recognized; see :func:`leave_marks`.
    :returns: ``findings``, each with the fields of :class:`.Finding` but ``where``; ``partitions``, by
        which log directories are compared; ``marks``, whether each location is the driver's; ``version``,
        ``libraries`` and ``now``, in seconds.
    """
    findings = [
        Finding("", "Python", State.FINE, f"{platform.python_version()}, {sys.executable}"),
        Finding("", "kernels", *kernels()),
        _temporary_folder(),
    ]
    partitions = None
    if has_place(options):
        place = place_options(options)
        if place.brokers is not None:
            findings += [*_rack(place.fetch), *_brokers(place.brokers)]
        else:
            partitions = _directory(place, findings)
        if all(finding.state is not State.PROBLEM for finding in findings):
            findings += _topics(options, place)
    marks = {
        name: _location(name, location, mark, findings) for name, location in _locations(options).items()
    }
    return {
        "version": pyspark_kafkalog.__version__,
        "libraries": {name: version for name in _LIBRARIES if (version := _version(name))},
        "findings": [
            {"what": one.what, "state": one.state.value, "found": one.found, "remedy": one.remedy}
            for one in findings
        ],
        "partitions": partitions,
        "marks": marks,
        "now": time.time(),
    }


def leave_marks(options: Mapping[str, str], mark: str) -> list[Folder]:
    """Leave a file ``mark`` in each location that is there and can be written to; :func:`remove_marks`."""
    marked = []
    for location in _locations(options).values():
        try:
            folder = locate(location)
            if folder.exists():
                NewFile(folder, mark).close(keep=True)
                marked.append(folder)
        except (KafkaLogError, OSError):
            continue
    return marked


def remove_marks(marked: list[Folder], mark: str) -> None:
    """Remove what :func:`leave_marks` left."""
    for folder in marked:
        remove_file(folder, mark)


def _locations(options: Mapping[str, str]) -> dict[str, str]:
    by_name = {name.lower(): value for name, value in options.items()}
    return {name: by_name[name.lower()] for name in LOCATIONS if by_name.get(name.lower())}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def kernels() -> tuple[State, str, str | None]:
    """State, finding and remedy of the compiled kernels of the codec. Nothing is compiled for it."""
    others = [one for one in all_kernels() if library.find(one.function, one.signature) is None]
    if not others:
        return State.FINE, f"compiled: {library.path()}", None
    try:
        from pyspark_kafkalog.codec import jit
    except ImportError as e:
        return (
            State.PROBLEM,
            f"no compiled library fits, and numba cannot be imported: {e.__cause__}",
            "Run: pip install numba",
        )
    cached = [jit.cached(one.function, one.signature) for one in others]
    folder = cached[0][0]
    if folder is None:
        return (
            State.PROBLEM,
            "there is no place to cache them: each process compiles them again with numba, which takes 10 s",
            "Set NUMBA_CACHE_DIR to a folder that the user of Spark's Python processes may write to.",
        )
    if all(there for _, there in cached):
        return State.FINE, f"compiled by numba, cached in {folder}", None
    return (
        State.FINE,
        f"not compiled yet: numba does it at the first use, in 10 s of one core, and caches them in {folder}",
        None,
    )


def _temporary_folder() -> Finding:
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"kafkalog")
        return Finding("", "temporary folder", State.FINE, f"{tempfile.gettempdir()} can be written to")
    except OSError as e:
        return Finding(
            "",
            "temporary folder",
            State.PROBLEM,
            f"it cannot be written to: {e.strerror}",
            "Set TMPDIR to a folder that the user of Spark's Python processes may write to.",
        )


def _rack(fetch: FetchOptions | None) -> Iterator[Finding]:
    """The replicas that fetches come from, if the user names a rack."""
    name = "kafka.client.rack"
    if fetch is None or not fetch.client_rack:
        return
    try:
        rack = rack_of(fetch.client_rack)
    except KafkaLogError as e:
        yield _failed(name, e, "Correct the function.")
        return
    if rack:
        yield Finding("", name, State.FINE, rack)
    else:
        remedy = "Records come from the leaders. See the log of this process for why."
        yield Finding("", name, State.UNKNOWN, f"{shown(fetch.client_rack)}: not known here", remedy)


def _brokers(connection: ConnectionOptions) -> list[Finding]:
    from pyspark_kafkalog.broker.cluster.leaders import NO_LEADER_HINT
    from pyspark_kafkalog.broker.wire.apis import lacking
    from pyspark_kafkalog.tools.doctor.reach import reach

    findings = []
    attempts = reach(connection)
    for attempt in attempts:
        who = "bootstrap server" if attempt.node_id is None else f"broker {attempt.node_id}"
        what = f"{who} {attempt.address}"
        if attempt.error is None:
            findings.append(Finding("", what, State.FINE, ", ".join(attempt.steps[:-1])))
            findings += [
                Finding("", what, State.UNKNOWN, f"it lacks {name}", instead)
                for name, instead in lacking(attempt.versions)
            ]
            continue
        step = attempt.steps[-1] if attempt.steps else "the options"
        remedy = attempt.error.hint or "Check the broker."
        if attempt.node_id is not None and step in ("DNS", "TCP"):
            remedy = (
                "Let the broker advertise (advertised.listeners) an address that can be reached from here."
            )
        findings.append(Finding("", what, State.PROBLEM, f"{step} failed: {attempt.error.message}", remedy))
    leaderless = next((attempt.leaderless for attempt in attempts if attempt.error is None), {})
    for topic, numbers in leaderless.items():
        found = f"partitions without a leader: {', '.join(map(str, numbers))}"
        findings.append(Finding("", topic, State.PROBLEM, found, f"{_STOPPED[topic]} {NO_LEADER_HINT}"))
    return findings


def _directory(options: PlaceOptions, findings: list[Finding]) -> dict[str, list[Any]] | None:
    """The topic id and the end of each partition in the directory; None if it can't be read."""
    try:
        place = open_place(options)
        topics = place.topics()
        topic_ids = place.topic_ids(topics)
        partitions = [
            TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers
        ]
        ends = place.end_offsets(partitions, read_committed=False)
        misplaced = place.misplaced() if isinstance(place, Files) else []
        configs = {topic: place.topic_config(topic) for topic in topics}
    except Exception as e:  # stores raise all kinds
        findings.append(_failed("path", e, "Check the path, and that this machine can read it."))
        return None
    count = sum(map(len, topics.values()))
    found = f"{_number(len(topics), 'topic')}, {_number(count, 'partition')}"
    findings.append(Finding("", "path", State.FINE, found))
    for sentence in misplaced:
        # Each mount has its lost+found, and only brokers mind.
        state = State.UNKNOWN if _LOST_AND_FOUND.search(sentence) else State.PROBLEM
        findings.append(Finding("", "path", state, sentence, "Move it out of the log directory."))
    for topic in sorted(configs):
        findings += _configs(topic, configs[topic])
    return {str(partition): [topic_ids.get(partition.topic, ""), end] for partition, end in ends.items()}


def _topics(options: Mapping[str, str], place: PlaceOptions) -> Iterator[Finding]:
    """The topics that a reader's options name, if they do."""
    user = UserOptions(options, Use.READ)
    name = next((name for name in ("subscribe", "assign", "subscribePattern") if name in user), None)
    if name is None:
        return
    try:
        found = look_up_partitions(open_place(place.of_report), selection(user))
    except KafkaLogError as e:
        yield _failed(name, e, "Correct the name.")
        return
    if found:
        yield Finding("", name, State.FINE, _number(len(found), "partition"))
    else:
        yield Finding("", name, State.PROBLEM, "no topic or partition matches", "Correct it.")


def _configs(topic: str, configs: Mapping[str, str]) -> Iterator[Finding]:
    """The configurations of a directory's topic that nothing there obeys, and those that make no sense."""
    unused = not_obeyed(configs)
    for name in sorted(configs):
        if name in unused:
            found = f"{name}={configs[name]} has no effect here: {unused[name]}"
            yield Finding("", topic, State.FINE, found)
            continue
        try:
            check_topic_configs({name: configs[name]})
        except OptionError as e:
            yield Finding("", topic, State.PROBLEM, e.message, "Set it again with kafkalog topics alter.")
            continue
        for why in refused_by_brokers({name: configs[name]}).values():
            found = f"{name}={configs[name]} is obeyed here, but {why}"
            yield Finding(
                "", topic, State.FINE, found, f"Leave it out when you restore the topic, by --set {name}=."
            )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _location(name: str, location: str, mark: str, findings: list[Finding]) -> bool | None:
    """Whether the folder has the mark; None if it isn't there or can't be written to."""
    try:
        folder = locate(location)
        if not folder.exists():
            findings.append(_missing(name, folder))
            return None
        NewFile(folder, f"{mark}-{platform.node()}-{os.getpid()}").close(keep=False)
        findings.append(Finding("", name, State.FINE, "can be written to"))
        return bool(folder.look(mark).type.name == "File")
    except Exception as e:  # stores raise all kinds
        findings.append(_failed(name, e, _MUST_WRITE))
        return None


def _failed(what: str, error: Exception, remedy: str) -> Finding:
    """A finding about an error; of a foreign one only the kind: its text may quote credentials in a URI."""
    if isinstance(error, KafkaLogError):
        return Finding("", what, State.PROBLEM, error.message, error.hint or remedy)
    reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
    return Finding("", what, State.PROBLEM, f"cannot be used: {reason}", remedy)


def _missing(name: str, folder: Folder) -> Finding:
    above = folder.path
    while folder.is_local and not os.path.isdir(above):
        above = os.path.dirname(above)
    if not folder.is_local or os.access(above, os.W_OK | os.X_OK):
        return Finding("", name, State.FINE, "not there yet")
    return Finding("", name, State.PROBLEM, "not there, and cannot be made", _MUST_WRITE)
