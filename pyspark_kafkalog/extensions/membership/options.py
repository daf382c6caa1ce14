"""The options by which a stream is a member of its consumer group, with the names and bounds of Kafka's."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.groups import Membership
from pyspark_kafkalog.options.settings import PlaceOptions
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.stream.share import Share, Sharing, StreamRun

_OF_ONE_PROTOCOL = {
    "classic": (
        "kafka.partition.assignment.strategy",
        "kafka.session.timeout.ms",
        "kafka.heartbeat.interval.ms",
    ),
    "consumer": ("kafka.group.remote.assignor",),
}
_OF_MEMBERS = (
    "kafka.group.protocol",
    "kafka.group.instance.id",
    "kafka.max.poll.interval.ms",
    *_OF_ONE_PROTOCOL["classic"],
    *_OF_ONE_PROTOCOL["consumer"],
)


@dataclass(frozen=True, slots=True)
class MembershipOptions(Sharing):
    """The options of a member of a consumer group. ``rejoins`` says what it does if it has lost that."""

    protocol: str = from_option("kafka.group.protocol")
    remote_assignor: str | None = from_option("kafka.group.remote.assignor")
    assignors: tuple[str, ...] = from_option("kafka.partition.assignment.strategy")
    instance_id: str | None = from_option("kafka.group.instance.id")
    session_timeout_ms: int = from_option("kafka.session.timeout.ms")
    heartbeat_interval_ms: int = from_option("kafka.heartbeat.interval.ms")
    max_poll_interval_ms: int = from_option("kafka.max.poll.interval.ms")
    rejoins: bool = from_option("groupMembershipLost")
    patience: ClassVar[float] = 60.0
    """Seconds for which it asks for its offsets and commits, while its coordinator may move: as Java's
    default.api.timeout.ms."""

    @property
    def is_cooperative(self) -> bool:
        """Whether the member keeps its partitions while it joins again (KIP-429), as in Kafka's consumer."""
        return self.protocol == "consumer" or self.assignors == ("cooperative-sticky",)

    @property
    def is_shared(self) -> bool:
        """See :attr:`.share.Sharing.is_shared`."""
        return True

    def open(self, run: StreamRun) -> Share:
        """See :meth:`.share.Sharing.open`: a member, which has not joined yet."""
        from pyspark_kafkalog.extensions.membership.sharing import SharedGroup

        group = run.options.group.group_id
        assert group is not None, "a member has a group"
        return SharedGroup(
            self._member(run.place_options, group),
            group,
            run.place,
            partial(run.groups, self.patience),
            run.as_committed(),
            patience=self.max_poll_interval_ms / 1000 if self.is_cooperative else 0,
            stored=run.begins(),
            store=run.store_begins,
            fail_on_data_loss=run.options.fail_on_data_loss,
        )

    def _member(self, options: PlaceOptions, group: str) -> Membership:
        from pyspark_kafkalog.broker.fetch.rack import rack_of

        assert options.brokers is not None, "a directory has no live groups"
        rack = "" if options.fetch is None else rack_of(options.fetch.client_rack)
        if self.protocol == "consumer":
            from pyspark_kafkalog.extensions.membership.consumer_protocol import ConsumerProtocolMember

            return ConsumerProtocolMember(options.brokers, group, self, rack=rack)
        from pyspark_kafkalog.extensions.membership.member import Member

        return Member(options.brokers, group, self, rack=rack)


def membership_options(user: UserOptions) -> MembershipOptions | None:
    """The options of a stream that is a member of its group; None if it does not join.

    :raises OptionError: for options that contradict membership, or need it.
    """
    if not user.value("groupMembership"):
        if user.value("groupMembershipLost"):
            raise OptionError(
                "Option 'groupMembershipLost' needs groupMembership=true", hint="Set that, or leave it out."
            )
        for name in _OF_MEMBERS:
            if name in user:
                log_once(logging.DEBUG, "Option %s has no effect without groupMembership", name)
        return None
    for needed, why in (
        ("kafka.group.id", "It names the group to join."),
        ("checkpointLocation", "The query's checkpoint keeps where its partitions have begun."),
    ):
        if user.value(needed) is None:
            raise OptionError(f"Option 'groupMembership' needs {needed!r}", hint=why)
    if user.value("commitOffsets") == "false":
        raise OptionError(
            "Option 'commitOffsets' can't be false with groupMembership: a member commits what it has read",
            hint="Leave it out. If a sink is to commit the offsets in its transactions, give each query its"
            " own partitions with assign, and leave out groupMembership.",
        )
    if "assign" in user:
        raise OptionError(
            "Option 'assign' names partitions, but with groupMembership the group assigns them",
            hint="Give subscribe or subscribePattern.",
        )
    membership = user.fill(MembershipOptions)
    for name in _OF_ONE_PROTOCOL["consumer" if membership.protocol == "classic" else "classic"]:
        if name in user:
            raise OptionError(
                f"Option {name!r} has no effect with kafka.group.protocol={membership.protocol}",
                hint="Leave it out.",
            )
    interval, timeout = "kafka.heartbeat.interval.ms", "kafka.session.timeout.ms"
    if membership.heartbeat_interval_ms >= membership.session_timeout_ms:
        if interval not in user:
            raise OptionError(
                f"Option {timeout!r}: expected more than {interval}, which is"
                f" {membership.heartbeat_interval_ms}, got {membership.session_timeout_ms}",
                hint="It is in milliseconds.",
            )
        raise OptionError(
            f"Option {interval!r}: expected less than {timeout}, which is"
            f" {membership.session_timeout_ms}, got {membership.heartbeat_interval_ms}",
            hint="A third of it is usual.",
        )
    return membership
