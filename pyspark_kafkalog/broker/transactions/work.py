"""What one commit writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_kafkalog.broker.transactions.folders import Folders
from pyspark_kafkalog.broker.transactions.marker import transactional_id
from pyspark_kafkalog.broker.transactions.staging import Staged
from pyspark_kafkalog.model import Plan, QueryBatch, TopicPartition


@dataclass(frozen=True, slots=True)
class Work:
    """What a commit writes: the rows that tasks have staged, and a group's offsets of ``plan``."""

    batch: QueryBatch
    staged: Sequence[Staged]
    folders: Folders
    plan: Plan

    @property
    def transactional_id(self) -> str:
        """That of the batch's query or job."""
        return transactional_id(self.batch.query_id)

    @property
    def partitions(self) -> set[TopicPartition]:
        """All that get rows."""
        return {partition for staged in self.staged for partition in staged.partitions}

    @property
    def size(self) -> int:
        """Bytes of all that is staged."""
        return sum(staged.size for staged in self.staged)

    @property
    def records(self) -> int:
        """The number of all that is staged."""
        return sum(staged.records for staged in self.staged)
