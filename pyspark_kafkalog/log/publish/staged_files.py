"""Staged files of a log directory: their names, how the publisher reads them, and who removes them.

A staged file (:mod:`pyspark_kafkalog.staging`) is a regular file ``.kafkalog-staged-<job>-<task>-<unique>``
in the log root, which brokers ignore (an unknown *folder* would stop one from starting).

A commit removes the files of its job by their names. Only a listing of the log root shows those that killed
tasks have left. It costs more the more is there, so a process lists for a hundredth of its time at most.
Files of a killed job go a day after their last change.

Clocks can be set, and those of two machines differ. So each machine that writes to the directory counts that
day by itself: it notes what it sees, with the time since it was started, in ``.kafkalog-abandoned``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import resource
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import UNREADABLE, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import disk_errors, naming, replace
from pyspark_kafkalog.filesystem.locate import local_folder, locate
from pyspark_kafkalog.filesystem.machine import machine_id
from pyspark_kafkalog.filesystem.private import NewFile
from pyspark_kafkalog.log.segment.scan import open_regular, read_at
from pyspark_kafkalog.log.topic_settings import encode_settings
from pyspark_kafkalog.model import EncodeSettings, QueryBatch, TopicPartition
from pyspark_kafkalog.staging import ChangedError, Staged, StagedSection, Staging, read_staged

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

STAGED_PREFIX = ".kafkalog-staged-"
_MAX_OPEN = 128
"""The most staged files that stay open after their check. Others are opened for each read."""
STAGED_NAME = re.compile(
    rf"{re.escape(STAGED_PREFIX)}(?P<job>[A-Za-z0-9._]+)-[A-Za-z0-9._]+-[0-9a-f]{{32}}\Z"
)
ABANDONED_FILE = ".kafkalog-abandoned"
_ABANDONED_SECONDS = 24 * 3600
_LISTED_SHARE = 0.01
"""The most of a process's time that it lists a log root for files of killed tasks."""
_MACHINES = 8
"""The most machines whose notes of a job are kept."""

_log = logging.getLogger("pyspark_kafkalog")
_next_listing: dict[str, float] = {}
"""Times of :func:`time.perf_counter` from which on this process may list a log root again."""


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics of a directory, as a task knows them; see :class:`pyspark_kafkalog.staging.TaskTopics`.

    :param existing: the partitions of a topic; none if it does not exist.
    :param num_partitions: those of such a topic.
    :param encode: how to encode by the options of the write.
    :param configs: of the topics that have some.
    :param given: options that were given under the names of configurations.
    """

    existing: Callable[[str], Collection[int]]
    num_partitions: int
    encode: EncodeSettings
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)

    def partition_count(self, topic: str) -> int:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.partition_count`."""
        return len(self.existing(topic)) or self.num_partitions

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.has_partition`: no writer adds any to a topic."""
        return False

    def settings(self, topic: str) -> EncodeSettings:
        """See :meth:`pyspark_kafkalog.staging.TaskTopics.settings`."""
        return encode_settings(topic, self.encode, self.configs.get(topic, {}), self.given)


def staging(
    root: str, job: str, task: str, topics: KnownTopics, listener: WriteListener | None = None
) -> Staging:
    """The staging file of a task's rows.

    :param root: the log directory; created if it does not exist.
    :param job: the name that all files of the job share; ``<query>-<batch id>`` for a micro-batch.
    :param task: tells the tasks of the job apart, for people; attempts may share it.
    :param listener: hears of each record batch that is staged.
    """
    name = f"{STAGED_PREFIX}{field_of_name(job)}-{field_of_name(task)}-{uuid.uuid4().hex}"
    folder = locate(root)

    def new_file() -> NewFile:
        os.makedirs(root, exist_ok=True)
        return NewFile(folder, name)

    errors = partial(disk_errors, "Could not stage", os.path.join(root, name))
    return Staging(topics, name, new_file, errors, listener=listener)


def _free_descriptors() -> int:
    """The number of files that this process may still open; its limit if the open ones are unknown."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    try:
        return max(limit - len(os.listdir("/dev/fd")), 0)
    except OSError:
        return limit


class StagedFiles:
    """The staged files of a job by number: checked once, then read from any thread. A context manager.

    Keeps only some of them open, fewer if the limit of open files is low.
    """

    def __init__(self, root: str, staged: Sequence[Staged]) -> None:
        self._staged = staged
        self._paths = [os.path.join(root, task.name or "") for task in staged]
        self._open: dict[int, int] = {}
        self._max_open = min(_MAX_OPEN, _free_descriptors() // 8)

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open.values():
            with contextlib.suppress(OSError):  # only read from
                os.close(descriptor)
        self._open.clear()

    def checked(self) -> Iterator[tuple[int, list[StagedSection], Batches]]:
        """Check that all are as their tasks left them: number, some sections, their batches by position.

        :raises LogDirectoryError: if one is gone, or anything in it has changed.
        :raises OSError: if one can't be read.
        """
        for source, path in enumerate(self._paths):
            try:
                for sections, data in self._read_staged(source):
                    start, batches = sections[0].position, walk(data)
                    begins = [section.position - start for section in sections]
                    at = np.searchsorted(batches.position, begins)  # each section begins with a batch
                    if batches.end != data.size or (np.append(batches.position, -1)[at] != begins).any():
                        raise ChangedError
                    batches.position[:] += start
                    yield source, sections, batches
            except (ChangedError, FileNotFoundError):
                raise _changed(path) from None

    def _read_staged(self, source: int) -> Iterator[tuple[list[StagedSection], np.ndarray]]:
        name = self._staged[source].name
        if name is None or not STAGED_NAME.match(name):
            raise ChangedError
        path = self._paths[source]
        descriptor = open_regular(path)
        try:
            yield from read_staged(self._staged[source], _StagedFile(descriptor, path))
            if len(self._open) < self._max_open:
                self._open[source] = descriptor
        finally:
            if source not in self._open:
                os.close(descriptor)

    def read(self, source: int, position: int, into: np.ndarray) -> None:
        """Fill ``into`` with the bytes of a staged file from ``position`` on.

        :raises LogDirectoryError: if it has become shorter.
        :raises OSError: if it can't be read.
        """
        path, descriptor = self._paths[source], self._open.get(source)
        if descriptor is not None:
            _fill(descriptor, path, position, into)
            return
        descriptor = open_regular(path)
        try:
            _fill(descriptor, path, position, into)
        finally:
            os.close(descriptor)


class _StagedFile:
    """An open staged file: :class:`pyspark_kafkalog.staging.StagedBytes`. Each read overwrites the last."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._data = np.empty(0, np.uint8)
        self.size = os.fstat(descriptor).st_size

    def read(self, position: int, size: int) -> np.ndarray:
        if size > self._data.size:
            self._data = np.empty(size, np.uint8)
        data = self._data[:size]
        _fill(self._descriptor, self._path, position, data)
        return data


def _fill(descriptor: int, path: str, position: int, into: np.ndarray) -> None:
    with naming(path):
        filled = read_at(descriptor, into, position)
    if filled < into.size:
        raise _changed(path)


def field_of_name(text: str) -> str:
    """``text`` as a field of a staged file's name, in which ``-`` separates fields."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", text):
        raise ValueError(f"{text!r} cannot be part of a file name")
    return text.replace("-", ".")


def _changed(path: str) -> LogDirectoryError:
    return LogDirectoryError(
        "A staged file is gone, or has changed since its task wrote it",
        file=path,
        hint="Nothing was published. Run the job again, and let nothing else write to the log directory.",
    )


def abort(root: str, batch: QueryBatch, staged: Sequence[Staged]) -> None:
    """Remove the files that tasks of a batch have staged. Never raises, as that would hide why it failed.

    What is not in ``staged`` may be of another driver, which is at the same micro-batch. That goes when the
    batch is published, or a day later. A batch without a number has a name of its own: all of its files go.
    """
    try:
        if batch.batch_id is None:
            _remove(entry.path for job, entry in _staged(root) if job == field_of_name(batch.job))
        else:
            _remove(_paths(root, staged))
    except Exception as e:
        _log.warning("Could not remove the staged files of job %s in %s: %s", batch.job, root, e)


def sweep(root: str, job: str, staged: Sequence[Staged]) -> None:
    """Remove what the tasks of ``job``, which has just been published, have staged.

    If the log root is listed, leftovers of its other attempts, of the query's earlier micro-batches and of
    abandoned jobs go, too. The caller holds the directory's lock. Never raises, as that would say that the
    job was not published.
    """
    try:
        _remove(_paths(root, staged))
        began = time.perf_counter()
        if began >= _next_listing.get(root, 0):
            _remove_leftovers(root, field_of_name(job))
            ended = time.perf_counter()
            _next_listing[root] = ended + (ended - began) / _LISTED_SHARE
    except Exception as e:
        _log.warning("Published, but could not remove leftovers in %s: %s", root, e)


def _remove_leftovers(root: str, published: str) -> None:
    others: defaultdict[str, list[os.DirEntry[str]]] = defaultdict(list)
    over = []
    for job, entry in _staged(root):
        if _is_over(job, published):
            over.append(entry.path)
        else:
            others[job].append(entry)
    _remove(over)
    _remove_abandoned(root, others)


def _is_over(job: str, published: str) -> bool:
    query, _, batch = published.rpartition(".")  # the query is empty for a batch job
    job_query, _, job_batch = job.rpartition(".")
    numbers = batch.isdigit() and job_batch.isdigit()
    return job == published or (job_query == query != "" and numbers and int(job_batch) < int(batch))


def _paths(root: str, staged: Sequence[Staged]) -> list[str]:
    return [os.path.join(root, task.name) for task in staged if task.name and STAGED_NAME.match(task.name)]


def _staged(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The staged files, each with its job."""
    with os.scandir(root) as entries:
        for entry in entries:
            match = STAGED_NAME.match(entry.name)
            if match is not None and entry.is_file(follow_symlinks=False):
                yield match["job"], entry


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:  # another process has just removed it
            pass
        except OSError as e:
            _log.warning("Could not remove a staged file that is no longer needed: %s", e)


def _remove_abandoned(root: str, jobs: dict[str, list[os.DirEntry[str]]]) -> None:
    """Remove files that this machine has seen unchanged for a day, and note those it sees first."""
    path = os.path.join(root, ABANDONED_FILE)
    before = _read_notes(path)
    if not jobs and not before:
        return
    machine, uptime = machine_id(), time.monotonic()
    notes: dict[str, dict[str, Any]] = {}
    for job, entries in jobs.items():
        state = _state(entries)
        note = before.get(job)
        seen = dict(note["seen"]) if note is not None and note["state"] == state else {}
        since = seen.get(machine)
        if since is not None and uptime - since >= _ABANDONED_SECONDS:
            _log.info("Removing staged files of job %s in %s, unchanged for a day", job, root)
            _remove(entry.path for entry in entries)
            continue
        if since is None or since > uptime:
            seen.pop(machine, None)
            seen[machine] = uptime
        notes[job] = {"state": state, "seen": dict(list(seen.items())[-_MACHINES:])}
    if notes != before:
        replace(path, json.dumps(notes).encode())


def _state(entries: list[os.DirEntry[str]]) -> str:
    """A digest that changes while the job's tasks write."""
    files = []
    for entry in entries:
        status = entry.stat(follow_symlinks=False)
        files.append((entry.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def _read_notes(path: str) -> dict[str, dict[str, Any]]:
    try:
        folder, name = os.path.split(path)
        notes = json.loads(local_folder(folder).read(name) or b"{}")
        return {
            job: {
                "state": note["state"],
                "seen": {name: float(since) for name, since in note["seen"].items()},
            }
            for job, note in notes.items()
        }
    except (FileNotFoundError, *UNREADABLE):
        return {}  # as if nothing had been seen yet
