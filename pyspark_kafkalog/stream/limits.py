"""The limits of a micro-batch: how much it holds, and whether there is enough for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark_kafkalog.model import OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import MAX_LONG, Offsets
from pyspark_kafkalog.options.settings import TriggerLimits


class BatchLimits:
    """The limits of the micro-batches of one run.

    :param clock: a monotonic clock, in seconds.
    """

    def __init__(self, limits: TriggerLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._last_trigger: float | None = None

    def is_too_early(self, unread: Mapping[TopicPartition, OffsetRange]) -> bool:
        """Whether minOffsetsPerTrigger still delays the trigger; the first one with records always runs."""
        least, count = self._limits.min_offsets, sum(end - begin for begin, end in unread.values())
        if least is None or count == 0:
            return False
        now, last = self._clock(), self._last_trigger
        if last is not None and count < least and (now - last) * 1000 < self._limits.max_delay_ms:
            return True
        self._last_trigger = now
        return False

    def ends(self, place: Place, unread: Mapping[TopicPartition, OffsetRange]) -> Offsets:
        """An end for each partition within the limits, in proportion to its unread offsets."""
        sizes = {partition: end - begin for partition, (begin, end) in unread.items()}
        offsets, size_in_bytes = (
            _shares(self._limits.max_offsets, sizes),
            _shares(self._limits.max_bytes, sizes),
        )
        within = {
            partition: OffsetRange(begin, min(end, begin + offsets.get(partition, MAX_LONG)))
            for partition, (begin, end) in unread.items()
        }
        ends = {partition: offsets.end for partition, offsets in within.items()}
        return ends | place.offsets_after_bytes(within, size_in_bytes) if size_in_bytes else ends


def _shares(limit: int | None, sizes: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Each partition's share of ``limit``, in proportion to its size; empty without a limit.

    Shares are rounded down, as in Spark, but to at least 1, so that small partitions don't
    starve. The rest of the limit goes to the partitions that lost most by rounding, one each,
    so that a backlog of a multiple of the limit needs no extra micro-batch for a few records.
    """
    if limit is None:
        return {}
    total = sum(sizes.values())
    shares = {partition: max(limit * size // total, 1) for partition, size in sizes.items()}
    left = max(limit - sum(shares.values()), 0)
    by_loss = sorted(sizes, key=lambda partition: (-(limit * sizes[partition] % total), partition))
    for partition in by_loss[:left]:
        shares[partition] += 1
    return shares
