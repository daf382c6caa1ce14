"""What each micro-batch of a stream holds: limits shared out, waiting, AvailableNow, data loss."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pyspark_kafkalog.model import OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.planning.offsets import (
    check_nothing_lost_while_available_now,
    find_data_loss,
    initial_offsets,
    latest_offsets,
    log_start_offsets,
)
from pyspark_kafkalog.planning.splitting import Split, split_ranges

_log = logging.getLogger("pyspark_kafkalog")


class StreamPlanner:
    """The decisions of one run of a streaming query (Spark's KafkaMicroBatchStream).

    :param clock: seconds that only grow.
    """

    def __init__(
        self, place: Place, options: ReadOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.latest: Offsets = {}
        """The ends of all partitions as :meth:`next_offsets` last saw them."""
        self._place = place
        self._options = options
        self._clock = clock
        self._available_now = False
        self._frozen: Offsets | None = None
        self._last_trigger: float | None = None

    def initial_offsets(self) -> Offsets:
        """Where a new query starts; see :func:`pyspark_kafkalog.planning.offsets.initial_offsets`."""
        return initial_offsets(self._place, self._options)

    def prepare_for_available_now(self) -> None:
        """Freeze the ends at the next lookup: the query reads up to there and stops."""
        self._available_now = True

    def next_offsets(self, start: Offsets, *, all_available: bool = False) -> Offsets:
        """Where the next micro-batch ends; ``start`` if there is to be none.

        :param start: the end of the last one.
        :param all_available: ignore all limits, as ``Trigger.Once`` wants it.
        :raises DataLossError: with failOnDataLoss, before Spark notes the offsets; without
            it, what is lost is told when the micro-batch is planned.
        """
        self.latest = self._look_up_latest()
        if not self.latest:
            # Empty offsets would forget what was read so far (SPARK-41375).
            return start
        added = log_start_offsets(self._place, self.latest.keys() - start.keys())
        if self._options.fail_on_data_loss:
            for loss in find_data_loss(start, self.latest, added):
                raise loss
        if all_available:
            return self.latest
        unread = {
            partition: OffsetRange(begin, end)
            for partition, end in self.latest.items()
            if (begin := start.get(partition, added.get(partition, end))) < end
        }
        if not self._available_now and self._is_too_early(sum(end - begin for begin, end in unread.values())):
            return start
        return {**self.latest, **self._share_limits(unread)}

    def plan(self, start: Offsets, end: Offsets) -> list[Split]:
        """The tasks of the micro-batch from ``start`` to ``end``, in order of partition and offset.

        :raises DataLossError: as :meth:`next_offsets`; and, whatever failOnDataLoss says, when
            AvailableNow can't keep what it has frozen.
        """
        if self._frozen is not None:
            check_nothing_lost_while_available_now(end, latest_offsets(self._place, self._options))
        added = log_start_offsets(self._place, end.keys() - start.keys())
        for loss in find_data_loss(start, end, added):
            if self._options.fail_on_data_loss:
                raise loss
            _log.warning("Going on, as failOnDataLoss=false asks: %s", loss)
        begins = {**start, **added}
        return split_ranges(
            [
                Split(partition, OffsetRange(begins[partition], offset))
                for partition, offset in sorted(end.items())
                if partition in begins
            ],
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )

    def _look_up_latest(self) -> Offsets:
        if self._frozen is not None:
            return self._frozen
        latest = latest_offsets(self._place, self._options)
        if self._available_now:
            self._frozen = latest
        return latest

    def _is_too_early(self, unread: int) -> bool:
        """Whether minOffsetsPerTrigger still holds the trigger back; the first with records runs."""
        limits = self._options.limits
        if limits.min_offsets is None or unread == 0:
            return False
        now = self._clock()
        last = self._last_trigger
        if last is not None and unread < limits.min_offsets and (now - last) * 1000 < limits.max_delay_ms:
            return True
        self._last_trigger = now
        return False

    def _share_limits(self, unread: dict[TopicPartition, OffsetRange]) -> Offsets:
        """For each partition an end within what the limits allow, in proportion to its unread offsets."""
        limits = self._options.limits
        total = sum(end - begin for begin, end in unread.values())
        ends = {}
        for partition, (begin, end) in unread.items():
            if limits.max_offsets is not None:
                end = min(end, begin + _proportion(limits.max_offsets, end - begin, total))
            if limits.max_bytes is not None:
                size = _proportion(limits.max_bytes, unread[partition].end - begin, total)
                end = self._place.offset_after_bytes(partition, OffsetRange(begin, end), size)
            ends[partition] = end
        return ends


def _proportion(limit: int, part: int, total: int) -> int:
    """``part``'s share of ``limit``, rounded down, yet at least 1 so that small partitions don't starve."""
    return max(limit * part // total, 1)
