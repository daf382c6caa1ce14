"""``kafkalog doctor``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka import Broker
from tests.kafka_process import free_ports
from tests.kafka_secure import PASSWORD, SecureBroker
from tests.security.logins import password_login
from tests.tools.cli.running import run


def test_a_directory(root: Path) -> None:
    done = run("doctor", root)
    assert (done.code, done.err) == (0, "")
    assert "3 topics, 5 partitions" in done.out
    assert ["fine", "this", "machine", "temporary", "folder"] in [words[:5] for words in done.lines]


def test_what_it_finds_and_how_it_ends(root: Path) -> None:
    (port,) = free_ports(1)
    done = run("doctor", f"127.0.0.1:{port}", "--json")
    assert done.code == 1
    assert not done.json["ok"]
    (found,) = (one for one in done.json["findings"] if one["state"] == "problem")
    assert found["what"] == f"bootstrap server 127.0.0.1:{port}"
    assert found["found"].startswith("TCP failed")
    assert found["remedy"]
    assert run("doctor", "127.0.0.1:1", "-o", "kafka.request.timeout.ms=x").code == 2
    assert run("doctor").code == 2
    assert run("doctor", root / "gone").code == 1


@pytest.mark.broker
def test_a_broker(broker: Broker) -> None:
    done = run("doctor", broker.bootstrap)
    assert done.code == 0, done.out
    assert f"bootstrap server {broker.bootstrap}" in done.out


@pytest.mark.broker
def test_a_password(secure_broker: SecureBroker, tmp_path: Path) -> None:
    right = password_login(secure_broker, "SASL_SSL", "PLAIN")
    wrong = password_login(secure_broker, "SASL_SSL", "PLAIN", password="wrong-93b1c7")
    for options, code in ((right, 0), (wrong, 1)):
        server = options.pop("kafka.bootstrap.servers")
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        done = run("doctor", server, *words)
        assert done.code == code, done.out
        assert ("SASL failed" in done.out) == bool(code)
        assert PASSWORD not in done.out + done.err
        assert "wrong-93b1c7" not in done.out + done.err
