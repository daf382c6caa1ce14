"""Resets for readers that reassemble large messages, so that no message is missed where they continue."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from pyspark_kafkalog.admin.reset import ResetStep
from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.largemessage.metadata import commit_metadata
from pyspark_kafkalog.model import AssemblerSettings, Place, TopicPartition
from pyspark_kafkalog.reading.open_messages import OpenMessages
from pyspark_kafkalog.reading.ranges import ReadRules

_DEFAULTS = AssemblerSettings()


def for_whole_messages(
    place: Place, steps: Collection[ResetStep], settings: AssemblerSettings = _DEFAULTS
) -> list[ResetStep]:
    """The steps of :func:`.reset.plan_reset` with safe offsets, and the first wanted message in the metadata.

    After such a reset LinkedIn's consumer, or a query with ``large.message.enabled``, continues with the
    first message whose offset is at least that of the step. A seek back within the messages that the
    consumer tracks does the same (LiKafkaConsumerImpl.seek). Message segments of open and aborted
    transactions count, too, so no reader misses a message.

    :raises KafkaLogError: if records before an offset can't be read.
    """
    rules = ReadRules(pa.schema([]), read_committed=False, fail_on_data_loss=True, limits=DecodeLimits())
    ends = {TopicPartition(step.topic, step.partition): step.offset for step in steps}
    safe = OpenMessages(lambda: place, rules, settings).safe_offsets(ends)
    return [
        replace(
            step,
            offset=safe[TopicPartition(step.topic, step.partition)],
            metadata=commit_metadata(step.offset),
            note=step.note or _note(step.offset, safe[TopicPartition(step.topic, step.partition)]),
            leader_epoch=-1,
        )
        for step in steps
    ]


def _note(wanted: int, safe: int) -> str:
    return "" if wanted == safe else f"for messages from offset {wanted} on"
