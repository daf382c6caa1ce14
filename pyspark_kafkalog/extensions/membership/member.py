"""A member of a consumer group: see :class:`pyspark_kafkalog.model.groups.Membership`.

It follows Kafka's AbstractCoordinator and ConsumerCoordinator, for a reader that works in steps. An eager
member gives up all its partitions before it joins again, so it joins between two steps. A cooperative one
(KIP-429) keeps them while it joins, and takes up the new assignment between two steps; if it has lost a
partition by that, it joins again, so that another member gets it.

That a member is one is believed for the session timeout from the time at which its last heartbeat was sent,
on a clock that does not stop: so a process that was stopped asks the group before it goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolType,
)

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.cluster.coordinator import call_coordinator
from pyspark_kafkalog.broker.cluster.leaders import by_topic
from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION, metadata_request
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.groups.protocol import commit_error
from pyspark_kafkalog.broker.wire.answers import UNREADABLE
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, error_of, name_of
from pyspark_kafkalog.errors import (
    AuthenticationError,
    AuthorizationError,
    GroupError,
    KafkaLogError,
    UnsupportedVersionError,
    listed,
)
from pyspark_kafkalog.extensions.membership.assignors import ASSIGNORS, Counts, Racks, Subscriber
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.model import Assigned, CommittedOffset, MemberOfGroup, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

_FIRST_JOIN = 1
"""The first version of JoinGroup with a timeout of its own for rebalances."""
_FIRST_STATIC = {JoinGroupRequest: 5, SyncGroupRequest: 3, HeartbeatRequest: 3}
"""The first versions that know static members (KIP-345)."""
_LATE = 5.0
"""Seconds after the end of a rebalance in which the answer may come, as in Kafka's consumer."""
_PAUSE = 0.1
"""Seconds before another attempt, if something failed."""
_LEAVE_WITHIN = 1.0
"""Seconds that leaving may take: Spark has stopped the query."""
_GONE = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
}
"""Codes that say: the group has gone on without this member."""
_BUSY = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH}
"""Codes that say: the group is about to go on, with this member."""
_FATAL = (AuthenticationError, AuthorizationError, GroupError, UnsupportedVersionError)
_SUBSCRIPTION = 3
"""The version of what members tell the leader."""

_log = logging.getLogger("pyspark_kafkalog")


def _now() -> float:
    """Seconds on a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Member:
    """A member of a group, by the classic protocol.

    :param connection: how to reach the brokers.
    :param group: that it joins at the first :meth:`subscribe`.
    :param rack: where it reads, so that its leader may give it partitions with a replica there (KIP-881);
        empty if that is not known.
    """

    def __init__(
        self, connection: ConnectionOptions, group: str, options: MembershipOptions, *, rack: str = ""
    ) -> None:
        self._connection = connection
        self._rack = rack
        self._group = group
        self._options = options
        self._groups = BrokerGroups(connection, timeout=options.patience)
        if "cooperative-sticky" in options.assignors:  # now, as imports in two threads can deadlock
            import kafka.coordinator.assignors.cooperative_sticky  # noqa: F401
        self._session = options.session_timeout_ms / 1000
        """Seconds for which the group surely knows this member after a heartbeat."""
        self._interval = options.heartbeat_interval_ms / 1000
        self._rebalance = options.max_poll_interval_ms / 1000 + _LATE
        """Seconds that a rebalance may take."""
        self._changed = threading.Condition()
        """Guards all that follows."""
        self._thread: threading.Thread | None = None
        self._me = MemberOfGroup(instance_id=options.instance_id)
        self._counts: Counts = {}
        """The topics that this member subscribes to, and the number of their partitions."""
        self._assigned: Assigned | None = None
        self._next: frozenset[TopicPartition] | None = None
        """The partitions that a cooperative member takes up between two steps."""
        self._is_held = False
        self._is_to_join = False
        self._is_claiming = False
        """Whether a request that claims this member's partitions is under way. Until it has an answer, or has
        failed, no partition may be taken up: the group gives to others what the request does not claim."""
        self._led: dict[str, int] | None = None
        """The partitions of the group's topics when this member, its leader, has assigned them."""
        self._looked = 0.0
        """The time at which the leader last looked at them."""
        self._beat = float("-inf")
        """The time of the last request after which the group knew this member."""
        self._answered = _now()
        """The time at which the coordinator last answered, or the member began."""
        self._is_to_beat = False
        self._trouble: KafkaLogError | None = None
        """The reason why the coordinator does not answer."""
        self._error: KafkaLogError | None = None
        """The reason why this is no longer a member."""
        self._has_left = False

    # For the reader

    def subscribe(self, counts: Mapping[str, int]) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.Membership.subscribe`."""
        if counts == self._counts and self._thread is not None:
            return
        if self._thread is None:
            self._check(counts.keys())
        with self._changed:
            if self._thread is None or counts.keys() != self._counts.keys() or self._is_outdated(counts):
                self._is_to_join = True
            self._counts = dict(counts)
            if self._thread is None:
                name = f"kafkalog member of {self._group}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def hold(self, wait: float) -> Assigned | None:
        """See :meth:`pyspark_kafkalog.model.groups.Membership.hold`."""
        end = None
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error.with_hint(self._error.hint)
                if self._assigned is not None and not (self._is_to_join and not self._options.is_cooperative):
                    if _now() - self._beat < self._session:
                        self._take_up()
                        self._is_held = True
                        return self._assigned
                    self._is_to_beat = True
                    self._changed.notify_all()
                patience = (
                    self._options.session_timeout_ms / 1000 + self._connection.request_timeout_ms / 1000
                )
                if self._trouble is not None and _now() - self._answered > patience:
                    raise self._trouble.with_hint(self._trouble.hint)
                end = time.monotonic() + wait if end is None else end
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)

    def release(self) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.Membership.release`."""
        with self._changed:
            if self._is_held:
                self._is_held = False
                if self._is_to_join or self._next is not None:
                    self._changed.notify_all()

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], assigned: Assigned) -> bool:
        """See :meth:`pyspark_kafkalog.model.groups.Membership.commit`."""
        end = time.monotonic() + self._rebalance  # which it may meet
        while True:
            with self._changed:
                if self._error is not None:
                    raise self._error.with_hint(self._error.hint)
                if self._assigned is not assigned or not self._is_held:
                    return False
                me = self._me
            codes = self._groups.commit_as(me, self._group, offsets)
            deleted = [p for p, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            failed = {p: code for p, code in codes.items() if code and p not in deleted}
            if not failed:
                if deleted:
                    text = "Group %s keeps no offsets of %s, which do not exist"
                    _log.warning(text, self._group, listed(deleted, 10))
                return True
            gone = sorted(_GONE & set(failed.values()))
            with self._changed:
                is_busy = bool(_BUSY & set(failed.values()))
                self._is_to_beat |= ErrorCode.STALE_MEMBER_EPOCH in failed.values()
                self._changed.notify_all()
                joins = self._is_claiming or (self._is_to_join and self._options.is_cooperative)
                if (is_busy or (gone and (joins or me != self._me))) and time.monotonic() < end:
                    self._changed.wait(_PAUSE)  # it joins just now, or has done so meanwhile
                    continue
                if gone:
                    self._lose(gone[0])
                    continue
            raise commit_error(self._group, failed, len(offsets))

    def leave(self) -> None:
        """See :meth:`pyspark_kafkalog.model.groups.Membership.leave`."""
        with self._changed:
            self._has_left = True
            me = self._me
            self._assigned = None
            self._changed.notify_all()
        if me.generation < 0 or self._stays():
            return
        try:
            self._call(self._farewell(me), "Leaving", within=_LEAVE_WITHIN)
        except KafkaLogError as e:
            _log.debug("Group %s was not told that the query has ended: %s", self._group, e)

    def _stays(self) -> bool:
        """Whether the group is not told that the query has ended."""
        return self._options.instance_id is not None

    def _farewell(self, me: MemberOfGroup) -> Any:
        kind = LeaveGroupRequest.MemberIdentity
        identity = kind(member_id=me.member_id, group_instance_id=None, reason="the query has ended")
        return LeaveGroupRequest(group_id=self._group, member_id=me.member_id, members=[identity])

    # Before it joins

    def _check(self, topics: Collection[str]) -> None:
        """Refuse to disturb a group that is not one of consumers of these topics.

        :raises GroupError: saying whose it is.
        """
        group = self._groups.find(self._group)
        if group is None:
            return
        if group.protocol_type not in ("", ConsumerProtocolType):
            raise GroupError(
                f"Group {self._group!r} is one of protocol {group.protocol_type!r}, not of consumers",
                hint="Give another kafka.group.id.",
            )
        read = {partition.topic for member in group.members or () for partition in member.partitions}
        if read and not read & set(topics):
            clients = {member.client_id for member in group.members or ()}
            raise GroupError(
                f"Group {self._group!r} is used by {listed(clients, 3)}, which read {listed(read, 5)}, but no"
                " topic of this query",
                hint="Give a kafka.group.id that no other application has, or check the topics.",
            )

    # The thread

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._has_left or self._error is not None:
                    return
                self._take_up_unless_held()
                step = self._due()
                if step is None:
                    self._changed.wait(self._until_next())
                    continue
            try:
                step()
            except _FATAL as e:
                self._end(e)
            except KafkaLogError as e:
                self._has_failed(e, is_to_join=step == self._join)
            except Exception as e:
                _log.exception("The member of group %s has failed", self._group)
                self._end(KafkaLogError(f"The member of group {self._group} has failed: {e!r}"))
            finally:
                self._is_claiming = False

    def _take_up_unless_held(self) -> None:
        if not self._is_held:
            self._take_up()

    def _take_up(self) -> None:
        if self._next is None or self._is_claiming:
            return
        given_up = () if self._assigned is None else self._assigned.partitions - self._next
        self._assigned, self._next = Assigned(self._next), None
        if given_up:
            _log.info("Group %s gets back %s", self._group, listed(given_up, 10))
            self._is_to_join = True
            self._changed.notify_all()

    def _due(self) -> Callable[[], None] | None:
        if self._is_to_join and (not self._is_held or self._options.is_cooperative):
            if not self._options.is_cooperative:
                self._assigned = None
            self._is_to_join, self._is_claiming = False, True
            return self._join
        if self._me.generation < 0:
            return None
        if self._is_to_beat or _now() >= self._beat + self._interval:
            self._is_to_beat = False
            return self._heartbeat
        if self._led is not None and self._until_look() <= 0:
            return self._look
        return None

    def _until_next(self) -> float | None:
        if self._me.generation < 0:
            return None
        beat = self._beat + self._interval - _now()
        return max(beat if self._led is None else min(beat, self._until_look()), 0)

    def _until_look(self) -> float:
        return self._looked + self._connection.metadata_max_age_ms / 1000 - _now()

    def _end(self, error: KafkaLogError) -> None:
        with self._changed:
            self._error = self._error or error
            self._assigned = self._next = None
            self._changed.notify_all()

    def _has_failed(self, error: KafkaLogError, *, is_to_join: bool) -> None:
        """Try again, as a coordinator may come back."""
        with self._changed:
            if self._trouble is None:
                _log.warning("Group %s does not answer: %s", self._group, error)
            self._trouble = error
            self._is_to_join |= is_to_join
            self._is_to_beat |= not is_to_join
            self._changed.notify_all()
            self._changed.wait(_PAUSE)

    def _heartbeat(self) -> None:
        began, me = _now(), self._me
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=me.generation,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
        )
        code = self._call(request, "Heartbeat", within=self._session).error_code
        with self._changed:
            self._has_answered()
            if me != self._me:
                return
            if code in (0, ErrorCode.REBALANCE_IN_PROGRESS):
                self._beat = began
                self._is_to_join |= code == ErrorCode.REBALANCE_IN_PROGRESS
            elif code in _GONE:
                self._lose(code)
            else:
                raise self._refused(code, "Heartbeat")
            self._changed.notify_all()

    def _has_answered(self) -> None:
        self._answered, self._trouble = _now(), None

    def _lose(self, code: int) -> None:
        """The group has gone on without this member. What its step reads can't be committed any more."""
        what = f"The query is no longer a member of group {self._group} ({name_of(code)})"
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._error = GroupError(
                f"{what}: another member has its kafka.group.instance.id, {self._options.instance_id}",
                hint="Give each query and each consumer a kafka.group.instance.id of its own.",
            )
        elif self._is_held and not self._options.rejoins:
            self._error = GroupError(
                f"{what}, so its micro-batch can't be committed, and others read its rows, too",
                hint="It was paused for longer than kafka.session.timeout.ms, or the micro-batch took longer"
                " than kafka.max.poll.interval.ms while the group waited to move partitions: raise these, or"
                " make micro-batches smaller. Start the query again, or set groupMembershipLost=rejoin.",
            )
        elif self._assigned is not None:
            rest = (
                "its micro-batch stays uncommitted" if self._is_held else "all that it has read is committed"
            )
            _log.warning("%s, and joins again; %s", what, rest)
        self._me = self._me._replace(generation=-1)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._me = self._me._replace(member_id="")
        self._assigned = self._next = self._led = None
        self._is_to_join = self._error is None
        self._changed.notify_all()

    def _join(self) -> None:
        with self._changed:
            me, counts = self._me, self._counts
            owned = self._assigned.partitions if self._assigned is not None else frozenset()
            self._next = None  # what it adds is not claimed, so the next generation may give it to another
        subscription = _subscription(counts.keys(), owned, me.generation, self._rack)
        kind = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._options.session_timeout_ms,
            rebalance_timeout_ms=self._options.max_poll_interval_ms,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
            protocol_type=ConsumerProtocolType,
            protocols=[kind(name=name, metadata=subscription) for name in self._options.assignors],
            reason="",
        )
        joined = self._call(request, "Joining", within=2 * self._rebalance, stall=self._rebalance)
        code = joined.error_code
        with self._changed:
            self._has_answered()
            if code:
                self._has_not_joined(code, joined.member_id)
                return
        began = _now()
        me = me._replace(member_id=joined.member_id, generation=joined.generation_id)
        with self._changed:
            self._me, self._beat = me, began
        assignments, led = {}, None
        if joined.leader == joined.member_id:
            led = self._counts_of(joined)
            if not joined.skip_assignment:
                assignments = self._assignments(joined, led)
        assignment = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=me.generation,
            member_id=me.member_id,
            group_instance_id=me.instance_id,
            protocol_type=ConsumerProtocolType,
            protocol_name=joined.protocol_name,
            assignments=[assignment(member_id=m, assignment=bytes_) for m, bytes_ in assignments.items()],
        )
        synced = self._call(request, "Joining", within=2 * self._rebalance, stall=self._rebalance)
        with self._changed:
            self._has_answered()
            if synced.error_code:
                self._has_not_joined(synced.error_code, me.member_id)
                return
            self._beat = began
            self._led, self._looked = led, _now()
            partitions = self._read(synced.assignment)
            self._is_claiming = False
            _log.info("Group %s has assigned %s", self._group, listed(partitions, 10) or "nothing")
            if self._assigned is None:
                self._assigned = Assigned(partitions)
            else:
                self._next = partitions
                self._take_up_unless_held()
            self._changed.notify_all()

    def _has_not_joined(self, code: int, member_id: str) -> None:
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._me = self._me._replace(member_id=member_id)
            self._is_to_join = True
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._is_to_join = True
        elif code in _GONE:
            self._lose(code)
        else:
            raise self._refused(code, "Joining")

    def _refused(self, code: int, doing: str) -> KafkaLogError:
        rest, hint = "", None
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            ours = ",".join(self._options.assignors)
            rest = f": its members have no assignor in common with kafka.partition.assignment.strategy={ours}"
            found = self._groups.find(self._group)
            if found is not None and found.protocol:
                rest += f"; they use {found.protocol}"
            hint = "Add theirs to kafka.partition.assignment.strategy, or give another kafka.group.id."
        return error_of(code, f"{doing} (group {self._group})", rest=rest, hint=hint)

    def _call(self, request: Any, doing: str, *, within: float, stall: float | None = None) -> Any:
        """Ask the coordinator; what it refuses is for the caller, what a retry cures is tried again."""
        lowest = _FIRST_JOIN if isinstance(request, JoinGroupRequest) else 0
        if self._options.instance_id is not None:
            lowest = _FIRST_STATIC.get(type(request), lowest)

        def read(response: Any) -> Any:
            code = response.error_code
            known = code in _GONE or code in (0, ErrorCode.REBALANCE_IN_PROGRESS)
            return response if known or code == ErrorCode.MEMBER_ID_REQUIRED else Refused(code)

        doing = f"{doing} (group {self._group})"
        try:
            found = call_coordinator(
                cluster_of(self._connection),
                self._group,
                lambda: request,
                read,
                doing=doing,
                deadline=Deadline.after(within),
                min_version=lowest,
                stall=stall,
            )
        except UnsupportedVersionError as e:
            if lowest not in _FIRST_STATIC.values():
                raise
            hint = "Static members need Kafka 2.3: leave kafka.group.instance.id out."
            raise UnsupportedVersionError(e.message, broker=e.broker, hint=hint) from None
        if isinstance(found, Refused):
            raise self._refused(found.error_code, doing.split(" (")[0])
        return found

    # As the leader

    def _is_outdated(self, counts: Counts) -> bool:
        """Whether the leader has assigned other partitions than there are."""
        led = self._led
        return led is not None and any(led.get(topic, 0) != count for topic, count in counts.items())

    def _look(self) -> None:
        """Whether the topics of all members still have the partitions that were assigned."""
        with self._changed:
            led = self._led
        if led is None:
            return
        found = self._partition_counts(led.keys())
        with self._changed:
            self._looked = _now()
            if self._led is led and found != {topic: count for topic, count in led.items() if count}:
                self._is_to_join = True
                self._changed.notify_all()

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        found = cluster_of(self._connection).topics(sorted(topics)) if topics else {}
        return {topic: len(numbers) for topic, numbers in found.items() if numbers}

    def _counts_of(self, joined: Any) -> dict[str, int]:
        """The partitions of all that members subscribe to; of our topics no fewer than the reader knows."""
        topics = {topic for member in joined.members for topic in _subscriber(member).topics}
        found = self._partition_counts(topics)
        return {topic: max(found.get(topic, 0), self._counts.get(topic, 0)) for topic in topics}

    def _racks(self, topics: Collection[str]) -> Racks:
        """The racks of each partition's replicas, as any broker says; it is advice."""
        response = cluster_of(self._connection).call(
            metadata_request(topics, create=False), doing="Looking up racks", max_version=MAX_VERSION
        )
        racks = {broker.node_id: broker.rack for broker in response.brokers if broker.rack}
        return {
            TopicPartition(topic.name, partition.partition_index): frozenset(
                racks[node] for node in partition.replica_nodes if node in racks
            )
            for topic in response.topics
            for partition in topic.partitions
        }

    def _assignments(self, joined: Any, led: Counts) -> dict[str, bytes]:
        """The assignment of each member, as bytes."""
        assign = ASSIGNORS.get(joined.protocol_name)
        if assign is None:
            raise self._refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Joining")
        counts = {topic: count for topic, count in led.items() if count}
        members = [_subscriber(member) for member in joined.members]
        racks = self._racks(counts) if any(member.rack for member in members) else {}
        found = assign(members, counts, racks)
        return {
            member_id: ConsumerProtocolAssignment(
                version=0, assigned_partitions=sorted(by_topic(partitions).items()), user_data=b""
            ).encode()
            for member_id, partitions in found.items()
        }

    def _read(self, assignment: Any) -> frozenset[TopicPartition]:
        """The partitions that a leader has assigned to this member.

        :raises GroupError: if its bytes make no sense.
        """
        if not assignment:
            return frozenset()
        try:
            found = ConsumerProtocolAssignment.decode(bytes(assignment)).partitions()
        except UNREADABLE as e:
            raise GroupError(
                f"The leader of group {self._group} has assigned partitions in a form that can't be read",
                hint="See which application leads the group, and give another kafka.group.id.",
            ) from e
        return frozenset(TopicPartition(topic, number) for topic, number in found)


def _subscription(
    topics: Collection[str], owned: Collection[TopicPartition], generation: int, rack: str
) -> bytes:
    kind = ConsumerProtocolSubscription.TopicPartition
    found = ConsumerProtocolSubscription(
        version=_SUBSCRIPTION,
        topics=sorted(topics),
        user_data=b"",
        owned_partitions=[kind(topic=name, partitions=p) for name, p in sorted(by_topic(owned).items())],
        generation_id=generation,
        rack_id=rack or None,
    )
    encoded: bytes = found.encode()
    return encoded


def _subscriber(member: Any) -> Subscriber:
    """The subscription that a member has sent the leader; empty if its bytes make no sense."""
    try:
        found = ConsumerProtocolSubscription.decode(bytes(member.metadata))
        owned = [
            TopicPartition(topic.topic, number)
            for topic in getattr(found, "owned_partitions", None) or ()
            for number in topic.partitions
        ]
        return Subscriber(
            member.member_id,
            member.group_instance_id,
            frozenset(found.topics),
            tuple(owned),
            getattr(found, "generation_id", -1),
            getattr(found, "rack_id", None) or "",
        )
    except UNREADABLE:
        _log.warning("Member %s subscribes in a form that can't be read: it gets nothing", member.member_id)
        return Subscriber(member.member_id, member.group_instance_id)
