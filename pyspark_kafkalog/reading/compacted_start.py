"""Where a query that reassembles large messages may not start: amid a compacted topic.

LinkedIn's consumer supports no seek back there (li-apache-kafka-clients, LiKafkaConsumer.seek):
all message segments of a message have one key, so of those before the offset some may be gone.
"""

from __future__ import annotations

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import Place
from pyspark_kafkalog.options.settings import ReadOptions


def check_start(options: ReadOptions, place: Place) -> None:
    """Refuse offsets as such, where they are a compacted topic's.

    :raises OptionError: naming the partition.
    """
    starting = options.starting
    if not options.large_messages.enabled or starting.are_timestamps or isinstance(starting.values, int):
        return
    amid = {partition: offset for partition, offset in sorted(starting.values.items()) if offset > 0}
    topics = {partition.topic for partition in amid}
    policies = {topic: place.topic_config(topic).get("cleanup.policy", "") for topic in topics}
    for partition, offset in amid.items():
        if "compact" in policies[partition.topic].split(","):
            raise OptionError(
                f"Option {starting.option!r} can't be an offset of a compacted topic where large messages"
                " are reassembled, because message segments before it may be gone",
                topic_partition=partition,
                offset=offset,
                hint="Start at earliest, latest, a timestamp or what a group has committed.",
            )
