"""The groups of a real ZooKeeper: kazoo makes them here, also such as no consumer leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, make_acl

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    GroupError,
    OptionError,
    UnknownTopicOrPartitionError,
    ZooKeeperError,
)
from pyspark_kafkalog.extensions.zookeeper.client import ZooKeeper
from pyspark_kafkalog.extensions.zookeeper.groups import ZooKeeperGroups
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOffsets
from pyspark_kafkalog.model import CommittedOffset, GroupMember, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_groups
from pyspark_kafkalog.read.commits import check_inactive
from pyspark_kafkalog.tools.groups.consumer_groups import total_lag
from tests.broker.producing import unused_topic
from tests.extensions.zookeeper.test_znodes import CONSUMER, T1, T3, V1
from tests.kafka_old import OldBroker, ZooKeeperServer
from tests.kafka_process import free_ports

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("ended_sessions")]

T0, T1_, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
READ_ONLY = [make_acl("world", "anyone", read=True)]
NO_ACCESS = [make_acl("world", "anyone", admin=True)]
NO_ANSWER = "ZooKeeper did not answer|Cannot connect to ZooKeeper"
_numbers = count()


class Chroot:
    """A folder of ZooKeeper, with what a test puts there."""

    def __init__(self, client: KazooClient, address: str) -> None:
        self.client = client
        self.root = f"/case{next(_numbers)}"
        self.address = f"{address}{self.root}"
        self.put("/consumers")
        self.put("/brokers/ids")
        self.put("/brokers/topics/t", T1 | {"partitions": {"0": [0], "1": [0]}})

    def put(self, path: str, value: Any = b"", acl: list[ACL] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.client.ensure_path((self.root + path).rpartition("/")[0])
        self.client.create(self.root + path, data, acl)

    def get(self, path: str) -> bytes:
        return bytes(self.client.get(self.root + path)[0])

    def groups(self, timeout: float | None = None) -> ZooKeeperGroups:
        return groups_at(self.address, timeout)


def groups_at(address: str, timeout: float | None = None) -> ZooKeeperGroups:
    options = place_options({"zookeeper.connect": address}, of_groups=True)
    assert isinstance(options.offsets_store, ZooKeeperOffsets)
    assert options.brokers is not None
    return ZooKeeperGroups(options.offsets_store.zookeeper, options.brokers, timeout=timeout)


@pytest.fixture(scope="module")
def client(zookeeper_broker: OldBroker) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper_broker.zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def chroot(client: KazooClient, zookeeper_broker: OldBroker) -> Chroot:
    return Chroot(client, zookeeper_broker.zookeeper.address)


def offsets(found: dict[TopicPartition, CommittedOffset]) -> dict[TopicPartition, int]:
    return {partition: committed.offset for partition, committed in found.items()}


def test_offsets_are_read(chroot: Chroot) -> None:
    started = time.time_ns() // 1_000_000
    chroot.put("/consumers/g/offsets/t/0", b"5")
    chroot.put("/consumers/g/offsets/t/1", b"0")
    chroot.put("/consumers/g/offsets/u/0", b"9223372036854775807")
    chroot.put("/consumers/silent/ids")
    groups = chroot.groups()
    assert groups.group_ids() == ("g", "silent")
    assert offsets(groups.committed("g")) == {T0: 5, T1_: 0, U0: 2**63 - 1}
    assert offsets(groups.committed("g", [T0, TopicPartition("x", 0)])) == {T0: 5}
    assert groups.committed("silent") == groups.committed("unknown") == groups.committed("g", []) == {}
    assert started - 1000 <= groups.committed("g")[T0].commit_timestamp <= time.time_ns() // 1_000_000


def test_consumers_are_shown_with_their_partitions(chroot: Chroot) -> None:
    chroot.put("/consumers/g/ids/g_some-host-1416974430-1a2b", CONSUMER)
    chroot.put("/consumers/g/ids/g_mine", CONSUMER | {"pattern": "white_list"})
    for number in (0, 1):
        chroot.put(f"/consumers/g/owners/t/{number}", b"g_some-host-1416974430-1a2b-0")
    chroot.put("/consumers/h/offsets/t/0", b"1")
    found = chroot.groups().describe(["g", "h", "unknown"])
    assert {name: group.state for name, group in found.items()} == {"g": "Stable", "h": "Empty"}
    assert found["g"].members == (
        GroupMember("g_mine", "", ""),
        GroupMember("g_some-host-1416974430-1a2b", "", "some-host", (T0, T1_)),
    )


def test_commits_are_written_as_consumers_write_them(chroot: Chroot) -> None:
    chroot.put("/consumers/g/offsets/t/0", b"5")
    groups = chroot.groups()
    groups.commit("g", {T0: CommittedOffset(7, 3, "dropped"), T1_: CommittedOffset(0)})
    assert (chroot.get("/consumers/g/offsets/t/0"), chroot.get("/consumers/g/offsets/t/1")) == (b"7", b"0")
    groups.commit("new", {T1_: CommittedOffset(2**63 - 1)})
    assert chroot.get("/consumers/new/offsets/t/1") == b"9223372036854775807"
    groups.commit("never", {})
    assert groups.group_ids() == ("g", "new")


def test_many_partitions(chroot: Chroot) -> None:
    partitions = [TopicPartition("many", number) for number in range(1200)]
    chroot.put("/brokers/topics/many", T3 | {"partitions": {str(p.partition): [1] for p in partitions}})
    groups = chroot.groups()
    for base in (0, 10_000):
        committed = {p: base + p.partition for p in partitions}
        groups.commit("g", {p: CommittedOffset(offset) for p, offset in committed.items()})
        assert offsets(groups.committed("g")) == committed
    groups.delete_group("g")
    assert groups.group_ids() == ()


def test_a_commit_for_partitions_that_do_not_exist_writes_nothing(chroot: Chroot) -> None:
    groups = chroot.groups()
    for wrong in (TopicPartition("t", 2), U0):
        with pytest.raises(UnknownTopicOrPartitionError, match="No such partition: ") as e:
            groups.commit("g", {T0: CommittedOffset(1), wrong: CommittedOffset(1)})
        assert e.value.topic_partition == str(wrong)
    with pytest.raises(GroupError, match="cannot commit offset -1"):
        groups.commit("g", {T0: CommittedOffset(-1)})
    assert groups.group_ids() == ()


def test_a_group_with_live_consumers_is_not_changed(chroot: Chroot) -> None:
    chroot.put("/consumers/g/offsets/t/0", b"5")
    chroot.put("/consumers/g/ids/g_c", CONSUMER | {"subscription": {"u": 1}})
    groups = chroot.groups()
    with pytest.raises(GroupError, match=r"Group 'g' has live consumers: g_c\. Stop them"):
        groups.commit("g", {T0: CommittedOffset(7)})
    with pytest.raises(GroupError, match="has live consumers: g_c"):
        groups.delete_group("g")
    with pytest.raises(GroupError, match="has live consumers of these topics: g_c"):
        groups.delete_offsets("g", [U0, T0])
    assert chroot.get("/consumers/g/offsets/t/0") == b"5"
    groups.delete_offsets("g", [T0, T1_])
    assert groups.committed("g") == {}


def test_a_consumer_that_starts_meanwhile_is_told(chroot: Chroot, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZooKeeper can't refuse it: it may have begun at the offsets before."""
    write = ZooKeeper.write

    def write_and_start(zookeeper: ZooKeeper, values: Mapping[str, bytes]) -> None:
        write(zookeeper, values)
        chroot.put("/consumers/g/ids/g_c", CONSUMER)

    monkeypatch.setattr(ZooKeeper, "write", write_and_start)
    with pytest.raises(GroupError, match="'g' got live consumers while its offsets were written: g_c"):
        chroot.groups().commit("g", {T0: CommittedOffset(7)})
    assert chroot.get("/consumers/g/offsets/t/0") == b"7"


def test_groups_and_offsets_are_deleted(chroot: Chroot) -> None:
    for path in ("g/offsets/t/0", "g/offsets/t/1", "h/offsets/t/0"):
        chroot.put(f"/consumers/{path}", b"1")
    groups = chroot.groups()
    groups.delete_offsets("g", [T1_])
    assert offsets(groups.committed("g")) == {T0: 1}
    groups.delete_group("g")
    assert groups.group_ids() == ("h",)
    with pytest.raises(GroupError, match="No such consumer group: 'g'"):
        groups.delete_group("g")


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a b", "ü", "a\0b"])
def test_names_that_zookeepers_consumers_refuse(chroot: Chroot, group: str) -> None:
    groups = chroot.groups()
    for ask in (lambda: groups.committed(group), lambda: groups.commit(group, {T0: CommittedOffset(1)})):
        with pytest.raises(OptionError, match="ZooKeeper has no group"):
            ask()
    assert groups.describe([group]) == {}


def test_what_is_wrong_with_one_group_hinders_no_other(chroot: Chroot) -> None:
    chroot.put("/consumers/good/offsets/t/0", b"1")
    chroot.put("/consumers/text/offsets/t/0", b"one")
    chroot.put("/consumers/old/offsets/t/0-0", b"1")
    chroot.put("/consumers/topic/offsets/t%/0", b"1")
    chroot.put("/consumers/a b/offsets/t/0", b"1")
    chroot.put("/consumers/hidden/offsets", acl=NO_ACCESS)
    chroot.put("/consumers/hidden-topic/offsets/t", acl=NO_ACCESS)
    chroot.put("/consumers/hidden-offset/offsets/t/0", b"1", acl=NO_ACCESS)
    groups = chroot.groups()
    found = groups.committed_by(groups.group_ids())
    good = found.pop("good")
    assert isinstance(good, dict)
    assert offsets(good) == {T0: 1}
    assert {group: str(error).partition(". ")[0] for group, error in found.items()} == {
        "a b": "ZooKeeper has no group 'a b'",
        "hidden": f"ZooKeeper's ACLs deny it (file zk://{chroot.address}/consumers/hidden/offsets)",
        "hidden-offset": (
            f"ZooKeeper's ACLs deny it (file zk://{chroot.address}/consumers/hidden-offset/offsets/t/0)"
        ),
        "hidden-topic": f"ZooKeeper's ACLs deny it (file zk://{chroot.address}/consumers/hidden-topic/offsets/t)",
        "old": (
            "Expected the number of a partition, got '0-0'"
            f" (file zk://{chroot.address}/consumers/old/offsets/t/0-0)"
        ),
        "text": (
            "Expected an offset of 0 or more, got b'one'"
            f" (file zk://{chroot.address}/consumers/text/offsets/t/0)"
        ),
        "topic": f"Illegal topic name 't%' (file zk://{chroot.address}/consumers/topic/offsets/t%/0)",
    }


def test_what_is_wrong_with_one_groups_consumers_hinders_no_other(chroot: Chroot) -> None:
    for group in "good", "owner", "hidden", "partition":
        chroot.put(f"/consumers/{group}/ids/{group}_c", CONSUMER)
        chroot.put(
            f"/consumers/{group}/owners/t/0",
            f"{group}_c-0".encode(),
            NO_ACCESS if group == "hidden" else None,
        )
    chroot.put("/consumers/owner/owners/t/1", b"\xff")
    chroot.put("/consumers/partition/owners/t/0-1", b"partition_c-0")
    chroot.put("/consumers/newer/ids/newer_c", CONSUMER | {"version": 2})
    chroot.put("/consumers/foreign/ids/foreign_c", b"\xac\xed\0")
    chroot.put("/consumers/closed/ids", acl=NO_ACCESS)
    reasons = {
        "closed": "ZooKeeper's ACLs deny it (file {}/closed/ids)",
        "foreign": "Expected text in UTF-8, got b'\\xac\\xed\\x00' (file {}/foreign/ids/foreign_c)",
        "hidden": "ZooKeeper's ACLs deny it (file {}/hidden/owners/t/0)",
        "newer": "Expected version 1 of the JSON, got 2 (file {}/newer/ids/newer_c)",
        "owner": "Expected text in UTF-8, got b'\\xff' (file {}/owner/owners/t/1)",
        "partition": "Expected the number of a partition, got '0-1' (file {}/partition/owners/t/0-1)",
    }
    with connect(f"zk://{chroot.address}") as kafka:
        found = {group.group: group for group in kafka.groups.describe()}
        good = found.pop("good")
        assert (good.state, good.note) == ("Stable", "")
        assert good.members == (GroupMember("good_c", "", "", (T0,)),)
        assert {name: group.note.partition(". ")[0] for name, group in found.items()} == {
            name: reason.format(f"zk://{chroot.address}/consumers") for name, reason in reasons.items()
        }
        assert {(group.state, group.members) for group in found.values()} == {("", None)}
        with pytest.raises(ZooKeeperError, match="Expected version 1 of the JSON, got 2"):
            kafka.groups.describe(["newer"])
        for group in "newer", "foreign":
            with pytest.raises(ZooKeeperError, match=rf"/consumers/{group}/ids"):
                kafka.groups.delete_offsets(group, [T0])
            with pytest.raises(ZooKeeperError, match=rf"/consumers/{group}/ids"):
                check_inactive(chroot.groups(), group)


def test_a_write_that_acls_deny_writes_nothing(chroot: Chroot) -> None:
    chroot.put("/consumers/g/offsets/t/0", b"5")
    chroot.put("/consumers/g/offsets/t/1", b"5", READ_ONLY)
    groups = chroot.groups()
    with pytest.raises(
        ZooKeeperError, match=r"ACLs deny it \(file .*/consumers/g/offsets/t/1\).*No login is given"
    ):
        groups.commit("g", {T0: CommittedOffset(7), T1_: CommittedOffset(7)})
    assert chroot.get("/consumers/g/offsets/t/0") == b"5"
    chroot.put("/consumers/closed", acl=READ_ONLY)
    with pytest.raises(ZooKeeperError, match=r"ACLs deny it \(file .*/consumers/closed/offsets\)"):
        groups.commit("closed", {T0: CommittedOffset(7)})
    chroot.put("/consumers/kept/offsets/t", acl=[make_acl("world", "anyone", read=True, create=True)])
    chroot.put("/consumers/kept/offsets/t/0", b"5")
    for delete in (lambda: groups.delete_group("kept"), lambda: groups.delete_offsets("kept", [T0])):
        with pytest.raises(ZooKeeperError, match=r"ACLs deny it \(file .*/consumers/kept"):
            delete()
    assert chroot.get("/consumers/kept/offsets/t/0") == b"5"


def test_unknown_versions_are_errors_before_any_work(chroot: Chroot) -> None:
    chroot.put("/consumers/g/offsets/t/0", b"5")
    chroot.put("/consumers/h/ids/h_1", CONSUMER | {"version": 2})
    chroot.put("/brokers/topics/new", T3 | {"version": 4})
    chroot.put("/brokers/ids/0", V1 | {"version": 6})
    groups = chroot.groups()
    with pytest.raises(ZooKeeperError, match=r"version 1 of the JSON, got 2 \(file .*/consumers/h/ids/h_1\)"):
        connect(f"zk://{chroot.address}").groups.describe(["h"])
    with pytest.raises(
        ZooKeeperError, match=r"version 1 to 3 of the JSON, got 4 \(file .*/brokers/topics/new"
    ):
        groups.commit("g", {T0: CommittedOffset(1), TopicPartition("new", 0): CommittedOffset(1)})
    with pytest.raises(ZooKeeperError, match=r"version 1 to 5 of the JSON, got 6 \(file .*/brokers/ids/0\)"):
        connect(f"zk://{chroot.address}").groups.offsets()
    assert chroot.get("/consumers/g/offsets/t/0") == b"5"


def test_a_wrong_chroot(chroot: Chroot, zookeeper_broker: OldBroker) -> None:
    address = zookeeper_broker.zookeeper.address
    for place in (f"{address}/nowhere", address, f"{chroot.address}/consumers"):
        for ask in (
            lambda groups: groups.group_ids(),
            lambda groups: groups.committed("g"),
            lambda groups: groups.committed("g", [T0]),
            lambda groups: groups.committed_by(["g"]),
            lambda groups: groups.describe(["g"]),
            lambda groups: groups.commit("g", {T0: CommittedOffset(1)}),
            lambda groups: groups.delete_offsets("g", [T0]),
        ):
            with pytest.raises(ZooKeeperError, match=r"ZooKeeper has no /consumers.*Check the chroot"):
                ask(groups_at(place))
        with pytest.raises(ZooKeeperError, match="ZooKeeper has no /brokers/ids"):
            _ = connect(f"zk://{place}").groups.place


def test_the_zookeeper_of_another_cluster(chroot: Chroot, zookeeper_broker: OldBroker) -> None:
    """Its offsets mean other records."""
    brokers = {"kafka.bootstrap.servers": zookeeper_broker.bootstrap, "offsets.storage": "zookeeper"}
    own = place_options({**brokers, "zookeeper.connect": zookeeper_broker.zookeeper_connect})
    assert open_groups(own).committed("g") == {}
    other = place_options({**brokers, "zookeeper.connect": chroot.address})
    assert open_groups(other).committed("g") == {}, "Kafka before 0.10.1 has no id"
    chroot.put("/cluster/id", {"version": "1", "id": "AAAAAAAAAAAAAAAAAAAAAA"})
    for ask in (
        lambda groups: groups.committed("g"),
        lambda groups: groups.commit("g", {T0: CommittedOffset(1)}),
    ):
        with pytest.raises(
            ZooKeeperError, match="that of cluster AAAAAAAAAAAAAAAAAAAAAA, and the brokers are"
        ):
            ask(open_groups(other))
    assert chroot.groups().group_ids() == ()


def test_without_brokers_offsets_are_shown_without_lags(
    chroot: Chroot, caplog: pytest.LogCaptureFixture
) -> None:
    chroot.put("/consumers/g/offsets/t/0", b"5")
    with connect(f"zk://{chroot.address}") as kafka:
        (row,) = kafka.groups.offsets()
        assert (row.offset, row.lag, row.state) == (5, None, "unknown")
        assert "Lags are unknown: No broker is registered in ZooKeeper" in caplog.text
        (lag,) = kafka.groups.lags()
        assert (lag.lag, lag.state) == (None, "unknown")
        assert lag.is_alarming(10**9, named=False)
        assert total_lag([lag]) is None
        with pytest.raises(BrokerConnectionError, match="No broker is registered in ZooKeeper"):
            kafka.groups.plan_import({"g": {T0: CommittedOffset(1)}})
        chroot.put("/brokers/ids/0", V1 | {"version": 2, "endpoints": ["SSL://h:1", "SASL_SSL://h:2"]})
        (row,) = kafka.groups.offsets()
        assert "No broker with a listener for PLAINTEXT" in caplog.text
        assert "kafka.security.protocol to SASL_SSL or SSL" in caplog.text
    chroot.put("/brokers/ids/1", V1 | {"host": "127.0.0.1", "port": free_ports(1)[0]})
    options = {"zookeeper.connect": chroot.address, "kafka.socket.connection.setup.timeout.ms": "1000"}
    (row,) = connect(options).groups.offsets()
    assert (row.offset, row.lag, row.state) == (5, None, "unknown")
    assert "Connection refused" in caplog.text


def test_zookeeper_is_absent() -> None:
    started = time.monotonic()
    (port,) = free_ports(1)
    with pytest.raises(ZooKeeperError, match=rf"Cannot connect to ZooKeeper: 127\.0\.0\.1:{port}: .*refused"):
        groups_at(f"127.0.0.1:{port}").group_ids()
    with pytest.raises(ZooKeeperError, match=r"Cannot connect to ZooKeeper: host\.invalid:2181: "):
        groups_at("host.invalid").group_ids()
    assert time.monotonic() - started < 10


def test_another_port_is_not_taken_for_zookeeper(zookeeper_broker: OldBroker) -> None:
    with pytest.raises(
        ZooKeeperError, match=r"accept connections, but no session.*brokers have another port"
    ):
        groups_at(zookeeper_broker.bootstrap, timeout=2.5).group_ids()


@pytest.mark.long
def test_zookeeper_that_restarts_is_waited_for(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path)
    server.start()
    try:
        client = KazooClient(server.address)
        client.start()
        client.create("/consumers/g/offsets/t/0", b"5", makepath=True)
        client.stop()
        client.close()
        groups, quick = groups_at(server.address), groups_at(server.address, timeout=1)
        assert offsets(groups.committed("g")) == offsets(quick.committed("g")) == {T0: 5}
        server.stop()
        with pytest.raises(ZooKeeperError, match=NO_ANSWER):
            quick.group_ids()
        server.start()
        assert offsets(groups.committed("g")) == {T0: 5}
        os.kill(server.pid, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(ZooKeeperError, match=NO_ANSWER):
            quick.group_ids()
        assert time.monotonic() - started < 5
        os.kill(server.pid, signal.SIGCONT)
        assert groups.group_ids() == ("g",)
    finally:
        server.stop()


def dual_groups(broker: OldBroker, zookeeper: str, timeout: float | None = None) -> GroupOffsets:
    stored = {"zookeeper.connect": zookeeper, "dual.commit.enabled": "true"}
    return open_groups(
        place_options({"kafka.bootstrap.servers": broker.bootstrap, **stored}), timeout=timeout
    )


@pytest.mark.long
def test_dual_commits(zookeeper_broker: OldBroker, tmp_path: Path) -> None:
    """While one of both places fails, the other may be ahead of it: a start is at the later commit."""
    topic, group = unused_topic(), unused_topic()
    zookeeper_broker.make_topic(topic, 2)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    server = ZooKeeperServer(tmp_path)
    server.start()
    try:
        client = KazooClient(server.address)
        client.start()
        client.create("/consumers", makepath=True)
        client.create(f"/brokers/topics/{topic}", json.dumps(T1).encode(), makepath=True)
        both, quick = (dual_groups(zookeeper_broker, server.address, timeout) for timeout in (None, 2))
        kafka, zookeeper = connect(zookeeper_broker.bootstrap).groups, groups_at(server.address)
        both.commit(group, {p0: CommittedOffset(5, metadata="kept"), p1: CommittedOffset(5)})
        assert offsets(kafka.committed(group)) == offsets(zookeeper.committed(group)) == {p0: 5, p1: 5}
        assert both.committed(group)[p0].metadata == "kept"

        zookeeper.commit(group, {p1: CommittedOffset(7)})
        kafka.commit(group, {p0: CommittedOffset(8)})
        assert offsets(both.committed(group)) == {p0: 8, p1: 7}
        assert offsets(both.committed(group, [p1])) == {p1: 7}

        with zookeeper_broker.member(group, topic), pytest.raises(GroupError, match="live members"):
            both.commit(group, {p0: CommittedOffset(9), p1: CommittedOffset(9)})
        assert offsets(zookeeper.committed(group)) == {p0: 5, p1: 7}, "Kafka refused it first"
        client.create(f"/consumers/{group}/ids/{group}_c", json.dumps(CONSUMER).encode(), makepath=True)
        with pytest.raises(GroupError, match="live consumers"):
            both.commit(group, {p0: CommittedOffset(9), p1: CommittedOffset(9)})
        assert offsets(kafka.committed(group)) == {p0: 8, p1: 5}, "ZooKeeper was asked before"
        client.delete(f"/consumers/{group}/ids/{group}_c")
        client.stop()
        client.close()

        assert offsets(quick.committed(group)) == {p0: 8, p1: 7}
        server.stop()
        with pytest.raises(ZooKeeperError, match=NO_ANSWER):
            quick.commit(group, {p0: CommittedOffset(9), p1: CommittedOffset(9)})
        with pytest.raises(ZooKeeperError, match=NO_ANSWER):
            quick.committed(group)
        server.start()
        both.commit(group, {p0: CommittedOffset(9), p1: CommittedOffset(9)})
        assert offsets(kafka.committed(group)) == offsets(zookeeper.committed(group)) == {p0: 9, p1: 9}
    finally:
        server.stop()


def test_without_kazoo_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['kazoo'] = sys.modules['kazoo.client'] = None\n"
        "from pyspark_kafkalog import connect\n"
        "connect('zk://127.0.0.1:1').groups.describe()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "OptionError: ZooKeeper needs kazoo, which can't be imported" in done.stderr
    assert "pip install kazoo pure-sasl" in done.stderr
