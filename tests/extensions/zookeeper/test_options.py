"""The options of groups that keep their offsets in ZooKeeper."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOffsets, ZooKeeperOptions
from pyspark_kafkalog.options.security.tls import TlsOptions
from pyspark_kafkalog.options.settings import place_options, read_options, write_options
from pyspark_kafkalog.options.values import ZooKeeperAddress

BROKERS = {"kafka.bootstrap.servers": "h:9092"}
GROUP = {**BROKERS, "subscribe": "t", "kafka.group.id": "g"}
ZOOKEEPER = {"zookeeper.connect": "zk1,zk2:2182/kafka/a"}


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zk1", ("zk1:2181",), ""),
        (" zk1:2181/ ", ("zk1:2181",), ""),
        ("zk1, zk2:2182,/kafka/a/", ("zk1:2181", "zk2:2182"), "/kafka/a"),
        ("[::1]:2181,[::2]/k", ("[::1]:2181", "[::2]:2181"), "/k"),
        ("zk1:2181,zk1/ä b", ("zk1:2181",), "/ä b"),
    ],
)
def test_servers_and_chroot(text: str, servers: tuple[str, ...], chroot: str) -> None:
    place = place_options({"zookeeper.connect": text}, of_groups=True)
    zookeeper = ZooKeeperOptions(ZooKeeperAddress(servers, chroot))
    assert place.offsets_store == ZooKeeperOffsets(zookeeper, "zookeeper.connect")
    assert place.paths == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected servers of ZooKeeper, got ''"),
        ("/kafka", "expected servers of ZooKeeper, got '/kafka'"),
        ("zk1:0", "expected servers of ZooKeeper, got 'zk1:0'"),
        ("zk1:65536/k", "expected servers of ZooKeeper, got 'zk1:65536/k'"),
        ("zk1:x", "expected servers of ZooKeeper, got 'zk1:x'"),
        ("zk1 zk2", "expected servers of ZooKeeper, got 'zk1 zk2'"),
        (
            "me:hunter2@zk1:2181/k",
            "expected servers of ZooKeeper. Write, for example, zk1:2181,zk2:2181/kafka.",
        ),
        ("zk1//k", "expected a chroot such as /kafka after the servers, got '//k'"),
        ("zk1/a/../b", "expected a chroot such as /kafka after the servers, got '/a/../b'"),
        ("zk1/a\0", "expected a chroot such as /kafka after the servers"),
    ],
)
def test_what_is_no_zookeeper_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError) as e:
        connect(f"zk://{text}").groups.describe()
    assert f"Option 'zookeeper.connect': {message}" in str(e.value)
    assert "hunter2" not in str(e.value)


def test_where_offsets_are() -> None:
    assert place_options({**GROUP, **ZOOKEEPER}).offsets_store is None
    zookeeper = ZooKeeperOptions(ZooKeeperAddress(("zk1:2181", "zk2:2182"), "/kafka/a"))
    stored = place_options({**GROUP, **ZOOKEEPER, "offsets.storage": "ZooKeeper"}).offsets_store
    assert stored == ZooKeeperOffsets(zookeeper, "offsets.storage")
    both = place_options({**GROUP, **ZOOKEEPER, "dual.commit.enabled": "true"}).offsets_store
    assert both == ZooKeeperOffsets(zookeeper, "dual.commit.enabled", is_dual=True)
    assert (stored.is_alone, both.is_alone) == (True, False)


@pytest.mark.parametrize("stored", [{"offsets.storage": "zookeeper"}, {"dual.commit.enabled": "true"}])
def test_what_offsets_in_zookeeper_need(stored: dict[str, str]) -> None:
    (option,) = stored
    with pytest.raises(OptionError, match=rf"'{option}' needs 'zookeeper\.connect'"):
        place_options({**GROUP, **stored})
    with pytest.raises(OptionError, match=rf"'{option}' is for brokers, but 'path' names a log directory"):
        place_options({"path": "/log", "kafka.group.id": "g", **stored})
    for batch in (True, False):
        with pytest.raises(OptionError, match=rf"'{option}' is set, but no consumer group is given"):
            read_options({**BROKERS, "subscribe": "t", **ZOOKEEPER, **stored}, batch=batch)
        for large in ("large.message.enabled", "large.message.safe.offsets"):
            if not batch or large == "large.message.enabled":
                with pytest.raises(OptionError, match=rf"'{option}' can't be set for large messages"):
                    read_options({**GROUP, **ZOOKEEPER, **stored, large: "true"}, batch=batch)
    member = {"groupMembership": "true", "checkpointLocation": "/c"}
    with pytest.raises(OptionError, match=rf"'{option}' can't be set with groupMembership"):
        read_options({**GROUP, **ZOOKEEPER, **stored, **member}, batch=False)
    with pytest.raises(OptionError, match=rf"'{option}' is for reading only"):
        write_options({**BROKERS, **stored})


def refused(kafka: Kafka) -> list[Any]:
    return [
        lambda: kafka.place,
        lambda: kafka.topics.partitions(),
        lambda: kafka.topics.create([]),
        lambda: kafka.topics.configs(["t"]),
        lambda: kafka.records.count("t"),
        lambda: kafka.records.verify(),
        lambda: kafka.read("t"),
        lambda: kafka.plan("t"),
        lambda: kafka.changes("t", group="g"),
        lambda: kafka.write([], "t"),
        lambda: kafka.logs.backup("/tmp/never"),
        lambda: kafka.logs.retain(),
        lambda: kafka.logs.compact(),
        lambda: kafka.logs.delete_records({}),
        lambda: kafka.logs.repair(),
        lambda: kafka.logs.adopt("/tmp/never"),
        lambda: kafka.logs.restore(connect("h:9092")),
    ]


@pytest.mark.parametrize("number", range(len(refused(connect("zk://zk1/k")))))
def test_zookeeper_has_only_groups(number: int) -> None:
    with pytest.raises(OptionError, match=r"ZooKeeper has only groups.*no records\. Give the brokers"):
        refused(connect("zk://zk1/k"))[number]()


def test_zookeeper_is_no_target() -> None:
    with pytest.raises(OptionError, match="Expected a folder to write to, got ZooKeeper"):
        connect("/tmp/never").logs.backup("zk://zk1/k")
    with pytest.raises(OptionError, match="ZooKeeper has only groups"):
        connect("/tmp/never").logs.restore(connect("zk://zk1/k"))


def test_the_scheme_is_read_in_any_case() -> None:
    assert connect("ZK://zk1/k").options == connect("zk://zk1/k").options == {"zookeeper.connect": "zk1/k"}


MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGIN = {
    "zookeeper.sasl.jaas.config": f'{MODULE} required username="me" password="hunter2";',
    "zookeeper.addauth": "digest you:hunter2:x",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.ssl.truststore.location": "/trusted.pem",
    "zookeeper.ssl.keystore.location": "/hunter2.pem",
    "zookeeper.ssl.keystore.password": "hunter2",
    "zookeeper.ssl.endpoint.identification.algorithm": "",
}


def test_who_logs_in_to_zookeeper() -> None:
    for place in (
        place_options({**BROKERS, **ZOOKEEPER, **LOGIN, "offsets.storage": "zookeeper"}),
        place_options({**ZOOKEEPER, **LOGIN}, of_groups=True),
    ):
        assert isinstance(place.offsets_store, ZooKeeperOffsets)
        zookeeper = place.offsets_store.zookeeper
        assert (zookeeper.sasl, zookeeper.digest) == (("me", "hunter2"), "you:hunter2:x")
        assert zookeeper.tls == TlsOptions(
            truststore_location="/trusted.pem",
            keystore_location="/hunter2.pem",
            key_password="hunter2",
            check_hostname=False,
        )
        assert "hunter2" not in f"{place!r} {place} {zookeeper!r} {zookeeper}"
        assert pickle.loads(pickle.dumps(place)) == place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"zookeeper.sasl.jaas.config": f'{MODULE} required username="hunter2";'},
            "login module of SASL DIGEST-MD5 with a user",
        ),
        (
            {"zookeeper.sasl.jaas.config": 'Krb5LoginModule required keyTab="hunter2";'},
            "GSSAPI .Kerberos. is not supported",
        ),
        ({"zookeeper.sasl.jaas.config": "hunter2"}, "expected a control flag"),
        ({"zookeeper.addauth": "you:hunter2"}, "expected the scheme digest and a user"),
        ({"zookeeper.addauth": "sasl you:hunter2"}, "expected the scheme digest and a user"),
        ({"zookeeper.addauth": "digest hunter2"}, "expected the scheme digest and a user"),
        ({"zookeeper.ssl.truststore.location": "hunter2.jks"}, "names a store that is not PEM"),
        ({"zookeeper.ssl.keystore.location": "hunter2.p12"}, "names a store that is not PEM"),
        ({"zookeeper.ssl.keystore.location": "~/hunter2.pem"}, "expected a path without ~"),
        ({"zookeeper.ssl.client.enable": "hunter2"}, "expected true or false"),
        ({"zookeeper.ssl.client.enable": "false"}, "needs 'zookeeper.ssl.client.enable=true'"),
        (
            {"zookeeper.ssl.truststore.password": "hunter2"},
            "Unknown option 'zookeeper.ssl.truststore.password'",
        ),
        ({"zookeeper.ssl.keystore.type": "hunter2"}, "Unknown option 'zookeeper.ssl.keystore.type'"),
    ],
)
def test_logins_to_zookeeper_that_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as e:
        connect({**ZOOKEEPER, **LOGIN, **change}).groups.describe()
    assert "hunter2" not in "".join(traceback.format_exception(e.value))


@pytest.mark.parametrize("name", LOGIN)
def test_a_login_to_zookeeper_needs_its_address(name: str) -> None:
    with pytest.raises(OptionError, match=rf"'{name}' needs 'zookeeper\.connect'"):
        place_options({**GROUP, name: LOGIN[name]})
    with pytest.raises(OptionError, match=f"'{name}' is for reading only"):
        write_options({**BROKERS, name: LOGIN[name]})
