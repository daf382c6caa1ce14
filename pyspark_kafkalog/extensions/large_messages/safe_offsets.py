"""Safe offsets: what a query that reassembles large messages commits, and how it starts from a group.

It follows LinkedIn's consumer (li-apache-kafka-clients, LiKafkaConsumerImpl), so that either can take
a group over from the other. The committed offset is the *safe offset*: reading must begin there to
miss no message segment of an undelivered message. The metadata is the offset of the first wanted
message and a comma, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark_kafkalog.extensions.large_messages.format import commit_metadata, consumer_high_watermark
from pyspark_kafkalog.extensions.large_messages.looking_back import OpenMessages
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.groups import CommittedOffsets
from pyspark_kafkalog.options.offsets_json import Offsets


class SafeOffsets:
    """The offsets to commit when a query has processed everything below some offsets.

    The group's earlier commit proves nothing about messages that began below it: LinkedIn's consumer
    commits offsets below its first message unchanged, and also those after a control record,
    whatever is open there.
    """

    def __init__(self, open_messages: OpenMessages) -> None:
        self._open_messages = open_messages

    def __call__(self, ends: Offsets) -> Mapping[TopicPartition, CommittedOffset]:
        """The safe offset at the end of each partition, with the end as metadata.

        :raises KafkaLogError: if message segments can't be read.
        """
        safe = self._open_messages.safe_offsets(ends)
        return {
            partition: CommittedOffset(safe[partition], metadata=commit_metadata(end))
            for partition, end in ends.items()
        }


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """The start from a group of readers that look back for earlier message segments.

    Messages below the offset in the metadata have been delivered. An offset beyond the end of the
    log is treated like any committed offset beyond it.
    """

    groups: CommittedOffsets

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """Like :meth:`.groups.CommittedOffsets.committed`, with the offset of the first wanted message."""
        found = self.groups.committed(group, partitions, require_stable=require_stable)
        return {
            partition: replace(committed, offset=wanted, leader_epoch=-1)
            if (wanted := _wanted(committed)) != committed.offset
            else committed  # the epoch is that of the record before the safe offset
            for partition, committed in found.items()
        }


def _wanted(committed: CommittedOffset) -> int:
    wanted = consumer_high_watermark(committed.metadata)
    return committed.offset if wanted is None else max(wanted, committed.offset)
