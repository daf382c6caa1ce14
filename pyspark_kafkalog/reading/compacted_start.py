"""Refuses starting offsets within a compacted topic for queries that reassemble large messages.

LinkedIn's consumer does not support seeking there either (li-apache-kafka-clients, LiKafkaConsumer.seek):
all segments of a message have one key, so compaction may have removed some before the offset.
"""

from __future__ import annotations

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import Place
from pyspark_kafkalog.options.settings import ReadOptions


def check_start(options: ReadOptions, place: Place) -> None:
    """Refuse ``startingOffsets`` that name an offset of a compacted topic.

    :raises OptionError: naming the partition.
    """
    starting = options.starting
    if not options.large_messages.enabled or starting.are_timestamps or isinstance(starting.values, int):
        return
    offsets = {partition: offset for partition, offset in sorted(starting.values.items()) if offset > 0}
    topics = {partition.topic for partition in offsets}
    policies = {topic: place.topic_config(topic).get("cleanup.policy", "") for topic in topics}
    for partition, offset in offsets.items():
        if "compact" in policies[partition.topic].split(","):
            raise OptionError(
                f"Option {starting.option!r} names an offset of a compacted topic, where earlier message"
                " segments may be gone",
                topic_partition=partition,
                offset=offset,
                hint="Start at earliest, latest, a timestamp or a group's committed offsets.",
            )
