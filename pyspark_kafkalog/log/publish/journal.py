"""The journal makes a publish all or nothing, the ledger makes a micro-batch once or never.

Both are JSON files in the log root, which brokers ignore:

``.kafkalog-publish``, the journal
    stands from before the first byte is appended until all bytes are on disk. It
    has the end of each partition: readers show nothing beyond, and the next writer
    that opens the directory puts the partitions back there.
``.kafkalog-sink-<hash of a query's id>``, the ledger of a streaming query
    holds the number and the plan of the last micro-batch that was published, and the last record batch
    that the query has written to each partition. It *is* that batch's journal, renamed: one rename makes the
    records visible, and the batch done.
    See :mod:`.ledger`.

The journal lists each record batch to append, so that an undo removes those and
nothing else; see :mod:`.undo`. The list is a second document after an empty line.

``.kafka_cleanshutdown`` lets a broker skip its recovery and trust its producer
snapshots. It is gone while the journal stands, and comes back when all that was
appended is committed and on disk, and the checkpoints of a backup say so: the broker
then reads on from its last snapshot.
After an undo it does not come back: the folder's state is no longer certain.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.durable import replace, sync_folder
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log import renewal
from pyspark_kafkalog.log.backup_file import read_backup_file, store_written, write_backup_file
from pyspark_kafkalog.log.checkpoints import read_flushed, read_offsets, store_flushed, write_offsets
from pyspark_kafkalog.log.journal_file import (
    Journal,
    Ledger,
    MalformedError,
    PartitionEnd,
    WrittenEnd,
    parse_journal,
    parse_ledger,
)
from pyspark_kafkalog.log.layout import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_CHECKPOINT,
    JOURNAL_FILE,
    JOURNAL_SEPARATOR,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
)
from pyspark_kafkalog.log.publish.undo import ForeignError, plan_undo
from pyspark_kafkalog.log.topic_configs import forget_topic_configs
from pyspark_kafkalog.model import QueryBatch, TopicPartition

LEDGER_PREFIX = ".kafkalog-sink-"
_TEMPORARY_FILE = ".kafkalog-publish.tmp"
_MAX_JOURNAL = 1 << 30
"""Bytes: more than for 30 million record batches."""
_NO_ENDS: Mapping[TopicPartition, int] = {}
NOTHING_WRITTEN: Mapping[TopicPartition, WrittenEnd] = {}
"""The ``written`` of a query that has written to no partition, or of a batch without a ledger."""

_log = logging.getLogger("pyspark_kafkalog")


def begin(
    root: str,
    ends: Mapping[TopicPartition, PartitionEnd],
    batches: Mapping[TopicPartition, np.ndarray],
    batch: QueryBatch,
    append_time: int | None = None,
    configured: Collection[str] = (),
    plan: str = "",
    written: Mapping[TopicPartition, WrittenEnd] = NOTHING_WRITTEN,
) -> Journal:
    """Write the journal, and return it. Only then may partitions be appended to.

    A new partition inherits nothing of an older one of its name, whose folder somebody has removed.

    :param batches: the record batches to append, of dtype :data:`.journal_file.BATCH`.
    :param append_time: the timestamp, in ms, that those of some topics will get; None if none will.
    :param configured: new topics whose configurations go with an undo.
    :param plan: a digest of the plan of a micro-batch, for the ledger; empty if that is not known.
    :param written: the last record batches that its query will have written, for the ledger.
    :raises LogDirectoryError: if a file that this or :func:`commit` changes is malformed; nothing has begun.
    """
    read_flushed(root)
    if created := {partition for partition, end in ends.items() if end.created}:
        forget(root, created)
    journal = Journal(
        ends,
        batches,
        None if batch.batch_id is None else batch.query_id,
        batch.batch_id,
        plan,
        written,
        append_time,
        sorted(configured),
        _text(root, CLEAN_SHUTDOWN_FILE),
        _checkpoints(root),
    )
    store_written(root, {partition: ends[partition].log_end_offset for partition in batches})
    put(root, JOURNAL_FILE, journal.text())
    if journal.clean_shutdown is not None:
        os.unlink(os.path.join(root, CLEAN_SHUTDOWN_FILE))
        sync_folder(root)
    return journal


def forget(root: str, gone: Collection[TopicPartition]) -> None:
    """Take partitions that are not there out of all files that tell of them.

    :raises LogDirectoryError: if one is malformed.
    """
    for name in OFFSET_CHECKPOINTS:
        offsets = read_offsets(root, name)
        left = {partition: offset for partition, offset in offsets.items() if partition not in gone}
        if len(left) < len(offsets):
            write_offsets(root, name, left)
    file = read_backup_file(local_folder(root))
    if file is not None and (rest := file.without(gone)) != file:
        write_backup_file(root, rest)


def commit(root: str, journal: Journal, ends: Mapping[TopicPartition, int] = _NO_ENDS) -> None:
    """Make all that was appended since :func:`begin` visible at once; it must be on disk.

    :param ends: where the partitions that were appended to end.
    :raises OSError: if that fails. Once it is visible, nothing is raised.
    """
    path = os.path.join(root, JOURNAL_FILE)
    try:
        if journal.query_id is None:
            os.unlink(path)
        else:
            os.replace(path, os.path.join(root, ledger_file(journal.query_id)))
    except OSError:
        if _text(root, JOURNAL_FILE) is not None:
            raise
        # A network mount may report a failure after it has done it.
    try:
        sync_folder(root)
        store_flushed(root, ends)
        if journal.clean_shutdown is not None:
            put(root, CLEAN_SHUTDOWN_FILE, journal.clean_shutdown)
    except Exception as e:
        # The records are visible: an error now would say that they are not.
        _log.warning("Published, but could not put the files of %s in order: %s", root, e)


def recover(root: str) -> None:
    """Undo a publish that was not committed; then finish the renewals of a backup, so that what comes next
    goes to the copies that count. If interrupted, it can run again.

    :raises LogDirectoryError: if others may have appended since, as their records must not be lost.
    """
    _recover_journal(root)
    renewal.finish(root)


def _recover_journal(root: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(root, _TEMPORARY_FILE))
    path, text = os.path.join(root, JOURNAL_FILE), _text(root, JOURNAL_FILE)
    if text is None:
        return
    try:
        journal = parse_journal(text)
    except MalformedError as e:
        raise unusable(path) from e
    try:
        plans = [
            plan_undo(os.path.join(root, str(partition)), end, journal.comes[partition], journal.append_time)
            for partition, end in journal.ends.items()
        ]
    except ForeignError as e:
        raise _foreign(path, str(e)) from None
    undos = [plan for plan in plans if plan is not None]
    if any(undo.appended for undo in undos):
        traces = [*_traces(root, journal), *(trace for undo in undos for trace in undo.traces)]
        if traces:
            raise _foreign(path, traces[0])
        _log.warning("Undoing an interrupted publish in %s", root)
    for undo in undos:
        undo.run()
    with contextlib.suppress(LogDirectoryError):  # the topics are gone, whatever a malformed file says
        forget_topic_configs(root, journal.topics)
    sync_folder(root)
    os.unlink(path)
    sync_folder(root)


def _traces(root: str, journal: Journal) -> Iterator[str]:
    """The traces of a broker in the root: it has stopped, or has run for some seconds."""
    if _text(root, CLEAN_SHUTDOWN_FILE) is not None:
        yield f"{os.path.join(root, CLEAN_SHUTDOWN_FILE)} was created"
    if journal.checkpoints != _checkpoints(root):
        yield f"a checkpoint in {root} has changed"


def _foreign(path: str, trace: str) -> LogDirectoryError:
    return LogDirectoryError(
        f"Cannot undo an unfinished publish: {trace}",
        file=path,
        hint="A broker or something else has used the log directory since: these records may have been "
        "served, and others may follow. Revert what was done by hand, or delete this file to keep all as "
        "it is; an interrupted micro-batch is then published again.",
    )


@contextlib.contextmanager
def unclean(root: str) -> Iterator[None]:
    """Remove ``.kafka_cleanshutdown`` during a change that can't be undone; for good if it fails."""
    clean_shutdown = _text(root, CLEAN_SHUTDOWN_FILE)
    if clean_shutdown is not None:
        os.unlink(os.path.join(root, CLEAN_SHUTDOWN_FILE))
        sync_folder(root)
    yield
    if clean_shutdown is not None:
        put(root, CLEAN_SHUTDOWN_FILE, clean_shutdown)


def ledger_file(query_id: str) -> str:
    """Name of the ledger of a streaming query."""
    return LEDGER_PREFIX + hashlib.sha256(query_id.encode()).hexdigest()[:32]


def put(root: str, name: str, text: str) -> None:
    """Put a file into the root, or in place of the old one, and flush it."""
    replace(os.path.join(root, name), text.encode("latin-1"), os.path.join(root, _TEMPORARY_FILE))


def _checkpoints(root: str) -> str:
    """A digest of files that change within seconds once a broker runs and serves records."""
    texts = [_text(root, name) for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)]
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def read_ledger(path: str) -> Ledger | None:
    """The ledger in a file, of any version that can be read; None without one.

    :raises LogDirectoryError: if it can't be read.
    """
    # It may be the whole journal of a large batch.
    text = _text(*os.path.split(path), before=JOURNAL_SEPARATOR.encode())
    try:
        return None if text is None else parse_ledger(text)
    except MalformedError as e:
        raise unusable(path) from e


def unusable(path: str) -> LogDirectoryError:
    """The error for a journal or ledger that can't be read."""
    return LogDirectoryError(
        "Cannot read the file, which another version may have written",
        file=path,
        hint="Use the version that wrote it: the file prevents publishing twice or in part.",
    )


def _text(root: str, name: str, before: bytes | None = None) -> str | None:
    """The content of a file, up to ``before``, a character for each byte; None if it does not exist."""
    most = _MAX_JOURNAL if name == JOURNAL_FILE else None
    data = local_folder(root).read(name, before=before, most=most)
    return None if data is None else data.decode("latin-1")
