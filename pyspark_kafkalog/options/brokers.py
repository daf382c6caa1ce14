"""How brokers are reached, read and written to: the options that Kafka's clients call configs.

Values, defaults and cross-checks are those of Kafka's CommonClientConfigs,
ConsumerConfig and ProducerConfig (3.9) and of Spark's source.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options import values as option_values
from pyspark_kafkalog.options.kafka_names import SERVERS
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG
from pyspark_kafkalog.options.security.protocol import SecurityOptions, security_options
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_SERVER = re.compile(
    r"(?:\w+://)?(?P<host>\[(?P<ipv6>[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%[\w.-]+)?)\]|[\w.-]+):(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_MAX_IN_FLIGHT_IF_IDEMPOTENT = 5


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach a cluster; the key of what a process keeps about one. A buffer of None is the system's."""

    bootstrap_servers: tuple[str, ...]
    client_id: str = "pyspark-kafkalog"
    security: SecurityOptions = field(default_factory=SecurityOptions, repr=False)
    request_timeout_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    socket_connection_setup_timeout_ms: int = 10_000
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    client_dns_lookup: str = "use_all_dns_ips"


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How to fetch and to look up offsets; ``num_retries`` counts all attempts, as Spark's source does."""

    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 8 << 20
    fetch_max_bytes: int = 50 << 20
    poll_timeout_ms: int = 120_000
    num_retries: int = 3
    retry_interval_ms: int = 1000


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How to produce; ``acks`` -1 is all. ``linger_ms`` counts in the delivery timeout only."""

    acks: int = -1
    enable_idempotence: bool = True
    max_in_flight: int = 5
    max_request_size: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retries: int = MAX_INT
    linger_ms: int = 0
    buffer_memory: int = 32 << 20


def connection_options(given: UserOptions) -> ConnectionOptions:
    """How to reach the brokers that ``kafka.bootstrap.servers`` names."""
    idle = given.integer("kafka.connections.max.idle.ms", -1, MAX_LONG)
    return ConnectionOptions(
        bootstrap_servers=_servers(given.text(SERVERS) or ""),
        client_id=given.text("kafka.client.id") or "",
        security=security_options(given),
        request_timeout_ms=given.integer("kafka.request.timeout.ms", 1),
        connections_max_idle_ms=MAX_LONG if idle < 0 else idle,
        metadata_max_age_ms=given.integer("kafka.metadata.max.age.ms", 0, MAX_LONG),
        retry_backoff_ms=given.integer("kafka.retry.backoff.ms", 0, MAX_LONG),
        retry_backoff_max_ms=given.integer("kafka.retry.backoff.max.ms", 0, MAX_LONG),
        reconnect_backoff_ms=given.integer("kafka.reconnect.backoff.ms", 0, MAX_LONG),
        reconnect_backoff_max_ms=given.integer("kafka.reconnect.backoff.max.ms", 0, MAX_LONG),
        socket_connection_setup_timeout_ms=given.integer(
            "kafka.socket.connection.setup.timeout.ms", 1, MAX_LONG
        ),
        receive_buffer_bytes=_buffer(given, "kafka.receive.buffer.bytes"),
        send_buffer_bytes=_buffer(given, "kafka.send.buffer.bytes"),
        client_dns_lookup=given.choice(
            "kafka.client.dns.lookup", "use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"
        ),
    )


def _servers(text: str) -> tuple[str, ...]:
    servers: dict[str, None] = {}
    for number, item in enumerate((part.strip() for part in text.split(",")), 1):
        if not item:
            continue
        match = _SERVER.fullmatch(item)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            # What stands before an @ may be a password.
            item = "" if "@" in item else option_values.shown(SERVERS, item)
            raise OptionError(
                f"Option {SERVERS!r} must have host:port as its {number}. item{item}",
                hint="Expected e.g. broker1:9092,broker2:9092 or [::1]:9092.",
            )
        servers[f"{match['host']}:{int(match['port'])}"] = None
    if not servers:
        raise OptionError(f"Option {SERVERS!r} names no broker", hint="Expected e.g. broker1:9092.")
    return tuple(servers)


def _buffer(given: UserOptions, name: str) -> int | None:
    size = given.integer(name, -1)
    return None if size == -1 else size


def fetch_options(given: UserOptions) -> FetchOptions:
    """How a reader fetches."""
    return FetchOptions(
        client_rack=given.trimmed("kafka.client.rack") or "",
        fetch_min_bytes=given.integer("kafka.fetch.min.bytes", 0),
        fetch_max_wait_ms=given.integer("kafka.fetch.max.wait.ms", 0),
        max_partition_fetch_bytes=given.integer("kafka.max.partition.fetch.bytes", 0),
        fetch_max_bytes=given.integer("kafka.fetch.max.bytes", 0),
        poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", 1, MAX_LONG),
        num_retries=given.integer("fetchOffset.numRetries", 1),
        retry_interval_ms=given.integer("fetchOffset.retryIntervalMs", 0, MAX_LONG),
    )


def produce_options(given: UserOptions) -> ProduceOptions:
    """How a writer produces, after the cross-checks of Kafka's ProducerConfig.

    :raises OptionError: for idempotence or a delivery timeout that was asked for and cannot be.
    """
    acks = int({"all": "-1"}.get(word := given.choice("kafka.acks", "all", "-1", "0", "1"), word))
    retries = given.integer("kafka.retries", 0)
    max_in_flight = given.integer("kafka.max.in.flight.requests.per.connection", 1)
    request_timeout = given.integer("kafka.request.timeout.ms", 1)
    linger = given.integer("kafka.linger.ms", 0, MAX_LONG)
    return ProduceOptions(
        acks=acks,
        enable_idempotence=_is_idempotent(given, acks, retries, max_in_flight),
        max_in_flight=max_in_flight,
        max_request_size=given.integer("kafka.max.request.size", 0),
        delivery_timeout_ms=_delivery_timeout(given, min(linger + request_timeout, MAX_INT)),
        request_timeout_ms=request_timeout,
        retries=retries,
        linger_ms=linger,
        buffer_memory=given.integer("kafka.buffer.memory", 0, MAX_LONG),
    )


def _is_idempotent(given: UserOptions, acks: int, retries: int, max_in_flight: int) -> bool:
    name = "kafka.enable.idempotence"
    if not given.boolean(name):
        return False
    conflicts = [
        needed
        for holds, needed in (
            (acks == -1, "kafka.acks=all"),
            (retries > 0, "kafka.retries above 0"),
            (
                max_in_flight <= _MAX_IN_FLIGHT_IF_IDEMPOTENT,
                f"kafka.max.in.flight.requests.per.connection up to {_MAX_IN_FLIGHT_IF_IDEMPOTENT}",
            ),
        )
        if not holds
    ]
    if conflicts and name in given:
        raise OptionError(
            f"Option {name!r} needs {' and '.join(conflicts)}", hint="Change these, or leave it out."
        )
    if conflicts:
        log_once(logging.INFO, "Writing is not idempotent, which would need %s", " and ".join(conflicts))
    return not conflicts


def _delivery_timeout(given: UserOptions, lowest: int) -> int:
    name = "kafka.delivery.timeout.ms"
    timeout = given.integer(name, 0)
    if timeout < lowest and name in given:
        raise OptionError(
            f"Option {name!r} should be equal to or larger than kafka.linger.ms + kafka.request.timeout.ms,"
            f" which is {lowest}"
        )
    return max(timeout, lowest)
