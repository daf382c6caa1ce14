"""What makes a publish all or nothing, and a micro-batch once or never: the journal and the ledger.

Both are JSON files in the log root, which brokers ignore:

``.kafkalog-publish``, the journal
    stands from before the first byte that is appended until all of them are on
    disk. It tells where each partition ended: readers show nothing beyond, and
    whoever opens the directory for writing next puts the partitions back there.
``.kafkalog-sink-<hash of a query's id>``, the ledger of a streaming query
    holds the number of the last micro-batch that was published. It *is* that
    batch's journal, renamed: one rename makes the records visible, and the batch done.

While the journal stands, ``.kafka_cleanshutdown`` is gone, so that a broker that
starts over an unfinished publish runs its recovery.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.durable import replace, sync_folder
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    parse_partition_folder,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.model import TopicPartition

JOURNAL_FILE = ".kafkalog-publish"
LEDGER_PREFIX = ".kafkalog-sink-"
_TEMPORARY_FILE = ".kafkalog-publish.tmp"
_VERSION = 1

logger = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """A micro-batch of a streaming query: Spark's query id, which its checkpoint keeps, and batch id."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """Where a partition ended before a publish.

    ``segment`` is the base offset of its active segment (None if it had none)
    and ``sizes`` the size of each of that segment's files by suffix.
    A partition that is ``created`` by the publish did not exist.
    """

    log_end_offset: int
    created: bool
    segment: int | None
    sizes: Mapping[str, int]


def begin(
    root: str, ends: Mapping[TopicPartition, PartitionEnd], batch: PublishedBatch | None
) -> dict[str, Any]:
    """Write the journal, and return it. After that, and not before, partitions may be appended to."""
    journal = {
        "version": _VERSION,
        "query_id": None if batch is None else batch.query_id,
        "batch_id": None if batch is None else batch.batch_id,
        "partitions": {str(partition): asdict(end) for partition, end in ends.items()},
        "clean_shutdown": _text(root, CLEAN_SHUTDOWN_FILE),
        "checkpoints": _checkpoints(root),
    }
    _replace(root, JOURNAL_FILE, json.dumps(journal, indent=1))
    if journal["clean_shutdown"] is not None:
        os.unlink(os.path.join(root, CLEAN_SHUTDOWN_FILE))
        sync_folder(root)
    return journal


def commit(root: str, journal: dict[str, Any]) -> None:
    """Make visible, at one moment, what was appended since :func:`begin`; all of it must be on disk."""
    path = os.path.join(root, JOURNAL_FILE)
    if journal["query_id"] is None:
        os.unlink(path)
    else:
        os.replace(path, os.path.join(root, ledger_file(journal["query_id"])))
    try:
        sync_folder(root)
        _restore_clean_shutdown(root, journal)
    except OSError as e:
        # The records are visible: an error now would say that they are not.
        logger.warning("Published, but %s was not flushed: %s", root, e)


def recover(root: str) -> None:
    """Undo a publish that was not committed, if there is one. Interrupted, it can be run again.

    :raises LogDirectoryError: if a broker has used the directory since, as its records must not be cut off.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(root, _TEMPORARY_FILE))
    journal = _read(root, JOURNAL_FILE)
    if journal is None:
        return
    path = os.path.join(root, JOURNAL_FILE)
    clean_shutdown = _text(root, CLEAN_SHUTDOWN_FILE)
    if clean_shutdown not in (None, journal["clean_shutdown"]) or journal["checkpoints"] != _checkpoints(
        root
    ):
        raise LogDirectoryError(
            "A broker has used the log directory since a publish was interrupted",
            file=path,
            hint="What that publish had appended may have been served, and other records may follow. "
            "Delete this file to keep all as it is; an interrupted micro-batch is then published again.",
        )
    logger.warning("Undoing an interrupted publish in %s", root)
    for name, end in journal["partitions"].items():
        if parse_partition_folder(name) is None:
            raise _unusable(path)
        _roll_back(os.path.join(root, name), PartitionEnd(**end))
    sync_folder(root)
    os.unlink(path)
    sync_folder(root)
    _restore_clean_shutdown(root, journal)


@contextlib.contextmanager
def unclean(root: str) -> Iterator[None]:
    """Take ``.kafka_cleanshutdown`` away for a change that needs no journal, for good where it fails."""
    clean_shutdown = _text(root, CLEAN_SHUTDOWN_FILE)
    if clean_shutdown is not None:
        os.unlink(os.path.join(root, CLEAN_SHUTDOWN_FILE))
        sync_folder(root)
    yield
    if clean_shutdown is not None:
        _replace(root, CLEAN_SHUTDOWN_FILE, clean_shutdown)


def is_published(root: str, batch: PublishedBatch) -> bool:
    """Whether the ledger has ``batch`` as the last of its query.

    :raises LogDirectoryError: if it has a later one.
    """
    name = ledger_file(batch.query_id)
    ledger = _read(root, name)
    if ledger is None or ledger["batch_id"] < batch.batch_id:
        return False
    if ledger["batch_id"] > batch.batch_id:
        raise LogDirectoryError(
            f"Micro-batch {batch.batch_id} of query {batch.query_id} comes after its {ledger['batch_id']}",
            file=os.path.join(root, name),
            hint="The query's checkpoint is older than the log directory: restored from a backup, or copied. "
            "Give the query a new checkpoint, or delete this file; both publish its records again.",
        )
    return True


def ledger_file(query_id: str) -> str:
    """Name of the ledger of a streaming query."""
    return LEDGER_PREFIX + hashlib.sha256(query_id.encode()).hexdigest()[:32]


def _roll_back(folder: str, end: PartitionEnd) -> None:
    if not os.path.isdir(folder):
        return  # not made yet, or deleted since by the user
    if end.created:
        shutil.rmtree(folder)
        return
    for name in os.listdir(folder):
        parsed = parse_segment_file(name)
        if parsed and (end.segment is None or parsed[0] > end.segment):
            os.unlink(os.path.join(folder, name))
    for suffix, size in end.sizes.items():
        path = os.path.join(folder, segment_file(end.segment or 0, suffix))
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)


def _restore_clean_shutdown(root: str, journal: dict[str, Any]) -> None:
    if journal["clean_shutdown"] is not None:
        _replace(root, CLEAN_SHUTDOWN_FILE, journal["clean_shutdown"])


def _replace(root: str, name: str, text: str) -> None:
    replace(os.path.join(root, name), text.encode("latin-1"), os.path.join(root, _TEMPORARY_FILE))


def _checkpoints(root: str) -> str:
    """A digest of files that change within seconds once a broker runs and serves what was appended."""
    texts = [_text(root, name) for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _read(root: str, name: str) -> dict[str, Any] | None:
    text = _text(root, name)
    if text is None:
        return None
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        raise _unusable(os.path.join(root, name))
    return content


def _unusable(path: str) -> LogDirectoryError:
    return LogDirectoryError(
        "Not a file that this version has written",
        file=path,
        hint="It protects the log from being published to twice or in part; use the version that wrote it.",
    )


def _text(root: str, name: str) -> str | None:
    try:
        with open(os.path.join(root, name), encoding="latin-1") as file:
            return file.read()
    except FileNotFoundError:
        return None
