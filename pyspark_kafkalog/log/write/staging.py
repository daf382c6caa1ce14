"""Staged files: what a task has encoded, out of sight until the driver publishes it.

A staged file is a regular file ``.kafkalog-staged-<job>-<task>-<unique>`` in the
log root, where brokers pay no heed to it (an unknown *folder* would stop one from
starting). It holds record batches, one behind the other; which of them belong to
which partition is told by the :class:`StagedFile` that travels to the driver.

A staged file is not flushed to disk. It matters only to the job that wrote it:
whoever publishes checks its size and checksums, and what a crash of the machine
took away is staged again when the job, or the micro-batch, is run again.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.checksum import crc32c
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.disk_errors import disk_errors, naming
from pyspark_kafkalog.log.durable import write_all
from pyspark_kafkalog.log.write.active_segment import map_file
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition

STAGED_PREFIX = ".kafkalog-staged-"
_MOST_MAPS = 128
"""Staged files that stay mapped, and so open, from their check on: a copy from there is the fastest."""
_MOST_IDLE = 8
"""Others that are kept open while none of the threads reads them."""
STAGED_NAME = re.compile(
    rf"{re.escape(STAGED_PREFIX)}(?P<job>[A-Za-z0-9._]+)-[A-Za-z0-9._]+-[0-9a-f]{{32}}\Z"
)


class Section(NamedTuple):
    """Record batches of one partition in a staged file: where they are, and the CRC-32C of these bytes."""

    topic: str
    partition: int
    position: int
    size: int
    records: int
    crc: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What a task staged. ``name`` is that of the file in the log root; ``sections`` cover it in order."""

    name: str
    sections: tuple[Section, ...]

    @property
    def records(self) -> int:
        return sum(section.records for section in self.sections)


class Staging:
    """Writes the staged file of one task attempt. Used as a context manager: left without :meth:`finish`,
    it takes the file away again.

    :param root: the log directory; made if it does not exist.
    :param job: what the files of one job have in common; a micro-batch's is ``<query>-<batch id>``.
    :param task: tells the tasks of the job apart, for people; attempts need not differ.
    :param settings: how record batches are encoded; None for Kafka's defaults.
    :param num_partitions: how many partitions a topic gets that is not among ``existing``.
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
        """See :meth:`pyspark_kafkalog.model.TaskSink.partition_count`."""
        return len(self._existing.get(topic, ())) or self._num_partitions

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.model.TaskSink.has_partition`: no writer adds any to a topic."""
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
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with self._errors():
            write_all(self._descriptor, encoded.data, self._size)
        section = Section(*partition, self._size, encoded.data.size, encoded.records, crc32c(encoded.data))
        self._sections.append(section)
        self._size += encoded.data.size

    def advance(self) -> None:
        """What is appended is written already."""

    def finish(self) -> StagedFile | None:
        """What was staged; None if nothing was, and then there is no file."""
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
                os.close(self._descriptor)  # where a network mount may say that the disk is full
            keep = self._finished and error is None
        finally:
            if not keep:
                with contextlib.suppress(OSError):  # the error that there is says more
                    os.unlink(self._path)

    def _errors(self) -> AbstractContextManager[None]:
        return disk_errors("Could not stage", self._path)


def _free_descriptors() -> int:
    """How many files this process may still open; where it can't tell what is open, as if none were."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    try:
        return max(limit - len(os.listdir("/dev/fd")), 0)
    except OSError:
        return limit


class StagedFiles:
    """The staged files of a job, by their numbers: checked once, and then read from any thread.

    Holds but some of them open, fewer where the limit of open files is low. Used as a context manager.
    """

    def __init__(self, root: str, staged: Sequence[StagedFile]) -> None:
        self.staged = staged
        self._paths = [os.path.join(root, file.name) for file in staged]
        self._maps: dict[int, np.ndarray] = {}
        self._idle: OrderedDict[int, int] = OrderedDict()
        self._guard = threading.Lock()
        self._most_maps = min(_MOST_MAPS, _free_descriptors() // 8)

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._idle.values():
            with contextlib.suppress(OSError):  # only read from
                os.close(descriptor)
        self._idle.clear()
        self._maps.clear()

    def check(self, source: int) -> Batches:
        """The batches of a staged file, once all is found to be as the task left it.

        :raises LogDirectoryError: if it is gone, or anything in it has changed.
        :raises OSError: if it can't be read.
        """
        path, file = self._paths[source], self.staged[source]
        if not STAGED_NAME.match(file.name):
            raise _changed(path)
        try:
            data = map_file(path)
        except FileNotFoundError:
            raise _changed(path) from None
        batches = walk(data)
        ends = np.cumsum([section.size for section in file.sections])
        whole = np.isin(ends, batches.position + batches.size).all() and data.size == ends[-1] == batches.end
        if not whole or any(crc32c(data[s.position : s.position + s.size]) != s.crc for s in file.sections):
            raise _changed(path)
        if len(self._maps) < self._most_maps:
            self._maps[source] = data
        return batches

    def read(self, source: int, position: int, into: np.ndarray) -> None:
        """Fill ``into`` with the bytes of a staged file from ``position`` on.

        :raises LogDirectoryError: if it has become shorter.
        :raises OSError: if it can't be read.
        """
        data = self._maps.get(source)
        if data is not None:
            into[:] = data[position : position + into.size]
            return
        path = self._paths[source]
        with self._guard:
            descriptor = self._idle.pop(source, None)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            view = into.data
            while view:
                with naming(path):
                    count = os.preadv(descriptor, [view], position)
                if count == 0:
                    raise _changed(path)
                view, position = view[count:], position + count
        finally:
            self._give_back(source, descriptor)

    def _give_back(self, source: int, descriptor: int) -> None:
        with self._guard:
            closed = self._idle.pop(source, None)  # another thread's
            self._idle[source] = descriptor
            if closed is None and len(self._idle) > _MOST_IDLE:
                closed = self._idle.popitem(last=False)[1]
        if closed is not None:
            os.close(closed)


def field_of_name(text: str) -> str:
    """``text`` as a field of a staged file's name, where ``-`` stands between fields."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,80}", text):
        raise ValueError(f"{text!r} cannot be part of a file name")
    return text.replace("-", ".")


def _changed(path: str) -> LogDirectoryError:
    return LogDirectoryError(
        "A staged file is gone, or not as its task wrote it",
        file=path,
        hint="Nothing was published. Run the job again, and let nothing else write to the log directory.",
    )
