"""kafkalog redrive: dead letters go back to where they came from, each once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.admin import redrive as redriving
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from tests.broker.producing import unused_topic
from tests.cli.running import run
from tests.kafka import Broker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def letter(topic: str, partition: str = "0", *own: tuple[str, bytes | None]) -> list[dict[str, Any]]:
    """The headers of a dead letter, behind those that its record had."""
    errors = {"topic": topic, "partition": partition, "offset": "7", "stage": "VALUE_CONVERTER"}
    named = [*own, *((f"__connect.errors.{name}", text.encode()) for name, text in errors.items())]
    return [{"key": key, "value": value} for key, value in named]


def write(place: str, topic: str, headers: Sequence[Any], start: int = 0) -> None:
    """Records whose values are numbers, with these headers."""
    numbers = range(start, start + len(headers))
    columns = {
        "key": pa.array([b"k%d" % n if n % 2 else None for n in numbers]),
        "value": pa.array([b"%d" % n for n in numbers]),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array([1_700_000_000_000 + n for n in numbers], pa.timestamp("ms", "UTC")),
    }
    connect(place).write(pa.table(columns), topic)


def records(place: str, topic: str) -> list[Mapping[str, Any]]:
    """What read_committed consumers see, once the markers of transactions are written."""
    wanted = ["partition", "key", "value", "headers", "timestamp"]
    kafka = connect(place)
    partitions = [TopicPartition(topic, number) for number in kafka.place.topics([topic])[topic]]

    def ends(*, read_committed: bool) -> Mapping[TopicPartition, int]:
        return kafka.place.end_offsets(partitions, read_committed=read_committed)

    while ends(read_committed=True) != ends(read_committed=False):
        time.sleep(0.05)
    options = {"kafka.isolation.level": "read_committed"}
    found: list[Mapping[str, Any]] = kafka.read(topic, columns=wanted, options=options).read_all().to_pylist()
    return found


def rows(place: str, topic: str) -> list[Mapping[str, Any]]:
    """The records in the order of their values, which are numbers."""
    return sorted(records(place, topic), key=lambda row: int(row["value"]))


def values(place: str, topic: str) -> list[int]:
    return [int(row["value"]) for row in rows(place, topic)]


@pytest.fixture(params=["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path)
    broker: Broker = request.getfixturevalue("broker")
    return broker.bootstrap


class Topics:
    """Two topics of three partitions, and one for dead letters."""

    def __init__(self, place: str) -> None:
        self.place, self.group = place, unused_topic()
        self.orders, self.prices, self.dead = (unused_topic() for _ in range(3))
        new = [NewTopic(name, partitions=3) for name in (self.orders, self.prices)]
        connect(place).topics.create([*new, NewTopic(self.dead, partitions=2)])

    def redrive(self, *more: str) -> Any:
        return run("redrive", self.place, self.dead, "--group", self.group, *more)


@pytest.fixture
def topics(place: str) -> Topics:
    return Topics(place)


def test_dead_letters_go_back_once(topics: Topics) -> None:
    """Key, value, timestamp and own headers are as they were; the partition, too, if it is there."""
    place, orders, prices, dead = topics.place, topics.orders, topics.prices, topics.dead
    own = ("traceparent", b"00-1"), ("empty", None)
    given = [letter(orders, "2", *own), letter(prices, "1"), None, letter(orders, "9"), letter(orders, "2")]
    given[4] = [*letter(dead), *given[4]]  # which was in a dead letter queue before
    write(place, dead, given)
    dry = topics.redrive()
    assert dry.code == 0
    assert "Dry run" in dry.err
    assert not values(place, orders)
    counts = {(line[4], int(line[5])) for line in dry.lines[1:]}
    assert {each for each in counts if each[0] == "-"} == {("-", 1)}
    assert sum(count for name, count in counts if name == orders) == 3
    done = topics.redrive("--execute", "--json")
    assert done.code == 0, done.err
    assert sum(row["records"] for row in done.json if row["destination"]) == 4
    found = rows(place, orders)
    assert [int(row["value"]) for row in found] == [0, 3, 4]
    assert [row["partition"] for row in found if row["value"] != b"3"] == [2, 2]
    assert found[0]["headers"] == [{"key": key, "value": value} for key, value in own]
    assert found[0]["key"] is None
    assert found[1]["key"] == b"k3"
    assert found[2]["headers"] is None
    assert [row["timestamp"].timestamp() * 1000 - 1.7e12 for row in found] == pytest.approx([0, 3, 4])
    assert values(place, prices) == [1]
    again = topics.redrive("--execute")
    assert (again.code, again.lines[1:]) == (0, [])
    committed = connect(place).groups.committed(topics.group)
    if ":" not in place:
        assert {commit.expire_timestamp for commit in committed.values()} == {MAX_LONG}
    write(place, dead, [letter(prices), letter(orders)], start=10)
    assert topics.redrive("--execute").code == 0
    assert (values(place, orders), values(place, prices)) == ([0, 3, 4, 11], [1, 10])
    other = run("redrive", place, dead, "--group", f"{topics.group}-other", "--execute")
    assert other.code == 0
    assert values(place, prices) == [1, 1, 10, 10]


def test_a_run_that_was_interrupted(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it had written, and after it: the next run does the same again, however much has come since."""
    place, orders, dead, expected = topics.place, topics.orders, topics.dead, list[int]()
    monkeypatch.setattr(redriving, "_AT_ONCE", 4)
    for step in range(6):
        write(place, dead, [letter(orders)] * 5, start=5 * step)
        expected += range(5 * step, 5 * step + 5)
        committed, calls = redriving._Work._commit, iter(range(10))

        def interrupted(*given: Any, committed: Any = committed, at: int = step, calls: Any = calls) -> None:
            if next(calls) == at:
                raise KafkaLogError("killed")
            committed(*given)

        with monkeypatch.context() as patched:
            patched.setattr(redriving._Work, "_commit", interrupted)
            assert topics.redrive("--execute").code in (0, 3)
        write(place, dead, [letter(orders)], start=100 + step)
        expected.append(100 + step)
        assert topics.redrive("--execute").code == 0
        assert values(place, orders) == sorted(expected)


def test_offsets_that_were_reset(topics: Topics) -> None:
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 3)
    assert topics.redrive("--execute").code == 0
    words = ("--group", topics.group, "--topic", dead, "--execute")
    assert run("offsets", "reset", place, *words, "--to-earliest").code == 0
    assert topics.redrive("--execute").code == 0
    assert values(place, orders) == [0, 0, 1, 1, 2, 2]
    write(place, dead, [letter(orders)] * 3, start=3)
    assert run("offsets", "reset", place, *words, "--to-latest").code == 0
    write(place, dead, [letter(orders)], start=6)
    assert topics.redrive("--execute").code == 0
    assert values(place, orders) == [0, 0, 1, 1, 2, 2, 6]


def test_a_topic_that_does_not_exist(topics: Topics) -> None:
    write(topics.place, topics.dead, [letter(topics.orders), letter("gone")])
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert f"Topic gone has dead letters in {topics.dead}, and does not exist" in failed.err
    assert not values(topics.place, topics.orders)


def test_an_internal_topic(topics: Topics) -> None:
    write(topics.place, topics.dead, [letter("__consumer_offsets")])
    failed = topics.redrive("--execute")
    assert failed.code == 2
    assert "internal topic" in failed.err


@pytest.mark.parametrize("moment", ["_rows", "_send"])
def test_another_run_at_the_same_time(topics: Topics, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It does the whole work before this one has noted what it will do, or after that."""
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 3)
    found = getattr(redriving._Work, moment)

    def slow(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(redriving._Work, moment, found)
        assert topics.redrive("--execute").code == 0
        return found(*given, **named)

    monkeypatch.setattr(redriving._Work, moment, slow)
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert "other commits than before" in failed.err
    assert values(place, orders) == [0, 1, 2]


def test_offsets_of_some_partitions_that_were_changed_amid_a_run(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(topics.place, topics.dead, [letter(topics.orders)] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(redriving, "write", lambda *_: exec("raise KafkaLogError('killed')"))
        assert topics.redrive("--execute").code == 3
    kafka = connect(topics.place)
    kafka.groups.commit(topics.group, {TopicPartition(topics.dead, 0): CommittedOffset(0)})
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert "have been changed while a run of redrive was not complete" in failed.err
