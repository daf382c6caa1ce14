"""Every setting of Kafka's clients is known: used with Kafka's default, without effect, or refused."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.kafka_names import (
    KAFKA_OPTIONS,
    REFUSED_READING,
    REFUSED_WRITING,
    STORE_PASSWORDS,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.names import OPTIONS
from pyspark_kafkalog.options.settings import default_columns, read_options, write_options

CONFIGS = [
    line.split("\t")
    for line in (Path(__file__).parent / "client_configs.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
NAMES = sorted({f"kafka.{name}" for name, _, _ in CONFIGS})
USED = {option.name: option for option in (*OPTIONS, *KAFKA_OPTIONS)}
BROKERS = {"kafka.bootstrap.servers": "host:9092"}
READ = {**BROKERS, "subscribe": "t"}

OWN_DEFAULTS = {
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.batch.size",  # a task has its rows at hand
    "kafka.linger.ms",
    "kafka.max.partition.fetch.bytes",
    "kafka.receive.buffer.bytes",  # the system tunes them as it goes
    "kafka.send.buffer.bytes",
    "kafka.ssl.truststore.type",  # Java's is JKS
    "kafka.ssl.keystore.type",
    "kafka.sasl.login.connect.timeout.ms",  # Java waits for ever
    "kafka.sasl.login.read.timeout.ms",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_kafkas_clients_is_known_in_one_way(name: str) -> None:
    refused = {**REFUSED_READING, **REFUSED_WRITING}
    ways = [name in known for known in (USED, WITHOUT_EFFECT, refused, STORE_PASSWORDS)]
    assert sum(ways) == 1


def test_every_name_known_is_one_of_kafkas_clients() -> None:
    known = {*USED, *WITHOUT_EFFECT, *REFUSED_READING, *REFUSED_WRITING, *STORE_PASSWORDS}
    assert {name for name in known if name.startswith("kafka.")} == set(NAMES)


@pytest.mark.parametrize(("name", "clients", "default"), CONFIGS)
def test_defaults_are_kafkas(name: str, clients: str, default: str) -> None:
    option = USED.get(f"kafka.{name}")
    if option is None or option.name in OWN_DEFAULTS or (clients == "admin" and name.endswith("idle.ms")):
        return
    assert (option.default or "null") == (default or "null")


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_is_told_to_who_debugs(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
        assert read_options({**READ, name: "x"}, batch=True) == read_options(READ, batch=True)
        assert write_options({**BROKERS, name: "x"}) == write_options(BROKERS)
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert name in record.getMessage()


@pytest.mark.parametrize("name", sorted(REFUSED_READING))
def test_a_reader_refuses(name: str) -> None:
    bare = re.escape(name.removeprefix("kafka."))
    for read in (default_columns, lambda options: read_options(options, batch=False)):
        with pytest.raises(OptionError, match=f"Kafka option '{bare}' is not supported\\. .+"):
            read({**READ, name: "x"})


@pytest.mark.parametrize("name", sorted(REFUSED_WRITING))
def test_a_writer_refuses(name: str) -> None:
    bare = re.escape(name.removeprefix("kafka."))
    with pytest.raises(OptionError, match=f"Kafka option '{bare}' is not supported\\. .+"):
        write_options({**BROKERS, name: "x"})


def test_settings_of_the_other_client_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """So that one set of settings serves both directions, as it does with Java's clients."""
    reading = {"kafka.group.id": "g", "kafka.auto.offset.reset": "latest", "kafka.isolation.level": "x"}
    writing = {"kafka.acks": "x", "kafka.key.serializer": "x", "kafka.transactional.id": "x"}
    assert write_options({**BROKERS, **reading}) == write_options(BROKERS)
    assert read_options({**READ, **writing}, batch=True) == read_options(READ, batch=True)
    assert not caplog.records


def test_an_unknown_name_is_warned_of_with_near_ones(caplog: pytest.LogCaptureFixture) -> None:
    write_options({**BROKERS, "kafka.compresion.type": "secret"})
    read_options({**READ, "kafka.session.timeout": "secret"}, batch=True)
    first, second = caplog.records
    assert (first.levelname, second.levelname) == ("WARNING", "WARNING")
    assert "Did you mean kafka.compression.type" in first.getMessage()
    assert "Did you mean kafka.session.timeout.ms" in second.getMessage()
    assert "secret" not in caplog.text


def test_the_same_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes a writer for every micro-batch."""
    for name in ("kafka.qqqq", "kafka.qqqq", "kafka.wwww"):
        write_options({**BROKERS, name: "x"})
    assert [record.getMessage().split()[1] for record in caplog.records] == ["kafka.qqqq", "kafka.wwww"]


def test_an_unknown_name_with_none_near_gets_no_list(caplog: pytest.LogCaptureFixture) -> None:
    write_options({**BROKERS, "kafka.qqqqqqqq": "x"})
    assert caplog.records[0].getMessage() == (
        "Option kafka.qqqqqqqq is unknown to Kafka's clients, and has no effect"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("compression.type", "Write 'kafka.compression.type' instead"),
        ("batch.size", "Write 'kafka.batch.size' instead"),
        ("segment.bytes", "Set it on the topic"),
        ("numPartitions", "Set it on the topic"),
    ],
)
def test_options_of_log_directories_are_refused(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"'{re.escape(name)}' concerns log directories.*{hint}"):
        write_options({**BROKERS, name: "1"})


def test_other_unknown_options_are_refused_as_for_directories() -> None:
    with pytest.raises(OptionError, match=r"Unknown option 'acks'.*Did you mean kafka\.acks"):
        write_options({**BROKERS, "acks": "1"})
    with pytest.raises(OptionError, match="'subscribe' is for reading only"):
        write_options({**BROKERS, "subscribe": "t"})
    with pytest.raises(OptionError, match="'topic' is for writing only"):
        read_options({**READ, "topic": "t"}, batch=True)
