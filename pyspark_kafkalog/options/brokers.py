"""The options for brokers, which Kafka's clients call configs: to reach them, to fetch and to produce.

Values, defaults and cross-checks are those of Kafka's CommonClientConfigs,
ConsumerConfig and ProducerConfig (3.9) and of Spark's source.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.offsets_json import MAX_INT
from pyspark_kafkalog.options.security.protocol import SecurityOptions, security_options
from pyspark_kafkalog.options.table import DEFAULTS, SERVERS, from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once

REPORT_MS = 5000
"""The time that a report waits for a broker, like Kafka's own tools (ConsumerGroupCommand's --timeout)."""
MAX_IN_FLIGHT_IF_IDEMPOTENT = 5
"""Requests to a broker that an idempotent producer may have on the way."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The options to reach a cluster, also the key of its connections. A buffer of None is the system's."""

    bootstrap_servers: tuple[str, ...]
    client_id: str = from_option("kafka.client.id")
    security: SecurityOptions = field(default_factory=SecurityOptions, repr=False)
    request_timeout_ms: int = from_option("kafka.request.timeout.ms")
    connections_max_idle_ms: int = from_option("kafka.connections.max.idle.ms")
    metadata_max_age_ms: int = from_option("kafka.metadata.max.age.ms")
    retry_backoff_ms: int = from_option("kafka.retry.backoff.ms")
    retry_backoff_max_ms: int = from_option("kafka.retry.backoff.max.ms")
    reconnect_backoff_ms: int = from_option("kafka.reconnect.backoff.ms")
    reconnect_backoff_max_ms: int = from_option("kafka.reconnect.backoff.max.ms")
    socket_connection_setup_timeout_ms: int = from_option("kafka.socket.connection.setup.timeout.ms")
    receive_buffer_bytes: int | None = from_option("kafka.receive.buffer.bytes")
    send_buffer_bytes: int | None = from_option("kafka.send.buffer.bytes")
    client_dns_lookup: str = from_option("kafka.client.dns.lookup")

    @property
    def of_report(self) -> ConnectionOptions:
        """The options for a report, which waits for :data:`REPORT_MS` or the time that the user has set."""
        is_set = self.request_timeout_ms != DEFAULTS["kafka.request.timeout.ms"]
        return self if is_set else replace(self, request_timeout_ms=REPORT_MS)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """The options to fetch and look up offsets; ``num_retries`` counts all attempts, as in Spark's source."""

    client_rack: str = from_option("kafka.client.rack")
    fetch_min_bytes: int = from_option("kafka.fetch.min.bytes")
    fetch_max_wait_ms: int = from_option("kafka.fetch.max.wait.ms")
    max_partition_fetch_bytes: int = from_option("kafka.max.partition.fetch.bytes")
    fetch_max_bytes: int = from_option("kafka.fetch.max.bytes")
    poll_timeout_ms: int = from_option("kafkaConsumer.pollTimeoutMs")
    num_retries: int = from_option("fetchOffset.numRetries")
    retry_interval_ms: int = from_option("fetchOffset.retryIntervalMs")


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """The options to produce; ``acks`` -1 is all. ``linger_ms`` counts in the delivery timeout only."""

    acks: int = from_option("kafka.acks")
    enable_idempotence: bool = from_option("kafka.enable.idempotence")
    max_in_flight: int = from_option("kafka.max.in.flight.requests.per.connection")
    max_request_size: int = from_option("kafka.max.request.size")
    delivery_timeout_ms: int = from_option("kafka.delivery.timeout.ms")
    request_timeout_ms: int = from_option("kafka.request.timeout.ms")
    retries: int = from_option("kafka.retries")
    linger_ms: int = from_option("kafka.linger.ms")
    buffer_memory: int = from_option("kafka.buffer.memory")


def connection_options(user: UserOptions) -> ConnectionOptions:
    """The options to reach the brokers that ``kafka.bootstrap.servers`` names."""
    return user.fill(
        ConnectionOptions, bootstrap_servers=user.value(SERVERS) or (), security=security_options(user)
    )


def produce_options(user: UserOptions) -> ProduceOptions:
    """The options of a writer, after the cross-checks of Kafka's ProducerConfig.

    :raises OptionError: if the user asks for idempotence or a delivery timeout that other options rule out.
    """
    produce = user.fill(ProduceOptions)
    return replace(
        produce,
        enable_idempotence=_is_idempotent(user, produce),
        delivery_timeout_ms=_delivery_timeout(user, produce),
    )


def _is_idempotent(user: UserOptions, produce: ProduceOptions) -> bool:
    name = "kafka.enable.idempotence"
    if not produce.enable_idempotence:
        return False
    conflicts = [
        needed
        for holds, needed in (
            (produce.acks == -1, "kafka.acks=all"),
            (produce.retries > 0, "kafka.retries above 0"),
            (
                produce.max_in_flight <= MAX_IN_FLIGHT_IF_IDEMPOTENT,
                f"kafka.max.in.flight.requests.per.connection up to {MAX_IN_FLIGHT_IF_IDEMPOTENT}",
            ),
        )
        if not holds
    ]
    if conflicts and name in user:
        raise OptionError(
            f"Option {name!r} needs {' and '.join(conflicts)}", hint="Change these, or leave it out."
        )
    if conflicts:
        log_once(logging.INFO, "Writes are not idempotent: that needs %s", " and ".join(conflicts))
    return not conflicts


def _delivery_timeout(user: UserOptions, produce: ProduceOptions) -> int:
    name = "kafka.delivery.timeout.ms"
    lowest = min(produce.linger_ms + produce.request_timeout_ms, MAX_INT)
    if produce.delivery_timeout_ms < lowest and name in user:
        raise OptionError(
            f"Option {name!r}: expected at least kafka.linger.ms + kafka.request.timeout.ms, which is"
            f" {lowest}, got {produce.delivery_timeout_ms}",
            hint="It is in milliseconds.",
        )
    return max(produce.delivery_timeout_ms, lowest)
