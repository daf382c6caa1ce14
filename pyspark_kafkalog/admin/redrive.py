"""Sends dead letters back to the topics that they came from, each once, also if a run was killed.

They are those of Kafka Connect, of :func:`pyspark_kafkalog.dead_letters`, and of all that write the same
headers. A consumer group of the dead letter topic knows how far they are sent. Before some are, the group
notes up to where, and as which batch the sink gets them: the sink writes each batch once. So a run that
finds such a note first does the same again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_kafkalog.admin.read import Reading
from pyspark_kafkalog.admin.reset import check_inactive
from pyspark_kafkalog.admin.write import write
from pyspark_kafkalog.errors import GroupError, UnknownTopicOrPartitionError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import (
    ERROR_HEADERS,
    CommittedOffset,
    OffsetRange,
    Place,
    Plan,
    QueryBatch,
    TopicPartition,
)
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.settings import Selection, place_options
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.places import open_groups, open_place
from pyspark_kafkalog.reading.commits import check_commits
from pyspark_kafkalog.reading.partitions import look_up_partitions
from pyspark_kafkalog.reading.splits import Split
from pyspark_kafkalog.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.topics import check_writable

GROUP = "kafkalog-redrive"
"""The consumer group that knows how far dead letters are sent, unless another one is named."""
_AT_ONCE = 100_000
"""The most offsets of one batch."""
_COLUMNS = ("key", "value", "headers", "timestamp")
_Headers = Sequence[Mapping[str, Any]]
"""Those of one record, in order."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """The dead letters of one partition that go back to one topic.

    They are among the offsets from ``start`` to ``end``. ``destination`` is None for other records, which
    stay where they are.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    start: int = field(metadata=column(BIGINT, "START"))
    end: int = field(metadata=column(BIGINT, "END"))
    destination: str | None = field(metadata=column(STRING, "BACK TO"))
    records: int = field(metadata=column(BIGINT, "RECORDS"))


class _Note(NamedTuple):
    """What the group's metadata says of a partition.

    ``batches`` names a sequence of batches, and ``number`` the last one, whose ranges have the digest
    ``plan``. It goes up to ``to`` and may be written; without that it is.
    """

    batches: str
    number: int
    plan: str
    before: str = ""
    to: int | None = None

    @classmethod
    def read(cls, metadata: str) -> _Note | None:
        try:
            found = json.loads(metadata)["kafkalog-redrive"]
            return cls(*found)
        except (ValueError, TypeError, KeyError):
            return None

    def text(self) -> str:
        return json.dumps({"kafkalog-redrive": list(self)})


def redrive(options: Mapping[str, str], topic: str, *, group: str, execute: bool) -> list[Redriven]:
    """See :meth:`.kafka.Records.redrive`."""
    place, groups = open_place(place_options(options)), open_groups(place_options(options))
    check_inactive(groups, group)
    partitions = look_up_partitions(place, Selection(topics=(topic,)))
    work = _Work(options, place, groups, group, partitions)
    rows = work.planned()
    if execute:
        work.execute()
    return rows


class _Work:
    """One run."""

    def __init__(
        self,
        options: Mapping[str, str],
        place: Place,
        groups: GroupOffsets,
        group: str,
        partitions: Collection[TopicPartition],
    ) -> None:
        self._options, self._place, self._groups, self._group = options, place, groups, group
        (topic,) = {partition.topic for partition in partitions}
        given = {
            **options,
            "subscribe": topic,
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
        self._reading = Reading(given, [*_COLUMNS, "offset"], ())
        committed = groups.committed(group, partitions, settled=True)
        check_commits(place, group, committed, fail_on_data_loss=True)
        bounds = place.watermarks(partitions, read_committed=True)
        self._begins = {
            p: max(bounds[p].log_start_offset, committed[p].offset if p in committed else 0) for p in bounds
        }
        ends = place.end_offsets(partitions, read_committed=True)
        self._ends = {p: max(ends.get(p, begin), begin) for p, begin in self._begins.items()}
        self._note, self._pending = _last(group, committed)
        self._known = {p: (commit.offset, commit.metadata) for p, commit in committed.items()}
        """What the group has committed."""
        self._numbers: Mapping[str, tuple[int, ...]] = {}
        """The partitions of all topics that get records."""

    def planned(self) -> list[Redriven]:
        """What there is to send; see that it can be sent."""
        rows = []
        for partition, begin in sorted(self._begins.items()):
            end = self._ends[partition]
            found = Counter[str | None]()
            for batch in self._rows({partition: begin}, {partition: end}):
                found.update(origin and origin[0] for origin in map(_origin, _headers(batch)))
            rows += [
                Redriven(*partition, begin, end, destination, count)
                for destination, count in sorted(found.items(), key=lambda item: (item[0] is None, item))
            ]
        names = {check_writable(row.destination) for row in rows if row.destination is not None}
        self._numbers = self._place.topics(names) if names else {}
        for name in sorted(names):
            if name not in self._numbers:
                raise UnknownTopicOrPartitionError(
                    f"Topic {name} has dead letters in {rows[0].topic}, and does not exist",
                    hint=f"Create it, or leave them out: kafkalog offsets reset --group {self._group}.",
                )
        return rows

    def execute(self) -> None:
        """Send all."""
        note = self._note or _Note(uuid.uuid4().hex, -1, "")
        if self._pending is not None:
            assert self._note is not None, "it has the ranges"
            self._send(note, self._pending, is_again=True)
            note = note._replace(before="", to=None)
            self._begins = {p: max(begin, self._pending.get(p, 0)) for p, begin in self._begins.items()}
        while self._begins != self._ends:
            to = self._share()
            ranges = [[*p, begin, to[p]] for p, begin in sorted(self._begins.items())]
            digest = hashlib.sha256(json.dumps(ranges).encode()).hexdigest()
            note = _Note(note.batches, note.number + 1, digest, note.plan)
            self._commit({p: (begin, note._replace(to=to[p])) for p, begin in self._begins.items()})
            self._send(note, to, is_again=False)
            note = note._replace(before="")
            self._begins = to

    def _share(self) -> dict[TopicPartition, int]:
        left, found = _AT_ONCE, {}
        for partition, begin in sorted(self._begins.items()):
            found[partition] = min(self._ends[partition], begin + left)
            left -= found[partition] - begin
        return found

    def _send(self, note: _Note, to: Mapping[TopicPartition, int], *, is_again: bool) -> None:
        """Write a batch that is noted, unless it is written, and note that it is."""
        options = {**self._options, "failOnMissingMarker": str(is_again).lower()}
        if SERVERS in options:
            options["delivery.guarantee"] = "exactly-once"
        begins = {p: begin for p, begin in self._begins.items() if p in to}
        records = (self._records(batch) for batch in self._rows(begins, to))
        batch = QueryBatch(f"redrive-{note.batches}", note.number)
        write(options, records, (batch, Plan(digest=note.plan, before=note.before)))
        self._commit({p: (offset, note._replace(before="", to=None)) for p, offset in to.items()})

    def _commit(self, notes: Mapping[TopicPartition, tuple[int, _Note]]) -> None:
        found = self._groups.committed(self._group, self._begins.keys(), settled=True)
        if {p: (commit.offset, commit.metadata) for p, commit in found.items()} != self._known:
            raise GroupError(
                f"Group {self._group!r} has other commits than before, as of another run of redrive",
                hint="Run one at a time.",
            )
        known = {p: (offset, note.text()) for p, (offset, note) in notes.items()}
        offsets = {
            p: CommittedOffset(offset, metadata=text, expire_timestamp=MAX_LONG)  # which brokers don't take
            for p, (offset, text) in known.items()
        }
        self._groups.commit(self._group, offsets)
        self._known = self._known | known

    def _rows(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        return self._reading.rows(
            [Split(p, OffsetRange(begin, ends[p])) for p, begin in sorted(begins.items()) if begin < ends[p]]
        )

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of dead letters as they were, with the topics and partitions that they came from."""
        headers = _headers(batch)
        origins = [_origin(each) for each in headers]
        rows = [row for row, origin in enumerate(origins) if origin is not None]
        found = batch.take(pa.array(rows, pa.int64()))
        own = [
            [header for header in headers[row] if not header["key"].startswith(ERROR_HEADERS)] or None
            for row in rows
        ]
        back = [origin for origin in origins if origin is not None]
        columns = {
            "topic": pa.array([topic for topic, _ in back], pa.string()),
            "partition": pa.array(
                [number if number in self._numbers.get(topic, ()) else None for topic, number in back],
                pa.int32(),
            ),
            "key": found.column("key"),
            "value": found.column("value"),
            "headers": pa.array(own, found.schema.field("headers").type),
            "timestamp": found.column("timestamp"),
        }
        return pa.RecordBatch.from_pydict(columns)


def _last(
    group: str, committed: Mapping[TopicPartition, CommittedOffset]
) -> tuple[_Note | None, dict[TopicPartition, int] | None]:
    """The last batch, and up to where it goes if it may not be written yet. None if there was none, or if
    the group's offsets have been changed since.

    :raises GroupError: if some of them have been changed, and a batch may not be written yet.
    """
    notes = {p: _Note.read(commit.metadata) for p, commit in committed.items()}
    last = {note and note._replace(to=None) for note in notes.values()}
    pending = {p: note.to for p, note in notes.items() if note is not None and note.to is not None}
    if pending and (len(last) > 1 or len(pending) < len(notes)):
        raise GroupError(
            f"Offsets of group {group!r} have been changed while a run of redrive was not complete",
            hint="Set those of all partitions: kafkalog offsets reset. What it sends again, you decide.",
        )
    if len(last) != 1:
        return None, None
    return last.pop(), pending or None


def _headers(batch: pa.RecordBatch) -> Sequence[_Headers]:
    return [headers or [] for headers in batch.column("headers").to_pylist()]


def _origin(headers: _Headers) -> tuple[str, int | None] | None:
    """The topic and partition that a dead letter came from; None without these headers, of which
    the last one counts."""
    named = {header["key"]: header["value"] for header in headers}
    try:
        topic = (named.get(f"{ERROR_HEADERS}topic") or b"").decode()
        partition = (named.get(f"{ERROR_HEADERS}partition") or b"").decode()
    except UnicodeDecodeError:
        return None
    if not topic:
        return None
    return topic, int(partition) if partition.isascii() and partition.isdecimal() else None
