"""Rows on their way: what a task has encoded, out of sight until the driver's commit makes it visible.

A staged file is the record batches of one attempt at a task, one after another, and nothing else. What is in
it travels in the task's commit message, with a checksum of each section: the driver makes visible what its
tasks have encoded, or nothing. A place may let a few bytes travel in the message themselves.

Each name is unique, so that attempts at a task never share a file. A task that fails, or is left without a
result, removes its own. The driver removes those of a batch that is over: what its messages name if it has
failed, and also what killed tasks have left once it is committed, each place by its names. A driver that is
too late finds its files gone, and makes nothing visible.

Nothing is flushed: what a crash of the machine takes is staged again when the batch runs again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.filesystem.private import NewFile
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition
from pyspark_kafkalog.model.sinks import TaskSink

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

_RUN_BYTES = 4 << 20
"""Sections are read together up to this size; a larger one is read as a whole, as its task had it."""


class StagedSection(NamedTuple):
    """Record batches of one partition: their place among what is staged, and the CRC-32C of these bytes."""

    topic: str
    partition: int
    position: int
    size: int
    records: int
    crc: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the batches."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Staged:
    """The record batches that a task has staged: ``sections``, which cover the file ``name`` or, without one,
    ``data``."""

    name: str | None
    sections: tuple[StagedSection, ...]
    data: bytes = b""

    @property
    def records(self) -> int:
        return sum(section.records for section in self.sections)

    @property
    def size(self) -> int:
        """Bytes of all sections."""
        return sum(section.size for section in self.sections)

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions that get rows."""
        return {section.topic_partition for section in self.sections}


class ChangedError(Exception):
    """Staged rows are gone, or not what their task has staged."""


class TaskTopics(Protocol):
    """The topics that a task writes to, as it knows them."""

    def partition_count(self, topic: str) -> int:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.partition_count`."""

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.has_partition`."""

    def settings(self, topic: str) -> EncodeSettings:
        """The settings of the encoder for a topic."""


class Staging(TaskSink[Staged]):
    """Stages the record batches of one attempt at a task.

    A context manager: without :meth:`finish` it removes the file at the end.

    :param name: of the file, which ``new_file`` makes when it is needed.
    :param errors: turns errors of the system into those of the place.
    :param inline_bytes: what is not longer travels in the task's message.
    :param listener: hears of each record batch that is staged; None if nothing listens.
    """

    def __init__(
        self,
        topics: TaskTopics,
        name: str,
        new_file: Callable[[], NewFile],
        errors: Callable[[], AbstractContextManager[None]],
        *,
        inline_bytes: int = 0,
        listener: WriteListener | None = None,
    ) -> None:
        self._topics = topics
        self._name = name
        self._new_file = new_file
        self._errors = errors
        self._inline_bytes = inline_bytes
        self._file: NewFile | None = None
        self._buffer = bytearray()
        self._size = 0
        self._sections: list[StagedSection] = []
        self._finished = False
        self._listener = listener
        self._numbers: defaultdict[TopicPartition, int] = defaultdict(int)
        """The number of record batches of each partition, of which the listener has heard."""

    def __enter__(self) -> Staging:
        return self

    def partition_count(self, topic: str) -> int:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.partition_count`."""
        return self._topics.partition_count(topic)

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.model.sinks.TaskSink.has_partition`."""
        return self._topics.has_partition(partition)

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """The same for all partitions of a topic: the commit adds what differs."""
        return self._topics.settings(partition.topic)

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Stage record batches; those of one partition keep the order of the calls.

        :raises KafkaLogError: if they can't be stored, as the place says.
        """
        if encoded.records == 0:
            return
        data = encoded.data
        if self._file is None and self._size + data.size <= self._inline_bytes:
            self._buffer += data.data
        else:
            with self._errors():
                if self._file is None:
                    self._file = self._new_file()
                    self._file.write(self._buffer)
                    self._buffer.clear()
                self._file.write(data)
        section = StagedSection(*partition, self._size, data.size, encoded.records, crc32c(data))
        self._sections.append(section)
        self._size += data.size
        if self._listener is not None:
            self._tell(self._listener, partition, encoded)

    def _tell(self, listener: WriteListener, partition: TopicPartition, encoded: Encoded) -> None:
        from pyspark_kafkalog.model.listening import EncodedBatch

        plain_sizes = encoded.sizes_without_compression()
        batches = zip(encoded.counts.tolist(), encoded.sizes.tolist(), plain_sizes, strict=True)
        for records, size, plain_size in batches:
            listener.enqueued(EncodedBatch(partition, self._numbers[partition], records, size, plain_size))
            self._numbers[partition] += 1

    def finish(self) -> Staged:
        """The record batches that were staged; the file is whole when this context is left."""
        self._finished = True
        name = None if self._file is None else self._name
        return Staged(name, tuple(self._sections), bytes(self._buffer))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with self._errors():
                self._file.close(keep=self._finished and error is None)


class StagedBytes(Protocol):
    """Staged bytes to read, such as a file."""

    @property
    def size(self) -> int:
        """The number of bytes."""

    def read(self, position: int, size: int) -> Any:
        """A buffer of the bytes from ``position``: ``size`` of them, or fewer at the end."""


class Inline:
    """The bytes in a task's message, as a :class:`StagedBytes`."""

    def __init__(self, staged: Staged) -> None:
        self._data = bytearray(staged.data)  # which may be changed in place
        self.size = len(self._data)

    def read(self, position: int, size: int) -> memoryview:
        """See :class:`StagedBytes`."""
        return memoryview(self._data)[position : position + size]


def read_staged(staged: Staged, source: StagedBytes) -> Iterator[tuple[list[StagedSection], np.ndarray]]:
    """The sections that a task has staged, some at a time with their bytes, which are as the task left them.

    :raises ChangedError: if anything has changed.
    :raises OSError: if it can't be read.
    """
    if source.size != staged.size:
        raise ChangedError
    run: list[StagedSection] = []
    for section in staged.sections:
        run.append(section)
        if section.position + section.size - run[0].position >= _RUN_BYTES:
            yield run, _read_run(run, source)
            run = []
    if run:
        yield run, _read_run(run, source)


def _read_run(run: list[StagedSection], source: StagedBytes) -> np.ndarray:
    start, end = run[0].position, run[-1].position + run[-1].size
    data = np.frombuffer(source.read(start, end - start), np.uint8)
    if data.size != end - start:
        raise ChangedError
    for section in run:
        position = section.position - start
        if crc32c(data[position : position + section.size]) != section.crc:
            raise ChangedError
    return data
