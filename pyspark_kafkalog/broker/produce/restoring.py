"""A producer whose id outlives the process: the caller keeps it, and stamps the record batches itself."""

from __future__ import annotations

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.produce.producer import Producer
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import EncodeSettings
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions


def new_producer_id(connection: ConnectionOptions) -> tuple[int, int, str]:
    """A producer id, its epoch, and the id of the cluster that gave it.

    The cluster is asked first: if it is replaced in between, the id matches no cluster and is never used.
    """
    cluster = cluster_of(connection)
    deadline = Deadline.after_ms(connection.request_timeout_ms)
    cluster_id = cluster.identity([], deadline=deadline).cluster_id
    if cluster_id is None:
        raise BrokerError(
            "Expected a cluster with an id, got one without", hint="Kafka has ids since 0.10.1."
        )
    return (*cluster.producer_id(deadline=deadline), cluster_id)


def open_producer(
    connection: ConnectionOptions,
    options: ProduceOptions,
    settings: EncodeSettings,
    producer_id: tuple[int, int, str],
) -> Producer:
    """A producer for record batches that are stamped with ``producer_id``."""
    return Producer(cluster_of(connection), options, settings, stamped_by=ProducerId(*producer_id))
