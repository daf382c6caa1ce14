"""What connections to brokers, fetches from them and produces to them are told; names and defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_kafkalog.options.security import SecurityOptions


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Which cluster, and how to talk to it. Hashable: connections are kept by it."""

    bootstrap_servers: tuple[str, ...]
    client_id: str = "pyspark-kafkalog"
    security: SecurityOptions = field(default=SecurityOptions(), repr=False)
    request_timeout_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    client_dns_lookup: str = "use_all_dns_ips"


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How records are fetched. The largest fetch of a partition is ours: Kafka's default is 1 MiB."""

    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 8 << 20
    fetch_max_bytes: int = 50 << 20
    poll_timeout_ms: int = 120_000
    num_retries: int = 3
    retry_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How record batches are produced. ``acks`` is 0, 1 or -1 for all."""

    acks: int = -1
    enable_idempotence: bool = True
    max_in_flight: int = 5
    max_request_size: int = 1 << 20
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retries: int = 2**31 - 1
    buffer_memory: int = 32 << 20
