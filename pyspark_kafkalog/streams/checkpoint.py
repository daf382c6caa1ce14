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
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json, to_text


class QueryLog:
    """Spark's logs in the checkpoint of a query (its OffsetSeqLog and CommitLog).

    :param checkpoint_location: path or URI, as the query has it.
    """

    def __init__(self, checkpoint_location: str) -> None:
        checkpoint = locate(checkpoint_location)
        self._planned: Folder = checkpoint.child("offsets")
        self._complete: Folder = checkpoint.child("commits")

    def batch_to(self, end: Offsets) -> int | None:
        """The newest planned micro-batch, if it ends at ``end``; None if this is another query's log."""
        try:
            batches = [int(name) for name in self._planned.list() if name.isdecimal()]
            logged = self._planned.read(str(max(batches))) if batches else None
        except FileNotFoundError:
            return None
        if logged is None:
            return None
        ends = [_parsed(line) for line in logged.splitlines()]
        return max(batches) if to_json(end) in ends else None

    def ends_of(self, batch: int) -> Offsets:
        """Where the query's source of this package ends in a planned micro-batch.

        Spark stores that before the micro-batch runs, and never changes it.

        :raises KafkaLogError: if there is no such source, or more than one.
        """
        logged = self._planned.read(str(batch)) or b""
        # A version and a line of metadata come first.
        found = [ends for line in logged.splitlines()[2:] if (ends := _offsets(line)) is not None]
        if len(found) != 1:
            raise KafkaLogError(
                f"Expected the offsets of one source of topics, got {len(found)}",
                file=self._planned.label(str(batch)),
                hint="commitSourceOffsets=transaction is for queries with one source, of this package or"
                " Spark's own kafka source, and the query's own checkpointLocation.",
            )
        return found[0]

    def digest_of(self, batch: int) -> str:
        """A digest of a planned micro-batch, which stays the same however often it runs; empty if unknown."""
        logged = self._planned.read(str(batch))
        return "" if logged is None else hashlib.sha256(logged).hexdigest()

    def is_complete(self, batch: int) -> bool:
        """Whether Spark has logged the micro-batch, and so its sink's commit, as complete."""
        return self._complete.look(str(batch)).size > 0


def _offsets(line: bytes) -> Offsets | None:
    try:
        return parse_offsets(line.decode(), option="offsets of the checkpoint")
    except (OptionError, UnicodeDecodeError):
        return None


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def kept_start_offsets(
    checkpoint_location: str | None, source: object, choose: Callable[[], Offsets]
) -> Offsets:
    """The start offsets of a query: those stored before, else ``choose()``, which are then stored.

    :param checkpoint_location: path or URI; None stores nothing.
    :param source: its repr distinguishes the sources of a query.
    :raises KafkaLogError: if the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return choose()
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

    :raises KafkaLogError: if the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return {}
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
        return cls(locate(checkpoint_location).child(kind), f"{digest[:32]}.json")

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
