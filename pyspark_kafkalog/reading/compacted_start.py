"""Where a query that reassembles large messages may not start: amid a compacted topic.

LinkedIn's consumer supports no seek back there (li-apache-kafka-clients, LiKafkaConsumer.seek):
all message segments of a message have one key, so of those before the offset some may be gone.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import PlaceOptions, ReadOptions

CleanupPolicy = Callable[[str], "str | None"]
"""Tells the ``cleanup.policy`` of a topic; None if it is not known."""


def check_start(options: ReadOptions, cleanup_policy: CleanupPolicy) -> None:
    """Refuse offsets as such, where they are a compacted topic's.

    :raises OptionError: naming the partition.
    """
    starting = options.starting
    if not options.large_messages.enabled or starting.are_timestamps or isinstance(starting.values, int):
        return
    amid = {partition: offset for partition, offset in sorted(starting.values.items()) if offset > 0}
    policies = {topic: cleanup_policy(topic) for topic in {partition.topic for partition in amid}}
    for partition, offset in amid.items():
        if "compact" in (policies[partition.topic] or "").split(","):
            raise OptionError(
                f"Option {starting.option!r} can't be an offset of a compacted topic where large messages"
                " are reassembled, because message segments before it may be gone",
                topic_partition=partition,
                offset=offset,
                hint="Start at earliest, latest, a timestamp or what a group has committed.",
            )


def cleanup_policies(options: PlaceOptions) -> CleanupPolicy:
    """What the brokers tell; a log directory knows no policy of its topics."""
    brokers = options.brokers
    if brokers is None:
        return lambda topic: None
    from pyspark_kafkalog.broker.cluster.cluster import cluster_of

    return lambda topic: (cluster_of(brokers).topic_config(topic) or {}).get("cleanup.policy")
