"""What a query that reassembles large messages commits to its group, and where it starts from one.

As LinkedIn's consumer (li-apache-kafka-clients, LiKafkaConsumerImpl), so that either can take a group
over from the other: the offset that is committed is the *safe offset*, where reading must begin
so that no message segment of an undelivered message is missed, and the metadata is the offset
from which on messages are wanted, a comma, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark_kafkalog.largemessage.metadata import commit_metadata, consumer_high_watermark
from pyspark_kafkalog.model import CommittedOffset, CommittedOffsets, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.reading.open_messages import OpenMessages


class SafeOffsets:
    """What to commit when a query has processed all below some offsets.

    What the group has committed before proves nothing about messages that began below it: LinkedIn's
    consumer commits as it is any offset below its first message, and one after a control
    record, whatever is open there.
    """

    def __init__(self, open_messages: OpenMessages) -> None:
        self._open_messages = open_messages

    def __call__(self, ends: Offsets) -> Mapping[TopicPartition, CommittedOffset]:
        """For each partition the safe offset at its end, and the end as metadata.

        :raises KafkaLogError: if message segments can't be read.
        """
        safe = self._open_messages.safe_offsets(ends)
        return {
            partition: CommittedOffset(safe[partition], metadata=commit_metadata(end))
            for partition, end in ends.items()
        }


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """The offsets of groups as one starts from them who looks back for earlier message segments.

    Messages below the offset in the metadata were delivered before. One beyond the end of the log
    is taken as any committed offset beyond it.
    """

    groups: CommittedOffsets

    def committed(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """As :meth:`.model.CommittedOffsets.committed`, each with the offset of the first wanted message."""
        found = self.groups.committed(group, partitions)
        return {
            partition: replace(committed, offset=_wanted(committed)) for partition, committed in found.items()
        }


def _wanted(committed: CommittedOffset) -> int:
    wanted = consumer_high_watermark(committed.metadata)
    return committed.offset if wanted is None else max(wanted, committed.offset)
