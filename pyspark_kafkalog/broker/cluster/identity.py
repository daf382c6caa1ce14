"""A cluster's identity, which reveals that a cluster was set up anew."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION, Metadata, metadata_request
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline

_cluster_ids: WeakKeyDictionary[Connection, str | None] = WeakKeyDictionary()
"""A broker process belongs to one cluster, so an entry is valid while its connection is open."""


class Identity(NamedTuple):
    """A cluster's id, None before Kafka 0.10.1, and the ids of topics in it, empty before Kafka 2.8."""

    cluster_id: str | None
    topic_ids: dict[str, str]


def identity_in(response: Any, topics: Collection[str]) -> Identity:
    """The identity in a response to :func:`metadata_request`, without topics that do not exist."""
    metadata = Metadata()
    metadata.learn(response, topics)
    return Identity(response.cluster_id, {name: topic.topic_id for name, topic in metadata.topics.items()})


def cluster_id_at(connection: Connection, *, deadline: Deadline) -> str | None:
    """The id of the cluster behind this connection, asked for once.

    :raises BrokerConnectionError: if no response comes.
    """
    if connection not in _cluster_ids:
        request = metadata_request([], create=False)
        response = connection.call(request, max_version=MAX_VERSION, deadline=deadline)
        _cluster_ids[connection] = response.cluster_id
    return _cluster_ids[connection]
