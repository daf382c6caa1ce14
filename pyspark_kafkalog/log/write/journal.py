"""What makes a publish all or nothing, and a micro-batch once or never: the journal and the ledger.

Both are JSON files in the log root, which brokers ignore:

``.kafkalog-publish``, the journal
    stands from before the first byte that is appended until all of them are on
    disk. It tells where each partition ended: readers show nothing beyond, and
    whoever opens the directory for writing next puts the partitions back there.
``.kafkalog-sink-<hash of a query's id>``, the ledger of a streaming query
    holds the number of the last micro-batch that was published. It *is* that
    batch's journal, renamed: one rename makes the records visible, and the batch done.

The journal lists each record batch that is to be appended, so that an undo takes
away those and nothing else; see :mod:`.undo`. The list is a second document behind an
empty line.

``.kafka_cleanshutdown`` lets a broker skip its recovery and trust its producer
snapshots. While the journal stands it is gone. It comes back when all that was
appended is committed and on disk: its broker then reads on from its last snapshot.
After an undo it does not: nobody vouches any more for what is there.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.durable import replace, sync_folder
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_FILE,
    JOURNAL_SEPARATOR,
    RECOVERY_POINT_CHECKPOINT,
    parse_partition_folder,
)
from pyspark_kafkalog.log.write.undo import BATCH, ForeignError, PartitionEnd, plan_undo, read_text
from pyspark_kafkalog.model import QueryBatch, TopicPartition

LEDGER_PREFIX = ".kafkalog-sink-"
_TEMPORARY_FILE = ".kafkalog-publish.tmp"
_VERSION = 2

logger = logging.getLogger("pyspark_kafkalog")


def begin(
    root: str,
    ends: Mapping[TopicPartition, PartitionEnd],
    batches: Mapping[TopicPartition, np.ndarray],
    batch: QueryBatch,
    append_time: int | None = None,
) -> dict[str, Any]:
    """Write the journal, and return it. After that, and not before, partitions may be appended to.

    :param batches: what is to be appended, of dtype :data:`.undo.BATCH`.
    :param append_time: the timestamp that will be stamped on it; None to leave its own.
    """
    journal = {
        "version": _VERSION,
        "query_id": None if batch.batch_id is None else batch.query_id,
        "batch_id": batch.batch_id,
        "append_time": append_time,
        "partitions": {str(partition): asdict(end) for partition, end in ends.items()},
        "clean_shutdown": _text(root, CLEAN_SHUTDOWN_FILE),
        "checkpoints": _checkpoints(root),
    }
    listed = {str(partition): base64.b64encode(its.tobytes()).decode() for partition, its in batches.items()}
    _replace(root, JOURNAL_FILE, json.dumps(journal, indent=1) + JOURNAL_SEPARATOR + json.dumps(listed))
    if journal["clean_shutdown"] is not None:
        os.unlink(os.path.join(root, CLEAN_SHUTDOWN_FILE))
        sync_folder(root)
    return journal


def commit(root: str, journal: dict[str, Any]) -> None:
    """Make visible, at one moment, what was appended since :func:`begin`; all of it must be on disk.

    :raises OSError: if that is not done. Once it is done, nothing is raised.
    """
    path = os.path.join(root, JOURNAL_FILE)
    try:
        if journal["query_id"] is None:
            os.unlink(path)
        else:
            os.replace(path, os.path.join(root, ledger_file(journal["query_id"])))
    except OSError:
        if _text(root, JOURNAL_FILE) is not None:
            raise
        # A network mount may have done it, and say that it failed.
    try:
        sync_folder(root)
        if journal["clean_shutdown"] is not None:
            _replace(root, CLEAN_SHUTDOWN_FILE, journal["clean_shutdown"])
    except Exception as e:
        # The records are visible: an error now would say that they are not.
        logger.warning("Published, but %s was not flushed: %s", root, e)


def recover(root: str) -> None:
    """Undo a publish that was not committed, if there is one. Interrupted, it can be run again.

    :raises LogDirectoryError: if anybody else may have appended since, as their records must not be cut off.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(root, _TEMPORARY_FILE))
    journal = _read(root, JOURNAL_FILE)
    if journal is None:
        return
    path = os.path.join(root, JOURNAL_FILE)
    batches = _read_batches(root)
    entries = [
        _entry(path, name, entry, batches.get(name, ""))
        for name, entry in _mapping(path, journal.get("partitions")).items()
    ]
    append_time = journal.get("append_time")
    if not isinstance(append_time, int | None):
        raise _unusable(path)
    try:
        plans = [plan_undo(os.path.join(root, name), end, its, append_time) for name, end, its in entries]
    except ForeignError as e:
        raise _foreign(path, str(e)) from None
    undos = [plan for plan in plans if plan is not None]
    if any(undo.appended for undo in undos):
        traces = [*_traces(root, journal), *(trace for undo in undos for trace in undo.traces)]
        if traces:
            raise _foreign(path, traces[0])
        logger.warning("Undoing an interrupted publish in %s", root)
    for undo in undos:
        undo.run()
    sync_folder(root)
    os.unlink(path)
    sync_folder(root)


def _entry(path: str, name: str, entry: object, listed: Any) -> tuple[str, PartitionEnd, np.ndarray]:
    """A partition of a journal, and what was to be appended to it."""
    fields = _mapping(path, entry)
    try:
        batches = np.frombuffer(base64.b64decode(listed, validate=True), BATCH)
        end = PartitionEnd(**fields)
    except (ValueError, TypeError) as e:
        raise _unusable(path) from e
    if parse_partition_folder(name) is None or not end.is_sound():
        raise _unusable(path)
    return name, end, batches


def _mapping(path: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unusable(path)
    return value


def _traces(root: str, journal: Mapping[str, Any]) -> Iterator[str]:
    """What a broker leaves in the root that has stopped there, or has run for some seconds."""
    if _text(root, CLEAN_SHUTDOWN_FILE) is not None:
        yield f"{os.path.join(root, CLEAN_SHUTDOWN_FILE)} was made"
    if journal.get("checkpoints") != _checkpoints(root):
        yield f"a checkpoint in {root} has changed"


def _foreign(path: str, trace: str) -> LogDirectoryError:
    return LogDirectoryError(
        f"An unfinished publish cannot be undone: {trace}",
        file=path,
        hint="A broker has used the log directory since, or somebody else: what the publish had appended may "
        "have been served, and other records may follow. Take back what was done by hand, or delete this "
        "file to keep all as it is; an interrupted micro-batch is then published again.",
    )


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


def is_published(root: str, batch: QueryBatch) -> bool:
    """Whether the ledger has ``batch`` as the last of its query; a batch job has no ledger.

    :raises LogDirectoryError: if it has a later one.
    """
    if batch.batch_id is None:
        return False
    name = ledger_file(batch.query_id)
    ledger = _read(root, name)
    if ledger is None:
        return False
    last = ledger.get("batch_id")
    if not isinstance(last, int):
        raise _unusable(os.path.join(root, name))
    if last > batch.batch_id:
        raise LogDirectoryError(
            f"Micro-batch {batch.batch_id} of query {batch.query_id} comes after its {last}",
            file=os.path.join(root, name),
            hint="The query's checkpoint is older than the log directory: restored from a backup, or copied. "
            "Give the query a new checkpoint, or delete this file; both publish its records again.",
        )
    return last == batch.batch_id


def ledger_file(query_id: str) -> str:
    """Name of the ledger of a streaming query."""
    return LEDGER_PREFIX + hashlib.sha256(query_id.encode()).hexdigest()[:32]


def _replace(root: str, name: str, text: str) -> None:
    replace(os.path.join(root, name), text.encode("latin-1"), os.path.join(root, _TEMPORARY_FILE))


def _checkpoints(root: str) -> str:
    """A digest of files that change within seconds once a broker runs and serves what was appended."""
    texts = [_text(root, name) for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _read(root: str, name: str) -> dict[str, Any] | None:
    """The journal or a ledger, of any version that this one understands."""
    text = _text(root, name)
    if text is None:
        return None
    content = _parsed(text.partition(JOURNAL_SEPARATOR)[0])
    if not isinstance(content, dict) or content.get("version") not in (1, _VERSION):
        raise _unusable(os.path.join(root, name))
    return content


def _read_batches(root: str) -> dict[str, Any]:
    """What the journal lists for each partition. One of version 1 lists nothing: it undoes what is empty."""
    listed = (_text(root, JOURNAL_FILE) or "").partition(JOURNAL_SEPARATOR)[2]
    return _mapping(os.path.join(root, JOURNAL_FILE), _parsed(listed or "{}"))


def _parsed(text: str) -> object:
    """A document of JSON; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unusable(path: str) -> LogDirectoryError:
    return LogDirectoryError(
        "Not a file that this version has written",
        file=path,
        hint="It protects the log from being published to twice or in part; use the version that wrote it.",
    )


def _text(root: str, name: str) -> str | None:
    return read_text(os.path.join(root, name))
