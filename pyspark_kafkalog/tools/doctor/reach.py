"""Tries the way to each broker, step by step, and says where it ends.

A step takes as long as the user's options allow, but no longer than :data:`STEP_SECONDS`. Each broker
has a thread of its own: there is no other way to wait for a name server that is silent.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION, metadata_request
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address, Step
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError, KafkaLogError
from pyspark_kafkalog.model.topics import INTERNAL_TOPICS
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.tls import tls_context

STEP_SECONDS = 5
_SECONDS = STEP_SECONDS * len(Step)
_AT_ONCE = 50
"""Brokers that are tried at the same time; the doctor tries no more of those that are advertised."""


@dataclass(slots=True)
class Attempt:
    """The result of connecting to one address."""

    address: str
    node_id: int | None = None
    """The broker that advertises the address; None for a bootstrap server."""
    steps: list[str] = field(default_factory=list)
    """The steps that began. An error is that of the last one; without any step, that of the options."""
    error: KafkaLogError | None = None
    brokers: Mapping[int, str] = field(default_factory=dict)
    """The addresses that all brokers advertise, by node id, as this one says."""
    leaderless: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The partitions of internal topics that have no leader, as this broker says."""
    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """See :attr:`.wire.connection.Connection.versions`."""


def reach(options: ConnectionOptions) -> list[Attempt]:
    """Try all bootstrap servers, then the other addresses that the cluster advertises."""
    servers = [str(Address.parse(server)) for server in options.bootstrap_servers]
    attempts = _try([Attempt(server) for server in servers], options)
    brokers = next((attempt.brokers for attempt in attempts if attempt.error is None), {})
    advertised = [Attempt(address, node_id) for node_id, address in brokers.items() if address not in servers]
    return attempts + _try(advertised[:_AT_ONCE], options)


def reach_brokers(options: ConnectionOptions, addresses: Mapping[int, Address]) -> dict[int, Attempt]:
    """Try these brokers, by node id, so many at a time."""
    attempts = [Attempt(str(address), node_id) for node_id, address in addresses.items()]
    parts = (attempts[start : start + _AT_ONCE] for start in range(0, len(attempts), _AT_ONCE))
    tried = [attempt for part in parts for attempt in _try(part, options)]
    return dict(zip(addresses, tried, strict=True))


def _try(attempts: Sequence[Attempt], options: ConnectionOptions) -> list[Attempt]:
    limit_ms = STEP_SECONDS * 1000
    bounded = replace(
        options,
        socket_connection_setup_timeout_ms=min(options.socket_connection_setup_timeout_ms, limit_ms),
        request_timeout_ms=min(options.request_timeout_ms, limit_ms),
    )
    threads = [
        threading.Thread(target=_connect, args=(attempt, bounded), daemon=True) for attempt in attempts
    ]
    for thread in threads:
        thread.start()
    deadline = Deadline.after(_SECONDS)
    for thread in threads:
        thread.join(deadline.left)
    # What a thread finds later is left out.
    return [
        replace(attempt, steps=[*attempt.steps], error=_no_end(attempt)) if thread.is_alive() else attempt
        for attempt, thread in zip(attempts, threads, strict=True)
    ]


def _no_end(attempt: Attempt) -> KafkaLogError:
    return BrokerConnectionError(
        f"No end after {_SECONDS} s",
        broker=attempt.address,
        hint="Check the name servers of this machine."
        if attempt.steps == [Step.DNS.value]
        else "Check the broker.",
    )


def _connect(attempt: Attempt, options: ConnectionOptions) -> None:
    def begin(step: Step) -> None:
        if step is not Step.SASL or options.security.protocol.startswith("SASL_"):
            attempt.steps.append(step.value)

    try:
        connection = Connection.open(
            Address.parse(attempt.address), options, tls=tls_context(options.security.tls), begin=begin
        )
        try:
            attempt.steps.append("metadata")
            request = metadata_request(INTERNAL_TOPICS, create=False)
            response = connection.call(request, max_version=MAX_VERSION)
            attempt.versions = connection.versions
            with connection.reading():
                attempt.brokers = {
                    broker.node_id: str(Address(broker.host, broker.port)) for broker in response.brokers
                }
                lacking = {
                    topic.name: sorted(p.partition_index for p in topic.partitions if p.leader_id < 0)
                    for topic in response.topics
                }
                attempt.leaderless = {topic: lacking[topic] for topic in sorted(lacking) if lacking[topic]}
        finally:
            connection.close()
    except KafkaLogError as e:
        attempt.error = e
    except Exception as e:  # its text may be anything
        attempt.error = BrokerError(
            f"It failed by {type(e).__name__}",
            broker=attempt.address,
            hint="Report it, with the options' names.",
        )
