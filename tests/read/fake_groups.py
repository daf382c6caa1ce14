"""Consumer groups that are a dictionary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, Group, TopicPartition


@dataclass
class FakeGroups:
    """What each group has committed. ``commits`` counts calls, which raise ``trouble`` if there is any."""

    offsets: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    trouble: Exception | None = None
    commits: int = 0
    require_stable: bool = False
    """Whether the last who asked waits for open transactions."""
    failures: dict[str, KafkaLogError] = field(default_factory=dict)
    """Groups that can't be read, and why."""
    unlisted: list[KafkaLogError] = field(default_factory=list)
    """Why others are not listed."""

    def __call__(self) -> FakeGroups:
        return self

    def group_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.offsets))

    def try_group_ids(self) -> tuple[tuple[str, ...], list[KafkaLogError]]:
        return self.group_ids(), self.unlisted

    def describe(self, groups: Collection[str]) -> dict[str, Group]:
        return {group: Group(group, "Empty") for group in groups if group in self.offsets}

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        self.require_stable = require_stable
        offsets = self.offsets.get(group, {})
        return {
            partition: offsets[partition]
            for partition in offsets
            if partitions is None or partition in partitions
        }

    def committed_by(
        self, groups: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        return {group: self.failures.get(group) or self.committed(group) for group in groups}

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        self.commits += 1
        if self.trouble is not None:
            raise self.trouble
        self.offsets.setdefault(group, {}).update(offsets)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.offsets.get(group, {}).pop(partition, None)

    def delete_group(self, group: str) -> None:
        del self.offsets[group]
