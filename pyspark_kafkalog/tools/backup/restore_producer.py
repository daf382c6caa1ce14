"""The producer of a restore: its id outlives the process, and the restore stamps the record batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.options.settings import WriteOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.produce.producer import Producer


def new_producer_id(options: WriteOptions) -> tuple[int, int, str]:
    """A producer id, its epoch, and the id of the cluster that gave it.

    The cluster is asked first: if it is replaced in between, the id matches no cluster and is never used.

    :raises BrokerError: if the brokers name no cluster.
    """
    from pyspark_kafkalog.broker.cluster.cluster import cluster_of
    from pyspark_kafkalog.broker.wire.deadline import Deadline

    assert options.brokers is not None
    cluster = cluster_of(options.brokers)
    deadline = Deadline.after_ms(options.brokers.request_timeout_ms)
    cluster_id = cluster.identity([], deadline=deadline).cluster_id
    if cluster_id is None:
        raise BrokerError(
            "Expected a cluster with an id, got one without", hint="Kafka has ids since 0.10.1."
        )
    return (*cluster.producer_id(deadline=deadline), cluster_id)


def open_producer(options: WriteOptions, producer_id: tuple[int, int, str]) -> Producer:
    """A producer for record batches that are stamped with ``producer_id``.

    A context manager. Its ``finish`` gives for each partition ``records``, ``first_offset`` and
    ``last_offset`` as the brokers acknowledged them.
    """
    from pyspark_kafkalog.broker.cluster.cluster import cluster_of
    from pyspark_kafkalog.broker.produce.ids import ProducerId
    from pyspark_kafkalog.broker.produce.producer import Producer

    assert options.brokers is not None
    assert options.produce is not None
    cluster, stamped_by = cluster_of(options.brokers), ProducerId(*producer_id)
    return Producer(cluster, options.produce, options.encode_settings, stamped_by=stamped_by)
