"""What tasks have encoded, out of sight until the driver's commit produces it: in files, or in the message.

A file is a sequence of frames: a header, the topic, and record batches of one partition without a producer.
Its name is unique, so attempts at a task never share one. What a killed task leaves goes with the batch's
folder. Nothing is flushed: what a crash of the machine takes is staged again when the batch runs again.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.broker.produce.topics import Topics
from pyspark_kafkalog.broker.transactions.stops import stop_at
from pyspark_kafkalog.codec.checksums import extend_crc32c
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.filesystem.folder import Folder, InputFile
from pyspark_kafkalog.filesystem.private import NewFile, make_folder
from pyspark_kafkalog.model import Encoded, EncodeSettings, TopicPartition

INLINE_BYTES = 64 << 10
"""What is no longer travels in the task's message."""
_FRAME = struct.Struct(">HIQ")
"""Bytes of the topic's name, number of the partition, bytes of the record batches."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task has staged: ``size`` bytes of frames, in the file ``name`` or, without one, in ``data``."""

    name: str | None
    data: bytes
    size: int
    checksum: int
    """CRC-32C of the frames, the checksum that Kafka gives records."""
    records: int
    partitions: frozenset[TopicPartition]


class Staging:
    """Stages the record batches of one task attempt: see :class:`pyspark_kafkalog.sinks.TaskSink`.

    :param folder: of the batch.
    :param makes_folder: when the first file needs it; else it is there until the batch is over.
    """

    def __init__(self, topics: Topics, folder: Folder, *, makes_folder: bool = True) -> None:
        self._topics = topics
        self._folder = folder
        self._makes_folder = makes_folder
        self._name = uuid.uuid4().hex
        self._file: NewFile | None = None
        self._held = bytearray()
        self._size = self._checksum = self._records = 0
        self._partitions: set[TopicPartition] = set()
        self._finished = False

    def __enter__(self) -> Staging:
        return self

    def partition_count(self, topic: str) -> int:
        """See :meth:`pyspark_kafkalog.sinks.TaskSink.partition_count`."""
        return self._topics.partition_count(topic)

    def has_partition(self, partition: TopicPartition) -> bool:
        """See :meth:`pyspark_kafkalog.sinks.TaskSink.has_partition`."""
        return self._topics.has_partition(partition)

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """How to encode; the commit adds a producer."""
        return self._topics.settings(partition.topic)

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Stage record batches; those of one partition keep the order of the calls.

        :raises TransactionError: if they can't be stored.
        """
        if encoded.records == 0:
            return
        topic = partition.topic.encode()
        self._write(_FRAME.pack(len(topic), partition.partition, encoded.data.size) + topic)
        self._write(encoded.data.data)
        self._records += encoded.records
        self._partitions.add(partition)

    def _write(self, data: bytes | memoryview) -> None:
        self._checksum = extend_crc32c(self._checksum, np.frombuffer(data, np.uint8))
        self._size += len(data)
        if self._file is None and len(self._held) + len(data) <= INLINE_BYTES:
            self._held += data
            return
        with self._errors():
            if self._file is None:
                stop_at("staging")
                if self._makes_folder:
                    make_folder(self._folder)
                self._file = self._new_file()
                self._file.write(self._held)
                self._held.clear()
            self._file.write(data)

    def _new_file(self) -> NewFile:
        try:
            return NewFile(self._folder, self._name)
        except FileNotFoundError:
            raise TransactionError(
                "The folder for the staged rows of the batch is gone",
                file=self._folder.label(),
                hint="The batch is over, and this task came too late for it. Otherwise something has removed"
                " the folder: run the batch again.",
            ) from None

    def advance(self, *, flush: bool = False) -> None:
        """Nothing to do: :meth:`append` has stored everything."""

    def visible_records(self) -> int:
        """None: see :meth:`pyspark_kafkalog.sinks.TaskSink.visible_records`."""
        return 0

    def finish(self) -> Staged:
        """What was staged; the file is whole when this context is left."""
        self._finished = True
        name = None if self._file is None else self._name
        partitions = frozenset(self._partitions)
        return Staged(name, bytes(self._held), self._size, self._checksum, self._records, partitions)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with self._errors():
                self._file.close(keep=self._finished and error is None)
        if error is None:
            stop_at("staged")

    def _errors(self) -> AbstractContextManager[None]:
        return _errors("stage rows", self._folder, self._name, "Free space there, or set stagingLocation.")


@contextmanager
def _errors(doing: str, folder: Folder, name: str, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        text = f"Could not {doing}: {e}"
        raise TransactionError(
            text, file=folder.label(name), hint=f"{hint} Nothing of the batch is visible."
        ) from None


def frames(staged: Staged, folder: Folder) -> Iterator[tuple[TopicPartition, np.ndarray]]:
    """The record batches of a task, in order, in memory of their own. The last check is that of all bytes.

    :raises TransactionError: if they are gone, or not what the task has staged.
    """
    if staged.name is None:
        yield from _frames(_Inline(staged.data), staged, "a task's message")
        return
    label = folder.label(staged.name)
    with _errors("read staged rows", folder, staged.name, "Let the driver read what the tasks stage."):
        try:
            file = folder.open(staged.name)
        except FileNotFoundError:
            raise _changed(label) from None
        with file:
            yield from _frames(file, staged, label)


class _Inline:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, position: int, size: int) -> pa.Buffer:
        return pa.py_buffer(self._data[position : position + size])


def _frames(
    source: InputFile | _Inline, staged: Staged, label: str
) -> Iterator[tuple[TopicPartition, np.ndarray]]:
    if source.size != staged.size:
        raise _changed(label)
    position = checksum = 0

    def take(size: int) -> pa.Buffer:
        nonlocal position, checksum
        if size > staged.size - position:
            raise _changed(label)
        data = source.read(position, size)
        if data.size != size:
            raise _changed(label)
        checksum = extend_crc32c(checksum, np.frombuffer(data, np.uint8))
        position += size
        return data

    while position < staged.size:
        topic_size, number, size = _FRAME.unpack(take(_FRAME.size))
        topic = take(topic_size).to_pybytes().decode(errors="replace")
        partition = TopicPartition(topic, number)
        if partition not in staged.partitions:
            raise _changed(label)
        data = np.frombuffer(take(size), np.uint8)
        # A local file is read into memory that may be changed; copying takes longer than reading it.
        yield partition, data if data.flags.writeable else data.copy()
    if checksum != staged.checksum:
        raise _changed(label)


def _changed(label: str) -> TransactionError:
    return TransactionError(
        "Staged rows are gone, or have changed since their task staged them",
        file=label,
        hint="Nothing of the batch is visible. Run it again, and let nothing else write there.",
    )
