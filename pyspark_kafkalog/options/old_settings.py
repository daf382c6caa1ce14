"""Settings of Kafka's first producers and consumers, before 0.9, each with what took its place.

The names are those of kafka.producer.ProducerConfig and kafka.consumer.ConsumerConfig of 0.7 and 0.8, and of
Java's first producer where later ones do not have them. Some are librdkafka's to this day.
"""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    **dict.fromkeys(("broker.list", "metadata.broker.list"), "kafka.bootstrap.servers"),
    "connect.timeout.ms": "kafka.socket.connection.setup.timeout.ms",
    **dict.fromkeys(
        ("socket.timeout.ms", "timeout.ms", "offsets.channel.socket.timeout.ms"), "kafka.request.timeout.ms"
    ),
    "topic.metadata.refresh.interval.ms": "kafka.metadata.max.age.ms",
    **dict.fromkeys(("socket.receive.buffer.bytes", "socket.buffersize"), "kafka.receive.buffer.bytes"),
    "buffer.size": "kafka.send.buffer.bytes",
    **dict.fromkeys(
        ("refresh.leader.backoff.ms", "backoff.increment.ms", "offsets.channel.backoff.ms"),
        "kafka.retry.backoff.ms",
    ),
    # of producers
    "request.required.acks": "kafka.acks",
    "compression.codec": "kafka.compression.type",
    "message.send.max.retries": "kafka.retries",
    **dict.fromkeys(("queue.buffering.max.ms", "queue.time"), "kafka.linger.ms"),
    "max.message.size": "kafka.max.request.size",
    # of consumers
    **dict.fromkeys(("zookeeper.connect", "zk.connect"), "zookeeper.connect"),
    "offsets.storage": "offsets.storage",
    "dual.commit.enabled": "dual.commit.enabled",
    **dict.fromkeys(("fetch.message.max.bytes", "fetch.size"), "kafka.max.partition.fetch.bytes"),
    "fetch.wait.max.ms": "kafka.fetch.max.wait.ms",
    "autooffset.reset": "startingOffsets",
    **dict.fromkeys(("auto.commit.enable", "autocommit.enable"), "commitOffsets"),
    **dict.fromkeys(("mirrortopics.whitelist", "mirror.topics.whitelist"), "subscribePattern"),
    **dict.fromkeys(("mirrortopics.blacklist", "mirror.topics.blacklist"), "topics.exclude"),
}
"""Old names, each with the option that does the same now. Three are options, too, but without ``kafka.``."""

_COLUMNS = (
    "Leave it out: give the columns key and value as string or binary, or set key.format or value.format."
)
_SENDS = (
    "Leave it out: a write sends batches while it makes the next ones, and ends when brokers have"
    " acknowledged all, as kafka.acks says."
)
_HANDLER = (
    "Leave it out: callback.class hears of record batches that are sent, acknowledged or failed, transform"
    " changes rows, and auditor.class counts them."
)
_QUEUE = "Leave it out: no queue fills here. kafka.batch.size is how many bytes are sent together."
_WAITS = "Leave it out: kafka.delivery.timeout.ms limits how long a write waits."
_REBALANCES = "Leave it out: with groupMembership, a rebalance may take kafka.max.poll.interval.ms."
_SESSIONS = "Leave it out: ZooKeeper is asked with the timeouts that were the defaults of Kafka's consumers."

CHANGED: Mapping[str, str] = {
    **dict.fromkeys(("serializer.class", "key.serializer.class"), _COLUMNS),
    "producer.type": _SENDS,
    **dict.fromkeys(
        ("event.handler", "event.handler.props", "callback.handler", "callback.handler.props"), _HANDLER
    ),
    **dict.fromkeys(("queue.buffering.max.messages", "queue.size"), _QUEUE),
    "batch.num.messages": "Give kafka.batch.size instead, which is in bytes.",
    **dict.fromkeys(
        ("queue.enqueue.timeout.ms", "metadata.fetch.timeout.ms", "block.on.buffer.full"), _WAITS
    ),
    "compressed.topics": "Leave it out: kafka.compression.type compresses all topics of a write.",
    **dict.fromkeys(
        ("reconnect.interval", "reconnect.time.interval.ms"),
        "Leave it out: a connection stays open while it is used, as kafka.connections.max.idle.ms says.",
    ),
    "consumer.id": (
        "Leave it out: brokers give members of a group their ids. A member stays the same by"
        " kafka.group.instance.id."
    ),
    "num.consumer.fetchers": "Leave it out: minPartitions and maxPartitions say how many tasks read.",
    **dict.fromkeys(
        ("queued.max.message.chunks", "queuedchunks.max"),
        "Leave it out: kafka.max.partition.fetch.bytes bounds what waits.",
    ),
    **dict.fromkeys(("rebalance.max.retries", "rebalance.retries.max", "rebalance.backoff.ms"), _REBALANCES),
    "offsets.commit.max.retries": "Leave it out: commitOffsets=required repeats a commit until it succeeds.",
    "consumer.timeout.ms": (
        "Leave it out: a batch ends where its topics end, and so does a stream with"
        " .trigger(availableNow=True)."
    ),
    "autocommit.interval.ms": "Leave it out: commits don't depend on time, see commitOffsets.",
    **dict.fromkeys(
        (
            *("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms", "zookeeper.sync.time.ms"),
            *("zk.sessiontimeout.ms", "zk.connectiontimeout.ms", "zk.synctime.ms", "zk.read.num.retries"),
        ),
        _SESSIONS,
    ),
}
"""Old names of what is done in another way now, each with what to do."""
