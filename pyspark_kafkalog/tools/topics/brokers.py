"""The brokers of a cluster: what its metadata says of each, and whether it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from kafka.protocol.admin import DescribeQuorumRequest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from pyspark_kafkalog.broker.cluster.cluster import Cluster, cluster_of
from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION, metadata_request
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import BrokerState
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.tools.doctor.reach import Attempt, reach_brokers

_METADATA_LOG = "__cluster_metadata"


def describe_brokers(options: ConnectionOptions) -> list[BrokerState]:
    """See :meth:`pyspark_kafkalog.client.kafka.Kafka.brokers`."""
    cluster = cluster_of(options)
    response = cluster.call(
        metadata_request(None, create=False), doing="Looking up brokers", max_version=MAX_VERSION
    )
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    led = Counter(partition.leader_id for partition in partitions)
    replicas = Counter(node_id for partition in partitions for node_id in partition.replica_nodes)
    listed = {broker.node_id: broker for broker in response.brokers}
    attempts = reach_brokers(
        options, {node_id: Address(broker.host, broker.port) for node_id, broker in listed.items()}
    )
    controller = _controller(cluster, response, attempts.values())
    found = []
    for node_id in sorted(listed.keys() | replicas.keys()):
        broker, attempt = listed.get(node_id), attempts.get(node_id)
        if attempt is None:
            note = "it has replicas, but the cluster does not list it now"
        else:
            note = "" if attempt.error is None else ": ".join([*attempt.steps[-1:], str(attempt.error)])
        found.append(
            BrokerState(
                id=node_id,
                host=None if broker is None else broker.host,
                port=None if broker is None else broker.port,
                rack=None if broker is None else broker.rack,
                version=None if attempt is None else _version(attempt),
                is_controller=None if controller is None else node_id == controller,
                leads=led[node_id],
                replicas=replicas[node_id],
                answers=attempt is not None and attempt.error is None,
                note=note,
            )
        )
    return found


def _version(attempt: Attempt) -> str | None:
    """The version of Kafka that has these versions of APIs."""
    if not attempt.versions:
        return None
    return ".".join(map(str, infer_broker_version_from_api_versions(attempt.versions)))


def _controller(cluster: Cluster, response: Any, attempts: Collection[Attempt]) -> int | None:
    """The controller's node id, None if no one says.

    Brokers of KRaft name any broker in their metadata (KIP-590), but know the leader of the metadata log.
    """
    if not any(DescribeQuorumRequest.API_KEY in attempt.versions for attempt in attempts):
        return int(response.controller_id) if response.controller_id >= 0 else None
    kind = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[kind(topic_name=_METADATA_LOG, partitions=[kind.PartitionData(partition_index=0)])]
    )
    try:
        answer = cluster.call(request, doing="Looking up the controller", error_code=_error_code)
    except BrokerError:  # it may be hidden by ACLs, or there is none
        return None
    return int(answer.topics[0].partitions[0].leader_id)


def _error_code(response: Any) -> int:
    return int(response.error_code or response.topics[0].partitions[0].error_code)
