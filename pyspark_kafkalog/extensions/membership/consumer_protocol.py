"""A member of a group whose coordinator makes the assignments (KIP-848, Kafka 4.0).

There is one request, ConsumerGroupHeartbeat: it joins, tells what the member has, and brings what it is to
have. Each one tells all, so that one which is lost costs nothing. The coordinator gives a partition to a
member once the one that had it no longer names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.cluster.leaders import by_topic
from pyspark_kafkalog.broker.fetch.protocol import uuid_of
from pyspark_kafkalog.broker.groups.protocol import ConsumerGroupHeartbeatRequest
from pyspark_kafkalog.errors import UnsupportedVersionError, listed
from pyspark_kafkalog.extensions.membership.member import Member, _log, _now
from pyspark_kafkalog.model import Assigned, MemberOfGroup, TopicPartition
from pyspark_kafkalog.model.kafka_uuid import random_uuid

_LEAVES, _WILL_RETURN = -1, -2
"""Member epochs that say that a member leaves, for good or as a static one."""
_FIRST_INTERVAL = 5.0
"""Seconds between heartbeats until the coordinator has said (group.consumer.heartbeat.interval.ms)."""


class ConsumerProtocolMember(Member):
    """A member of a group, by the protocol of KIP-848.

    The session timeout is the coordinator's secret, but longer than the heartbeat interval that it asks for.
    So the member is believed for that long, and its heart beats twice in that time.
    """

    _ids: Mapping[uuid.UUID | None, str] = {}
    """The names of the topics, by their ids."""

    def _has_interval(self, seconds: float) -> None:
        self._session, self._interval = seconds, seconds / 2

    def _join(self) -> None:
        self._heartbeat()

    def _heartbeat(self) -> None:
        with self._changed:
            if not self._me.member_id:
                self._me = self._me._replace(member_id=random_uuid())
                self._has_interval(_FIRST_INTERVAL)
            me, counts, self._is_claiming = self._me, self._counts, True
            owned = self._assigned.partitions if self._assigned is not None else frozenset()
        ids = {name: topic_id for topic_id, name in self._ids.items()}
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        began = _now()
        request = self._request(
            me,
            max(me.generation, 0),
            rebalance_timeout_ms=self._options.max_poll_interval_ms,
            subscribed_topic_names=sorted(counts),
            server_assignor=self._options.remote_assignor,
            topic_partitions=[
                kind(topic_id=ids[name], partitions=numbers)
                for name, numbers in by_topic(owned).items()
                if name in ids
            ],
        )
        patience = self._options.session_timeout_ms / 1000
        beaten = self._call(request, "Heartbeat", within=patience)
        found = (
            None if beaten.error_code or beaten.assignment is None else self._named(beaten.assignment, counts)
        )
        with self._changed:
            self._is_claiming = False
            self._has_answered()
            if me != self._me:
                return
            if beaten.error_code:
                self._lose(beaten.error_code)
                return
            self._me = me._replace(generation=beaten.member_epoch)
            self._beat = began
            self._has_interval(max(beaten.heartbeat_interval_ms, 1) / 1000)
            if found is not None:
                self._is_assigned(found)
            self._changed.notify_all()

    def _is_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        if self._assigned is not None and partitions == self._assigned.partitions:
            self._next = None
            return
        if self._next != partitions:
            _log.info("Group %s assigns %s", self._group, listed(partitions, 10) or "nothing")
        if self._assigned is None:
            self._assigned = Assigned(partitions)
            self._is_to_beat = True  # says that it has them
        else:
            self._next = partitions
            self._take_up_unless_held()

    def _take_up(self) -> None:
        if self._next is not None and not self._is_claiming:
            self._assigned, self._next = Assigned(self._next), None
            self._is_to_beat = True  # says what it has given up
            self._changed.notify_all()

    def _named(self, assignment: Any, counts: Mapping[str, int]) -> frozenset[TopicPartition]:
        """The partitions of an assignment; those of topics whose ids are not known yet come later."""
        wanted = {topic.topic_id for topic in assignment.topic_partitions}
        if not wanted <= self._ids.keys():
            found = cluster_of(self._connection).topic_ids(sorted(counts))
            self._ids = {**self._ids, **{uuid_of(each): name for name, each in found.items()}}
        return frozenset(
            TopicPartition(self._ids[topic.topic_id], number)
            for topic in assignment.topic_partitions
            if topic.topic_id in self._ids
            for number in topic.partitions
        )

    def _request(self, me: MemberOfGroup, epoch: int, **others: Any) -> Any:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=me.member_id,
            member_epoch=epoch,
            instance_id=me.instance_id,
            rack_id=self._rack or None,
            **{
                "rebalance_timeout_ms": -1,
                "subscribed_topic_names": None,
                "server_assignor": None,
                "topic_partitions": None,
                **others,
            },
        )

    def _stays(self) -> bool:
        return False

    def _farewell(self, me: MemberOfGroup) -> Any:
        return self._request(me, _LEAVES if me.instance_id is None else _WILL_RETURN)

    def _call(self, request: Any, doing: str, *, within: float, stall: float | None = None) -> Any:
        try:
            return super()._call(request, doing, within=within, stall=stall)
        except UnsupportedVersionError as e:
            hint = "kafka.group.protocol=consumer needs Kafka 4.0, with this protocol enabled. Leave it out."
            raise UnsupportedVersionError(e.message, broker=e.broker, hint=hint) from None
