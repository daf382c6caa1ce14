"""Whether the logs of a stream are still those that it has read.

A disk or a directory that went back may have grown again past the stream's offsets, with the same topic id. A
cluster shows that by the end of a leader epoch (KIP-320), or by an epoch older than the last if its metadata
went back, too. A directory shows it by the last record batch that was read; so does a cluster that has come
to the same leader epochs again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import NamedTuple

from pyspark_kafkalog.codec.batch_identity import is_same
from pyspark_kafkalog.model import BatchHeader, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets

_log = logging.getLogger("pyspark_kafkalog")

_LOOKS = 3
_LOOK_PAUSE = 0.5
"""Seconds between looks: a mount may show an older state."""
_PAUSE = 5.0
"""The fewest seconds between two times that the history is stored."""
_PAUSE_PER_SECOND = 50
"""Seconds until the history is stored again, for each second that storing took."""
_AT_ONCE = 100
"""The most record batches that are looked up each time: half a millisecond each, more in an object store."""
_SECONDS = 0.1
"""Seconds for which looking up record batches may hold up a micro-batch."""


class LastShared(NamedTuple):
    """The last position up to which a stream and a partition's log had the same records.

    The records below ``offset`` were there, and none had a newer leader epoch than ``leader_epoch``, -1 if
    unknown. ``batch`` was the last before ``offset``, or before an earlier one.
    """

    topic_id: str
    offset: int
    leader_epoch: int = -1
    batch: BatchHeader | None = None


Shared = Mapping[TopicPartition, LastShared]


class Positions(NamedTuple):
    """Offsets up to which logs were read, the ids of their topics, and their leader epochs then."""

    offsets: Offsets
    topic_ids: Mapping[str, str]
    epochs: Mapping[TopicPartition, int]


class SharedHistory:
    """Compares logs with those that a stream has read, seldom enough to cost next to nothing.

    Leader epochs are compared when they change. Record batches are where an earlier run has stored them, each
    time before newer ones are stored, and where a leader epoch has changed; all of them, if one is older than
    it was, or an end lower.

    :param stored: the history that an earlier run has stored.
    :param store: called with the history for the next run, at most every few seconds; after an OSError again.
    :param clock: a monotonic clock, in seconds.
    """

    def __init__(
        self, place: Place, stored: Shared, store: Callable[[Shared], None], clock: Callable[[], float]
    ) -> None:
        self._place = place
        self._shared = dict(stored)
        self._stored = stored
        self._store = store
        self._clock = clock
        self._read: Positions | None = None
        """The positions of now, newer than those in ``_shared``."""
        self._compared: Mapping[TopicPartition, int] | None = None
        """The leader epochs at the last comparison."""
        self._unstored: dict[TopicPartition, None] | None = None
        """Partitions that were read since their last record batch was stored; None before any was."""
        self._next = 0.0
        self._at_once = 10

    def leader_epoch(self, partition: TopicPartition) -> int:
        """The newest leader epoch in which a partition was read; -1 if unknown."""
        shared = self._shared.get(partition)
        return -1 if shared is None else shared.leader_epoch

    def offset(self, partition: TopicPartition) -> int:
        """The position of a partition that was stored last; -1 if unknown."""
        shared = self._shared.get(partition)
        return -1 if shared is None else shared.offset

    def advance(self, read: Positions) -> None:
        """Take in what has been read since the last call."""
        offsets = read.offsets
        if self._unstored is None:
            stored = {p: shared.batch.last_offset + 1 for p, shared in self._shared.items() if shared.batch}
            self._unstored = dict.fromkeys(p for p, offset in offsets.items() if stored.get(p) != offset)
        elif self._read is not None and self._read.offsets is not offsets:
            before = self._read.offsets
            self._unstored |= dict.fromkeys(p for p, offset in offsets.items() if before.get(p) != offset)
        self._read = read

    def is_waiting(self) -> bool:
        """Whether something that was read is to be stored, and it is time."""
        return bool(self._unstored) and self._clock() >= self._next

    def check(
        self,
        now: Positions,
        ends: Offsets,
        lost: Callable[[TopicPartition, int, str], None],
        *,
        is_last: bool = False,
        is_odd: bool = False,
    ) -> None:
        """Compare the logs with what was read of them, as far as it is time, and store what they share now.

        :param now: where the stream goes on, and the topics and leader epochs of now.
        :param ends: of the logs.
        :param lost: called with each partition whose log has other records below an offset than were read,
            and why; nothing is stored if it raises.
        :param is_last: whether nothing follows in this run.
        :param is_odd: whether something else tells that a log may have gone back.
        """
        is_first, is_moved = self._compared is None, self._compared != now.epochs
        is_time = self.is_waiting() or (is_last and bool(self._unstored))
        if not (is_moved or is_time or is_odd):
            return
        began = self._clock()
        self._fold()
        begins = {p: offset for p, offset in now.offsets.items() if offset <= ends.get(p, -1)}
        due = list(islice(self._unstored or (), None if is_last else self._at_once)) if is_time else []
        known = {
            p: shared
            for p, shared in self._shared.items()
            if shared.offset <= begins.get(p, -1) and shared.topic_id == now.topic_ids.get(p.topic, "")
        }
        if is_first:  # a checkpoint that was set back has not read what was stored after it
            self._shared = dict(known)
        moved = {p for p, shared in known.items() if shared.leader_epoch != now.epochs.get(p, -1)}
        is_back = any(0 <= now.epochs.get(p, -1) < known[p].leader_epoch for p in moved)
        suspects = known if is_first or is_back or is_odd else {*due, *moved}
        found = self._differences(known, now.epochs, suspects)
        for partition, why in sorted(found.items()):
            lost(partition, begins[partition], why)
            self._shared[partition] = self._shared[partition]._replace(batch=None)
        if found and not is_time:  # else the next run would tell of it again, maybe as an error
            is_time, due = True, list(found)
        self._compared = now.epochs
        self._read = now._replace(offsets=begins)
        if is_time:
            self._look(due)
            looked = self._clock() - began  # fewer looks make no slow checkpoint faster
            self._at_once = max(1, min(_AT_ONCE, int(len(due) * _SECONDS / max(looked, 1e-6))))
            self._store_due(due)
            self._next = self._clock() + max(_PAUSE, _PAUSE_PER_SECOND * (self._clock() - began))

    def _fold(self) -> None:
        """Bring offsets and leader epochs of what is shared up to date."""
        if self._read is None:
            return
        for partition, offset in self._read.offsets.items():
            topic_id = self._read.topic_ids.get(partition.topic, "")
            before = self._shared.get(partition)
            batch = before.batch if before is not None and before.topic_id == topic_id else None
            epoch = self._read.epochs.get(partition, -1)
            self._shared[partition] = LastShared(topic_id, offset, epoch, batch)

    def _look(self, due: list[TopicPartition]) -> None:
        """Look up the last record batches of partitions."""
        assert self._read is not None
        self._fold()
        offsets = self._read.offsets
        self._shared = {p: shared for p, shared in self._shared.items() if p in offsets}
        batches = self._place.batches_at({p: offsets[p] - 1 for p in due if offsets.get(p, 0) > 0})
        for partition, batch in batches.items():
            self._shared[partition] = self._shared[partition]._replace(batch=batch)

    def _store_due(self, due: list[TopicPartition]) -> None:
        """Store the history for the next run. A query reads on, too, if that fails."""
        if self._shared != self._stored:
            shared = dict(self._shared)
            try:
                self._store(shared)
            except OSError as e:
                _log.warning("Could not store in the checkpoint what was read last; trying again: %s", e)
                return
            self._stored = shared
        for partition in due:
            (self._unstored or {}).pop(partition, None)

    def _differences(
        self,
        known: Shared,
        epochs: Mapping[TopicPartition, int],
        due: Collection[TopicPartition],
    ) -> dict[TopicPartition, str]:
        """The partitions whose logs are not those that were read, as several looks agree, and why."""
        back = {
            p: f"it was read in leader epoch {shared.leader_epoch}, and the cluster is back at {epochs[p]}"
            for p, shared in known.items()
            if 0 <= epochs.get(p, -1) < shared.leader_epoch
        }
        epoch_of = {
            p: shared.leader_epoch
            for p, shared in known.items()
            if p not in back and 0 <= shared.leader_epoch != epochs.get(p)
        }
        batch_of = {p: shared.batch for p in due if (shared := known.get(p)) and shared.batch}
        found: dict[TopicPartition, str] = {}
        for look in range(_LOOKS):
            if look:
                time.sleep(_LOOK_PAUSE)
            found = self._replaced(batch_of) | self._cut(known, epoch_of)
            if not found:
                break
            epoch_of = {p: epoch for p, epoch in epoch_of.items() if p in found}
            batch_of = {p: batch for p, batch in batch_of.items() if p in found}
        return found | back

    def _cut(self, known: Shared, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """The partitions whose leader epochs end below the position that was read, and why they differ."""
        return {
            p: f"it was read up to {known[p].offset} in leader epoch {epochs[p]}, which now ends at {end}"
            for p, (epoch, end) in (self._place.epoch_ends(epochs) if epochs else {}).items()
            if epoch >= 0 and end < known[p].offset
        }

    def _replaced(self, batches: Mapping[TopicPartition, BatchHeader]) -> dict[TopicPartition, str]:
        """The partitions that have another record batch where one was read, and why they differ."""
        offsets = {p: batch.last_offset for p, batch in batches.items()}
        return {
            p: f"the record batch at offset {offsets[p]} is not the one that was read there"
            for p, batch in self._place.batches_at(offsets).items()
            if is_same(batches[p], batch) is False
        }
