"""The way to each broker, step by step, and where it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tools.doctor import reach as module
from pyspark_kafkalog.tools.doctor.compare import examine
from pyspark_kafkalog.tools.doctor.reach import Attempt, reach
from pyspark_kafkalog.tools.doctor.report import State
from tests.broker.fake_broker import (
    METADATA,
    Received,
    encoded,
    metadata_response,
    serving,
    topic_metadata,
)
from tests.kafka import Broker
from tests.kafka_certificates import Certificates
from tests.kafka_process import free_ports
from tests.kafka_secure import SecureBroker
from tests.security.logins import Options, at, by_another_name, password_login, without_host_name


def reached(options: Options) -> list[Attempt]:
    brokers = place_options(options).brokers
    assert brokers is not None
    return reach(brokers)


def failed(options: Options) -> tuple[str, str]:
    """The step at which the way to the one bootstrap server ends, and why."""
    (attempt,) = reached(options)
    assert attempt.error is not None
    assert attempt.error.hint
    return attempt.steps[-1] if attempt.steps else "", attempt.error.message


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps may take a second, and the whole way two."""
    monkeypatch.setattr(module, "STEP_SECONDS", 1)
    monkeypatch.setattr(module, "_SECONDS", 2)


def test_a_closed_port_and_an_unknown_name() -> None:
    (port,) = free_ports(1)
    step, why = failed({"kafka.bootstrap.servers": f"127.0.0.1:{port}"})
    assert step == "TCP"
    assert "refused" in why
    assert failed({"kafka.bootstrap.servers": "no-such-host.invalid:9092"})[0] == "DNS"


@pytest.mark.usefixtures("soon")
def test_silent_brokers_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once, however many there are: no way begins before all do."""
    all_begin, really_open = threading.Barrier(5), module.Connection.open

    def open_with_others(*args: Any, **settings: Any) -> Any:
        all_begin.wait()
        return really_open(*args, **settings)

    monkeypatch.setattr(module.Connection, "open", open_with_others)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
    servers = ",".join(f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners)
    attempts = reached({"kafka.bootstrap.servers": servers})
    assert [attempt.steps[-1] for attempt in attempts] == ["Kafka"] * 5
    assert all(attempt.error for attempt in attempts)
    tls = reached({"kafka.bootstrap.servers": servers, "kafka.security.protocol": "SSL"})
    assert [attempt.steps[-1] for attempt in tls] == ["TLS"] * 5
    for listener in listeners:
        listener.close()


@pytest.mark.usefixtures("soon")
def test_a_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def silent(*_: object, **__: object) -> None:
        answers.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    step, why = failed({"kafka.bootstrap.servers": "host:9092"})
    answers.set()
    assert (step, why) == ("DNS", "No end after 2 s")


def test_a_way_that_ends_unexpectedly_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("hush")

    monkeypatch.setattr(module, "tls_context", broken)
    assert failed({"kafka.bootstrap.servers": "host:9092"}) == ("", "It failed by ZeroDivisionError")


@pytest.fixture
def advertising() -> Iterator[dict[str, Any]]:
    """A broker, which tells of the brokers in the dictionary."""
    told: dict[str, Any] = {"brokers": {}, "topics": []}

    def answer(received: Received) -> bytes | None:
        if received.api_key != METADATA:
            return None
        return encoded(received, metadata_response(told["brokers"], told["topics"]))

    with serving(answer) as broker:
        yield told | {"address": broker.address, "tell": told["brokers"].update}


def test_advertised_addresses_are_tried_too(advertising: dict[str, Any]) -> None:
    (port,) = free_ports(1)
    advertising["tell"]({1: advertising["address"], 7: f"127.0.0.1:{port}", 8: "inner.invalid:9092"})
    first, *others = reached({"kafka.bootstrap.servers": advertising["address"]})
    assert first.error is None
    assert first.steps == ["DNS", "TCP", "Kafka", "metadata"]
    assert [(other.node_id, other.steps[-1]) for other in others] == [(7, "TCP"), (8, "DNS")]


def test_internal_topics_without_leaders_are_named(advertising: dict[str, Any]) -> None:
    advertising["tell"]({1: advertising["address"]})
    advertising["topics"] += [
        topic_metadata("__consumer_offsets", {0: (1, 0), 1: (-1, 3), 2: (-1, 3)}),
        topic_metadata("__transaction_state", {0: (1, 0)}),
    ]
    report = examine({"kafka.bootstrap.servers": advertising["address"]})
    (found,) = (one for one in report.findings if one.what.startswith("__"))
    assert (found.what, found.state) == ("__consumer_offsets", State.PROBLEM)
    assert found.found == "partitions without a leader: 1, 2"
    assert "neither commit nor be listed" in (found.remedy or "")
    assert not report.ok


def test_a_file_that_is_not_on_this_machine(tmp_path: Path) -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(tmp_path / "gone.pem"),
    }
    step, why = failed(options)
    assert step == ""
    assert "kafka.ssl.truststore" in why


@pytest.mark.broker
def test_a_broker(broker: Broker) -> None:
    (attempt,) = reached({"kafka.bootstrap.servers": broker.bootstrap})
    assert attempt.error is None
    assert list(attempt.brokers.values()) == [broker.bootstrap]


@pytest.mark.broker
def test_brokers_that_ask_who_is_there(secure_broker: SecureBroker) -> None:
    right = password_login(secure_broker, "SASL_SSL", "SCRAM-SHA-256")
    assert [attempt.error for attempt in reached(right)] == [None]
    assert reached(right)[0].steps == ["DNS", "TCP", "TLS", "Kafka", "SASL", "metadata"]

    wrong = password_login(secure_broker, "SASL_SSL", "SCRAM-SHA-256", password="wrong-93b1c7")
    assert failed(wrong)[0] == "SASL"
    assert "wrong-93b1c7" not in str(reached(wrong))
    stranger = right | {"kafka.ssl.truststore.certificates": Certificates().authority}
    assert failed(stranger)[0] == "TLS"
    assert failed(by_another_name(right))[0] == "TLS"
    assert reached(without_host_name(right))[0].error is None
    assert failed(at(secure_broker, "SSL"))[0] in ("TLS", "Kafka"), "no certificate of the client's"


@pytest.mark.broker
def test_the_wrong_protocol(secure_broker: SecureBroker, broker: Broker) -> None:
    plain_to_tls = {"kafka.bootstrap.servers": secure_broker.address("SASL_SSL")}
    assert failed(plain_to_tls)[0] == "Kafka"
    tls_to_plain = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.security.protocol": "SSL"}
    assert failed(tls_to_plain)[0] == "TLS"
    login = password_login(secure_broker, "SASL_PLAINTEXT", "PLAIN")
    assert failed(login | {"kafka.bootstrap.servers": broker.bootstrap})[0] == "SASL"
