"""The file of a restore: its plan, and where each record came from.

It has a JSON object a line. The first is the plan, and the others map offsets::

    {"version": 1, "clusterId": "...", "producerId": 7, "producerEpoch": 0, "settings": {...},
     "configs": {"orders": {"message.timestamp.type": null}},
     "partitions": [{"topic": "orders", "partition": 0, "start": 3, "end": 90,
                     "target": "orders", "targetId": "...", "base": 0}]}
    {"topic": "orders", "partition": 0, "start": 3, "end": 50, "target": 0}
    {"topic": "orders", "partition": 0, "start": 51, "end": 89, "target": 47}
    {"topic": "orders", "partition": 0, "start": 90, "end": 90, "target": 85}
    {"done": true}

The second line says that the source's offsets 3 to 49 are the target's 0 to 46. Offset 50 has no record
to restore: it may be a transaction's marker. A line whose start is its end says how far the source was read.
``configs`` are what topics get back when all records are restored; null stands for what they inherit.

The lines are facts about the source and the plan, whoever finds them out and whenever: so they need not be
flushed, may be written before brokers have the records, and may be written twice. That is what makes a
kill harmless; :mod:`.restore` has the argument.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.filesystem.lines import append_lines, create_lines, read_lines
from pyspark_kafkalog.model import TopicPartition

_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """Source offsets ``start`` to ``end`` of a partition go to the same partition of ``target``.

    ``base`` is where the target's log ended before, as of which nobody else may have written to it;
    ``target_id`` is the id of its topic, empty if the cluster gives none.
    """

    topic: str
    partition: int
    start: int
    end: int
    target: str
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
    """What a restore does, and the producer id that all its records get.

    ``settings`` are what the user asked for, so that a second run with others is noticed; ``configs`` what
    topics get when all else is done.
    """

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
                "clusterId": self.cluster_id,
                "producerId": self.producer_id,
                "producerEpoch": self.producer_epoch,
                "settings": self.settings,
                "configs": self.configs,
                "partitions": [
                    {("targetId" if name == "target_id" else name): value for name, value in row.items()}
                    for row in map(asdict, self.partitions)
                ],
            }
        )

    @classmethod
    def parse(cls, text: str, path: str) -> RestorePlan:
        """Inverse of :meth:`text`.

        :raises OptionError: if the line is none of a restore, or of another version.
        """
        try:
            row = json.loads(text)
            if row["version"] != _VERSION:
                raise ValueError(row["version"])
            return cls(
                str(row["clusterId"]),
                int(row["producerId"]),
                int(row["producerEpoch"]),
                dict(row["settings"]),
                {str(topic): dict(configs) for topic, configs in row["configs"].items()},
                [
                    PlannedPartition(
                        topic=str(entry["topic"]),
                        partition=int(entry["partition"]),
                        start=int(entry["start"]),
                        end=int(entry["end"]),
                        target=str(entry["target"]),
                        target_id=str(entry["targetId"]),
                        base=int(entry["base"]),
                    )
                    for entry in row["partitions"]
                ],
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise OptionError(
                f"The file {path} is not that of a restore, or of another version of the package",
                hint="Name another file by --state.",
            ) from None


@dataclass(slots=True)
class OffsetMap:
    """Where the records of a partition's source went: ranges without gaps, in order.

    ``starts``, ``ends`` and ``targets`` have a number for each; ``read_to`` is the first source offset that
    was not looked at yet, and ``count`` how many records there are before it.
    """

    base: int
    read_to: int
    count: int = 0
    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    targets: array[int] = field(default_factory=lambda: array("q"))

    def add(self, spans: np.ndarray) -> None:
        """Note that the next records come from these ranges of source offsets; known ones are passed over.

        :param spans: a row for each range, in order: its first offset, and the one after its last.
        """
        spans = spans[spans[:, 1] > self.read_to]
        if not len(spans):
            return
        starts, ends = np.maximum(spans[:, 0], self.read_to), spans[:, 1]
        sizes = ends - starts
        targets = self.base + self.count + np.cumsum(sizes) - sizes
        goes_on = bool(self.ends) and self.ends[-1] == self.read_to == int(starts[0])
        if goes_on:
            self.ends[-1] = int(ends[0])
        for column, values in ((self.starts, starts), (self.ends, ends), (self.targets, targets)):
            column.frombytes(values[1 if goes_on else 0 :].astype(np.int64).tobytes())
        self.count += int(sizes.sum())
        self.read_to = int(ends[-1])

    def pass_over(self, offset: int) -> None:
        """Note that there are no more records below ``offset``."""
        self.read_to = max(self.read_to, offset)

    def source_of(self, record: int) -> int:
        """From which source offset on to read for the record of this number, which is known or the next."""
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
    """The file of one restore. Nothing else may use it meanwhile."""

    def __init__(self, path: str, plan: RestorePlan) -> None:
        self.path = path
        self.plan = plan
        self.is_done = False
        self.maps = {p.source: OffsetMap(p.base, p.start) for p in plan.partitions}
        self._written = {p.source: (0, p.start) for p in plan.partitions}
        """For each partition how many ranges the file has, and how far the last one goes."""

    @classmethod
    def find(cls, path: str) -> RestoreState | None:
        """The restore that this file belongs to; None if there is no file.

        :raises OptionError: if the file is no such one.
        """
        lines = read_lines(path)
        first = next(lines, None)
        if first is None:
            return None
        state = cls(path, RestorePlan.parse(first, path))
        for line in lines:
            state._take(line)
        for source, offsets in state.maps.items():
            state._written[source] = len(offsets.starts), offsets.read_to
        return state

    @classmethod
    def begin(cls, path: str, plan: RestorePlan) -> RestoreState:
        """Make the file, on disk before anything is written to the cluster.

        :raises OptionError: if there is such a file by now, or it can't be made.
        """
        try:
            create_lines(path, plan.text())
        except FileExistsError:
            raise OptionError(f"Another restore has just made the file {path}") from None
        except OSError as e:
            raise OptionError(
                f"Cannot make the file {path} for what the restore must remember: {e.strerror}",
                hint="Name another file by --state.",
            ) from None
        return cls(path, plan)

    def _take(self, line: str) -> None:
        """Take in a line; a part of one, or one that does not fit what is known, is passed over."""
        try:
            row = json.loads(line)
            if row.get("done"):
                self.is_done = True
                return
            offsets = self.maps[TopicPartition(row["topic"], row["partition"])]
            start, end, target = int(row["start"]), int(row["end"]), int(row["target"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        if start < offsets.read_to:  # written again by a later run
            target += offsets.read_to - start
            start = offsets.read_to
        if target == offsets.base + offsets.count and start <= end:
            offsets.add(np.array([[start, end]]))
            offsets.pass_over(end)

    def save(self) -> None:
        """Write what was found out since the last call."""
        append_lines(self.path, list(self._new_lines()))

    def _new_lines(self) -> Iterable[str]:
        for source, offsets in self.maps.items():
            rows, reached = self._written[source]
            # The last range that the file has may have grown.
            for row in range(max(rows - 1, 0), len(offsets.starts)):
                start = max(offsets.starts[row], reached) if row < rows else offsets.starts[row]
                target = offsets.targets[row] + start - offsets.starts[row]
                if start < offsets.ends[row]:
                    yield _line(source, start, offsets.ends[row], target)
            last = offsets.ends[-1] if offsets.ends else -1
            if offsets.read_to > max(last, reached):
                yield _line(source, offsets.read_to, offsets.read_to, offsets.base + offsets.count)
            self._written[source] = len(offsets.starts), offsets.read_to

    def finish(self) -> None:
        """Write that all is done."""
        self.save()
        append_lines(self.path, [json.dumps({"done": True})])
        self.is_done = True


def _line(source: TopicPartition, start: int, end: int, target: int) -> str:
    return json.dumps(
        {"topic": source.topic, "partition": source.partition, "start": start, "end": end, "target": target}
    )
