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
import logging
import os
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

import numpy as np

from pyspark_kafkalog.codec.checksum import crc32c
from pyspark_kafkalog.codec.encode import Encoded, EncodeSettings
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.active_segment import map_file
from pyspark_kafkalog.log.durable import write_all
from pyspark_kafkalog.model import TopicPartition

STAGED_PREFIX = ".kafkalog-staged-"
_ABANDONED_SECONDS = 24 * 3600
_STAGED_NAME = re.compile(
    rf"{re.escape(STAGED_PREFIX)}(?P<job>[A-Za-z0-9._]+)-[A-Za-z0-9._]+-[0-9a-f]{{32}}\Z"
)

logger = logging.getLogger("pyspark_kafkalog")


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
    """

    def __init__(self, root: str, job: str, task: str, settings: EncodeSettings | None = None) -> None:
        name = f"{STAGED_PREFIX}{_field(job)}-{_field(task)}-{uuid.uuid4().hex}"
        self._root = root
        self._path = os.path.join(root, name)
        self._descriptor: int | None = None
        self._size = 0
        self._sections: list[Section] = []
        self._finished = False
        self._settings = settings or EncodeSettings()

    def __enter__(self) -> Staging:
        return self

    def settings(self, partition: TopicPartition) -> EncodeSettings:
        """The same for all partitions."""
        return self._settings

    def append(self, partition: TopicPartition, encoded: Encoded) -> None:
        """Stage record batches; those of one partition keep the order of the calls."""
        if encoded.records == 0:
            return
        if self._descriptor is None:
            os.makedirs(self._root, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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
        os.close(self._descriptor)
        if not self._finished or error is not None:
            os.unlink(self._path)


def read_staged(root: str, file: StagedFile) -> tuple[np.ndarray, Batches]:
    """The bytes of a staged file and the batches in it, once all is found to be as the task left it.

    :raises LogDirectoryError: if it is gone, or anything in it has changed.
    """
    path = os.path.join(root, file.name)
    if not _STAGED_NAME.match(file.name):
        raise _changed(path)
    try:
        data = map_file(path)
    except OSError as e:
        raise _changed(path) from e
    batches = walk(data)
    ends = np.cumsum([section.size for section in file.sections])
    whole = np.isin(ends, batches.position + batches.size).all() and data.size == ends[-1] == batches.end
    if not whole or any(crc32c(data[s.position : s.position + s.size]) != s.crc for s in file.sections):
        raise _changed(path)
    return data, batches


def abort(root: str, job: str) -> None:
    """Remove all that ``job`` staged. Never raises, as that would hide why the job failed."""
    try:
        remove_staged(root, lambda staged_by: staged_by == _field(job))
    except OSError as e:
        logger.warning("Could not remove what job %s staged in %s: %s", job, root, e)


def sweep(root: str, job: str) -> None:
    """Remove what ``job``, which has just been published, staged and does not need any more.

    With it go, if it is a micro-batch, the leftovers of the same query's earlier
    ones, and whatever no task has written to for a day.
    """
    query, _, batch = _field(job).rpartition(".")  # the query is empty for a batch job

    def is_over(staged_by: str) -> bool:
        its_query, _, its_batch = staged_by.rpartition(".")
        numbers = batch.isdigit() and its_batch.isdigit()
        return staged_by == _field(job) or (
            its_query == query != "" and numbers and int(its_batch) < int(batch)
        )

    remove_staged(root, is_over, older_than=time.time() - _ABANDONED_SECONDS)


def remove_staged(root: str, is_over: Callable[[str], bool], older_than: float = 0) -> None:
    """Remove staged files whose job ``is_over``, and any last written to before ``older_than``."""
    with os.scandir(root) as entries:
        for entry in entries:
            match = _STAGED_NAME.match(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(FileNotFoundError):  # removed by another at this moment
                if is_over(match["job"]) or entry.stat(follow_symlinks=False).st_mtime < older_than:
                    os.unlink(entry.path)


def _field(text: str) -> str:
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
