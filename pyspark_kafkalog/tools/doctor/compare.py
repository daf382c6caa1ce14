"""The findings about what a process has seen, and about executors that differ from the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pyspark_kafkalog.tools.doctor.look import check_options, leave_marks, look, remove_marks
from pyspark_kafkalog.tools.doctor.report import Finding, Report, State

_HERE = "this machine"
_SKEW = 1.0
"""Seconds that a clock may be off."""
_INSTALL = "Install the same version on the driver and on all executors, then start a new session."


def examine(options: Mapping[str, str]) -> Report:
    """The findings of this machine about a place; ``pyspark_kafkalog.doctor`` asks executors, too.

    :param options: those of a reader or a writer.
    :raises OptionError: if an option is wrong.
    """
    check_options(options)
    mark = f".kafkalog-doctor-{uuid.uuid4().hex}"
    marked = leave_marks(options, mark)
    try:
        looked = look(options, mark)
    finally:
        remove_marks(marked, mark)
    return Report((_pyspark(), *findings_of(_HERE, looked)))


def _pyspark() -> Finding:
    try:
        return Finding(_HERE, "PySpark", State.FINE, version("pyspark"))
    except PackageNotFoundError:
        return Finding(_HERE, "PySpark", State.FINE, "not installed, and not needed here")


def findings_of(where: str, looked: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings about one process."""
    yield Finding(where, "package", State.FINE, f"pyspark-kafkalog {looked['version']}")
    libraries = ", ".join(f"{name} {version}" for name, version in looked["libraries"].items())
    yield Finding(where, "libraries", State.FINE, libraries)
    for one in looked["findings"]:
        yield Finding(where, one["what"], State(one["state"]), one["found"], one["remedy"])


def findings_of_executors(
    seen: Iterable[Mapping[str, Any]], driver: Mapping[str, Any], started: float, ended: float
) -> Iterator[Finding]:
    """The findings about executors, and where they differ from the driver.

    :param seen: what :func:`.probe` yielded.
    :param driver: what :func:`.look` returned there.
    :param started: when the driver sent the first task and, ``ended``, had the last result; in seconds.
    """
    for one in {one["executor"]: one for one in seen}.values():
        where, looked = f"executor {one['executor']}", one["looked"]
        if looked is None:
            yield from _without_package(where, one)
            continue
        if looked["version"] == driver["version"]:
            yield from findings_of(where, looked)
        else:
            found = f"pyspark-kafkalog {looked['version']}, but the driver has {driver['version']}"
            yield Finding(where, "package", State.PROBLEM, found, _INSTALL)
            yield from list(findings_of(where, looked))[1:]
        yield from _differences(where, looked, driver)
        yield _clock(where, looked["now"], started, ended)


def _without_package(where: str, one: Mapping[str, Any]) -> Iterator[Finding]:
    version = one.get("version")
    found = f"pyspark-kafkalog {version} cannot be used" if version else "pyspark-kafkalog is missing"
    yield Finding(where, "package", State.PROBLEM, f"{found}: {one['missing']}", _INSTALL)
    yield Finding(where, "Python", State.FINE, f"{one['python']}, {one['executable']}")


def _differences(where: str, looked: Mapping[str, Any], driver: Mapping[str, Any]) -> Iterator[Finding]:
    if looked["partitions"] is not None and driver["partitions"] is not None:
        differs = _other_directory(looked["partitions"], driver["partitions"])
        if differs:
            yield Finding(
                where,
                "path",
                State.PROBLEM,
                differs,
                "Mount the same folder on the driver and on all workers. If a topic is new, look again.",
            )
    for name, is_marked in looked["marks"].items():
        if driver["marks"].get(name) and not is_marked:
            yield Finding(
                where,
                name,
                State.PROBLEM,
                "it is not the folder that the driver sees",
                "Give a folder that the driver and all workers see: a mounted one, or the URI of a store.",
            )


def _other_directory(
    looked: Mapping[str, tuple[str, int]], driver: Mapping[str, tuple[str, int]]
) -> str | None:
    """The difference that shows that this is not the directory that the driver saw; None without one."""
    if looked.keys() != driver.keys():
        return "it shows other partitions than on the driver"
    for partition, (topic_id, end) in looked.items():
        seen_id, seen_end = driver[partition]
        if topic_id != seen_id:
            return f"{partition} has the topic id {topic_id or 'none'}, and {seen_id or 'none'} on the driver"
        if end < seen_end:
            return f"{partition} ends at {end}, but has ended at {seen_end} on the driver"
    return None


def _clock(where: str, now: float, started: float, ended: float) -> Finding:
    ahead, behind = now - ended, started - now
    if max(ahead, behind) <= _SKEW:
        return Finding(where, "clock", State.FINE, "as the driver's, as far as can be told")
    apart = f"{ahead:.0f} s ahead of" if ahead > behind else f"{behind:.0f} s behind"
    return Finding(
        where,
        "clock",
        State.PROBLEM,
        f"at least {apart} the driver's",
        "Synchronize the clocks (NTP): timestamps of records and expiry depend on them.",
    )
