"""The fixtures of :mod:`pyspark_kafkalog.testing`, and what a failed test shows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.client.kafka import Kafka, connect
from pyspark_kafkalog.errors import GroupError, KafkaLogError
from pyspark_kafkalog.tools.testing.filling import filled
from pyspark_kafkalog.tools.try_out.local_broker import REGISTERED_SOON, LocalBroker


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, object]:
    """Settings of ``server.properties`` for the broker: none; override this fixture to give some."""
    return {}


@pytest.fixture(scope="session")
def kafka_session_broker(
    kafka_broker_settings: Mapping[str, object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalBroker]:
    """The real broker of Apache Kafka that all tests share, for fixtures of a wider scope than a test.

    It starts with the first test that asks for it, and is killed at the end. A topic that such a fixture
    makes stays for all tests. Each worker of pytest-xdist has a broker of its own.
    """
    settings = {**REGISTERED_SOON, **kafka_broker_settings}
    failure = ""
    with contextlib.ExitStack() as running:
        try:
            broker = LocalBroker(tmp_path_factory.mktemp("kafka-broker"), settings=settings)
            running.callback(broker.close)
            broker.start()
        except KafkaLogError as e:
            failure = str(e)
        if failure:
            # Users need the sentence, not our frames.
            pytest.fail(failure, pytrace=False)
        yield broker


@pytest.fixture
def kafka_broker(kafka_session_broker: LocalBroker) -> Iterator[LocalBroker]:
    """A running broker that a test may stop, kill and start.

    After the test it runs again, without the topics and groups that the test has made. A group with live
    members stays.
    """
    kafka_session_broker.start()
    with connect(kafka_session_broker.options) as kafka:
        topics, groups = _topics(kafka), _groups(kafka)
        yield kafka_session_broker
        kafka_session_broker.start()
        for group in _groups(kafka) - groups:
            # It has members, or has ended meanwhile.
            with contextlib.suppress(GroupError):
                kafka.groups.delete(group)
        kafka.topics.delete(kafka.topics.plan_deletion(sorted(_topics(kafka) - topics), if_exists=True))


def _topics(kafka: Kafka) -> set[str]:
    return {partition.topic for partition in kafka.topics.partitions()}


def _groups(kafka: Kafka) -> set[str]:
    return {group.group for group in kafka.groups.describe()}


@pytest.fixture
def kafka_log_directory(tmp_path: Path) -> Path:
    """An empty log directory, which takes the place of a broker where no Java is needed."""
    folder = tmp_path / "kafka-logs"
    folder.mkdir()
    return folder


@pytest.fixture
def fill_topic() -> Iterator[Callable[..., Kafka]]:
    """A function that puts records into a topic: ``fill_topic(place, topic, records)``.

    It returns what ``connect`` gives for the place, which is closed after the test.

    - ``place``: ``kafka_broker``, ``kafka_log_directory``, or whatever ``connect`` takes.
    - ``records``: a list of values, or of pairs of a key and a value, each str, bytes or None; or a table of
      Arrow with any columns that ``df.write`` takes, such as ``partition``. Without any, the topic is empty.
    - ``partitions=3`` and ``configs={"max.message.bytes": "2000000"}``, of a topic that is not there yet.
    """
    with contextlib.ExitStack() as opened:

        def fill(*place_topic_records: Any, **settings: Any) -> Kafka:
            return opened.enter_context(filled(*place_topic_records, **settings))

        yield fill


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what the broker of a failed test logged."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        for broker in {value for value in values if isinstance(value, LocalBroker)}:
            report.sections.append((f"log of {broker.address}", broker.log_tail()))
    return report
