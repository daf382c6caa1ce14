"""Sends dead letters back to the topics that they came from, each once, even if a run was killed.

They are those of Kafka Connect, of :func:`pyspark_kafkalog.dead_letters`, and of all that write the same
headers. A consumer group of the dead letter topic knows how far they are sent. Before some are, the group
notes up to where, and as which batch the sink gets them: the sink writes each batch once. So a run that
finds such a note first does the same again. Only one run at a time can note something.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from pyspark_kafkalog.client.read import Reading
from pyspark_kafkalog.client.write import write
from pyspark_kafkalog.errors import (
    GroupError,
    LogDirectoryError,
    OptionError,
    TransactionError,
    UnknownTopicOrPartitionError,
    listed,
)
from pyspark_kafkalog.model import (
    ERROR_HEADERS,
    CommittedOffset,
    OffsetRange,
    Plan,
    QueryBatch,
    TopicPartition,
)
from pyspark_kafkalog.model.rows import BIGINT, INT, STRING, column
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.options.settings import Selection, place_options, write_options
from pyspark_kafkalog.options.table import BY_NAME, Use, Where
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import check_usable, open_groups, open_place
from pyspark_kafkalog.read.commits import check_commits, check_inactive
from pyspark_kafkalog.read.partitions import look_up_partitions
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.tools.redrive.sole_commits import SoleCommits, open_sole_commits

GROUP = "kafkalog-redrive"
"""The consumer group that knows how far dead letters are sent, unless another one is named."""
_AT_ONCE = 100_000
"""The most offsets of one batch."""
_NUMBER = re.compile(rb"[0-9]{1,10}")
"""The number of a partition, as text."""
_COLUMNS = ("key", "value", "headers", "timestamp")
_NOT_AS_THEY_ARE = (
    "topic",
    "transform",
    "key.format",
    "value.format",
    "large.message.enabled",
    "offsets.storage",
    "dual.commit.enabled",
    "txnAppId",
)
"""Options that would change records, or what tells which are sent."""
_Headers = Sequence[Mapping[str, Any]]
"""The headers of one record, in order."""
_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class Redriven:
    """The dead letters of one partition that go back to one topic.

    They are among the offsets from ``start`` to ``end``. ``destination`` is None, in a table ``-``, for
    records that aren't dead letters, which stay where they are.
    """

    topic: str = field(metadata=column(STRING, "TOPIC"))
    partition: int = field(metadata=column(INT, "PARTITION"))
    start: int = field(metadata=column(BIGINT, "START"))
    end: int = field(metadata=column(BIGINT, "END"))
    destination: str | None = field(metadata=column(STRING, "BACK TO"))
    records: int = field(metadata=column(BIGINT, "RECORDS"))


class _Note(NamedTuple):
    """The group's metadata about a partition.

    ``batches`` names a sequence of batches of the topic with ``topic_id``, and ``number`` the last one, whose
    ranges have the digest ``plan``; -1 if there is none yet. It goes up to ``to`` and may be written; without
    that it is.
    """

    batches: str
    topic_id: str
    number: int = -1
    plan: str = ""
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


def redrive(
    options: Mapping[str, str], topic: str, *, group: str, first: bool, execute: bool
) -> list[Redriven]:
    """See :meth:`.kafka.Records.redrive`."""
    user = UserOptions(options, Use.WRITE)
    for name in _NOT_AS_THEY_ARE:
        if name in user:
            raise OptionError(
                f"Option {name!r} can't be given: dead letters are sent as they are, each once",
                hint="Leave it out.",
            )
    work = _Work(options, topic, group, first=first, execute=execute)
    rows = work.planned()
    if execute:
        work.execute()
    return rows


class _Work:
    """A run of a redrive."""

    def __init__(
        self, options: Mapping[str, str], topic: str, group: str, *, first: bool, execute: bool
    ) -> None:
        self._place, self._group = place, group = open_place(place_options(options)), group
        self._groups = open_groups(place_options(options))
        check_inactive(self._groups, group)
        partitions = look_up_partitions(place, Selection(topics=(topic,)))
        check_usable(place_options(options), partitions)
        self._to_write = _only(Use.WRITE, options)
        if UserOptions(options, Use.WRITE).where is Where.BROKERS:
            self._to_write["delivery.guarantee"] = "exactly-once"
        self._commits: SoleCommits | None = None
        if execute:
            name = json.dumps(["redrive", group, topic])
            self._commits = open_sole_commits(write_options(self._to_write), group, name)
            committed = self._commits.committed(partitions)
        else:
            committed = self._groups.committed(group, partitions, require_stable=True)
        given = {
            **_only(Use.READ, options),
            "subscribe": topic,
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
        self._reading = Reading(given, [*_COLUMNS, "offset"], ())
        self._topic_id = place.topic_ids([topic]).get(topic, "")
        self._note, self._pending = _last(group, committed)
        known_id = self._note.topic_id if self._note else ""
        if known_id and self._topic_id and known_id != self._topic_id:
            raise GroupError(
                f"Topic {topic} was deleted and created again since group {group!r} has committed for it",
                hint=f"Set where the group goes on: kafkalog offsets reset --group {group}, --to-current if"
                " its records were restored, --to-earliest if they are others.",
            )
        check_commits(place, group, committed, fail_on_data_loss=True)
        bounds = place.watermarks(partitions, read_committed=True)
        self._begins = {
            p: max(bounds[p].log_start_offset, committed[p].offset if p in committed else 0) for p in bounds
        }
        ends = place.end_offsets(partitions, read_committed=True)
        self._ends = {p: max(ends.get(p, begin), begin) for p, begin in self._begins.items()}
        to_send = {p for p, begin in self._begins.items() if begin < self._ends[p]}
        if self._note is None and to_send & committed.keys():
            _log.warning(
                "The offsets of group %r were set since the last run of redrive, or by something else: dead"
                " letters from there on are sent, also those that were sent before",
                group,
            )
        unknown = sorted(to_send - committed.keys())
        _check_first(group, unknown, first=first)
        for partition, commit in committed.items():
            if partition in self._begins and commit.offset < self._begins[partition]:
                _log.warning(
                    "Offsets %d to %d of %s are gone: not sent, unless by a run that was killed",
                    commit.offset,
                    self._begins[partition] - 1,
                    partition,
                )
        self._numbers: Mapping[str, tuple[int, ...]] = {}
        """The partitions of all topics that get records."""

    def planned(self) -> list[Redriven]:
        """The dead letters to send, once it is sure that they can be sent."""
        rows, places = [], dict[str, tuple[TopicPartition, int]]()
        for partition, begin in sorted(self._begins.items()):
            end = self._ends[partition]
            found = Counter[str | None]()
            for batch in self._rows({partition: begin}, {partition: end}):
                origins = [origin and origin[0] for origin in map(_origin, _headers(batch))]
                found.update(origins)
                for name, offset in zip(origins, batch.column("offset").to_pylist(), strict=True):
                    if name is not None:
                        places.setdefault(name, (partition, offset))
            rows += [
                Redriven(*partition, begin, end, destination, count)
                for destination, count in sorted(found.items(), key=lambda item: (item[0] is None, item))
            ]
        self._check_destinations(places)
        return rows

    def _check_destinations(self, places: Mapping[str, tuple[TopicPartition, int]]) -> None:
        """See that these topics can get records; each has the place of its first dead letter."""
        to_skip = f"kafkalog offsets reset --group {self._group}"
        for name, (partition, offset) in sorted(places.items()):
            try:
                check_writable(name)
            except OptionError as e:
                raise OptionError(
                    f"A dead letter can't go back: {e.message}",
                    topic_partition=partition,
                    offset=offset,
                    hint=f"No record came from there: its headers are forged. To go on behind it: {to_skip}.",
                ) from None
        self._numbers = self._place.topics(places) if places else {}
        for name, (partition, offset) in sorted(places.items()):
            if name not in self._numbers:
                raise UnknownTopicOrPartitionError(
                    f"Topic {name} has dead letters in {partition.topic}, and does not exist",
                    topic_partition=partition,
                    offset=offset,
                    hint=f"Create it, or leave them out: {to_skip}.",
                )

    def execute(self) -> None:
        """Send all."""
        note = self._note or _Note(uuid.uuid4().hex, self._topic_id)
        if self._pending is not None:
            assert self._note is not None, "it has the ranges"
            self._send(note, self._pending)
            note = note._replace(before="", to=None)
            self._begins = {p: max(begin, self._pending.get(p, 0)) for p, begin in self._begins.items()}
        if self._begins == self._ends:
            # Brokers keep the group longer by that, but not what the sink knows of its batches.
            note = _Note(uuid.uuid4().hex, self._topic_id)
            self._commit({p: (begin, note) for p, begin in self._begins.items()})
        while self._begins != self._ends:
            to = self._share()
            ranges = [[*p, begin, to[p]] for p, begin in sorted(self._begins.items())]
            digest = hashlib.sha256(json.dumps(ranges).encode()).hexdigest()
            note = note._replace(number=note.number + 1, plan=digest, before=note.plan)
            self._commit({p: (begin, note._replace(to=to[p])) for p, begin in self._begins.items()})
            self._send(note, to)
            note = note._replace(before="")
            self._begins = to

    def _share(self) -> dict[TopicPartition, int]:
        left, found = _AT_ONCE, {}
        for partition, begin in sorted(self._begins.items()):
            found[partition] = min(self._ends[partition], begin + left)
            left -= found[partition] - begin
        return found

    def _send(self, note: _Note, to: Mapping[TopicPartition, int]) -> None:
        """Write a batch that is noted, unless it is written, and note that it is."""
        begins = {p: begin for p, begin in self._begins.items() if p in to}
        records = (self._records(batch) for batch in self._rows(begins, to))
        batch = QueryBatch(f"redrive-{note.batches}", note.number)
        # These partitions are where a batch without dead letters is marked.
        offsets = {p: CommittedOffset(offset) for p, offset in to.items()}
        try:
            write(
                self._to_write, records, (batch, Plan(digest=note.plan, offsets=offsets, before=note.before))
            )
        except (TransactionError, LogDirectoryError) as e:
            raise e.with_hint(
                f"{e.hint or ''} The checkpoint of a redrive is its group: kafkalog offsets reset --group"
                f" {self._group}, for all partitions, sets where it goes on.".lstrip()
            ) from None
        self._commit({p: (offset, note._replace(before="", to=None)) for p, offset in to.items()})

    def _commit(self, notes: Mapping[TopicPartition, tuple[int, _Note]]) -> None:
        check_inactive(self._groups, self._group)
        offsets = {
            p: CommittedOffset(offset, metadata=note.text(), expire_timestamp=MAX_LONG)  # not for brokers
            for p, (offset, note) in notes.items()
        }
        assert self._commits is not None, "it is to be executed"
        if not self._commits.commit(offsets):
            raise GroupError(
                f"Group {self._group!r} has other commits than before, as of another run of redrive",
                hint="Run one at a time. Run it again to send what is left.",
            )

    def _rows(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Iterator[pa.RecordBatch]:
        return self._reading.rows(
            [Split(p, OffsetRange(begin, ends[p])) for p, begin in sorted(begins.items()) if begin < ends[p]]
        )

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of dead letters as they were, with the topics and partitions that they came from."""
        headers = _headers(batch)
        origins = [_origin(each) for each in headers]
        rows = [row for row, origin in enumerate(origins) if origin is not None]
        found = batch.take(pa.array(rows, pa.int64()))
        own = [_before(headers[row]) or None for row in rows]
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


def _only(use: Use, options: Mapping[str, str]) -> dict[str, str]:
    """The options that are for this use."""
    known = {name: BY_NAME.get(name.lower()) for name in options}
    return {name: text for name, text in options.items() if (row := known[name]) is None or row.use & use}


def _check_first(group: str, unknown: Collection[TopicPartition], *, first: bool) -> None:
    """Refuse partitions with records for which the group has no commits, unless that is as expected.

    Brokers forget what a group has committed, and all would be sent again.
    """
    if unknown and not first:
        partition = min(unknown)
        raise GroupError(
            f"Group {group!r} has committed nothing for {listed(unknown, 5)}: nothing of it was sent, or the"
            " place has forgotten how far (offsets.retention.minutes)",
            hint="If nothing was sent yet, say so with first=True. Otherwise set where the group goes on:"
            f" kafkalog offsets reset PLACE --group {group} {partition.topic}:{partition.partition}"
            " --to-offset OFFSET --execute.",
        )
    if first and not unknown:
        raise OptionError(
            f"It is not the first run: group {group!r} has committed for all partitions that have records",
            hint="Run it again without first=True.",
        )


def _before(headers: _Headers) -> _Headers:
    """The headers that a record had before it became a dead letter, for the last time.

    Kafka Connect adds its own at the end, that of the topic first (populateContextHeaders).
    """
    topics = [place for place, header in enumerate(headers) if header["key"] == f"{ERROR_HEADERS}topic"]
    at = topics[-1] if topics[1:] else 0
    return [
        header
        for place, header in enumerate(headers)
        if place < at or not header["key"].startswith(ERROR_HEADERS)
    ]


def _headers(batch: pa.RecordBatch) -> Sequence[_Headers]:
    return [headers or [] for headers in batch.column("headers").to_pylist()]


def _origin(headers: _Headers) -> tuple[str, int | None] | None:
    """The topic and partition that a dead letter came from; None without these headers, of which
    the last one counts."""
    named = {header["key"]: header["value"] for header in headers}
    try:
        topic = (named.get(f"{ERROR_HEADERS}topic") or b"").decode()
    except UnicodeDecodeError:
        return None
    if not topic:
        return None
    number = _NUMBER.fullmatch(named.get(f"{ERROR_HEADERS}partition") or b"")
    return topic, int(number[0]) if number else None
