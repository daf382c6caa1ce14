"""Staged files hold what a task has encoded, out of sight until the driver publishes it.

A staged file is a regular file ``.kafkalog-staged-<job>-<task>-<unique>`` in the
log root, which brokers ignore (an unknown *folder* would stop one from starting). It
holds record batches, one after another. The :class:`StagedFile` that travels to the
driver says which partition each belongs to.

A staged file is not flushed to disk. It matters only to the job that wrote it:
the publisher checks its size and checksums, and what a crash of the machine took
is staged again when the job or the micro-batch runs again.

A job's files are removed when it is over, those of a killed job a day after their last change.
Clocks that can be set, or of two machines, don't count: each machine that writes to the
directory notes what it sees, with the time since it was started, in ``.kafkalog-abandoned``.
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
import threading
import time
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from pyspark_kafkalog.codec.checksums import crc32c, extend_crc32c
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import UNREADABLE, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import disk_errors, naming, replace, write_all
from pyspark_kafkalog.filesystem.machine import machine_id
from pyspark_kafkalog.filesystem.sharing import open_new
from pyspark_kafkalog.log.segment.scan import read_at
from pyspark_kafkalog.model import Encoded, EncodeSettings, QueryBatch, TopicPartition

STAGED_PREFIX = ".kafkalog-staged-"
_CHUNK_BYTES = 256 << 10
"""Read and summed at a time, in the processor's cache."""
_MAX_IDLE = 128
"""The most staged files that stay open while no thread reads them."""
STAGED_NAME = re.compile(
    rf"{re.escape(STAGED_PREFIX)}(?P<job>[A-Za-z0-9._]+)-[A-Za-z0-9._]+-[0-9a-f]{{32}}\Z"
)
ABANDONED_FILE = ".kafkalog-abandoned"
_ABANDONED_SECONDS = 24 * 3600
_MACHINES = 8
"""The most machines whose notes of a job are kept."""

_log = logging.getLogger("pyspark_kafkalog")


class Section(NamedTuple):
    """Record batches of one partition in a staged file: their place, and the CRC-32C of these bytes."""

    topic: str
    partition: int
    position: int
    size: int
    records: int
    crc: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What a task has staged. ``name`` is the file in the log root; ``sections`` cover it in order."""

    name: str
    sections: tuple[Section, ...]

    @property
    def records(self) -> int:
        return sum(section.records for section in self.sections)


class Staging:
    """Writes the staged file of one task attempt. A context manager: without :meth:`finish` it removes
    the file at the end.

    :param root: the log directory; created if it does not exist.
    :param job: the name that all files of the job share; ``<query>-<batch id>`` for a micro-batch.
    :param task: tells the tasks of the job apart, for people; attempts may share it.
    :param settings: how record batches are encoded; None for Kafka's defaults.
    :param num_partitions: the partitions of a topic that is not in ``existing``.
    """

    def __init__(
        self,
        root: str,
        job: str,
        task: str,
        settings: EncodeSettings | None = None,
        *,
        num_partitions: int = 1,
        existing: Mapping[str, Collection[int]] = MappingProxyType({}),
    ) -> None:
        name = f"{STAGED_PREFIX}{field_of_name(job)}-{field_of_name(task)}-{uuid.uuid4().hex}"
        self._root = root
        self._path = os.path.join(root, name)
        self._descriptor: int | None = None
        self._size = 0
        self._sections: list[Section] = []
        self._finished = False
        self._settings = settings or EncodeSettings()
        self._num_partitions = num_partitions
        self._existing = existing

    def __enter__(self) -> Staging:
        return self

    def partition_count(self, topic: str) -> int:
        """See :meth:`pyspark_kafkalog.sinks.TaskSink.partition_count`."""
        return len(self._existing.get(topic, ())) or self._num_partitions

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.sinks.TaskSink.has_partition`: no writer adds any to a topic."""
        return False

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """The same for all partitions."""
        return self._settings

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Stage record batches; those of one partition keep the order of the calls.

        :raises LogDirectoryError: if they can't be written.
        """
        if encoded.records == 0:
            return
        if self._descriptor is None:
            with self._errors():
                os.makedirs(self._root, exist_ok=True)
                self._descriptor = open_new(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with self._errors():
            write_all(self._descriptor, encoded.data, self._size)
        section = Section(*partition, self._size, encoded.data.size, encoded.records, crc32c(encoded.data))
        self._sections.append(section)
        self._size += encoded.data.size

    def advance(self, *, flush: bool = False) -> None:
        """Nothing to do: :meth:`append` has written everything."""

    def visible_records(self) -> int:
        """None: see :meth:`pyspark_kafkalog.sinks.TaskSink.visible_records`."""
        return 0

    def finish(self) -> StagedFile | None:
        """What was staged; None if nothing was, in which case there is no file."""
        self._finished = True
        return StagedFile(os.path.basename(self._path), tuple(self._sections)) if self._sections else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is None:
            return
        keep = False
        try:
            with self._errors():
                os.close(self._descriptor)  # here a network mount may report a full disk
            keep = self._finished and error is None
        finally:
            if not keep:
                with contextlib.suppress(OSError):  # the first error says more
                    os.unlink(self._path)

    def _errors(self) -> AbstractContextManager[None]:
        return disk_errors("Could not stage", self._path)


def _free_descriptors() -> int:
    """How many files this process may still open; its limit if the open ones are unknown."""
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

    def __init__(self, root: str, staged: Sequence[StagedFile]) -> None:
        self.staged = staged
        self._paths = [os.path.join(root, file.name) for file in staged]
        self._idle: OrderedDict[int, int] = OrderedDict()
        self._guard = threading.Lock()
        self._max_idle = min(_MAX_IDLE, _free_descriptors() // 8)
        self._room = np.empty(0, np.uint8)

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._idle.values():
            with contextlib.suppress(OSError):  # only read from
                os.close(descriptor)
        self._idle.clear()

    def check(self, source: int) -> Batches:
        """Check that a staged file is as its task left it, and return its batches.

        :raises LogDirectoryError: if it is gone, or anything in it has changed.
        :raises OSError: if it can't be read.
        """
        path, file = self._paths[source], self.staged[source]
        if not STAGED_NAME.match(file.name):
            raise _changed(path)
        found = []
        with self._opened(source) as descriptor:
            if os.fstat(descriptor).st_size != sum(section.size for section in file.sections):
                raise _changed(path)
            for section in file.sections:
                if self._room.size < section.size:
                    self._room = np.empty(section.size, np.uint8)
                data, filled, crc = self._room[: section.size], 0, 0
                while filled < section.size:
                    part = data[filled : filled + _CHUNK_BYTES]
                    if read_at(descriptor, part, section.position + filled) < part.size:
                        raise _changed(path)
                    filled, crc = filled + part.size, extend_crc32c(crc, part)
                batches = walk(data)
                if batches.end != section.size or crc != section.crc:
                    raise _changed(path)
                np.add(batches.position, section.position, out=batches.position)
                found.append(batches)
        return replace_fields(found[-1], table=np.concatenate([b.table for b in found], axis=1))

    def read(self, source: int, position: int, into: np.ndarray) -> None:
        """Fill ``into`` with the bytes of a staged file from ``position`` on.

        :raises LogDirectoryError: if it has become shorter.
        :raises OSError: if it can't be read.
        """
        with self._opened(source) as descriptor:
            if read_at(descriptor, into, position) < into.size:
                raise _changed(self._paths[source])

    @contextlib.contextmanager
    def _opened(self, source: int) -> Iterator[int]:
        """A descriptor of the file, for one thread at a time."""
        path = self._paths[source]
        with self._guard:
            descriptor = self._idle.pop(source, None)
        try:
            if descriptor is None:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise _changed(path) from None
        try:
            with naming(path):
                yield descriptor
        finally:
            self._give_back(source, descriptor)

    def _give_back(self, source: int, descriptor: int) -> None:
        with self._guard:
            closed = self._idle.pop(source, None)  # another thread's
            self._idle[source] = descriptor
            if closed is None and len(self._idle) > self._max_idle:
                closed = self._idle.popitem(last=False)[1]
        if closed is not None:
            os.close(closed)


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


def abort(root: str, batch: QueryBatch, staged: Sequence[StagedFile]) -> None:
    """Remove the files that tasks of a batch have staged. Never raises, as that would hide why it failed.

    What is not in ``staged`` may be of another driver, which is at the same micro-batch. That goes when the
    batch is published, or a day later. A batch without a number has a name of its own: all of its files go.
    """
    try:
        if batch.batch_id is None:
            _remove(entry.path for job, entry in _staged(root) if job == field_of_name(batch.job))
        else:
            _remove(os.path.join(root, file.name) for file in staged if STAGED_NAME.match(file.name))
    except Exception as e:
        _log.warning("Could not remove the staged files of job %s in %s: %s", batch.job, root, e)


def sweep(root: str, job: str) -> None:
    """Remove the staged files of ``job``, which has just been published.

    For a micro-batch this includes leftovers of the query's earlier ones; files of abandoned
    jobs go, too. The caller holds the directory's lock. Never raises, as that would say that
    the job was not published.
    """
    try:
        others: defaultdict[str, list[os.DirEntry[str]]] = defaultdict(list)
        over = []
        for staged_job, entry in _staged(root):
            if _is_over(staged_job, field_of_name(job)):
                over.append(entry.path)
            else:
                others[staged_job].append(entry)
        _remove(over)
        _remove_abandoned(root, others)
    except Exception as e:
        _log.warning("Published, but could not remove leftovers in %s: %s", root, e)


def _is_over(job: str, published: str) -> bool:
    query, _, batch = published.rpartition(".")  # the query is empty for a batch job
    job_query, _, job_batch = job.rpartition(".")
    numbers = batch.isdigit() and job_batch.isdigit()
    return job == published or (job_query == query != "" and numbers and int(job_batch) < int(batch))


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
        with open(path, encoding="utf-8") as file:
            notes = json.load(file)
        return {
            job: {
                "state": note["state"],
                "seen": {name: float(since) for name, since in note["seen"].items()},
            }
            for job, note in notes.items()
        }
    except (FileNotFoundError, *UNREADABLE):
        return {}  # as if nothing had been seen yet
