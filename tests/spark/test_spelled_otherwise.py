"""A query that is started again on its checkpoint, with options spelled otherwise that name the same.

What it must notice, or keep, it does as if nothing had been changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import DataLossError
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.kafka import Broker
from tests.log.writing import T0, values, write
from tests.spark.without_spark import DiedError, Query

Options = dict[str, str]
Spell = Callable[[Options], Options]

SELECTIONS: dict[str, Spell] = {
    "as before": lambda given: given,
    "a topic more": lambda given: {**given, "subscribe": f"{given['subscribe']},another"},
    "by a pattern": lambda given: _by(given, "subscribePattern", f"^{given['subscribe']}$"),
    "by partitions": lambda given: _by(given, "assign", json.dumps({given["subscribe"]: [0]})),
    "in a group": lambda given: {**given, "kafka.group.id": "a group", "commitOffsets": "false"},
}
FOLDERS: dict[str, Spell] = {
    "a slash more": lambda given: {**given, "path": f"{given['path']}/"},
    "a URI": lambda given: {**given, "path": f"file://{given['path']}"},
    "a link": lambda given: {**given, "path": str(_link(Path(given["path"])))},
    "a partition's folder": lambda given: {**given, "path": f"{given['path']}/t-0"},
}
ADDRESSES: dict[str, Spell] = {
    "another name": lambda given: _at(given, _servers(given).replace("127.0.0.1", "localhost")),
    "an address more": lambda given: _at(
        given, f"{_servers(given)},{_servers(given).replace('127.0.0.1', 'localhost')}"
    ),
}
SERVERS = "kafka.bootstrap.servers"


def _by(given: Options, option: str, value: str) -> Options:
    return {**{name: text for name, text in given.items() if name != "subscribe"}, option: value}


def _link(path: Path) -> Path:
    link = path.with_name("link")
    link.unlink(missing_ok=True)
    link.symlink_to(path)
    return link


def _servers(given: Options) -> str:
    return given[SERVERS]


def _at(given: Options, servers: str) -> Options:
    return {**given, SERVERS: servers}


def spelled(*kinds: dict[str, Spell]) -> pytest.MarkDecorator:
    ways = {name: spell for kind in kinds for name, spell in kind.items()}
    return pytest.mark.parametrize("spell", ways.values(), ids=ways.keys())


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


class TestDirectory:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        write(tmp_path / "log", {T0: values(50)}, num_partitions=1)
        return tmp_path / "log"

    @pytest.fixture
    def given(self, root: Path) -> Options:
        return {"path": str(root), "subscribe": "t", "startingOffsets": "earliest"}

    @spelled(SELECTIONS, FOLDERS)
    def test_goes_on(self, query: Query, root: Path, given: Options, spell: Spell) -> None:
        assert query.run(given) == [50]
        write(root, {T0: values(7)}, num_partitions=1)
        assert query.run(spell(given)) == [7]

    @spelled(SELECTIONS, FOLDERS)
    def test_a_topic_that_was_recreated(self, query: Query, root: Path, given: Options, spell: Spell) -> None:
        query.run(given)
        shutil.rmtree(root)
        write(root, {T0: values(200)}, num_partitions=1)
        for options in (spell(given), given):
            with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
                query.run(options)
        assert query.run({**spell(given), "failOnDataLoss": "false"}) == [200]
        assert query.run(given) == [0], "what is of an older day is not found again"

    @spelled(SELECTIONS, FOLDERS)
    def test_a_log_that_went_back(
        self, query: Query, root: Path, given: Options, spell: Spell, tmp_path: Path
    ) -> None:
        shutil.copytree(root, tmp_path / "older")
        write(root, {T0: values(10)}, num_partitions=1)
        assert query.run(given) == [60]
        shutil.rmtree(root)
        (tmp_path / "older").rename(root)
        write(root, {T0: values(200, start=500)}, num_partitions=1)
        for options in (spell(given), given):
            with pytest.raises(DataLossError, match="LOG_WENT_BACK"):
                query.run(options)

    def test_roots_in_another_order(self, query: Query, root: Path, given: Options, tmp_path: Path) -> None:
        other = tmp_path / "other root"
        other.mkdir()
        both = [str(root), str(other)]
        query.run({**given, "path": json.dumps(both)})
        shutil.rmtree(root)
        write(root, {T0: values(200)}, num_partitions=1)
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            query.run({**given, "path": json.dumps(both[::-1])})

    @spelled(SELECTIONS, FOLDERS)
    @pytest.mark.parametrize("starting", ["latest", "computed"])
    def test_a_death_in_the_first_micro_batch(
        self, query: Query, root: Path, given: Options, spell: Spell, starting: str
    ) -> None:
        """As a job may compute its startingTimestamp each time that it starts."""
        first, second = {"startingOffsets": "latest"}, {"startingOffsets": "latest"}
        if starting == "computed":
            del given["startingOffsets"]
            first, second = ({"startingTimestamp": str(1_600_000_000_000 + at)} for at in (30, 40))
        else:
            assert query.run({**given, **first}) == [0]
        write(root, {T0: values(10)}, num_partitions=1, timestamp=1_600_000_000_050)
        expected = 10 if starting == "latest" else 30
        for _ in range(2):
            with pytest.raises(DiedError):
                query.run({**given, **first}, dies=True)
            write(root, {T0: values(1)}, num_partitions=1)
        with pytest.raises(DiedError):
            query.run({**spell(given), **second}, dies=True)
        assert query.run({**spell(given), **second}) == [expected + 2]


@pytest.mark.broker
class TestBrokers:
    @pytest.fixture
    def topic(self, broker: Broker) -> str:
        topic = unused_topic()
        broker.create_topic(topic, 1)
        return topic

    @pytest.fixture
    def given(self, broker: Broker, topic: str) -> Options:
        return {SERVERS: broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    @pytest.mark.long
    @spelled(ADDRESSES)
    def test_a_topic_that_was_recreated(
        self, query: Query, broker: Broker, topic: str, given: Options, spell: Spell
    ) -> None:
        fill(broker, topic, 50)
        assert query.run(given) == [50]
        recreate(broker, topic)
        fill(broker, topic, 60)
        with pytest.raises(DataLossError, match="TOPIC_RECREATED"):
            query.run(spell(given))

    @spelled(SELECTIONS, ADDRESSES)
    def test_a_death_in_the_first_micro_batch(
        self, query: Query, broker: Broker, topic: str, given: Options, spell: Spell
    ) -> None:
        given["startingOffsets"] = "latest"
        assert query.run(given) == [0]
        fill(broker, topic, 10)
        with pytest.raises(DiedError):
            query.run(given, dies=True)
        assert query.run(spell(given)) == [10]

    def test_two_readers_start_at_the_offsets_of_their_groups(
        self, query: Query, broker: Broker, topic: str, given: Options
    ) -> None:
        fill(broker, topic, 100)
        given["startingOffsets"] = "committed"
        readers = []
        for group, offset in (("late", 80), ("early", 10)):
            commit(broker, f"{group}-{topic}", topic, offset)
            readers.append({**given, "kafka.group.id": f"{group}-{topic}", "commitOffsets": "false"})
        for _ in range(2):
            with pytest.raises(DiedError):
                query.run(*readers, dies=True)
        assert query.run(*readers) == [20, 90]


def fill(broker: Broker, topic: str, count: int) -> None:
    produce(connected(broker.bootstrap), topic, [numbered(count)])


def recreate(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    broker.create_topic(topic, 1)


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Committed

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[Committed(topic, 0, offset)], asynchronous=False)
    consumer.close()
