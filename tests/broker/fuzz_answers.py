"""Broken responses to every request that we send lead to our own errors only, soon, and in little memory.

    python -m tests.broker.fuzz_answers --count 100000 --seed 7

Each input is one call (a lookup, a fetch, a commit, a write, a login ...) to a
broker of which one answer is broken: bytes flipped, cut, put in, made extreme,
the frame's size a lie, or values odd in a sound layout. What comes after it is sound, so that a call may
also end well. The broker is in this process: there are no ports and no waits.
"""

from __future__ import annotations

import argparse
import random
import resource
import socket
import struct
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kafka.protocol import admin, consumer, producer, sasl
from kafka.protocol import metadata as meta
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from pyspark_kafkalog.broker.cluster import cluster as cluster_module
from pyspark_kafkalog.broker.cluster import pool
from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.delete_records import delete_records
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.groups.pending import pending_error
from pyspark_kafkalog.broker.groups.protocol import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.broker.produce import ids as produce_ids
from pyspark_kafkalog.broker.produce import producer as produce
from pyspark_kafkalog.broker.produce import topics
from pyspark_kafkalog.broker.topics.topics import BrokerTopics
from pyspark_kafkalog.broker.wire import sockets
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.extensions.membership import member as member_module
from pyspark_kafkalog.extensions.membership.consumer_protocol import ConsumerProtocolMember
from pyspark_kafkalog.extensions.membership.member import Member
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.model import CommittedOffset, EncodeSettings, Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC, NewTopic
from pyspark_kafkalog.options.brokers import (
    ConnectionOptions,
    FetchOptions,
    ProduceOptions,
)
from pyspark_kafkalog.options.security.protocol import SecurityOptions
from pyspark_kafkalog.tools.topics.brokers import describe_brokers
from tests.broker.fake_broker import producers_response
from tests.broker.producing import numbered, router_to
from tests.log.partitions import batch, offset_after_bytes

LONGEST = 5.0
"""Seconds that one input may take: several times the longest timeout, as machines are busy."""
MOST_MEMORY = 512 << 20
"""By how much the process may grow in a run."""
_FITS = 150_000
"""Bytes that fit into a pair of sockets before anything is read."""
TOPIC_ID = uuid.UUID(int=7)
PARTITION = TopicPartition("t", 0)
CONNECTION = ConnectionOptions(
    ("b:9092",),
    request_timeout_ms=200,
    socket_connection_setup_timeout_ms=200,
    retry_backoff_ms=1,
    retry_backoff_max_ms=2,
    reconnect_backoff_ms=1,
    reconnect_backoff_max_ms=2,
)
FETCH = FetchOptions(fetch_max_wait_ms=0, poll_timeout_ms=400, num_retries=1, retry_interval_ms=1)
PLAIN = SecurityOptions("SASL_PLAINTEXT", "PLAIN", "me", "secret")
SCRAM = SecurityOptions("SASL_PLAINTEXT", "SCRAM-SHA-256", "me", "secret")


@cache
def records() -> bytes:
    return b"".join(batch(offset) for offset in range(0, 30, 10))


# What a healthy broker responds


def _api_versions(request: Any, version: int) -> Any:
    kind = meta.ApiVersionsResponse.ApiVersion
    keys = [kind(api_key=key, min_version=0, max_version=highest) for key, highest in HIGHEST.items()]
    feature = meta.ApiVersionsResponse.SupportedFeatureKey(name="f", min_version=1, max_version=2)
    return meta.ApiVersionsResponse(
        error_code=0, api_keys=keys, throttle_time_ms=0, supported_features=[feature]
    )


def _metadata(request: Any, version: int) -> Any:
    topic = meta.MetadataResponse.MetadataResponseTopic
    partitions = [
        topic.MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=1 + number % 2,
            leader_epoch=3,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
            offline_replicas=[],
        )
        for number in range(2)
    ]
    asked = {requested.name for requested in request.topics or ()} & {OFFSETS_TOPIC}
    topics = [
        topic(error_code=0, name=name, topic_id=TOPIC_ID, is_internal=False, partitions=partitions)
        for name in asked or ("t",)
    ]
    node = meta.MetadataResponse.MetadataResponseBroker
    brokers = [node(node_id=number, host=f"b{number}", port=9092, rack="r") for number in (1, 2)]
    return meta.MetadataResponse(
        throttle_time_ms=0, brokers=brokers, cluster_id="c", controller_id=1, topics=topics
    )


def _list_offsets(request: Any, version: int) -> Any:
    kind = consumer.ListOffsetsResponse.ListOffsetsTopicResponse
    answers = [
        kind(
            name=requested.name,
            partitions=[
                kind.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=0,
                    timestamp=5,
                    offset=0 if partition.timestamp in (-2, -4) else 30,
                    leader_epoch=3,
                )
                for partition in requested.partitions
            ],
        )
        for requested in request.topics
    ]
    return consumer.ListOffsetsResponse(throttle_time_ms=0, topics=answers)


def _epoch_ends(request: Any, version: int) -> Any:
    kind = consumer.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    answers = [
        kind(
            topic=requested.topic,
            partitions=[
                kind.EpochEndOffset(
                    error_code=0, partition=partition.partition, leader_epoch=3, end_offset=30
                )
                for partition in requested.partitions
            ],
        )
        for requested in request.topics
    ]
    return consumer.OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=answers)


def _fetch(request: Any, version: int) -> Any:
    topic = consumer.FetchResponse.FetchableTopicResponse
    aborted = topic.PartitionData.AbortedTransaction(producer_id=9, first_offset=0)
    partition = topic.PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=30,
        last_stable_offset=30,
        log_start_offset=0,
        aborted_transactions=[aborted],
        preferred_read_replica=-1,
        records=records()[len(records()) // 3 * (request.topics[0].partitions[0].fetch_offset // 10) :],
    )
    responses = [topic(topic="t", topic_id=TOPIC_ID, partitions=[partition])]
    return consumer.FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)


def _find_coordinator(request: Any, version: int) -> Any:
    kind = meta.FindCoordinatorResponse.Coordinator
    found = {"node_id": 1, "host": "b1", "port": 9092, "error_code": 0, "error_message": None}
    keys = request.coordinator_keys or []
    return meta.FindCoordinatorResponse(
        throttle_time_ms=0, coordinators=[kind(key=key, **found) for key in keys], **found
    )


def _offset_fetch(request: Any, version: int) -> Any:
    response = consumer.OffsetFetchResponse
    values = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": 3,
        "metadata": "m",
        "error_code": 0,
    }
    topic, group = response.OffsetFetchResponseTopic, response.OffsetFetchResponseGroup
    of_group = group.OffsetFetchResponseTopics
    groups = [
        group(
            group_id="g",
            error_code=0,
            topics=[of_group(name="t", partitions=[of_group.OffsetFetchResponsePartitions(**values)])],
        )
    ]
    topics = [topic(name="t", partitions=[topic.OffsetFetchResponsePartition(**values)])]
    return response(throttle_time_ms=0, error_code=0, topics=topics, groups=groups)


def _producers(request: Any, version: int) -> Any:
    (topic,) = request.topics
    return producers_response(topic.name, topic.partition_indexes[0])


def _transactions(request: Any, version: int) -> Any:
    state = admin.ListTransactionsResponse.TransactionState(
        transactional_id="app", producer_id=9, transaction_state="Ongoing"
    )
    return admin.ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=[state]
    )


def _describe_transactions(request: Any, version: int) -> Any:
    state = admin.DescribeTransactionsResponse.TransactionState(
        error_code=0,
        transactional_id="id",
        transaction_state="Ongoing",
        transaction_timeout_ms=1000,
        transaction_start_time_ms=5,
        producer_id=7,
        producer_epoch=1,
        topics=[],
    )
    return admin.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[state])


def _offset_commit(request: Any, version: int) -> Any:
    topic = consumer.OffsetCommitResponse.OffsetCommitResponseTopic
    partition = topic.OffsetCommitResponsePartition(partition_index=0, error_code=0)
    return consumer.OffsetCommitResponse(throttle_time_ms=0, topics=[topic(name="t", partitions=[partition])])


def _join_group(request: Any, version: int) -> Any:
    kind = consumer.JoinGroupResponse.JoinGroupResponseMember
    subscription = ConsumerProtocolSubscription(
        version=3, topics=["t"], user_data=b"", owned_partitions=[], generation_id=1, rack_id=None
    )
    members = [
        kind(member_id=member, group_instance_id=None, metadata=subscription.encode())
        for member in ("m", "n")
    ]
    return consumer.JoinGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        skip_assignment=False,
        member_id="m",
        members=members,
    )


def _sync_group(request: Any, version: int) -> Any:
    assigned = ConsumerProtocolAssignment(version=0, assigned_partitions=[("t", [0, 1])], user_data=b"")
    return consumer.SyncGroupResponse(
        throttle_time_ms=0,
        error_code=0,
        protocol_type="consumer",
        protocol_name="range",
        assignment=assigned.encode(),
    )


def _heartbeat(request: Any, version: int) -> Any:
    return consumer.HeartbeatResponse(throttle_time_ms=0, error_code=0)


def _new_heartbeat(request: Any, version: int) -> Any:
    kind = ConsumerGroupHeartbeatResponse.Assignment
    topic = kind.TopicPartitions(topic_id=TOPIC_ID, partitions=[0, 1])
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5000,
        assignment=kind(topic_partitions=[topic]),
    )


def _leave_group(request: Any, version: int) -> Any:
    member = consumer.LeaveGroupResponse.MemberResponse(member_id="m", group_instance_id=None, error_code=0)
    return consumer.LeaveGroupResponse(throttle_time_ms=0, error_code=0, members=[member])


def _offset_delete(request: Any, version: int) -> Any:
    topic = consumer.OffsetDeleteResponse.OffsetDeleteResponseTopic
    partition = topic.OffsetDeleteResponsePartition(partition_index=0, error_code=0)
    return consumer.OffsetDeleteResponse(
        throttle_time_ms=0, error_code=0, topics=[topic(name="t", partitions=[partition])]
    )


def _delete_groups(request: Any, version: int) -> Any:
    result = admin.DeleteGroupsResponse.DeletableGroupResult(group_id="g", error_code=0)
    return admin.DeleteGroupsResponse(throttle_time_ms=0, results=[result])


def _create_topics(request: Any, version: int) -> Any:
    kind = admin.CreateTopicsResponse.CreatableTopicResult
    topic = kind(name="t", topic_id=uuid.UUID(int=1), error_code=0, error_message=None, configs=[])
    return admin.CreateTopicsResponse(throttle_time_ms=0, topics=[topic])


def _delete_topics(request: Any, version: int) -> Any:
    kind = admin.DeleteTopicsResponse.DeletableTopicResult
    topic = kind(name="t", topic_id=uuid.UUID(int=1), error_code=0, error_message=None)
    return admin.DeleteTopicsResponse(throttle_time_ms=0, responses=[topic])


def _create_partitions(request: Any, version: int) -> Any:
    kind = admin.CreatePartitionsResponse.CreatePartitionsTopicResult
    topic = kind(name="t", error_code=0, error_message=None)
    return admin.CreatePartitionsResponse(throttle_time_ms=0, results=[topic])


def _alter_configs(request: Any, version: int) -> Any:
    kind = admin.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    resource = kind(error_code=0, error_message=None, resource_type=2, resource_name="t")
    return admin.IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[resource])


def _list_groups(request: Any, version: int) -> Any:
    kind = admin.ListGroupsResponse.ListedGroup
    groups = [kind(group_id="g", protocol_type="consumer", group_state="Empty", group_type="classic")]
    return admin.ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)


def _describe_groups(request: Any, version: int) -> Any:
    group = admin.DescribeGroupsResponse.DescribedGroup
    member = group.DescribedGroupMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        member_metadata=b"",
        member_assignment=struct.pack(">hih1siiii", 0, 1, 1, b"t", 2, 0, 1, -1),
    )
    groups = [
        group(
            error_code=0,
            group_id=name,
            group_state="Stable" if name == "g" else "Dead",
            protocol_type="consumer",
            protocol_data="range",
            members=[member],
        )
        for name in request.groups
    ]
    return admin.DescribeGroupsResponse(throttle_time_ms=0, groups=groups)


def _describe_new_groups(request: Any, version: int) -> Any:
    group = ConsumerGroupDescribeResponse.DescribedGroup
    kind = group.Member
    partitions = kind.Assignment.TopicPartitions(topic_id=TOPIC_ID, topic_name="t", partitions=[0, 1])
    assignment = kind.Assignment(topic_partitions=[partitions])
    member = kind(
        member_id="m",
        instance_id=None,
        rack_id=None,
        member_epoch=1,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        assignment=assignment,
        target_assignment=assignment,
    )
    groups = [
        group(
            error_code=0 if name == "h" else 69,
            error_message=None,
            group_id=name,
            group_state="Stable",
            group_epoch=1,
            assignment_epoch=1,
            assignor_name="uniform",
            members=[member],
        )
        for name in request.group_ids
    ]
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _describe_configs(request: Any, version: int) -> Any:
    kind = admin.DescribeConfigsResponse.DescribeConfigsResult
    values = {"cleanup.policy": "delete", "max.message.bytes": "1048588", "remote.storage.enable": None}
    configs = [
        kind.DescribeConfigsResourceResult(
            name=name, value=value, read_only=False, config_source=5, is_sensitive=False, synonyms=[]
        )
        for name, value in values.items()
    ]
    result = kind(error_code=0, error_message=None, resource_type=2, resource_name="t", configs=configs)
    return admin.DescribeConfigsResponse(throttle_time_ms=0, results=[result])


def _describe_log_dirs(request: Any, version: int) -> Any:
    kind = admin.DescribeLogDirsResponse.DescribeLogDirsResult
    topic = kind.DescribeLogDirsTopic
    partition = topic.DescribeLogDirsPartition(
        partition_index=0, partition_size=100, offset_lag=0, is_future_key=False
    )
    result = kind(error_code=0, log_dir="/d", topics=[topic(name="t", partitions=[partition])])
    return admin.DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])


def _describe_quorum(request: Any, version: int) -> Any:
    topic = admin.DescribeQuorumResponse.TopicData
    partition = topic.PartitionData(
        partition_index=0, error_code=0, leader_id=1, leader_epoch=3, high_watermark=9, current_voters=[]
    )
    topics = [topic(topic_name="__cluster_metadata", partitions=[partition])]
    return admin.DescribeQuorumResponse(error_code=0, topics=topics)


def _delete_records(request: Any, version: int) -> Any:
    topic = admin.DeleteRecordsResponse.DeleteRecordsTopicResult
    partition = topic.DeleteRecordsPartitionResult(partition_index=0, low_watermark=3, error_code=0)
    return admin.DeleteRecordsResponse(throttle_time_ms=0, topics=[topic(name="t", partitions=[partition])])


def _init_producer_id(request: Any, version: int) -> Any:
    return producer.InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=0)


def _produce(request: Any, version: int) -> Any:
    kind = producer.ProduceResponse.TopicProduceResponse
    answers = [
        kind(
            name=requested.name,
            partition_responses=[
                kind.PartitionProduceResponse(
                    index=partition.index,
                    error_code=0,
                    base_offset=0,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                )
                for partition in requested.partition_data
            ],
        )
        for requested in request.topic_data
    ]
    return producer.ProduceResponse(responses=answers, throttle_time_ms=0)


def _add_partitions(request: Any, version: int) -> Any:
    kind = producer.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
    partition = kind.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0)
    return producer.AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=[kind(name="t", results_by_partition=[partition])]
    )


def _add_offsets(request: Any, version: int) -> Any:
    return producer.AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)


def _end_transaction(request: Any, version: int) -> Any:
    return producer.EndTxnResponse(throttle_time_ms=0, error_code=0)


def _commit_in_transaction(request: Any, version: int) -> Any:
    kind = producer.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
    partition = kind.TxnOffsetCommitResponsePartition(partition_index=0, error_code=0)
    return producer.TxnOffsetCommitResponse(
        throttle_time_ms=0, topics=[kind(name="t", partitions=[partition])]
    )


def _handshake(request: Any, version: int) -> Any:
    return sasl.SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", "SCRAM-SHA-256"])


def _authenticate(request: Any, version: int) -> Any:
    said = bytes(request.auth_bytes)
    auth = b""
    if said.startswith(b"n,,"):
        auth = b"r=" + said.partition(b"r=")[2] + b"x,s=c2FsdA==,i=4096"
    elif said.startswith(b"c="):
        auth = b"v=" + b"A" * 44
    return sasl.SaslAuthenticateResponse(
        error_code=0, error_message=None, auth_bytes=auth, session_lifetime_ms=0
    )


SOUND: dict[int, tuple[Any, Callable[[Any, int], Any]]] = {
    0: (producer.ProduceRequest, _produce),
    1: (consumer.FetchRequest, _fetch),
    2: (consumer.ListOffsetsRequest, _list_offsets),
    3: (meta.MetadataRequest, _metadata),
    8: (consumer.OffsetCommitRequest, _offset_commit),
    9: (consumer.OffsetFetchRequest, _offset_fetch),
    10: (meta.FindCoordinatorRequest, _find_coordinator),
    11: (consumer.JoinGroupRequest, _join_group),
    12: (consumer.HeartbeatRequest, _heartbeat),
    13: (consumer.LeaveGroupRequest, _leave_group),
    14: (consumer.SyncGroupRequest, _sync_group),
    15: (admin.DescribeGroupsRequest, _describe_groups),
    16: (admin.ListGroupsRequest, _list_groups),
    17: (sasl.SaslHandshakeRequest, _handshake),
    18: (meta.ApiVersionsRequest, _api_versions),
    19: (admin.CreateTopicsRequest, _create_topics),
    20: (admin.DeleteTopicsRequest, _delete_topics),
    21: (admin.DeleteRecordsRequest, _delete_records),
    22: (producer.InitProducerIdRequest, _init_producer_id),
    23: (consumer.OffsetForLeaderEpochRequest, _epoch_ends),
    24: (producer.AddPartitionsToTxnRequest, _add_partitions),
    25: (producer.AddOffsetsToTxnRequest, _add_offsets),
    26: (producer.EndTxnRequest, _end_transaction),
    28: (producer.TxnOffsetCommitRequest, _commit_in_transaction),
    32: (admin.DescribeConfigsRequest, _describe_configs),
    35: (admin.DescribeLogDirsRequest, _describe_log_dirs),
    36: (sasl.SaslAuthenticateRequest, _authenticate),
    37: (admin.CreatePartitionsRequest, _create_partitions),
    42: (admin.DeleteGroupsRequest, _delete_groups),
    44: (admin.IncrementalAlterConfigsRequest, _alter_configs),
    47: (consumer.OffsetDeleteRequest, _offset_delete),
    55: (admin.DescribeQuorumRequest, _describe_quorum),
    61: (admin.DescribeProducersRequest, _producers),
    65: (admin.DescribeTransactionsRequest, _describe_transactions),
    66: (admin.ListTransactionsRequest, _transactions),
    68: (ConsumerGroupHeartbeatRequest, _new_heartbeat),
    69: (ConsumerGroupDescribeRequest, _describe_new_groups),
}
"""Each request that we send, and the function that makes its response."""
LOWEST = {0: 3, 1: 4, 2: 1, 8: 2, 9: 2, 11: 1, 23: 3}
"""The lowest versions, where not 0."""
HIGHEST: dict[int, int] = {}
"""The newest versions that the broker supports; each input has its own."""
_NEWEST = {0: 12, 1: 13, 8: 9, 9: 9}
"""The newest versions that we use, where kafka-python has newer ones."""


def of_newest_versions() -> None:
    """Let the broker support all versions that we use."""
    for key, (request, _) in SOUND.items():
        HIGHEST[key] = min(request.max_version, _NEWEST.get(key, 99))


def new_request() -> Any:
    """A request that names something, so that its response contains something."""
    partition = SimpleNamespace(partition=0, partition_index=0, index=0, timestamp=-1, fetch_offset=0)
    topic = SimpleNamespace(
        name="t", topic="t", partitions=[partition], partition_data=[partition], partition_indexes=[0]
    )
    return SimpleNamespace(
        topics=[topic],
        topic_data=[topic],
        coordinator_keys=["g"],
        groups=["g"],
        group_ids=["g"],
        auth_bytes=b"n,,n=me,r=x",
    )


# The calls


def _write(options: ConnectionOptions) -> None:
    acks = ProduceOptions(delivery_timeout_ms=500, request_timeout_ms=200)
    with produce.Producer(cluster_of(options), acks, EncodeSettings(batch_size=1 << 16)) as sink:
        from pyspark_kafkalog.write.rows import write_rows

        write_rows([numbered(5)], router_to(sink, "t"), sink)
        sink.finish()


def _commit_transaction(options: ConnectionOptions) -> None:
    deadline = Deadline.after(0.8)
    requests = Requests(cluster_of(options), "id")
    known = produce_ids.ProducerId(*requests.init_producer_id(1000, deadline=deadline), "c")
    requests.committed("g", [PARTITION], deadline=deadline)
    requests.add_partitions(known, [PARTITION], deadline=deadline)
    requests.add_offsets(known, "g", deadline=deadline)
    requests.commit_offsets(known, "g", {PARTITION: CommittedOffset(5)}, deadline=deadline)
    requests.end(known, commit=True, deadline=deadline)
    requests.describe(deadline=deadline)


def _log_in(security: SecurityOptions) -> Callable[[ConnectionOptions], None]:
    def call(options: ConnectionOptions) -> None:
        options = ConnectionOptions(
            options.bootstrap_servers, request_timeout_ms=options.request_timeout_ms, security=security
        )
        Connection.open(Address("b", 9092), options, deadline=Deadline.after(0.4)).close()

    return call


def _place(ask: Callable[[Brokers], Any]) -> Callable[[ConnectionOptions], None]:
    return lambda options: ask(Brokers(options, FETCH))


def _groups(ask: Callable[[BrokerGroups], Any]) -> Callable[[ConnectionOptions], None]:
    return lambda options: ask(BrokerGroups(options, timeout=0.4))


def _topics(ask: Callable[[BrokerTopics], Any]) -> Callable[[ConnectionOptions], None]:
    return lambda options: ask(BrokerTopics(options))


def _read(place: Brokers) -> None:
    for committed in (True, False):
        for _ in place.fetch(Fetch(PARTITION, OffsetRange(0, 30), read_committed=committed)):
            pass


P2 = [PARTITION, TopicPartition("t", 1)]


def _pending(options: ConnectionOptions) -> None:
    error = pending_error(cluster_of(options), "g", Deadline.after(1))
    assert "stays open" in error.message


def _be_a_member(options: ConnectionOptions) -> None:
    """One turn of the heart, in this thread."""
    times = MembershipOptions(session_timeout_ms=200, heartbeat_interval_ms=50, max_poll_interval_ms=100)
    with mock.patch.object(member_module, "_LATE", 0.1):
        member = Member(options, "g", times)
        member._counts = {"t": 2}
        member._join()
        member._heartbeat()
        member.leave()


def _be_a_new_member(options: ConnectionOptions) -> None:
    member = ConsumerProtocolMember(
        options, "g", MembershipOptions(session_timeout_ms=200, protocol="consumer")
    )
    member._counts = {"t": 2}
    member._join()
    member._heartbeat()
    member.leave()


CALLS: list[tuple[tuple[int, ...], Callable[[ConnectionOptions], None]]] = [
    ((18, 3, 3), _place(lambda place: place.topics())),
    ((3,), _place(lambda place: place.topic_ids(["t", "u"]))),
    ((2, 3), _place(lambda place: place.watermarks(P2, read_committed=True))),
    ((2,), _place(lambda place: place.offsets_for_times(dict.fromkeys(P2, 3)))),
    ((2,), _place(lambda place: place.newest_timestamps(P2))),
    ((23,), _place(lambda place: place.epoch_ends(dict.fromkeys(P2, 3)))),
    ((2,), _place(lambda place: place.oldest_timestamps(P2))),
    ((35, 2), _place(lambda place: place.mean_record_bytes(P2))),
    ((1, 1, 3), _place(_read)),
    ((1,), _place(lambda place: offset_after_bytes(place, PARTITION, OffsetRange(0, 30), 300))),
    ((10, 9), _groups(lambda groups: groups.committed("g"))),
    ((9,), _groups(lambda groups: groups.committed("g", P2))),
    ((9,), _groups(lambda groups: groups.committed_by(["g"]))),
    ((61, 66), _pending),
    ((8, 10, 2), _groups(lambda groups: groups.commit("g", {PARTITION: CommittedOffset(5, -1, "")}))),
    ((47,), _groups(lambda groups: groups.delete_offsets("g", [PARTITION]))),
    ((42,), _groups(lambda groups: groups.delete_group("g"))),
    ((15, 69, 16), _groups(lambda groups: groups.describe(["g", "h", "i"]))),
    ((16,), _groups(lambda groups: groups.group_ids())),
    ((11, 14, 14, 12, 13, 3), _be_a_member),
    ((68, 68, 3), _be_a_new_member),
    ((32,), lambda options: topics.topic_limits(cluster_of(options), "t", timeout=5)),  # type: ignore[list-item, return-value]
    ((19, 3), _topics(lambda topics: topics.create([NewTopic("t", 1, 1)]))),
    ((20, 3), _topics(lambda topics: topics.delete(["t"]))),
    ((21, 3), lambda options: delete_records(options, {PARTITION: 3})),  # type: ignore[list-item, return-value]
    ((37, 3), _topics(lambda topics: topics.add_partitions("t", 2))),
    ((44, 3), _topics(lambda topics: topics.alter_configs("t", {"retention.ms": "1"}))),
    ((32,), _topics(lambda topics: topics.configs(["t"]))),
    ((3, 32, 35), _topics(lambda topics: topics.describe(["t"]))),
    ((3, 55, 18), lambda options: describe_brokers(options)),  # type: ignore[list-item, return-value]
    ((22,), lambda options: cluster_of(options).producer_id()),  # type: ignore[list-item, return-value]
    ((0, 0, 22), _write),
    ((22, 9, 24, 25, 26, 28, 28, 24, 65), _commit_transaction),
    ((17, 36, 18), _log_in(PLAIN)),
    ((36, 36, 17), _log_in(SCRAM)),
]
"""API keys whose responses may be broken, and a call that sends the requests."""


# What breaks


def broken(body: bytes, rng: random.Random) -> bytes:
    """``body`` with one to four faults."""
    data = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(9):
            case 0:
                data[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                data[at : at + 1] = bytes((rng.choice((0, 1, 0x7F, 0x80, 0xFF)),))
            case 2:
                size = rng.choice((2, 4, 8))
                kinds = (-1, -2, 0, 1, (1 << 8 * size - 1) - 1, -(1 << 8 * size - 1), rng.randrange(200))
                data[at : at + size] = rng.choice(kinds).to_bytes(size, "big", signed=True)
            case 3:
                del data[at:]
            case 4:
                del data[at : at + rng.randrange(1, 9)]
            case 5:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
            case 6:
                data[at:at] = rng.choice((b"\xff", b"\x81", b"\0", b"\x01\x00\x00")) * rng.choice(
                    (5, 100, 60_000)
                )
            case 7:
                other = rng.randrange(len(data) + 1)
                data[at:at] = data[min(at, other) : max(at, other)][:5_000]
            case 8:
                data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
    return bytes(data)


def odd(response: Any, version: int, rng: random.Random) -> bytes:
    """A response with one to three odd values in a valid layout."""
    values = list(_values(response, version))
    for _ in range(rng.choice((1, 1, 2, 3))):
        message, name = rng.choice(values)
        setattr(message, name, _odd(getattr(message, name), rng))
    return bytes(response.encode(version=version))


def _values(message: Any, version: int) -> Iterator[tuple[Any, str]]:
    for name, layout in message.fields.items():
        if not layout.for_version_q(version):
            continue
        yield message, name
        value = getattr(message, name)
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "to_dict"):
                yield from _values(inner, version)


def _odd(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return rng.choice((-1, -2, 0, 1, 3, 15, 16, 29, 75, 100, (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1))
    if isinstance(value, str):
        return rng.choice((None, "", "\0", "é" * 200, "-1", "9" * 5_000, "x" * 30_000, value + value))
    if isinstance(value, bytes):
        return rng.choice((None, b"", b"{}", b"\xff" * 300, value + value))
    if isinstance(value, list):
        return rng.choice((None, [], value * 2, value[::-1], value * 50 if len(value) < 50 else value))
    return None


@dataclass
class Peer:
    """The broker: every response is valid except the ``breaks``-th one to requests of one kind."""

    rng: random.Random
    api_key: int
    breaks: int
    broke: bytes | None = None
    requested: set[int] = field(default_factory=set)

    def answer(self, frame: bytes) -> tuple[bytes, bool]:
        """The bytes to send for a request, and whether the connection then ends."""
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        request_class, make = SOUND[api_key]
        self.requested.add(api_key)
        request = request_class.decode(frame, version=version, header=True)
        flexible = api_key != 18 and request_class.flexible_version_q(version)
        header = struct.pack(">i", correlation_id) + b"\0" * flexible
        response = make(request, version)
        sound = header + bytes(response.encode(version=version))
        if api_key == self.api_key:
            self.breaks -= 1
            if self.breaks == 0 and self.rng.random() < 0.5:
                with suppress(
                    struct.error, TypeError, AttributeError
                ):  # for values that the layout cannot hold
                    self.broke = header + odd(response, version, self.rng)
                    return struct.pack(">i", len(self.broke)) + self.broke, False
            if self.breaks == 0:
                return self._broken(sound)
        return struct.pack(">i", len(sound)) + sound, False

    def _broken(self, payload: bytes) -> tuple[bytes, bool]:
        keep = 0 if self.rng.random() < 0.05 else 4  # mostly keep the correlation id
        payload = payload[:keep] + broken(payload[keep:], self.rng)
        size = len(payload)
        if self.rng.random() < 0.05:
            size = self.rng.choice((-1, 0, 3, size + 1, size - 1, 1 << 20, (1 << 31) - 1))
        self.broke = struct.pack(">i", size) + payload
        return self.broke, True


class Wire(socket.socket):
    """The client's end of a socket pair; at the other end the peer responds while we send."""

    def __init__(self, peer: Peer) -> None:
        mine, self._other = socket.socketpair()
        super().__init__(fileno=mine.detach())
        self._peer = peer
        self._sent = bytearray()
        self._ended = False
        self._other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 21)

    def close(self) -> None:
        self._other.close()
        super().close()

    def sendmsg(self, pieces: Any, *args: Any) -> int:
        if self._ended:
            raise BrokenPipeError
        data = b"".join(bytes(piece) for piece in pieces)
        self._sent += data
        while len(self._sent) >= 4:
            (size,) = struct.unpack_from(">i", self._sent)
            if len(self._sent) < size + 4:
                break
            frame = bytes(self._sent[4 : size + 4])
            del self._sent[: size + 4]
            answer, self._ended = self._peer.answer(frame)
            self._ended = self._ended or len(answer) > _FITS
            self._other.sendall(answer[:_FITS])
            if self._ended:
                self._other.shutdown(socket.SHUT_WR)
                break
        return len(data)

    def send(self, data: Any, *args: Any) -> int:
        return self.sendmsg([data])


@contextmanager
def listening(peer: Peer) -> Iterator[None]:
    """Every address leads to the peer, and this process has never connected to it."""
    cluster_module._clusters.by_options.clear()
    produce_ids._free.clear()
    topics._limits.clear()
    pool._reached.clear()
    with mock.patch.object(sockets, "open_socket", side_effect=lambda *args, **kwargs: Wire(peer)):
        try:
            yield
        finally:
            for cluster in cluster_module._clusters.by_options.values():
                cluster.close()


@dataclass
class Report:
    """The result of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    by_api: Counter[int] = field(default_factory=Counter)
    slowest: float = 0.0
    faults: list[str] = field(default_factory=list)
    grown: int = 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        apis = ", ".join(
            f"{SOUND[key][0].name.removesuffix('Request')} {count}"
            for key, count in self.by_api.most_common()
        )
        return (
            f"outcomes: {counts}\nbroken answers: {apis}\nslowest input: {self.slowest:.2f} s,"
            f" memory grown by {self.grown >> 20} MiB, faults: {len(self.faults)}"
        )


def run_input(seed: int, number: int, report: Report) -> None:
    """Run the input with this number."""
    rng = random.Random(f"{seed}/{number}")
    keys, call = CALLS[number % len(CALLS)]
    peer = Peer(rng, rng.choice(keys), rng.choice((1, 1, 1, 1, 2)))
    of_newest_versions()
    for key, highest in HIGHEST.items():
        if rng.random() < 0.4:  # an old broker
            HIGHEST[key] = rng.randint(LOWEST.get(key, 0), highest)
    begun = time.monotonic()
    try:
        with listening(peer):
            call(CONNECTION)
        outcome = "well"
    except KafkaLogError as e:
        outcome = type(e).__name__
    except Exception as e:
        outcome = "raw " + type(e).__name__
        report.faults.append(f"input {number}: {outcome}: {e} {traceback_of(e)}; answer {peer.broke!r:.300}")
    taken = time.monotonic() - begun
    if taken > LONGEST:
        report.faults.append(f"input {number} took {taken:.1f} s; answer {peer.broke!r:.300}")
    report.slowest = max(report.slowest, taken)
    if peer.broke is None:
        outcome = "nothing broken"
    else:
        report.by_api[peer.api_key] += 1
    report.outcomes[outcome] += 1


def traceback_of(error: BaseException) -> str:
    trace, places = error.__traceback__, []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(places[-4:])


def run(seed: int, count: int, first: int = 0) -> Report:
    """Run ``count`` inputs from ``first`` on."""
    report = Report()
    run_input(seed, first, Report())  # load and compile first
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, first + count):
        run_input(seed, number, report)
    report.grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if report.grown > MOST_MEMORY:
        report.faults.append(f"the process has grown by {report.grown} bytes")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to see one again")
    args = parser.parse_args()
    begun = time.monotonic()
    report = run(args.seed, args.count, args.first)
    print(f"seed {args.seed}, {args.count} inputs in {time.monotonic() - begun:.0f} s\n{report}")
    print("\n".join(report.faults[:20]))
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
