"""Removes the ledgers of queries that have not written to a log directory for long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import LogDirectoryError, OptionError, why
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_folder
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish.forgotten import write_forgotten
from pyspark_kafkalog.log.read.root import open_root
from pyspark_kafkalog.model.rows import BIGINT, NOTE, STRING, TIMESTAMP, column

_LOCK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ForgottenQuery:
    """A query whose ledger goes, with its last micro-batch, and when that was published (ms).

    One whose ledger can't be read stays: its ``note`` says why.
    """

    query_id: str = field(metadata=column(STRING, "QUERY"))
    batch_id: int | None = field(metadata=column(BIGINT, "BATCH"))
    last_write: int = field(metadata=column(TIMESTAMP, "LAST WRITE"))
    ledger: str = field(metadata=column(STRING, "LEDGER", wide=True))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


def forget_queries(path: str, older_than_ms: int, *, execute: bool) -> list[ForgottenQuery]:
    """Remove ledgers, and return those that go; see :meth:`.room.LogCare.forget_queries`.

    Their names are stored first. After an interruption a query has its ledger, or is known to have lost it.
    """
    if older_than_ms < 0:
        raise OptionError(f"Expected a time of at least 0 ms, got {older_than_ms}")
    folder = open_root(path).folder
    if not folder.is_local:
        raise OptionError(f"Expected a folder on a disk or a mount of this machine, got {folder.label()}")
    root = folder.path
    if not execute:
        return _due(root, older_than_ms)
    with (
        disk_errors("Could not forget queries", root),
        directory_lock(root, _LOCK_SECONDS, patience=PATIENCE_SECONDS),
    ):
        journal.recover(root)
        due = _due(root, older_than_ms)
        gone = [query.ledger for query in due if not query.note]
        if gone:
            write_forgotten(root, gone)
            for name in gone:
                os.unlink(os.path.join(root, name))
            sync_folder(root)
        return due


def _due(root: str, older_than_ms: int) -> list[ForgottenQuery]:
    now_ms = time.time_ns() // 1_000_000
    found = [(at_ms, name) for name, at_ms in _ledgers(root) if now_ms - at_ms > older_than_ms]
    return [_query(root, name, at_ms) for at_ms, name in sorted(found)]


def _ledgers(root: str) -> Iterator[tuple[str, int]]:
    """The names of all ledgers, and when they were written (ms)."""
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(journal.LEDGER_PREFIX):
                with suppress(FileNotFoundError):  # a writer has just replaced it, or it was removed
                    yield entry.name, entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000


def _query(root: str, name: str, at_ms: int) -> ForgottenQuery:
    try:
        ledger = journal.read_ledger(os.path.join(root, name))
    except LogDirectoryError as e:
        return ForgottenQuery("", None, at_ms, name, note=why(e))
    if ledger is None or journal.ledger_file(ledger.query_id) != name:
        return ForgottenQuery("", None, at_ms, name, note="It is not named after the query that it is of.")
    return ForgottenQuery(ledger.query_id, ledger.batch_id, at_ms, name)
