"""Stages rows for a transaction, and reads them back: see :mod:`pyspark_kafkalog.staging`.

Each batch has a folder, on any file system that driver and tasks share. The rows are removed with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.stops import stop_at
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.private import NewFile, make_folder
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.staging import ChangedError, Inline, Staged, Staging, TaskTopics, read_staged

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener

INLINE_BYTES = 64 << 10
"""The bytes up to which rows travel in the task's message."""


@contextmanager
def staging(
    topics: TaskTopics, folder: Folder, *, makes_folder: bool, listener: WriteListener | None = None
) -> Iterator[Staging]:
    """The place in which a task stages its rows.

    :param folder: of the batch.
    :param makes_folder: when the first file needs it; else it is there until the batch is over.
    :param listener: hears of each record batch that is staged.
    """
    name = uuid.uuid4().hex

    def new_file() -> NewFile:
        stop_at("staging")
        if makes_folder:
            make_folder(folder)
        try:
            return NewFile(folder, name)
        except FileNotFoundError:
            raise TransactionError(
                "The folder for the staged rows of the batch is gone",
                file=folder.label(),
                hint="The batch is over, and this task came too late for it. Otherwise something has removed"
                " the folder: run the batch again.",
            ) from None

    def errors() -> AbstractContextManager[None]:
        return _errors("stage rows", folder, name, "Free space there, or set stagingLocation.")

    with Staging(topics, name, new_file, errors, inline_bytes=INLINE_BYTES, listener=listener) as staged:
        yield staged
    stop_at("staged")


def staged_rows(staged: Staged, folder: Folder) -> Iterator[tuple[TopicPartition, np.ndarray]]:
    """The record batches of a task, in order, in memory that may be changed.

    :raises TransactionError: if they are gone, or not what the task has staged.
    """
    name = staged.name or ""
    with _errors("read staged rows", folder, name, "Let the driver read what the tasks stage."):
        try:
            with folder.open(name) if name else nullcontext(Inline(staged)) as source:
                for sections, found in read_staged(staged, source):
                    # A local file is read into memory that may be changed; copying takes longer than reading.
                    data = found if found.flags.writeable else found.copy()
                    for section in sections:
                        position = section.position - sections[0].position
                        yield section.topic_partition, data[position : position + section.size]
        except (ChangedError, FileNotFoundError):
            raise TransactionError(
                "Staged rows are gone, or have changed since their task staged them",
                file=folder.label(name) if name else "a task's message",
                hint="Nothing of the batch is visible. Run it again, and let nothing else write there.",
            ) from None


@contextmanager
def _errors(doing: str, folder: Folder, name: str, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise TransactionError(
            f"Could not {doing}: {e}",
            file=folder.label(name),
            hint=f"{hint} Nothing of the batch is visible.",
        ) from None
