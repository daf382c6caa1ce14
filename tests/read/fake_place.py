"""A place of records that is a few numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import (
    BatchHeader,
    Fetch,
    OffsetRange,
    Seen,
    Slice,
    StoredSize,
    TopicPartition,
    Watermarks,
)


@dataclass
class FakePlace:
    """Partitions with bounds, a timestamp for each offset, and record batches of one size.

    ``bounds`` are (log start offset, high watermark) or, with an open transaction,
    (log start offset, high watermark, last stable offset). The record at offset ``n``
    has timestamp ``1000 * n``.
    """

    bounds: dict[TopicPartition, tuple[int, ...]]
    bytes_per_record: dict[TopicPartition, int] = field(default_factory=dict)
    records_per_batch: int = 1
    ids: dict[str, str] = field(default_factory=dict)
    epochs: dict[TopicPartition, int] = field(default_factory=dict)
    led_by: dict[TopicPartition, int] = field(default_factory=dict)
    ended: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """What it says of the end of any leader epoch."""
    batches: dict[TopicPartition, BatchHeader] = field(default_factory=dict)
    """The one batch of a partition that it shows, if it holds the offset."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    expected: dict[TopicPartition, Seen] = field(default_factory=dict)
    """What the planner expects of the place."""
    failures: dict[TopicPartition, KafkaLogError] = field(default_factory=dict)
    """Partitions that don't tell their bounds, and why; only :meth:`try_watermarks` asks."""

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
        topics: dict[str, tuple[int, ...]] = {}
        for topic, partition in sorted(self.bounds):
            if names is None or topic in names:
                topics[topic] = (*topics.get(topic, ()), partition)
        return topics

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: self.ids.get(topic, "") for topic, _ in self.bounds if topic in topics}

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        bounds = self.watermarks(partitions, read_committed=read_committed)
        return {p: bounds[p].end(read_committed=read_committed) for p in sorted(bounds)}

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.epochs[partition] for partition in partitions if partition in self.epochs}

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {partition: self.led_by[partition] for partition in partitions if partition in self.led_by}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return {partition: self.ended[partition] for partition in epochs if partition in self.ended}

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
        return {
            partition: batch
            for partition, batch in self.batches.items()
            if partition in offsets and batch.base_offset <= offsets[partition] <= batch.last_offset
        }

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        self.expected[partition] = seen

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        return {
            partition: Watermarks(start, end, stable[0] if stable and read_committed else end)
            for partition, (start, end, *stable) in self.bounds.items()
            if partition in partitions
        }

    def try_watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        found = self.watermarks(
            [p for p in partitions if p not in self.failures], read_committed=read_committed
        )
        return found, {p: error for p, error in self.failures.items() if p in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found: dict[TopicPartition, int | None] = {}
        for partition, timestamp in times.items():
            start, end, *_ = self.bounds[partition]
            offset = max(start, -(-timestamp // 1000))
            found[partition] = offset if offset < end else None
        return found

    def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            partition: 1000 * (end - 1) if start < end else -1
            for partition, (start, end, *_) in self.bounds.items()
            if partition in partitions
        }

    def oldest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            partition: 1000 * start if start < end else -1
            for partition, (start, end, *_) in self.bounds.items()
            if partition in partitions
        }

    def stored_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredSize]:
        return {
            partition: StoredSize(size * (self.bounds[partition][1] - self.bounds[partition][0]), (0,))
            for partition, size in self.bytes_per_record.items()
            if partition in partitions
        }

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        return {partition: float(self.bytes_per_record[partition]) for partition in partitions}

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        raise AssertionError("planning reads no records")

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.configs.get(topic, {})

    def offsets_after_bytes(
        self, ranges: Mapping[TopicPartition, OffsetRange], max_bytes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        ends = {}
        for partition, (start, end) in ranges.items():
            size = self.bytes_per_record[partition] * self.records_per_batch
            ends[partition] = min(start + max(max_bytes[partition] // size, 1) * self.records_per_batch, end)
        return ends
