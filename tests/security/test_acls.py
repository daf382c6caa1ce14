"""What the cluster's ACLs deny is an AuthorizationError that names it, and what to grant."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.errors import AuthorizationError, KafkaLogError
from pyspark_kafkalog.extensions.membership.consumer_protocol import ConsumerProtocolMember
from pyspark_kafkalog.extensions.membership.member import Member
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.model import EARLIEST, LATEST, CommittedOffset, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.read.ranges import RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.broker.producing import digits, numbered, unused_topic
from tests.kafka_secure import USER, SecureBroker
from tests.kafka_service import running
from tests.security.exchange import RULES, read, write
from tests.security.logins import Options, password_login

pytestmark = pytest.mark.broker

DESCRIBE, READ, WRITE, DELETE = (
    ACLOperation.DESCRIBE,
    ACLOperation.READ,
    ACLOperation.WRITE,
    ACLOperation.DELETE,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker that allows its users what its ACLs say, and the tests themselves all."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with running(SecureBroker(tmp_path_factory.mktemp("guarded") / "broker", settings)) as broker:
        yield broker


@pytest.fixture
def alice(guarded: SecureBroker) -> Options:
    return password_login(guarded, "SASL_SSL", "SCRAM-SHA-256") | {"kafka.client.id": uuid.uuid4().hex}


@pytest.fixture
def topic(guarded: SecureBroker) -> str:
    name = unused_topic()
    guarded.create_topic(name)
    return name


def grant(broker: SecureBroker, kind: ResourceType, name: str, *operations: ACLOperation) -> None:
    pattern = ResourcePattern(kind, name)
    acls = [ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, pattern) for operation in operations]
    with broker.admin() as admin:
        assert not admin.create_acls(acls)["failed"]


def once_granted(action: Callable[[], object]) -> object:
    """Brokers hear of ACLs a moment after they are made."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return action()
        except KafkaLogError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def groups_of(options: Options) -> BrokerGroups:
    connection = place_options(options).brokers
    assert connection is not None
    return BrokerGroups(connection, timeout=5)


@pytest.mark.long
def test_groups_and_the_topics_that_they_commit(guarded: SecureBroker, alice: Options, topic: str) -> None:
    group, other = f"group-{uuid.uuid4().hex[:12]}", unused_topic()
    guarded.create_topic(other)
    groups = groups_of(alice)
    mine, theirs = TopicPartition(topic, 0), TopicPartition(other, 0)
    offsets = {mine: CommittedOffset(1), theirs: CommittedOffset(2)}
    for action in (
        lambda: groups.commit(group, offsets),
        lambda: groups.committed(group),
        lambda: groups.find(group),
        lambda: groups.delete_group(group),
        lambda: groups.delete_offsets(group, [mine]),
    ):
        with pytest.raises(AuthorizationError, match=rf"group {group}.*: GROUP_AUTHORIZATION_FAILED.*Grant"):
            action()
    assert groups.group_ids() == ()
    grant(guarded, ResourceType.GROUP, group, READ)
    grant(guarded, ResourceType.TOPIC, topic, READ)
    once_granted(lambda: groups.committed(group))
    once_granted(lambda: groups.commit(group, {mine: CommittedOffset(1)}))
    with pytest.raises(
        AuthorizationError,
        match=rf"TOPIC_AUTHORIZATION_FAILED; the rest is committed \(partition {theirs}\)\. Grant",
    ):
        groups.commit(group, offsets)
    assert [(p, offset.offset) for p, offset in groups.committed(group).items()] == [(mine, 1)]
    with pytest.raises(AuthorizationError, match=f"TOPIC_AUTHORIZATION_FAILED .partition {theirs}"):
        groups.committed(group, [mine, theirs])
    assert groups.group_ids() == (group,)
    with pytest.raises(AuthorizationError, match="to delete it: Delete"):
        groups.delete_group(group)
    grant(guarded, ResourceType.GROUP, group, DELETE)
    once_granted(lambda: groups.delete_group(group))


def test_topics_that_are_read_and_written(guarded: SecureBroker, alice: Options, topic: str) -> None:
    write({"kafka.bootstrap.servers": guarded.bootstrap}, topic, [numbered(10)])
    denied = "TOPIC_AUTHORIZATION_FAILED.*Grant"
    with pytest.raises(AuthorizationError, match=f"topic {topic}: {denied}"):
        open_place(place_options(alice)).topics([topic])
    begun = time.monotonic()
    with pytest.raises(AuthorizationError, match=f"{topic}.*{denied}"):
        write(alice, topic, [numbered(10)])
    assert time.monotonic() - begun < 60
    grant(guarded, ResourceType.TOPIC, topic, DESCRIBE)
    once_granted(lambda: open_place(place_options(alice)).topics([topic]))
    place = open_place(place_options(alice))
    with pytest.raises(AuthorizationError, match=rf"TOPIC_AUTHORIZATION_FAILED.*{topic}-0.*Grant"):
        list(RecordReader(place, RULES).read(Split(TopicPartition(topic, 0), OffsetRange(EARLIEST, LATEST))))
    with pytest.raises(
        AuthorizationError, match=r"producer id: CLUSTER_AUTHORIZATION_FAILED.*Write on the topic"
    ):
        write(alice, topic, [numbered(10)])
    # Who may write anywhere gets a producer id.
    other = unused_topic()
    guarded.create_topic(other)
    grant(guarded, ResourceType.TOPIC, other, WRITE)
    once_granted(lambda: write(alice, other, [numbered(10)]))
    with pytest.raises(AuthorizationError, match=rf"TOPIC_AUTHORIZATION_FAILED.*{topic}-0.*Grant .*Write"):
        write(alice, topic, [numbered(10)])
    grant(guarded, ResourceType.TOPIC, topic, READ, WRITE)
    once_granted(lambda: write(alice, topic, [numbered(10)]))
    assert read(alice, topic) == digits(10) * 2


def test_a_query_may_not_join_without_read_on_the_group(
    guarded: SecureBroker, alice: Options, topic: str
) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    connection = place_options(alice).brokers
    assert connection is not None
    with pytest.raises(AuthorizationError, match=rf"group {group}.*: GROUP_AUTHORIZATION_FAILED.*Grant"):
        Member(connection, group, MembershipOptions()).subscribe({topic: 1})
    grant(guarded, ResourceType.GROUP, group, DESCRIBE)  # it may see the group, and not join it
    once_granted(lambda: groups_of(alice).describe([group]))
    for kind, protocol in ((Member, "classic"), (ConsumerProtocolMember, "consumer")):
        member = kind(connection, group, MembershipOptions(protocol=protocol))
        member.subscribe({topic: 1})
        with pytest.raises(AuthorizationError, match=rf"group {group}.*GROUP_AUTHORIZATION_FAILED.*Grant"):
            member.hold(10)
