"""The groups that ZooKeeper keeps: see :class:`pyspark_kafkalog.model.groups.GroupOffsets`.

Layout and rules are those of Kafka's ZookeeperConsumerConnector and AdminUtils (0.8 to 1.1). A commit holds
neither metadata nor a leader epoch. A consumer that lives has a znode below ``ids``, which goes with its
session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import (
    GroupError,
    KafkaLogError,
    OptionError,
    ZooKeeperError,
    no_such_partition,
)
from pyspark_kafkalog.extensions.zookeeper.client import Znode, ZooKeeper
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOptions
from pyspark_kafkalog.extensions.zookeeper.registry import (
    cluster_id,
    readable,
    registered_partitions,
    wrong_chroot,
)
from pyspark_kafkalog.extensions.zookeeper.znodes import (
    CONSUMERS,
    parse_consumer,
    parse_offset,
    parse_owner,
    parse_partition,
)
from pyspark_kafkalog.model import CommittedOffset, Group, GroupMember, TopicPartition, check_topic
from pyspark_kafkalog.options.brokers import ConnectionOptions

_LEGAL_GROUP = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]+\Z")
_HOST = re.compile(r"(?P<host>.+)-[0-9]+-[0-9a-f]+", re.DOTALL | re.ASCII)
_STABLE, _EMPTY = "Stable", "Empty"


_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")
_Parsed = TypeVar("_Parsed")


def _in_a_session(
    method: Callable[Concatenate[ZooKeeperGroups, _Given], _Answer],
) -> Callable[Concatenate[ZooKeeperGroups, _Given], _Answer]:
    """The method, all of whose requests share a session."""

    @wraps(method)
    def with_session(self: ZooKeeperGroups, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
        with self.zookeeper:
            return method(self, *args, **kwargs)

    return with_session


class ZooKeeperGroups:
    """The groups below ``/consumers``; each call has a session of its own.

    :param timeout: seconds for a request with all its retries, by default request.timeout.ms.
    """

    def __init__(
        self, options: ZooKeeperOptions, brokers: ConnectionOptions, *, timeout: float | None = None
    ) -> None:
        self._timeout = brokers.request_timeout_ms / 1000 if timeout is None else timeout
        self.zookeeper = ZooKeeper(options, brokers, self._timeout)
        self._brokers = brokers
        self._is_checked = False

    @_in_a_session
    def group_ids(self) -> tuple[str, ...]:
        """The ids of all groups, sorted.

        :raises ZooKeeperError: if the chroot is not Kafka's, or that of another cluster.
        """
        found = self.zookeeper.children([CONSUMERS])
        if CONSUMERS not in found:
            raise wrong_chroot(self.zookeeper, CONSUMERS)
        if not self._is_checked and self._brokers.bootstrap_servers:
            self._check_cluster()
        self._is_checked = True
        return tuple(readable(found)[CONSUMERS])

    def try_group_ids(self) -> tuple[tuple[str, ...], list[KafkaLogError]]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.try_group_ids`: there is one list of all."""
        return self.group_ids(), []

    def _check_cluster(self) -> None:
        """See that ZooKeeper is that of the brokers, if both know the id of their cluster."""
        deadline = Deadline.after(self._timeout)
        theirs = cluster_of(self._brokers).identity([], deadline=deadline).cluster_id
        known = cluster_id(self.zookeeper)
        if known and theirs and known != theirs:
            raise ZooKeeperError(
                f"ZooKeeper is that of cluster {known}, and the brokers are those of {theirs}",
                file=str(self.zookeeper.address),
                hint="Check servers and chroot: the offsets of another cluster mean other records.",
            )

    @_in_a_session
    def describe(self, groups: Collection[str]) -> dict[str, Group | KafkaLogError]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.describe`. A group with consumers is stable,
        any other one is empty.

        ZooKeeper knows neither the ids of clients nor the assignor. The host is as the consumer says.
        """
        existing = sorted(set(groups) & {*self.group_ids()})
        failed: dict[str, KafkaLogError] = {}
        subscribed = self._subscribed(existing, failed)
        owned = self._owned([group for group, consumers in subscribed.items() if consumers], failed)
        described = {
            group: Group(
                group,
                _STABLE if subscribed[group] else _EMPTY,
                protocol_type="consumer",
                members=tuple(
                    GroupMember(consumer, "", _host(group, consumer), owned.get((group, consumer), ()))
                    for consumer in subscribed[group]
                ),
            )
            for group in existing
        }
        return {**described, **failed}

    @_in_a_session
    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that ``group`` has committed, for all partitions or for these; no transaction does.

        The time of a commit is that when the offset last changed.
        """
        self._check_chroot()
        if partitions is None:
            (found,) = self.committed_by([group]).values()
            if isinstance(found, KafkaLogError):
                raise found
            return found
        wanted = {_offset_path(group, partition): partition for partition in partitions}
        answers = readable(self.zookeeper.read(wanted))
        return {wanted[path]: self._commit_at(path, znode) for path, znode in answers.items()}

    @_in_a_session
    def committed_by(
        self, groups: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaLogError]:
        """See :meth:`pyspark_kafkalog.model.groups.GroupOffsets.committed_by`; one round for all groups."""
        self._check_chroot()
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        failed: dict[str, KafkaLogError] = {}
        roots: dict[str, str] = {}
        for group in sorted(set(groups)):
            try:
                roots[f"{CONSUMERS}/{_checked(group)}/offsets"] = group
            except OptionError as e:
                failed[group] = e
            else:
                found[group] = {}
        partitions = self._below(self._below(roots, failed), failed)
        for group, (partition, committed) in self._parsed(
            partitions, lambda path, znode: (self._partition_at(path), self._commit_at(path, znode)), failed
        ):
            found[group][partition] = committed
        return {**found, **failed}

    def _below(self, paths: Mapping[str, str], failed: dict[str, KafkaLogError]) -> dict[str, str]:
        """The children of these znodes, each with its group; ``failed`` gets the errors of groups."""
        children = self.zookeeper.children(paths)
        failed.update({paths[path]: e for path, e in children.items() if isinstance(e, ZooKeeperError)})
        return {
            f"{path}/{name}": paths[path]
            for path, names in children.items()
            if not isinstance(names, ZooKeeperError)
            for name in names
        }

    def _parsed(
        self,
        paths: Mapping[str, str],
        parse: Callable[[str, Znode], _Parsed],
        failed: dict[str, KafkaLogError],
    ) -> list[tuple[str, _Parsed]]:
        """The group of each of these znodes, and what ``parse`` makes of it; ``failed`` as above."""
        found = []
        for path, znode in self.zookeeper.read(paths).items():
            try:
                if isinstance(znode, ZooKeeperError):
                    raise znode
                found.append((paths[path], parse(path, znode)))
            except ZooKeeperError as e:
                failed[paths[path]] = e
        return found

    @_in_a_session
    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """Commit as a consumer does; its group has no other. Up to 500 partitions are committed at once.

        :raises GroupError: if the group has live consumers. If one starts meanwhile, the offsets are written,
            and it may have begun before or behind them.
        :raises UnknownTopicOrPartitionError: if a partition does not exist; then nothing is committed.
        """
        if not offsets:
            return
        self.check_no_consumers(group)
        self._check_partitions(group, offsets)
        self.zookeeper.write(
            {_offset_path(group, partition): b"%d" % each.offset for partition, each in offsets.items()}
        )
        self.check_no_consumers(group, "got live consumers while its offsets were written")

    @_in_a_session
    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Delete the offsets that ``group`` has committed for these partitions; missing ones are ignored.

        :raises GroupError: if a live consumer is subscribed to their topics.
        """
        self._check_chroot()
        topics = {partition.topic for partition in partitions}
        failed: dict[str, KafkaLogError] = {}
        consumers = self._subscribed([_checked(group)], failed)[group]
        for error in failed.values():
            raise error
        if any(subscribed is None or subscribed & topics for subscribed in consumers.values()):
            raise _has_consumers(group, "has live consumers of these topics", consumers)
        self.zookeeper.delete(_offset_path(group, partition) for partition in sorted(partitions))

    @_in_a_session
    def delete_group(self, group: str) -> None:
        """Delete a group with all of its offsets.

        :raises GroupError: if it has live consumers, or does not exist.
        """
        if group not in self.group_ids():
            raise GroupError(f"No such consumer group: {group!r}")
        self.check_no_consumers(group)
        self.zookeeper.delete([f"{CONSUMERS}/{group}"])

    @_in_a_session
    def check_no_consumers(self, group: str, what: str = "has live consumers") -> None:
        """See that no consumer of the group lives.

        :raises GroupError: if one does.
        """
        self._check_chroot()
        path = f"{CONSUMERS}/{_checked(group)}/ids"
        if consumers := readable(self.zookeeper.children([path])).get(path):
            raise _has_consumers(group, what, consumers)

    def _check_chroot(self) -> None:
        if not self._is_checked:  # a group has committed nothing in a wrong one
            self.group_ids()

    def _check_partitions(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        existing = registered_partitions(self.zookeeper, {partition.topic for partition in offsets})
        for partition, committed in sorted(offsets.items()):
            if partition.partition not in existing.get(partition.topic, ()):
                raise no_such_partition([partition]).with_hint("ZooKeeper knows the others of its topic.")
            if committed.offset < 0:
                raise GroupError(
                    f"Group {group!r} cannot commit offset {committed.offset}", topic_partition=partition
                )

    def _subscribed(
        self, groups: Collection[str], failed: dict[str, KafkaLogError]
    ) -> dict[str, dict[str, frozenset[str] | None]]:
        """The live consumers of each group, and their topics, as :func:`parse_consumer` has them."""
        consumers = self._below({f"{CONSUMERS}/{group}/ids": group for group in groups}, failed)
        found: dict[str, dict[str, frozenset[str] | None]] = {group: {} for group in groups}
        for group, (consumer, topics) in self._parsed(
            consumers,
            lambda path, znode: (
                path.rpartition("/")[2],
                parse_consumer(znode.data, self.zookeeper.where(path)),
            ),
            failed,
        ):
            found[group][consumer] = topics
        return found

    def _owned(
        self, groups: Collection[str], failed: dict[str, KafkaLogError]
    ) -> dict[tuple[str, str], tuple[TopicPartition, ...]]:
        """The partitions of each consumer of these groups."""
        topics = self._below({f"{CONSUMERS}/{group}/owners": group for group in groups}, failed)
        partitions = self._below(topics, failed)
        found: dict[tuple[str, str], list[TopicPartition]] = {}
        for group, (consumer, partition) in self._parsed(
            partitions,
            lambda path, znode: (
                parse_owner(znode.data, self.zookeeper.where(path)),
                self._partition_at(path),
            ),
            failed,
        ):
            found.setdefault((group, consumer), []).append(partition)
        return {owner: tuple(sorted(partitions)) for owner, partitions in found.items()}

    def _partition_at(self, path: str) -> TopicPartition:
        where = self.zookeeper.where(path)
        topic, number = path.split("/")[-2:]
        try:
            return TopicPartition(check_topic(topic), parse_partition(number, where))
        except OptionError as e:
            raise ZooKeeperError(e.message, file=where) from None

    def _commit_at(self, path: str, znode: Znode) -> CommittedOffset:
        offset = parse_offset(znode.data, self.zookeeper.where(path))
        return CommittedOffset(offset, commit_timestamp=znode.modified)


class DualGroups(BrokerGroups):
    """Groups that commit to brokers and to ZooKeeper, and begin at the later one of both commits.

    That is what ``dual.commit.enabled`` means to Kafka's ZookeeperConsumerConnector where
    ``offsets.storage`` is ``kafka``, and to its documentation where it is ``zookeeper``, too.
    """

    def __init__(
        self, connection: ConnectionOptions, zookeeper: ZooKeeperGroups, *, timeout: float | None = None
    ) -> None:
        super().__init__(connection, timeout=timeout)
        self._in_zookeeper = zookeeper

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The later commit of each partition; of two that are alike that of the brokers, which has more."""
        found = super().committed(group, partitions, require_stable=require_stable)
        for partition, committed in self._in_zookeeper.committed(group, partitions).items():
            if partition not in found or committed.offset > found[partition].offset:
                found[partition] = committed
        return found

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], *, as_they_are: bool = False
    ) -> None:
        """Commit to brokers and then to ZooKeeper; see both.

        :raises GroupError: if the group has live members, in ZooKeeper or in the brokers.
        """
        if not offsets:
            return
        with self._in_zookeeper.zookeeper:
            self._in_zookeeper.check_no_consumers(group)
            super().commit(group, offsets, as_they_are=as_they_are)
            self._in_zookeeper.commit(group, offsets)


def _has_consumers(group: str, what: str, consumers: Collection[str]) -> GroupError:
    return GroupError(
        f"Group {group!r} {what}: {', '.join(sorted(consumers)[:3])}",
        hint="Stop them. One that was killed goes when its session ends, after zookeeper.session.timeout.ms.",
    )


def _checked(group: str) -> str:
    """A group id that Kafka's consumers with ZooKeeper take (ConsumerConfig.validateGroupId).

    :raises OptionError: for any other.
    """
    if not _LEGAL_GROUP.match(group):
        raise OptionError(
            f"ZooKeeper has no group {group[:300]!r}",
            hint="The names of such groups consist of the characters a-z A-Z 0-9 . _ -",
        )
    return group


def _offset_path(group: str, partition: TopicPartition) -> str:
    return f"{CONSUMERS}/{_checked(group)}/offsets/{check_topic(partition.topic)}/{partition.partition}"


def _host(group: str, consumer: str) -> str:
    """The host in an id ``group_host-milliseconds-hex``; empty for one that was configured."""
    match = _HOST.fullmatch(consumer.removeprefix(f"{group}_"))
    return "" if match is None else match["host"]
