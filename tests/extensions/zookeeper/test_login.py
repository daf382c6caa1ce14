"""Who logs in to a real ZooKeeper, by SASL and by the scheme digest, and what TLS checks there."""

from __future__ import annotations

import socket
import ssl
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.security import make_acl, make_digest_acl

from pyspark_kafkalog import connect
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import KafkaLogError, OptionError, ZooKeeperError
from pyspark_kafkalog.extensions.zookeeper.client import TlsHandler, ZooKeeper
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.kafka_certificates import KEY_PASSWORD, Certificates
from tests.kafka_old import ZooKeeperServer
from tests.kafka_process import free_ports
from tests.tools.cli.running import run

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("ended_sessions")]

PASSWORD, WRONG = "zk-pass-3b71e9", "wrong-pass-88d0c2"
MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
P0 = TopicPartition("many", 0)
QUICK = {"kafka.request.timeout.ms": "5000"}


def sasl(password: str = PASSWORD) -> dict[str, str]:
    return {"zookeeper.sasl.jaas.config": f'{MODULE} required username="me" password="{password}";'}


def digest(password: str = PASSWORD) -> dict[str, str]:
    return {"zookeeper.addauth": f"digest you:{password}"}


class Server:
    """A ZooKeeper with a port for TLS, which asks for certificates, and groups that not all may see."""

    def __init__(self, folder: Path) -> None:
        certificates = Certificates()
        keys = certificates.write_broker(folder)
        jaas = folder / "jaas.conf"
        jaas.write_text(f'Server {{ {MODULE} required user_me="{PASSWORD}"; }};')
        (port,) = free_ports(1)
        settings = {
            "secureClientPort": port,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            **{
                name.replace("keystore", "keyStore").replace("truststore", "trustStore"): value
                for name, value in keys.items()
            },
        }
        self.zookeeper = ZooKeeperServer(
            folder, settings=settings, options=[f"-Djava.security.auth.login.config={jaas}"]
        )
        self.address, self.secure_address = self.zookeeper.address, f"127.0.0.1:{port}"
        trusted, client = folder / "trusted.pem", folder / "client.pem"
        trusted.write_text(certificates.authority)
        client.write_text(certificates.encrypted_client_key + certificates.client_chain)
        self.other_authority = folder / "other.pem"
        self.other_authority.write_text(certificates.other_authority)
        self.tls = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(trusted),
            "zookeeper.ssl.keystore.location": str(client),
            "zookeeper.ssl.keystore.password": KEY_PASSWORD,
        }
        self.zookeeper.start()

    def fill(self) -> None:
        client = KazooClient(self.address)
        client.start()
        client.create("/brokers/ids", makepath=True)
        numbers = range(1200)
        client.create(
            "/brokers/topics/many",
            b'{"version":1,"partitions":{%s}}' % b",".join(b'"%d":[0]' % n for n in numbers),
            makepath=True,
        )
        for group, acl in (
            ("open", None),
            ("by-sasl", [make_acl("sasl", "me", all=True)]),
            ("by-digest", [make_digest_acl("you", PASSWORD, all=True)]),
        ):
            client.ensure_path(f"/consumers/{group}/offsets/many")
            client.create(f"/consumers/{group}/offsets/many/0", b"7", acl)
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.fill()
        readable(server.secure_address, server.tls)  # the first handshake takes a busy JVM seconds
        yield server
    finally:
        server.zookeeper.stop()


def readable(address: str, login: Mapping[str, str]) -> set[str]:
    """The groups that this login may see."""
    with connect({"zookeeper.connect": address, **login}) as kafka:
        rows = kafka.groups.offsets()
    assert {row.note.partition(" (")[0] for row in rows if row.state == "failed"} <= {
        "ZooKeeper's ACLs deny it"
    }
    return {row.group for row in rows if row.offset == 7}


@pytest.mark.long
@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ({}, {"open"}),
        (sasl(), {"open", "by-sasl"}),
        (digest(), {"open", "by-digest"}),
        ({**sasl(), **digest()}, {"open", "by-sasl", "by-digest"}),
        (digest(WRONG), {"open"}),
    ],
)
@pytest.mark.parametrize("is_secure", [False, True])
def test_who_logs_in(server: Server, login: dict[str, str], expected: set[str], is_secure: bool) -> None:
    if is_secure:
        assert readable(server.secure_address, {**server.tls, **login}) == expected
    else:
        assert readable(server.address, login) == expected


def test_what_the_login_may_write(server: Server) -> None:
    for login, group in (sasl(), "by-sasl"), (digest(), "by-digest"):
        with connect({"zookeeper.connect": server.address, **login}) as kafka:
            kafka.groups.commit(group, {P0: CommittedOffset(7)})
        with (
            connect(f"zk://{server.address}") as kafka,
            pytest.raises(ZooKeeperError, match="No login is given"),
        ):
            kafka.groups.commit(group, {P0: CommittedOffset(7)})
    with (
        connect({"zookeeper.connect": server.address, **sasl()}) as kafka,
        pytest.raises(ZooKeeperError, match=r"deny it.*Let the user that logs in"),
    ):
        kafka.groups.commit("by-digest", {P0: CommittedOffset(7)})


@pytest.mark.long
def test_many_answers_by_tls(server: Server) -> None:
    with connect({"zookeeper.connect": server.secure_address, **server.tls}) as kafka:
        offsets = {TopicPartition("many", number): CommittedOffset(number) for number in range(1200)}
        kafka.groups.commit("wide", offsets)
        found = kafka.groups.committed("wide")
        kafka.groups.delete("wide")
    assert {partition: commit.offset for partition, commit in found.items()} == {
        p: p.partition for p in offsets
    }


@pytest.mark.long
def test_a_file_of_properties_logs_in(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**server.tls, **sasl()}.items()))
    place = f"zk://{server.secure_address}"
    done = run("offsets", place, "--group", "by-sasl", "--config", file, "--json")
    assert (done.code, [row["offset"] for row in done.rows]) == (0, [7]), done.err
    assert run("offsets", place, "--group", "by-sasl").code == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"zookeeper.ssl.truststore.location": "{other}"},
            "Cannot connect to ZooKeeper: TLS fails: .*certificate",
        ),
        ({"zookeeper.ssl.keystore.location": ""}, "Cannot connect to ZooKeeper"),
        ({"zookeeper.ssl.keystore.password": WRONG}, r"zookeeper\.ssl\.keystore\.\* cannot be used"),
        (
            {"zookeeper.ssl.truststore.location": "/no/such"},
            r"zookeeper\.ssl\.truststore\.location': No such file",
        ),
        (
            {
                "zookeeper.ssl.client.enable": "false",
                "zookeeper.ssl.truststore.location": "",
                "zookeeper.ssl.keystore.location": "",
            },
            r"needs 'zookeeper\.ssl\.client\.enable=true'",
        ),
        (sasl(WRONG), "ZooKeeper does not accept the login"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(
    server: Server, change: dict[str, str], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    changed = {
        name: value.format(other=server.other_authority) if "{other}" in value else value
        for name, value in change.items()
    }
    options = {"zookeeper.connect": server.secure_address, **QUICK, **server.tls, **digest(), **changed}
    kafka = connect(options)
    with pytest.raises(KafkaLogError, match=reason) as e:
        kafka.groups.offsets()
    shown = "".join(traceback.format_exception(e.value)) + caplog.text
    assert not [secret for secret in (PASSWORD, WRONG, KEY_PASSWORD) if secret in shown]


def test_a_login_that_is_refused_before_the_first_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected = ZooKeeper._connected

    def late(zookeeper: ZooKeeper, deadline: Deadline) -> KazooClient:
        client = connected(zookeeper, deadline)
        while client.client_state != KeeperState.CLOSED and not deadline.expired:
            time.sleep(0.01)
        return client

    monkeypatch.setattr(ZooKeeper, "_connected", late)
    with pytest.raises(ZooKeeperError, match="ZooKeeper does not accept the login"):
        readable(server.address, {**sasl(WRONG), **QUICK})


def test_a_client_that_has_ended_is_followed_by_another(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected, clients = ZooKeeper._connected, []

    def first_ended(zookeeper: ZooKeeper, deadline: Deadline) -> KazooClient:
        clients.append(connected(zookeeper, deadline))
        if len(clients) == 1:
            clients[0].stop()
        return clients[-1]

    monkeypatch.setattr(ZooKeeper, "_connected", first_ended)
    assert readable(server.address, QUICK) == {"open"}


def test_the_name_of_a_server_is_checked(server: Server) -> None:
    address = server.secure_address.replace("127.0.0.1", "localhost")
    with pytest.raises(ZooKeeperError, match="TLS fails: Hostname mismatch"):
        readable(address, server.tls)
    assert readable(address, {**server.tls, "zookeeper.ssl.endpoint.identification.algorithm": ""}) == {
        "open"
    }


def test_a_connection_without_tls_to_a_port_for_tls(server: Server) -> None:
    with pytest.raises(ZooKeeperError, match=r"no session.*TLS needs zookeeper\.ssl\.client\.enable=true"):
        readable(server.secure_address, QUICK)


def test_without_pure_sasl_the_error_names_the_extra(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "puresasl", None)
    with pytest.raises(OptionError, match=r"needs pure-sasl.* pip install kazoo pure-sasl"):
        readable(server.address, sasl())


def test_an_answer_that_tls_has_read_with_another_one_is_not_waited_for(tmp_path: Path) -> None:
    """Both are in one record, so the network has nothing more."""
    keys = Certificates().write_broker(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(keys["ssl.keystore.location"]))
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.load_verify_locations(str(keys["ssl.truststore.location"]))
    handler = TlsHandler(trusting)

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.sendall(b"ab")
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        with handler.create_connection(listener.getsockname(), "127.0.0.1", 10) as connection:
            assert handler.select([connection], [], [], 10)[0] == [connection]
            assert connection.recv(1) == b"a"
            assert handler.select([connection], [], [], 10)[0] == [connection]
            assert connection.recv(1) == b"b"
            assert handler.select([connection], [], [], 0)[0] == []
            connection.sendall(b"c")
        served.result(10)
