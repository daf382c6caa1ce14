"""Offset syncs of MirrorMaker 2 as a translation: exact where there is one, else back to the one before.

A sync says that the record at one offset of the source was written at another offset of the target
(KIP-382)::

    key      topic string, partition int32
    value    upstreamOffset int64, downstreamOffset int64

They are in partition 0 of a compacted topic: ``mm2-offset-syncs.<alias of the target>.internal`` of the
source or, with ``offset-syncs.topic.location=target``, ``mm2-offset-syncs.<alias of the source>.internal``
of the target.

Like Kafka's ``OffsetSyncStore``, a translation goes to the record at a sync or to the one that follows it:
nothing tells which records were copied between two syncs. Unlike it, all syncs that compaction has left
count, and none that a crash has left ahead of records which are not copied again yet.

Syncs have no ids of topics, so a record at a sync is compared in both clusters.

Sources: Kafka's ``OffsetSync``, ``OffsetSyncStore``, ``OffsetSyncWriter``, ``ReplicationPolicy``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyspark_kafkalog.codec.fields import Fields
from pyspark_kafkalog.errors import CorruptRecordError, KafkaLogError, OptionError, listed, no_such_partition
from pyspark_kafkalog.model import TopicPartition, check_topic
from pyspark_kafkalog.options.offsets_json import Offsets, to_json
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.tools.checkpoint.translation import EARLIER, EXACT, UNKNOWN, Translated

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from pyspark_kafkalog.client.kafka import Kafka

_SYNCS_TOPIC = re.compile(r"mm2-offset-syncs.+internal")
_VALUE_SIZE = 16
_MAX_OFFSET = 1 << 61
"""The greatest offset that is believed: sums of such don't overflow."""
_CREATE_TIME = 0
_CATCH_UP = "let the query read on at the source, and stop it again"


class Sync(NamedTuple):
    """The offset of a record in the source, and in the target."""

    upstream: int
    downstream: int


class MirrorMaker:
    """The translation by the offset syncs of a MirrorMaker 2 that copies one cluster to another.

    :param source: the cluster that it copies; if that is lost, ``target`` once more.
    :param prefix: what the names of topics begin with in the target, such as ``us-west.``.
    :param syncs: the topic of the syncs, which is looked up in both clusters without it.
    :param unproven: believe syncs of which no record is left to compare.
    """

    def __init__(
        self,
        source: Kafka,
        target: Kafka,
        *,
        prefix: str = "",
        syncs: str | None = None,
        unproven: bool = False,
    ) -> None:
        self._source, self._target = source, target
        self._prefix, self._unproven = prefix, unproven
        self._syncs = None if syncs is None else check_topic(syncs)

    def check_source(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """See :meth:`.translation.Translation.check_source`."""
        if self._is_source_lost:
            return ()
        now = {topic: found for topic, found in self._source.place.topic_ids(topic_ids).items() if found}
        others = sorted(topic for topic, found in now.items() if found != topic_ids[topic])
        if others:
            raise KafkaLogError(
                f"{self._source.name} has other topics than the query has read: {listed(others, 5)}",
                hint="They were deleted and created again since, so their offsets mean other records.",
            )
        return now

    def check_target(self, cluster_id: str | None, topic_ids: Mapping[str, str]) -> None:
        """See :meth:`.translation.Translation.check_target`: the records themselves were compared."""

    def translate(self, offsets: Offsets) -> Mapping[TopicPartition, Translated]:
        """See :meth:`.translation.Translation.translate`."""
        copies = {partition: self._copy_of(partition) for partition in offsets}
        there = self._target.place.watermarks(copies.values(), read_committed=False)
        if missing := {*copies.values()} - there.keys():
            raise no_such_partition(
                missing, hint=f"Say by prefix what names of topics begin with in {self._target.name}."
            )
        syncs = self._read(offsets)
        self._check_copies({partition: found for partition, found in syncs.items() if found.at})
        return {partition: syncs[partition].translated(copies[partition]) for partition in offsets}

    def _copy_of(self, partition: TopicPartition) -> TopicPartition:
        return TopicPartition(self._prefix + partition.topic, partition.partition)

    @cached_property
    def _is_source_lost(self) -> bool:
        """Whether only the target was given."""
        return identity(self._source.place_options) == identity(self._target.place_options)

    def _read(self, offsets: Offsets) -> dict[TopicPartition, NearSyncs]:
        """The syncs near each of these offsets, from the one topic that has any."""
        found = {}
        for kafka, topic in self._topics_of_syncs():
            syncs = {partition: NearSyncs(offset) for partition, offset in offsets.items()}
            _read_syncs(kafka, topic, syncs)
            if any(near.last for near in syncs.values()):
                found[f"{topic} in {kafka.name}"] = syncs
        if len(found) > 1:
            raise OptionError(
                f"There are {len(found)} topics with offset syncs: {', '.join(found)}",
                hint="Name by syncs the one of the copy from the source to the target.",
            )
        return next(iter(found.values()), {p: NearSyncs(offset) for p, offset in offsets.items()})

    def _topics_of_syncs(self) -> list[tuple[Kafka, str]]:
        """The topics that may have them, and their clusters: MirrorMaker makes one for the way back, too."""
        clusters = [self._source] if self._is_source_lost else [self._source, self._target]
        names = None if self._syncs is None else [self._syncs]
        found = [
            (kafka, topic)
            for kafka in clusters
            for topic in sorted(kafka.report_place.topics(names))
            if names or _SYNCS_TOPIC.fullmatch(topic)
        ]
        if not found:
            what = self._syncs or "topic mm2-offset-syncs.<alias>.internal"
            raise OptionError(
                f"There is no {what} in {' and '.join(kafka.name for kafka in clusters)}",
                hint="MirrorMaker 2 writes it unless it is told not to.",
            )
        return found if names is None else found[:1]

    def _check_copies(self, syncs: Mapping[TopicPartition, NearSyncs]) -> None:
        """See that a record at a sync of each partition is the same in both clusters.

        :raises KafkaLogError: if it is another, or none is left to compare.
        """
        unproven = dict(syncs)
        if not self._is_source_lost:
            for choice in range(2):
                chosen = {partition: found.to_compare[choice] for partition, found in unproven.items()}
                here = _records(self._source, {p: sync.upstream for p, sync in chosen.items()})
                copied = {self._copy_of(p): sync.downstream for p, sync in chosen.items() if p in here}
                there = _records(self._target, copied)
                for partition, record in here.items():
                    copy = there.get(self._copy_of(partition))
                    if copy is None:
                        continue
                    if not record.is_like(copy):
                        sync = chosen[partition]
                        raise KafkaLogError(
                            f"The record at offset {sync.upstream} of the source is not that at offset"
                            f" {sync.downstream} of {self._copy_of(partition)}, as the syncs say",
                            topic_partition=partition,
                            hint="One of the topics was created again, these are not the clusters or the"
                            " syncs of this copy, or the copy changes records.",
                        )
                    del unproven[partition]
        if unproven and not self._unproven:
            raise KafkaLogError(
                "No record is left in both clusters to show that the syncs are of these topics:"
                f" {listed(sorted(unproven), 5)}",
                topic_partition=min(unproven),
                hint="If you are sure, say so by unproven=True.",
            )


class NearSyncs:
    """The syncs of a partition near ``offset``.

    After a crash MirrorMaker copies again what it had copied. If it has not come as far as before, what is
    behind a new sync lacks records that are only before it: so a sync counts if all before it is below
    ``offset``, or is copied again. ``at`` is the last one at or below ``offset`` that counts, ``_waiting``
    are later ones that don't count yet, by how far the records before each may go.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.forget()

    def forget(self) -> None:
        """Forget all syncs."""
        self.lowest: int | None = None
        self.at: Sync | None = None
        self.last: Sync | None = None
        self._highest_before = -1
        self._waiting: dict[int, Sync] = {}

    def add(self, syncs: npt.NDArray[np.int64]) -> None:
        """Add the next syncs, a row each. If the target goes back, it was created again."""
        steps = np.diff(syncs, axis=0, prepend=[syncs[0] if self.last is None else self.last])
        is_back = (steps[:, 1] < 0) | ((steps[:, 1] == 0) & (steps[:, 0] != 0))
        if is_back.any():
            self.forget()
            begin = int(np.flatnonzero(is_back)[-1])
            syncs, steps = syncs[begin:], steps[begin:]
        upstream = syncs[:, 0]
        # All between two syncs may be records that follow the first one.
        ends = upstream - steps[:, 0] + steps[:, 1] - 1
        if self.last is None:
            ends[0] = -1
        before = np.maximum.accumulate(np.maximum(ends, self._highest_before))
        reached = np.maximum.accumulate(upstream[::-1])[::-1]
        self._count_waiting(int(reached[0]))
        (below,) = np.nonzero(upstream <= self.offset)
        counting = below[(before[below] < self.offset) | (before[below] <= reached[below])]
        if len(counting):
            self.at, self._waiting = _sync(syncs[counting[-1]]), {}
            below = below[below > counting[-1]]
        self._waiting |= {int(before[row]): _sync(syncs[row]) for row in below}
        self._highest_before, self.last = int(before[-1]), _sync(syncs[-1])
        self.lowest = min(int(upstream.min()), self.lowest if self.lowest is not None else int(upstream[0]))

    def _count_waiting(self, reached: int) -> None:
        """Count the syncs that wait for a copy of the offset ``reached``, or of one before."""
        if counting := [before for before in self._waiting if before <= reached]:
            self.at = self._waiting[max(counting)]
            self._waiting = {end: sync for end, sync in self._waiting.items() if end > reached}

    @property
    def to_compare(self) -> tuple[Sync, Sync]:
        """The syncs whose records to compare, the best proof first."""
        assert self.at is not None
        assert self.last is not None
        return self.at, self.last

    def translated(self, copy: TopicPartition) -> Translated:
        """The offset in the copy: never beyond the record that follows the sync, as it may be the next."""
        if self.at is None:
            if self.offset == 0:
                return Translated(copy, 0, EXACT, 0)
            if self.lowest is None:
                note = "MirrorMaker 2 has written no offset sync of it"
            else:
                note = f"offset {self.offset} is before the first sync that is left, at {self.lowest}"
            return Translated(copy, None, UNKNOWN, note=f"{note}: {_CATCH_UP}")
        behind = self.offset - self.at.upstream
        to = self.at.downstream + min(behind, 1)
        if self._waiting:
            again = min(sync.upstream for sync in self._waiting.values())
            return Translated(copy, to, EARLIER, note=f"what is from {again} on is being copied again")
        if behind <= 1:
            return Translated(copy, to, EXACT, 0)
        return Translated(copy, to, EARLIER, behind - 1, f"the sync before is at {self.at.upstream}")


def _sync(row: npt.NDArray[np.int64]) -> Sync:
    return Sync(int(row[0]), int(row[1]))


def _read_syncs(kafka: Kafka, topic: str, found: Mapping[TopicPartition, NearSyncs]) -> None:
    reader = kafka.read(topic, columns=["key", "value", "offset"], filters=[("partition", "=", 0)])
    for rows in reader:
        try:
            _add_rows(found, rows)
        except CorruptRecordError as e:
            raise CorruptRecordError(
                f"Expected an offset sync of MirrorMaker 2: {e.message}",
                topic_partition=TopicPartition(topic, 0),
                offset=e.offset,
                hint="Name the topic of the syncs.",
            ) from e


def _add_rows(found: Mapping[TopicPartition, NearSyncs], rows: pa.RecordBatch) -> None:
    """Add the records of a topic of syncs.

    :raises CorruptRecordError: with the offset of a record that isn't one.
    """
    offsets = rows["offset"]
    keys = rows["key"].dictionary_encode()
    codes = np.asarray(keys.indices.fill_null(-1))
    if (codes < 0).any():
        raise CorruptRecordError("the key is null", offset=offsets[int(np.argmin(codes))].as_py())
    for code, key in enumerate(keys.dictionary.to_pylist()):
        (which,) = np.nonzero(codes == code)
        try:
            near = found.get(decode_key(key))
        except CorruptRecordError as e:
            raise CorruptRecordError(e.message, offset=offsets[int(which[0])].as_py()) from e
        if near is None:
            continue
        values = rows["value"].take(which).to_pylist()
        if None in values:  # someone has deleted the syncs before
            near.forget()
            kept = len(values) - values[::-1].index(None)
            values, which = values[kept:], which[kept:]
        for row, value in zip(which, values, strict=True):
            if len(value) != _VALUE_SIZE:
                what = f"expected {_VALUE_SIZE} bytes as the value, got {len(value)}"
                raise CorruptRecordError(what, offset=offsets[int(row)].as_py())
        syncs = np.frombuffer(b"".join(values), ">i8").reshape(-1, 2).astype(np.int64)
        is_wrong = ((syncs < 0) | (syncs > _MAX_OFFSET)).any(axis=1)
        if is_wrong.any():
            row = which[int(np.flatnonzero(is_wrong)[0])]
            raise CorruptRecordError("an offset is out of bounds", offset=offsets[int(row)].as_py())
        if len(syncs):
            near.add(syncs)


def decode_key(key: bytes) -> TopicPartition:
    """The partition of the source that a sync is of.

    :raises CorruptRecordError: if it is not the key of one.
    """
    data = Fields(key)
    found = TopicPartition(data.string(), data.int32())
    if not data.is_at_end or found.partition < 0:
        raise CorruptRecordError("the key has other fields than a topic and a partition")
    return found


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: Any
    type: int

    def is_like(self, copy: _Record) -> bool:
        """Whether the copy is one of this record: a topic may stamp what is appended."""
        is_dated = self.type == copy.type == _CREATE_TIME
        return self[:2] == copy[:2] and (not is_dated or self.timestamp == copy.timestamp)


def _records(kafka: Kafka, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, _Record]:
    """The records at these offsets that are there."""
    bounds = kafka.place.watermarks(offsets, read_committed=False) if offsets else {}
    there = {
        partition: offsets[partition]
        for partition, marks in bounds.items()
        if marks.log_start_offset <= offsets[partition] < marks.high_watermark
    }
    return dict(_read_records(kafka, there)) if there else {}


def _read_records(
    kafka: Kafka, offsets: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, _Record]]:
    assigned: dict[str, list[int]] = {}
    for topic, partition in sorted(offsets):
        assigned.setdefault(topic, []).append(partition)
    options = {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_json(offsets)),
        "endingOffsets": json.dumps(to_json({p: offset + 1 for p, offset in offsets.items()})),
    }
    columns = ["topic", "partition", "key", "value", "timestamp", "timestampType"]
    for rows in kafka.read(options=options, columns=columns):
        for topic, partition, *record in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            yield TopicPartition(topic, partition), _Record(*record)
