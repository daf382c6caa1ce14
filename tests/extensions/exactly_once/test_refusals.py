"""Clusters that do not let us write exactly once: the error says what is missing, and for what."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from pyspark_kafkalog.errors import (
    AuthorizationError,
    GroupError,
    KafkaLogError,
    TransactionError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.model import CommittedOffset, Plan, TopicPartition
from tests.broker.producing import digits, unused_topic
from tests.extensions.exactly_once.writing import Query, is_stable, shown, stored, values
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_old import OldBroker
from tests.kafka_proxy import API_VERSIONS, at_most
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OFFSET_FETCH = 9


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with ACLs, which let everybody do what no ACL is about."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with running(Broker(tmp_path_factory.mktemp("guarded"), settings)) as broker:
        yield broker


@contextlib.contextmanager
def in_force(broker: Broker, rule: ACL) -> Iterator[None]:
    """The broker hears from its controller of what is made and deleted, a moment later."""
    with broker.admin() as admin:

        def is_known() -> bool:
            return rule in admin.describe_acls(rule)[0]

        admin.create_acls([rule])
        broker.wait_until(is_known, f"{rule} is not in force")
        try:
            yield
        finally:
            admin.delete_acls([rule])
            broker.wait_until(lambda: not is_known(), f"{rule} stays in force")


def test_what_brokers_refuse_for_good(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    broker.create_topic(topic, configs={"cleanup.policy": "compact"})
    with pytest.raises(TransactionError, match=r"INVALID_RECORD.*visible\..*accepts only records with keys"):
        Query(broker.bootstrap, topic, tmp_path, query_id=topic).write([values(5)])


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "prefix", "operation", "match"),
    [
        (
            ResourceType.TRANSACTIONAL_ID,
            "kafkalog-",
            ACLOperation.WRITE,
            r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*Write on transactional id kafkalog-\w{26},"
            r" or on all that begin with 'kafkalog-'",
        ),
        (
            ResourceType.GROUP,
            "kafkalog-",
            ACLOperation.READ,
            r"GROUP_AUTHORIZATION_FAILED.*Read on group kafkalog-\w{26}, or on all groups that begin",
        ),
        (ResourceType.GROUP, "my-", ACLOperation.READ, r"Grant the principal Read on group my-group in"),
        (
            ResourceType.TOPIC,
            "topic-",
            ACLOperation.WRITE,
            r"TOPIC_AUTHORIZATION_FAILED.*{topic}",
        ),
        (ResourceType.TOPIC, "topic-", ACLOperation.READ, r"AUTHORIZATION_FAILED.*Read on the "),
    ],
    ids=["transactional id", "marker's group", "source's group", "write topic", "read topic"],
)
def test_a_right_is_missing(
    guarded: Broker, tmp_path: Path, kind: ResourceType, prefix: str, operation: ACLOperation, match: str
) -> None:
    topic = unused_topic()
    guarded.create_topic(topic, 3)
    query = Query(guarded.bootstrap, topic, tmp_path, query_id=topic)
    staged = query.stage([values(5)], 0)
    sources = Plan("", "my-group", {TopicPartition(topic, 1): CommittedOffset(5)})
    rule = ACL(
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=ACLPermissionType.DENY,
        resource_pattern=ResourcePattern(kind, prefix, ACLResourcePatternType.PREFIXED),
    )
    with (
        in_force(guarded, rule),
        pytest.raises(AuthorizationError, match=match.replace("{topic}", topic)),
    ):
        query.commit(staged, 0, sources)
    query.commit(staged, 0, sources)
    assert sorted(shown(guarded.bootstrap, topic)) == digits(5)


def test_a_broker_of_old(old_broker: OldBroker, tmp_path: Path) -> None:
    topic = unused_topic()
    old_broker.make_topic(topic, 3)
    for batch in range(3):
        query = Query(old_broker.bootstrap, topic, tmp_path, query_id=topic)
        query.write([values(10, 10 * batch)], batch)
        query.write([values(10, 10 * batch)], batch)
    assert sorted(shown(old_broker.bootstrap, topic)) == digits(30)
    assert is_stable(old_broker.bootstrap, topic)


def test_a_broker_that_is_too_old(cluster: Cluster, tmp_path: Path) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    for proxy in cluster.proxies.values():
        proxy.strike(API_VERSIONS, at_most({OFFSET_FETCH: 6}), times=1000)
    # Connections that are open already know better.
    query = Query(cluster.proxied_bootstrap, topic, tmp_path, query_id=topic, kafka__client__id="old")
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2.5.*delivery.guarantee=at-least-once"):
        query.write([values(5)], 0)
    assert stored(cluster.bootstrap, topic) == 0


@pytest.mark.long
def test_a_source_whose_topic_is_gone(broker: Broker, tmp_path: Path) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 3)
    query = Query(broker.bootstrap, topic, tmp_path, query_id=topic)
    gone = Plan("", "group", {TopicPartition("no-such-topic", 0): CommittedOffset(5)})
    with pytest.raises(
        KafkaLogError, match=r"group group for no-such-topic-0 in a transaction: UNKNOWN_TOPIC"
    ):
        query.commit(query.stage([values(5)], 0), 0, gone)
    query.write([values(5)], 0)
    assert sorted(shown(broker.bootstrap, topic)) == digits(5)


def test_a_source_whose_group_has_members(broker: Broker, tmp_path: Path) -> None:
    """Brokers would let a transaction commit beside them."""
    topic = unused_topic()
    broker.create_topic(topic, 3)
    query = Query(broker.bootstrap, topic, tmp_path, query_id=topic)
    offsets = Plan("", topic, {TopicPartition(topic, 0): CommittedOffset(1)})
    with (
        broker.member(topic, topic),
        pytest.raises(GroupError, match=r"the group has live members.*Stop its members"),
    ):
        query.commit(query.stage([values(5)], 0), 0, offsets)
    query.commit(query.stage([values(5)], 0), 0, offsets)
    assert sorted(shown(broker.bootstrap, topic)) == digits(5)
