"""The consumer groups of a cluster: see :class:`pyspark_kafkalog.model.groups.GroupOffsets`.

A commit is made as for a group without members (generation -1, no member id), like
that of Kafka's AdminClient.alterConsumerGroupOffsets: brokers accept it while the
group is empty.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolType
from kafka.protocol.metadata import CoordinatorType

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster, cluster_of
from pyspark_kafkalog.broker.cluster.coordinator import call_coordinator, call_coordinators
from pyspark_kafkalog.broker.cluster.leaders import (
    NO_LEADER_HINT,
    by_topic,
    call_leaders_once,
    leaders_of,
)
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.groups.offset_fetch import (
    BEFORE_TOPIC_IDS,
    FIRST_WITH_GROUPS,
    FetchedOffsets,
    offset_fetch_request,
    offsets_by_topic,
    offsets_fetch_request,
    read_offset_fetch,
    read_offsets_fetch,
)
from pyspark_kafkalog.broker.groups.pending import pending_error
from pyspark_kafkalog.broker.groups.protocol import (
    ConsumerGroupDescribeRequest,
    commit_error,
    deletion_error,
    group_error,
)
from pyspark_kafkalog.broker.wire.answers import UNREADABLE
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, is_retriable
from pyspark_kafkalog.errors import BrokerError, KafkaLogError, UnsupportedVersionError
from pyspark_kafkalog.model import (
    NO_MEMBER,
    CommittedOffset,
    Group,
    GroupMember,
    MemberOfGroup,
    TopicPartition,
)
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from pyspark_kafkalog.options.brokers import ConnectionOptions

_FIRST_WITH_ALL = 2
"""The first version of OffsetFetch that returns all partitions, and of OffsetCommit with a member id."""
_ASKED_AT_ONCE = 250
"""The number of groups that one request names, and of requests to a broker before Kafka 3.0 that share a
deadline."""
_DEAD = "Dead"
_ELECTION_SECONDS = 2.0
"""The time that a partition may be without a leader, after a controlled shutdown of the one that it had."""
_EPOCHS_WITHIN = 1.0
"""Seconds that leaders have to give their epochs, or half the time for the commit if that is less."""

_log = logging.getLogger("pyspark_kafkalog")

Answer = TypeVar("Answer")


class BrokerGroups:
    """The groups of a cluster, over the calling thread's connections to it.

    :param timeout: seconds for a request with all retries, by default request.timeout.ms.
    """

    def __init__(self, connection: ConnectionOptions, *, timeout: float | None = None) -> None:
        self._options = connection
        self._timeout = connection.request_timeout_ms / 1000 if timeout is None else timeout

    @property
    def _cluster(self) -> Cluster:
        return cluster_of(self._options)

    def group_ids(self) -> tuple[str, ...]:
        """The groups of every type, sorted; ACLs may hide some."""
        found, problems = self.try_group_ids()
        for problem in problems:
            raise problem
        return found

    def try_group_ids(self) -> tuple[tuple[str, ...], list[KafkaLogError]]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.try_group_ids`.

        A group whose partition of ``__consumer_offsets`` has no leader is on no broker's list.
        """
        leaderless = self._leaderless()
        found, failures = self._listed()
        problems: list[KafkaLogError] = [] if leaderless is None else [leaderless]
        for node_id, e in sorted(failures.items()):
            text = f"The groups of broker {node_id} are not listed: {e.message}"
            problems.append(BrokerError(text, broker=e.broker, hint=e.hint))
        return tuple(sorted(found)), problems

    def describe(self, groups: Collection[str]) -> dict[str, Group | KafkaLogError]:
        """The ``groups`` that exist; members are left out of groups that are not consumer groups."""
        found = self._described(
            groups, lambda ids: DescribeGroupsRequest(groups=list(ids), include_authorized_operations=False)
        )
        missing = set(groups) - found.keys()
        if missing:
            try:
                found |= self._described(
                    missing,
                    lambda ids: ConsumerGroupDescribeRequest(
                        group_ids=list(ids), include_authorized_operations=False
                    ),
                )
            except UnsupportedVersionError:
                return found  # such brokers have no other groups either
        missing -= found.keys()
        if missing:
            found |= {
                name: group
                for name, group in self._listed()[0].items()
                if name in missing and group.state != _DEAD
            }
        return found

    def find(self, group: str) -> Group | None:
        """The group, None if it does not exist.

        :raises KafkaLogError: if it can't be described.
        """
        found = self.describe([group]).get(group)
        if isinstance(found, KafkaLogError):
            raise found
        return found

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that ``group`` has committed, for all partitions or for these.

        :param require_stable: wait for transactions that commit one of them (KIP-447; since Kafka 2.5),
            for no longer than request.timeout.ms.
        :raises PendingOffsetsError: if such a transaction stays open; it is named.
        """
        if partitions is not None and not partitions:
            return {}
        doing = f"Reading the committed offsets of group {group}"
        request = offset_fetch_request(group, partitions, require_stable=require_stable)
        deadline = stable_by = Deadline.after(self._timeout)
        pending: KafkaLogError | None = None

        def attempt() -> dict[TopicPartition, CommittedOffset] | KafkaLogError:
            nonlocal pending, stable_by
            answer = self._call(
                group, request, read_offset_fetch, doing, _FIRST_WITH_ALL, BEFORE_TOPIC_IDS, deadline
            )
            if answer is not None:
                return _committed(answer, doing, group)
            if pending is None:
                stable_by = Deadline.after_ms(self._options.request_timeout_ms)
                pending = pending_error(self._cluster, group, deadline)
            if stable_by.expired:
                raise pending
            return pending

        return self._cluster.new_backoff(deadline).repeat(attempt)

    def committed_by(
        self, groups: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.committed_by`; a request has many groups."""
        found: dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError] = {}
        names = sorted(set(groups))
        for begin in range(0, len(names), _ASKED_AT_ONCE):
            found.update(self._committed_by(names[begin : begin + _ASKED_AT_ONCE]))
        return {group: found[group] for group in names}

    def _committed_by(
        self, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        failures: dict[str, KafkaLogError] = {}
        answers: dict[str, FetchedOffsets | Refused] = call_coordinators(
            self._cluster,
            groups,
            offsets_fetch_request,
            read_offsets_fetch,
            failures,
            doing="Reading committed offsets",
            deadline=Deadline.after(self._timeout),
            min_version=_FIRST_WITH_ALL,
            max_version=BEFORE_TOPIC_IDS,
            first_with_many=FIRST_WITH_GROUPS,
        )
        found: dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError] = {**failures}
        for group, answer in answers.items():
            try:
                found[group] = _committed(answer, f"Reading the committed offsets of group {group}", group)
            except KafkaLogError as e:
                found[group] = e
        return found

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """Commit as a group without members. If an error names partitions, the others are committed.

        :raises GroupError: if the group has live members, or if brokers refuse an offset.
        :raises AuthorizationError: if the ACLs deny the group or a topic.
        """
        if not offsets:
            return
        codes = self.commit_as(NO_MEMBER, group, offsets, as_they_are=as_they_are)
        failed = {partition: code for partition, code in codes.items() if code}
        if failed:
            raise commit_error(group, failed, len(offsets))

    def commit_as(
        self,
        member: MemberOfGroup,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        as_they_are: bool = False,
    ) -> dict[TopicPartition, int]:
        """Commit as a member; returns the error code of each partition, 0 if it is committed."""
        started = time.monotonic()
        deadline = Deadline.after(self._timeout)
        told = offsets if as_they_are else with_leader_epochs(self._cluster, offsets, self._timeout)
        request = _commit_request(member, group, told)

        def read(response: Any) -> dict[TopicPartition, int] | Refused:
            is_proven = time.monotonic() - started >= metadata.PROVEN_AFTER
            codes = {
                TopicPartition(topic.name, answer.partition_index): answer.error_code
                for topic in response.topics
                for answer in topic.partitions
            }
            for code in codes.values():
                # Brokers learn of a new partition one after the other.
                if is_retriable(code) and not (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_proven):
                    return Refused(code)
            return codes

        doing = f"Committing offsets of group {group}"
        codes = self._call(group, request, read, doing, _FIRST_WITH_ALL, BEFORE_TOPIC_IDS, deadline)
        if isinstance(codes, Refused):
            raise group_error(codes.error_code, doing, group)
        return {partition: codes.get(partition, -1) for partition in offsets}

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete the offsets that ``group`` has committed for these partitions; missing ones are ignored.

        :raises GroupError: if a live member is subscribed to their topics.
        :raises UnsupportedVersionError: if the brokers are older than Kafka 2.4.
        """
        if not partitions:
            return
        kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            kind(
                name=topic,
                partitions=[kind.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ]
        doing = f"Deleting offsets of group {group}"
        codes = self._call(group, OffsetDeleteRequest(group_id=group, topics=topics), _read_deleted, doing)
        if isinstance(codes, Refused):
            if codes.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise group_error(codes.error_code, doing, group)
            return
        failed = {
            p: code for p, code in codes.items() if code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        }
        if failed:
            raise deletion_error(group, failed, len(partitions))

    def delete_group(self, group: str) -> None:
        """Delete a group with all of its offsets.

        :raises GroupError: if it has live members, or does not exist.
        """
        doing = f"Deleting group {group}"
        code = self._call(
            group,
            DeleteGroupsRequest(groups_names=[group]),
            lambda response: Refused(response.results[0].error_code),
            doing,
        ).error_code
        if code:
            raise group_error(code, doing, group)

    def _leaderless(self) -> BrokerError | None:
        """The error if partitions of ``__consumer_offsets`` lack a leader for longer than an election."""
        cluster = self._cluster
        backoff = cluster.new_backoff(Deadline.after(min(self._timeout, _ELECTION_SECONDS)))
        while True:
            topic = cluster.described([OFFSETS_TOPIC]).get(OFFSETS_TOPIC)
            partitions = [
                TopicPartition(OFFSETS_TOPIC, number) for number in (topic.leaders if topic else ())
            ]
            _, leaderless = leaders_of(cluster, partitions)
            if not leaderless:
                return None
            error = BrokerError(
                f"The groups in {len(leaderless)} of {len(partitions)} partitions of {OFFSETS_TOPIC} are not"
                " listed: no leader",
                hint=NO_LEADER_HINT,
            )
            try:
                backoff.pause(error)
            except KafkaLogError:
                return error

    def _listed(self) -> tuple[dict[str, Group], dict[int, KafkaLogError]]:
        """The groups that brokers list, and the error of each broker that does not.

        :raises KafkaLogError: if none does.
        """
        # The first versions give no states.
        responses, failures = self._cluster.call_brokers(
            ListGroupsRequest(states_filter=[], types_filter=[]),
            doing="Listing groups",
            error_code=lambda response: int(response.error_code),
        )
        for error in failures.values() if not responses else ():
            raise error
        found = {
            group.group_id: Group(
                group.group_id,
                group.group_state or "",
                group.protocol_type,
                members=None,
                coordinator=node_id,
            )
            for node_id, response in responses.items()
            for group in response.groups
        }
        return found, failures

    def _described(
        self, groups: Collection[str], make_request: Callable[[Sequence[str]], Any]
    ) -> dict[str, Group | KafkaLogError]:
        doing = "Describing groups"
        failures: dict[str, KafkaLogError] = {}
        answers: dict[str, Group | Refused] = call_coordinators(
            self._cluster,
            groups,
            make_request,
            lambda response, _: _read_described(response),
            failures,
            doing=doing,
            deadline=Deadline.after(self._timeout),
        )
        found: dict[str, Group | KafkaLogError] = {**failures}
        for name, answer in answers.items():
            if isinstance(answer, Refused):
                if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    found[name] = group_error(answer.error_code, doing, name)
            elif answer.state != _DEAD:  # also the state of a group that does not exist
                coordinator = self._cluster.coordinators.get((CoordinatorType.GROUP, name))
                found[name] = replace(answer, coordinator=-1 if coordinator is None else coordinator.node_id)
        return found

    def _call(
        self,
        group: str,
        request: Any,
        read: Callable[[Any], Answer | Refused],
        doing: str,
        min_version: int = 0,
        max_version: int | None = None,
        deadline: Deadline | None = None,
    ) -> Answer | Refused:
        return call_coordinator(
            self._cluster,
            group,
            lambda: request,
            read,
            doing=doing,
            deadline=deadline or Deadline.after(self._timeout),
            min_version=min_version,
            max_version=max_version,
        )


def with_leader_epochs(
    cluster: Cluster, offsets: Mapping[TopicPartition, CommittedOffset], timeout: float
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets, with the newest epochs of the leaders' logs where they have none.

    With an epoch older than that of the last record, such as metadata has after an election,
    consumers would see a truncated log (KIP-320); a newer one does no harm.

    :param timeout: seconds, of which a part is spent; a commit without epochs is valid, too.
    """
    unknown = [partition for partition, offset in offsets.items() if offset.leader_epoch < 0]
    epochs: Mapping[TopicPartition, int] = {}
    try:
        epochs = call_leaders_once(
            cluster,
            unknown,
            list_offsets.epoch_requests,
            list_offsets.read_epochs,
            deadline=Deadline.after(min(timeout / 2, _EPOCHS_WITHIN)),
            min_version=list_offsets.FIRST_WITH_EPOCH,
            max_version=list_offsets.MAX_VERSION,
        )
    except KafkaLogError as e:
        _log.debug("Committing without leader epochs: %s", e)
    return {
        partition: replace(offset, leader_epoch=epochs.get(partition, offset.leader_epoch))
        for partition, offset in offsets.items()
    }


def _committed(
    answer: FetchedOffsets | Refused, doing: str, group: str
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets in an answer.

    :raises KafkaLogError: if it is an error, or has one for a partition.
    """
    if isinstance(answer, Refused):
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise group_error(answer.error_code, doing, group)
    for partition, offset in answer.items():
        if isinstance(offset, Refused):
            raise group_error(offset.error_code, doing, group, partition)
    return {p: offset for p, offset in answer.items() if isinstance(offset, CommittedOffset)}


def _commit_request(
    member: MemberOfGroup, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=offsets_by_topic(kind, kind.OffsetCommitRequestPartition, offsets),
    )


def _read_deleted(response: Any) -> dict[TopicPartition, int] | Refused:
    if response.error_code:
        return Refused(response.error_code)
    return {
        TopicPartition(topic.name, answer.partition_index): answer.error_code
        for topic in response.topics
        for answer in topic.partitions
    }


def _read_described(response: Any) -> dict[str, Group | Refused]:
    """The groups in a response to DescribeGroups or ConsumerGroupDescribe."""
    return {
        group.group_id: Refused(group.error_code) if group.error_code else _group(group)
        for group in response.groups
    }


def _group(group: Any) -> Group:
    of_consumers = hasattr(group, "assignor_name")
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            member.client_host,
            tuple(sorted(_assigned(member) if of_consumers else _decoded(member, group.protocol_type))),
            member.instance_id if of_consumers else member.group_instance_id,
        )
        for member in group.members
    )
    if of_consumers:
        protocol_type, protocol = ConsumerProtocolType, group.assignor_name
    else:
        protocol_type, protocol = group.protocol_type, group.protocol_data
    return Group(group.group_id, group.group_state, protocol_type, protocol, members)


def _assigned(member: Any) -> Iterable[TopicPartition]:
    for topic in member.assignment.topic_partitions:
        yield from (TopicPartition(topic.topic_name, number) for number in topic.partitions)


def _decoded(member: Any, protocol_type: str) -> list[TopicPartition]:
    """The assignment by the leader of a classic consumer group: bytes that brokers do not interpret."""
    if protocol_type != ConsumerProtocolType or not member.member_assignment:
        return []
    try:
        assignment = ConsumerProtocolAssignment.decode(bytes(member.member_assignment))
        return [
            TopicPartition(assigned.topic, number)
            for assigned in assignment.assigned_partitions
            for number in assigned.partitions
        ]
    except UNREADABLE:
        return []
