"""A streaming query's checkpoint: Spark's own logs, and what Spark does not store for a Python source.

Spark writes ``offsets/N`` when it plans micro-batch N: a version, a line of metadata,
and one line of JSON for each source, its end offsets. It writes ``commits/N`` when
the micro-batch is complete.

After a crash in the first micro-batch Spark asks a Python source for its initial
offsets again (its own Kafka source writes them to ``sources/0/0`` of the checkpoint).
And offsets alone do not show that a topic was deleted and recreated. Spark does not
tell the source where the checkpoint is, so the user may give the reader the option
``checkpointLocation``, too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_file, sync_folder, sync_parents
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop, qualified
from pyspark_kafkalog.filesystem.locate import without_secrets
from pyspark_kafkalog.model import Plan, QueryBatch
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json, to_text

_METADATA = "metadata"
"""Spark's file with the query's id (its StreamMetadata)."""


class QueryLog:
    """Spark's logs in the checkpoint of a query (its OffsetSeqLog and CommitLog).

    :param checkpoint_location: path or URI, as the query has it.
    :param default_fs: Hadoop's default file system None if Spark's configuration does not say.
    """

    def __init__(self, checkpoint_location: str, default_fs: str | None = None) -> None:
        self._checkpoint = locate_as_hadoop(checkpoint_location, default_fs)
        self._planned: Folder = self._checkpoint.child("offsets")
        self._complete: Folder = self._checkpoint.child("commits")

    def batch_to(self, end: Offsets) -> int | None:
        """The newest planned micro-batch, if it ends at ``end``; None if this is another query's log."""
        try:
            batches = [int(name) for name in self._planned.list() if name.isdecimal()]
            logged = self._planned.read(str(max(batches))) if batches else None
        except FileNotFoundError:
            return None
        if logged is None:
            return None
        return max(batches) if to_json(end) in map(_parsed, _ends(logged)) else None

    def ends_of(self, batch: int) -> Offsets:
        """Where the query's source of this package ends in a planned micro-batch.

        Spark stores that before the micro-batch runs, and never changes it.

        :raises KafkaLogError: if there is no such source, or more than one.
        """
        logged = self._planned.read(str(batch)) or b""
        found = [ends for end in _ends(logged) if (ends := _offsets(end)) is not None]
        if len(found) != 1:
            raise KafkaLogError(
                f"Expected the offsets of one source of topics, got {len(found)}",
                file=self._planned.label(str(batch)),
                hint="commitSourceOffsets=transaction is for queries with one source, of this package or"
                " Spark's own kafka source, and the query's own checkpointLocation.",
            )
        return found[0]

    def plan_of(self, batch: QueryBatch) -> Plan:
        """What tells a planned micro-batch, and the one before, from others, however often it runs.

        :raises KafkaLogError: if the checkpoint is not that query's, or has no plan of the micro-batch.
        """
        self.check_query(batch.query_id)
        number = batch.batch_id
        assert number is not None, "Spark numbers what it plans"
        logged = self._planned.read(str(number))
        if not logged:
            raise _not_the_querys(
                self._planned.label(str(number)), "Spark's plan of the micro-batch is missing"
            )
        before = self._planned.read(str(number - 1)) if number else None
        return Plan(_digest(logged), before=_digest(before) if before else "", planned_ms=_planned_ms(logged))

    def check_query(self, query_id: str | None = None) -> None:
        """See that the folder is a checkpoint, and that of ``query_id`` if it is known.

        :raises KafkaLogError: if it is not.
        """
        metadata = _parsed(self._checkpoint.read(_METADATA) or b"")
        found = metadata.get("id") if isinstance(metadata, dict) else None
        file = self._checkpoint.label(_METADATA)
        if found is None:
            raise _not_the_querys(file, "Spark's file with the query's id is missing")
        if query_id is not None and found != query_id:
            raise _not_the_querys(file, f"expected query id {query_id}, got {found}")

    def flush(self, batch: int) -> None:
        """Flush a plan, so that a loss of power does not let Spark plan the micro-batch anew; Spark does not.

        Only on file systems of this machine: others flush what is written to them.

        :raises KafkaLogError: if that fails.
        """
        if not self._checkpoint.is_local:
            return
        with disk_errors("Could not flush the query's checkpoint", self._planned.path):
            _flush(self._planned.path, str(batch))
            if batch == 0:  # nor lets it begin as a new query
                _flush(self._checkpoint.path, _METADATA)
                sync_parents(self._checkpoint.path)

    def is_complete(self, batch: int) -> bool:
        """Whether Spark has logged the micro-batch, and so its sink's commit, as complete."""
        return self._complete.look(str(batch)).size > 0


def check_untold(checkpoint_location: str, default_fs: str | None) -> None:
    """See that the checkpoint is where it is without ``default_fs``, which Spark tells only to tasks.

    :raises KafkaLogError: if it is elsewhere.
    """
    found = qualified(checkpoint_location, default_fs)
    if found != qualified(checkpoint_location):
        raise KafkaLogError(
            "Hadoop's fs.defaultFS says where the checkpoint is, and Spark tells that only to tasks",
            hint=f"Give checkpointLocation as a URI: {without_secrets(found)}",
        )


def _not_the_querys(file: str, what: str) -> KafkaLogError:
    return KafkaLogError(
        f"This is not the checkpoint of the query: {what}",
        file=file,
        hint="Give checkpointLocation as the query has it. Without a scheme Spark looks for it in Hadoop's"
        " fs.defaultFS: give a URI then, such as hdfs://host:8020/path, that Python can read, too.",
    )


def _flush(folder: str, name: str) -> None:
    """Flush a file with Hadoop's checksums of it, and its name."""
    sync_file(os.path.join(folder, name))
    with suppress(FileNotFoundError):
        sync_file(os.path.join(folder, f".{name}.crc"))
    sync_folder(folder)


def _digest(logged: bytes) -> str:
    return hashlib.sha256(logged).hexdigest()


def _planned_ms(logged: bytes) -> int | None:
    metadata = _parsed(b"".join(logged.splitlines()[1:2]))
    found = metadata.get("batchTimestampMs") if isinstance(metadata, dict) else None
    return found if isinstance(found, int) else None


def _ends(logged: bytes) -> list[bytes]:
    """The end of each source. A version and a line of metadata come first; in v2 a name before each."""
    lines = logged.splitlines()
    return [line.partition(b":")[2] if lines[0] == b"v2" else line for line in lines[2:]]


def _offsets(line: bytes) -> Offsets | None:
    try:
        return parse_offsets(line.decode(), option="offsets of the checkpoint")
    except (OptionError, UnicodeDecodeError):
        return None


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def kept_start_offsets(
    checkpoint_location: str | None, source: object, choose: Callable[[], Offsets]
) -> Offsets:
    """The start offsets of a query: those stored before, else ``choose()``, which are then stored.

    :param checkpoint_location: path or URI; None stores nothing.
    :param source: its repr distinguishes the sources of a query.
    :raises KafkaLogError: if the location is no checkpoint, or the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return choose()
    QueryLog(checkpoint_location).check_query()
    file = _File.of(checkpoint_location, "kafkalog-start-offsets", source)
    text = file.read()
    if text is None:
        chosen = choose()
        file.write(to_text(chosen))
        return chosen
    try:
        return parse_offsets(text, option="stored start offsets")
    except OptionError as e:
        raise KafkaLogError(
            f"The stored start offsets are corrupt: {e}",
            file=file.path,
            hint="Delete the file to choose them again.",
        ) from e


def kept_topic_ids(checkpoint_location: str | None, source: object) -> dict[str, str]:
    """The ids of the topics that a query has read, as :func:`keep_topic_ids` stored them.

    :raises KafkaLogError: if the location is no checkpoint, or the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return {}
    QueryLog(checkpoint_location).check_query()
    file = _File.of(checkpoint_location, "kafkalog-topic-ids", source)
    try:
        ids = json.loads(file.read() or "{}")
        if isinstance(ids, dict) and all(isinstance(topic_id, str) for topic_id in ids.values()):
            return ids
    except (ValueError, RecursionError):
        pass
    raise KafkaLogError(
        "The stored topic ids are corrupt",
        file=file.path,
        hint="Delete the file. Topics recreated since the last run then go unnoticed.",
    )


def keep_topic_ids(checkpoint_location: str | None, source: object, topic_ids: Mapping[str, str]) -> None:
    """Store the ids of the topics whose records a query has processed, for its next run."""
    if checkpoint_location is not None:
        file = _File.of(checkpoint_location, "kafkalog-topic-ids", source)
        file.write(json.dumps(dict(sorted(topic_ids.items()))))


class _File(NamedTuple):
    folder: Folder
    name: str

    @classmethod
    def of(cls, checkpoint_location: str, kind: str, source: object) -> _File:
        digest = hashlib.sha256(repr(source).encode()).hexdigest()
        return cls(locate_as_hadoop(checkpoint_location).child(kind), f"{digest[:32]}.json")

    @property
    def path(self) -> str:
        return self.folder.label(self.name)

    def read(self) -> str | None:
        """The stored text; None if there is no file."""
        data = self.folder.read_replaced(self.name)
        return None if data is None else data.decode(errors="replace")

    def write(self, text: str) -> None:
        """Replace the file atomically."""
        self.folder.replace(self.name, text.encode(), flush=True)
