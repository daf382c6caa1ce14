"""The file of a restore: its plan, and where each record came from.

It has a JSON object a line. The first is the plan, and the others map offsets::

    {"version": 1, "source": "...", "clusterId": "...", "producerId": 7, "producerEpoch": 0,
     "settings": {...}, "configs": {"orders": {"message.timestamp.type": null}},
     "partitions": [{"topic": "orders", "partition": 0, "start": 3, "end": 90,
                     "sourceId": "...", "openTransactions": [[9, 70]],
                     "target": "orders", "targetId": "...", "base": 0}]}
    {"topic": "orders", "partition": 0, "start": 3, "end": 50, "target": 0}
    {"topic": "orders", "partition": 0, "start": 51, "end": 89, "target": 47}
    {"done": true}

The second line says that the source's offsets 3 to 49 are the target's 0 to 46. Offset 50 has no record
to restore: it may be a transaction's marker.
``configs`` are what topics get back when all records are restored; null stands for what they inherit.

The file is written ahead: a record's line is on disk before the record is sent, so the file knows all that
brokers may have. What a kill cuts off is a part of a line whose records were not sent. :mod:`.restore` has
the argument.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pyspark_kafkalog.errors import UNREADABLE, KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.lines import append_lines, create_lines, read_lines
from pyspark_kafkalog.log.lock import file_lock
from pyspark_kafkalog.model import TopicPartition

_VERSION = 1
_NAMES = {"source_id": "sourceId", "open_transactions": "openTransactions", "target_id": "targetId"}
_ANOTHER_FILE = "Name another file by --state."
_AGAIN = "Free space, or bring the file back. Run again, the restore goes on where it was."


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """Source offsets ``start`` to ``end`` of a partition go to the same partition of ``target``.

    ``base`` is where the target's log ended before; from there on, no other producer may write to it.
    ``source_id`` and ``target_id`` are the ids of the topics, empty if there are none.
    ``open_transactions`` are not whole before ``end``, and are left out however they end: the producer id and
    first offset of each.
    """

    topic: str
    partition: int
    start: int
    end: int
    target: str
    source_id: str = ""
    open_transactions: tuple[tuple[int, int], ...] = ()
    target_id: str = ""
    base: int = 0

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def destination(self) -> TopicPartition:
        return TopicPartition(self.target, self.partition)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore, and the producer id that all its records get.

    ``source`` names the place of records, for topics without an id. ``settings`` are what the user asked for,
    so that a second run with others is noticed; ``configs`` what topics get when all else is done.
    """

    source: str
    cluster_id: str
    producer_id: int
    producer_epoch: int
    settings: Mapping[str, Any]
    configs: Mapping[str, Mapping[str, str | None]]
    partitions: Sequence[PlannedPartition]

    def text(self) -> str:
        """The first line of the file."""
        return json.dumps(
            {
                "version": _VERSION,
                "source": self.source,
                "clusterId": self.cluster_id,
                "producerId": self.producer_id,
                "producerEpoch": self.producer_epoch,
                "settings": self.settings,
                "configs": self.configs,
                "partitions": [
                    {_NAMES.get(name, name): value for name, value in row.items()}
                    for row in map(asdict, self.partitions)
                ],
            }
        )

    @classmethod
    def parse(cls, text: str, path: str) -> RestorePlan:
        """Inverse of :meth:`text`.

        :raises OptionError: if no restore of this version has written the line.
        """
        try:
            row = json.loads(text)
            if row["version"] != _VERSION:
                raise ValueError(row["version"])
            return cls(
                str(row["source"]),
                str(row["clusterId"]),
                _offset(row["producerId"]),
                int(row["producerEpoch"]),
                dict(row["settings"]),
                {str(topic): dict(configs) for topic, configs in row["configs"].items()},
                [
                    PlannedPartition(
                        topic=str(entry["topic"]),
                        partition=int(entry["partition"]),
                        start=_offset(entry["start"]),
                        end=_offset(entry["end"]),
                        target=str(entry["target"]),
                        source_id=str(entry["sourceId"]),
                        open_transactions=tuple(
                            (_offset(producer), _offset(first))
                            for producer, first in entry["openTransactions"]
                        ),
                        target_id=str(entry["targetId"]),
                        base=_offset(entry["base"]),
                    )
                    for entry in row["partitions"]
                ],
            )
        except UNREADABLE:
            raise OptionError(
                f"The file {path} is not that of a restore, or of another version of the package",
                hint=_ANOTHER_FILE,
            ) from None


def _offset(value: Any) -> int:
    """An offset, or an id that is as long."""
    number = int(value)
    if not 0 <= number < 2**63:
        raise ValueError(number)
    return number


@dataclass(slots=True)
class RestoredOffsets:
    """The map of a partition's records, from the source to the target: ranges without gaps, in order.

    ``starts``, ``ends`` and ``targets`` have a number for each; ``start`` is the first source offset, and
    ``count`` how many records are known.
    """

    base: int
    start: int
    count: int = 0
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    targets: array[int] = field(default_factory=lambda: array("q"))

    @property
    def read_to(self) -> int:
        """The source offset behind the last record that is known."""
        return self.ends[-1] if self.ends else self.start

    def add(self, number: int, spans: np.ndarray) -> None:
        """Note that the records from ``number`` on, the next or known ones, have these source offsets.

        :param spans: a row for each range, in order: its first offset, and the one after its last.
        :raises ValueError: if that contradicts what is known.
        """
        if not 0 <= number <= self.count:
            raise ValueError(f"expected a number up to {self.count}, got {number}")
        sizes = spans[:, 1] - spans[:, 0]
        numbers = number + np.cumsum(sizes) - sizes
        for row in range(int(np.searchsorted(numbers, self.count))):
            first, offset = int(numbers[row]), int(spans[row, 0])
            last = min(first + int(sizes[row]), self.count) - 1
            if (self.source_of(first), self.source_of(last)) != (offset, offset + last - first):
                raise ValueError(f"record {first} was at offset {self.source_of(first)}, and is at {offset}")
        known = np.clip(self.count - numbers, 0, sizes)
        new = known < sizes
        starts, ends, targets = (spans[:, 0] + known)[new], spans[new, 1], (self.base + numbers + known)[new]
        if not starts.size:
            return
        if starts[0] < self.read_to:
            raise ValueError(f"expected an offset from {self.read_to} on, got {starts[0]}")
        goes_on = bool(self.ends) and self.ends[-1] == int(starts[0])
        if goes_on:
            self.ends[-1] = int(ends[0])
        for column, values in ((self.starts, starts), (self.ends, ends), (self.targets, targets)):
            column.frombytes(values[1 if goes_on else 0 :].astype(np.int64).tobytes())
        self.count += int((ends - starts).sum())

    def ranges(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Start and end in the source, and start in the target, of the ranges of all records from one on."""
        for row in range(max(bisect_right(self.targets, self.base + number) - 1, 0), len(self.targets)):
            start = self.starts[row] + max(self.base + number - self.targets[row], 0)
            if start < self.ends[row]:
                yield start, self.ends[row], self.targets[row] + start - self.starts[row]

    def source_of(self, record: int) -> int:
        """The source offset to read from for the record of this number, which is known or the next."""
        row = bisect_right(self.targets, self.base + record) - 1
        if record >= self.count or row < 0:
            return self.read_to
        return self.starts[row] + self.base + record - self.targets[row]

    def target_of(self, offset: int) -> int:
        """The target's offset for a reader that goes on at this source offset: that of the next record."""
        row = bisect_right(self.ends, offset)
        if row == len(self.ends):
            return self.base + self.count
        return self.targets[row] + max(0, offset - self.starts[row])

    @property
    def keeps_offsets(self) -> bool:
        """Whether each record has the offset that it had."""
        return all(start == target for start, target in zip(self.starts, self.targets, strict=True))


class RestoreState:
    """The file of one restore, which writes to it under :func:`restore_lock`."""

    def __init__(self, path: str, plan: RestorePlan) -> None:
        self.path = path
        self.plan = plan
        self.is_done = False
        self.maps = {p.source: RestoredOffsets(p.base, p.start) for p in plan.partitions}
        self._ends = {p.source: p.end for p in plan.partitions}
        self._saved = dict.fromkeys(self.maps, 0)
        """The number of records of each partition in the file."""

    @classmethod
    def find(cls, path: str) -> RestoreState | None:
        """The restore that this file belongs to; None if there is no file.

        :raises OptionError: if the file isn't that of a restore, for example empty, or can't be read.
        """
        with _file_errors("read", path, OptionError, _ANOTHER_FILE):
            try:
                os.lstat(path)
            except FileNotFoundError:
                return None
            lines = read_lines(path)
            state = cls(path, RestorePlan.parse(next(lines, ""), path))
            for line in lines:
                state._take(line)
        state._saved = {source: offsets.count for source, offsets in state.maps.items()}
        return state

    @classmethod
    def begin(cls, path: str, plan: RestorePlan) -> RestoreState:
        """Make the file, on disk before anything is written to the cluster.

        :raises OptionError: if there is such a file by now, or it can't be made.
        """
        with _file_errors("make", path, OptionError, _ANOTHER_FILE):
            try:
                create_lines(path, plan.text())
            except FileExistsError:
                raise OptionError(f"Another restore has just made the file {path}") from None
        return cls(path, plan)

    def _take(self, line: str) -> None:
        """Take in a line; a part of one, or one that does not fit what is known, is passed over."""
        try:
            row = json.loads(line)
            if row.get("done"):
                self.is_done = True
                return
            source = TopicPartition(row["topic"], row["partition"])
            start, end, target = int(row["start"]), int(row["end"]), int(row["target"])
            offsets = self.maps[source]
            if offsets.start <= start < end <= self._ends[source]:
                offsets.add(target - offsets.base, np.array([[start, end]]))
        except UNREADABLE:
            return

    def save(self) -> None:
        """Write what was found out since the last call, on disk.

        :raises KafkaLogError: if that fails.
        """
        self._append(
            json.dumps(
                {
                    "topic": source.topic,
                    "partition": source.partition,
                    "start": start,
                    "end": end,
                    "target": target,
                }
            )
            for source, offsets in self.maps.items()
            for start, end, target in offsets.ranges(self._saved[source])
        )
        self._saved = {source: offsets.count for source, offsets in self.maps.items()}

    def finish(self) -> None:
        """Write that all is done."""
        self.save()
        self._append([json.dumps({"done": True})])
        self.is_done = True

    def _append(self, lines: Iterable[str]) -> None:
        with _file_errors("write to", self.path, KafkaLogError, _AGAIN):
            append_lines(self.path, lines)


@contextmanager
def restore_lock(path: str) -> Iterator[None]:
    """Keep other restores from the file of one, also while there is no such file yet.

    :raises KafkaLogError: if one uses it.
    :raises OptionError: if there is no way to lock it.
    """
    with ExitStack() as locks:
        with _file_errors("lock", path, OptionError, _ANOTHER_FILE):
            locks.enter_context(file_lock(path, "The file of the restore"))
        yield


@contextmanager
def _file_errors(doing: str, path: str, kind: type[KafkaLogError], hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise kind(
            f"Could not {doing} the file of what the restore must remember: {e.strerror}",
            file=path,
            hint=hint,
        ) from None
