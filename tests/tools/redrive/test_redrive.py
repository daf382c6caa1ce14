"""kafkalog redrive: dead letters go back to where they came from, each once."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.offsets_json import MAX_LONG
from pyspark_kafkalog.places import open_groups
from pyspark_kafkalog.tools.redrive import redrive as redriving
from tests.broker.producing import unused_topic
from tests.kafka import Broker
from tests.tools.cli.running import command, run

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
        return self.redrive_as(self.group, *more)

    def redrive_as(self, group: str, *more: str) -> Any:
        return run("redrive", self.place, self.dead, "--group", group, *more)


@pytest.fixture
def topics(place: str) -> Topics:
    return Topics(place)


def test_dead_letters_go_back_once(topics: Topics) -> None:
    """Key, value, timestamp and own headers are as they were; the partition, too, if it is there."""
    place, orders, prices, dead = topics.place, topics.orders, topics.prices, topics.dead
    own = ("traceparent", b"00-1"), ("empty", None)
    given = [letter(orders, "2", *own), letter(prices, "1"), None, letter(orders, "9"), letter(orders, "2")]
    write(place, dead, given)
    dry = topics.redrive("--first")
    assert dry.code == 0
    assert "Dry run" in dry.err
    assert f"Records that stay in {dead}, as no header says where they came from: 1." in dry.err
    assert not values(place, orders)
    counts = {(line[4], int(line[5])) for line in dry.lines[1:]}
    assert {each for each in counts if each[0] == "-"} == {("-", 1)}
    assert sum(count for name, count in counts if name == orders) == 3
    done = topics.redrive("--first", "--execute", "--json")
    assert done.code == 0, done.err
    assert sum(row["records"] for row in done.rows if row["destination"]) == 4
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
    other = run("redrive", place, dead, "--group", f"{topics.group}-other", "--first", "--execute")
    assert other.code == 0
    assert values(place, prices) == [1, 1, 10, 10]


@pytest.mark.long
def test_a_run_that_was_interrupted(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it had written, and after it: the next run does the same again, however much has come since."""
    place, orders, dead, expected = topics.place, topics.orders, topics.dead, list[int]()
    assert topics.redrive("--execute").code == 0
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
    assert topics.redrive("--first", "--execute").code == 0
    words = ("--group", topics.group, dead, "--execute")
    assert run("offsets", "reset", place, *words, "--to-earliest").code == 0
    done = topics.redrive("--execute")
    assert done.code == 0
    assert "also those that were sent before" in done.err
    assert values(place, orders) == [0, 0, 1, 1, 2, 2]
    assert "sent before" not in topics.redrive().err
    write(place, dead, [letter(orders)] * 3, start=3)
    assert run("offsets", "reset", place, *words, "--to-latest").code == 0
    nothing = topics.redrive()
    assert "sent before" not in nothing.err
    assert f"All dead letters in {dead} have been sent: there is nothing to send." in nothing.err
    write(place, dead, [letter(orders)], start=6)
    assert topics.redrive("--execute").code == 0
    assert values(place, orders) == [0, 0, 1, 1, 2, 2, 6]


def test_a_topic_that_does_not_exist(topics: Topics) -> None:
    write(topics.place, topics.dead, [letter(topics.orders), letter("gone")])
    failed = topics.redrive("--first", "--execute")
    assert failed.code == 3
    assert f"Topic gone has dead letters in {topics.dead}, and does not exist" in failed.err
    assert not values(topics.place, topics.orders)


def test_an_internal_topic(topics: Topics) -> None:
    write(topics.place, topics.dead, [letter("__consumer_offsets")])
    failed = topics.redrive("--first", "--execute")
    assert failed.code == 2
    assert "internal topic" in failed.err
    assert f"(partition {topics.dead}-" in failed.err


@pytest.mark.parametrize("moment", ["_rows", "_send"])
def test_another_run_at_the_same_time(topics: Topics, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """It does the whole work before this one has noted what it will do, or after that."""
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 3)
    found = getattr(redriving._Work, moment)

    def slow(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(redriving._Work, moment, found)
        first = ["--first"] if moment == "_rows" else []
        assert topics.redrive(*first, "--execute").code == 0
        return found(*given, **named)

    monkeypatch.setattr(redriving._Work, moment, slow)
    failed = topics.redrive("--first", "--execute")
    assert failed.code == 3
    assert "other commits than before" in failed.err
    assert values(place, orders) == [0, 1, 2]


def test_offsets_of_some_partitions_that_were_changed_amid_a_run(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(topics.place, topics.dead, [letter(topics.orders)] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(redriving, "write", lambda *_: exec("raise KafkaLogError('killed')"))
        assert topics.redrive("--first", "--execute").code == 3
    kafka = connect(topics.place)
    kafka.groups.commit(topics.group, {TopicPartition(topics.dead, 0): CommittedOffset(0)})
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert "have been changed while a run of redrive was not complete" in failed.err


def test_a_letter_that_has_failed_twice(topics: Topics) -> None:
    """It goes to the dead letter topic that it came from, with what says where that one got it from."""
    place, orders, prices, dead = topics.place, topics.orders, topics.prices, topics.dead
    before = letter(orders, "1", ("own", b"a"))
    twice = [*before, *letter(prices, "0", ("later", b"b"))]
    write(place, dead, [twice])
    assert topics.redrive("--first", "--execute").code == 0
    (found,) = records(place, prices)
    assert found["headers"] == [*before, {"key": "later", "value": b"b"}]
    back = run("redrive", place, prices, "--group", topics.group, "--first", "--execute")
    assert back.code == 0, back.err
    (found,) = records(place, orders)
    assert (found["partition"], found["value"]) == (1, b"0")
    assert [header["key"] for header in found["headers"]] == ["own", "later"]


def test_a_group_that_was_forgotten(topics: Topics) -> None:
    """By brokers after offsets.retention.minutes, or deleted: nothing is sent before it is called new."""
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 3)
    unknown = topics.redrive()
    assert unknown.code == 3
    assert f"Group '{topics.group}' has committed nothing for {dead}-0" in unknown.err
    assert "If nothing was sent yet, say so with --first. Otherwise set" in unknown.err
    assert topics.redrive("--first", "--execute").code == 0
    again = topics.redrive("--first", "--execute")
    assert again.code == 2
    assert "It is not the first run" in again.err
    assert again.err.endswith(" Run it again without --first.\n")
    open_groups(connect(place).place_options).committed(topics.group, require_stable=True)
    connect(place).groups.delete(topics.group)
    assert topics.redrive("--execute").code == 3
    assert values(place, orders) == [0, 1, 2]
    assert topics.redrive("--first", "--execute").code == 0
    assert values(place, orders) == [0, 0, 1, 1, 2, 2]


def test_a_new_partition_of_dead_letters(topics: Topics) -> None:
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 3)
    assert topics.redrive("--first", "--execute").code == 0
    kafka = connect(place)
    kafka.topics.alter(kafka.topics.plan_alteration([dead], partitions=3))
    columns = {
        "value": [b"3"],
        "headers": pa.array([letter(orders)], HEADERS),
        "partition": pa.array([2], pa.int32()),
    }
    kafka.write(pa.table(columns), dead)
    unknown = topics.redrive("--execute")
    assert unknown.code == 3
    assert f"has committed nothing for {dead}-2:" in unknown.err
    assert f"--group {topics.group} {dead}:2 --to-offset OFFSET --execute" in unknown.err
    assert topics.redrive("--first", "--execute").code == 0
    assert values(place, orders) == [0, 1, 2, 3]


def test_a_run_without_dead_letters_commits(tmp_path: Path) -> None:
    """Brokers forget a group so long after its last commit."""
    topics = Topics(str(tmp_path))
    write(topics.place, topics.dead, [letter(topics.orders)])
    assert topics.redrive("--first", "--execute").code == 0
    groups = connect(topics.place).groups
    before = groups.committed(topics.group)
    time.sleep(0.01)
    assert topics.redrive("--execute").code == 0
    after = groups.committed(topics.group)
    assert {p: commit.offset for p, commit in after.items()} == {
        p: commit.offset for p, commit in before.items()
    }
    assert all(after[p].commit_timestamp > before[p].commit_timestamp for p in before)


def test_a_batch_after_one_without_dead_letters(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another machine can tell that it may be written, though no record was in those before it."""
    place, orders, dead = topics.place, topics.orders, topics.dead
    monkeypatch.setattr(redriving, "_AT_ONCE", 4)
    write(place, dead, [None] * 20)
    write(place, dead, [letter(orders)] * 8, start=20)
    assert topics.redrive("--first").code == 0
    found, written = redriving.write, list[int]()

    def killed(options: Any, rows: Any, numbered: Any) -> int:
        table = list(rows)
        if any(batch.num_rows for batch in table):
            raise KafkaLogError("killed")
        written.append(found(options, table, numbered))
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(redriving, "write", killed)
        assert topics.redrive("--first", "--execute").code == 3
    assert written[0] == 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = topics.redrive("--execute")
    assert done.code == 0, done.err
    assert values(place, orders) == [*range(20, 28)]


def test_two_first_runs_at_the_same_instant(topics: Topics) -> None:
    """Of two processes: what both would send is sent once. They may end with an error."""
    place, orders, dead, expected = topics.place, topics.orders, topics.dead, list[int]()
    for number in range(3):
        write(place, dead, [letter(orders)] * 10, start=10 * number)
        expected += range(10 * number, 10 * number + 10)
        group = f"{topics.group}-{number}"
        if number:  # of the same group again, as after a reset
            group = f"{topics.group}-0"
            words = "--group", group, dead, "--execute", "--to-latest"
            assert run("offsets", "reset", place, *words).code == 0
            write(place, dead, [letter(orders)] * 10, start=100 * number)
            expected = [*values(place, orders), *range(100 * number, 100 * number + 10)]
        first = [] if number else ["--first"]
        words = command("redrive", place, dead, "--group", group, *first, "--execute")
        runs = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        ended = [(process.communicate()[1], process.returncode) for process in runs]
        assert all(
            code == 0 or "other commits than before" in error or "not the first run" in error
            for error, code in ended
        ), ended
        assert topics.redrive_as(group, "--execute").code == 0
        assert values(place, orders) == sorted(expected)


@pytest.mark.parametrize(
    "option",
    ["topic=x", "transform=a:b", "value.format=json", "large.message.enabled=true", "KEY.format=json"],
)
def test_options_that_would_change_records(tmp_path: Path, option: str) -> None:
    topics = Topics(str(tmp_path))
    write(topics.place, topics.dead, [letter(topics.orders)])
    failed = topics.redrive("--first", "--execute", "-o", option)
    assert failed.code == 2
    assert "can't be given: dead letters are sent as they are" in failed.err


@pytest.mark.broker
def test_options_of_a_writer(broker: Broker, tmp_path: Path) -> None:
    """They are for the write alone. In any case of its name brokers get transactions."""
    topics = Topics(broker.bootstrap)
    write(topics.place, topics.dead, [letter(topics.orders)])
    given = {"Kafka.Bootstrap.Servers": broker.bootstrap, "stagingLocation": str(tmp_path)}
    connect(given).records.redrive(topics.dead, group=topics.group, first=True, execute=True)
    assert values(topics.place, topics.orders) == [0]
    assert [*tmp_path.glob("kafkalog-transactions/*")]


def test_records_that_retention_has_deleted(topics: Topics, caplog: pytest.LogCaptureFixture) -> None:
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 4)
    assert topics.redrive("--first", "--execute").code == 0
    kafka = connect(place)
    partition = TopicPartition(dead, 0)
    earlier = {partition: CommittedOffset(0)}
    kafka.groups.commit(topics.group, earlier)
    kafka.logs.delete_records({partition: 1}, execute=True)
    with caplog.at_level(logging.WARNING):
        assert topics.redrive("--execute").code == 0
    assert f"Offsets 0 to 0 of {dead}-0 are gone: not sent" in caplog.text


def test_a_topic_of_dead_letters_that_was_recreated(tmp_path: Path) -> None:
    """In a directory whose files were deleted by hand: a new topic has no commits of the old one."""
    topics = Topics(str(tmp_path))
    place, orders, dead = topics.place, topics.orders, topics.dead
    write(place, dead, [letter(orders)] * 4)
    assert topics.redrive("--first", "--execute").code == 0
    for number in range(2):
        shutil.rmtree(tmp_path / f"{dead}-{number}")
    connect(place).topics.create([NewTopic(dead, partitions=2)])
    write(place, dead, [letter(orders)] * 10, start=10)
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert f"Group {topics.group!r} has committed nothing for {dead}-0, {dead}-1" in failed.err
    assert topics.redrive("--first", "--execute").code == 0
    assert values(place, orders) == [0, 1, 2, 3, *range(10, 20)]


def test_headers_with_an_illegal_topic(topics: Topics) -> None:
    write(topics.place, topics.dead, [letter("../../etc")])
    failed = topics.redrive("--first", "--execute")
    assert failed.code == 2
    assert "A dead letter can't go back: Illegal topic name '../../etc'" in failed.err
    assert "offset 0)" in failed.err


def test_a_group_that_was_set_back(topics: Topics) -> None:
    """To an older commit: the sink knows that it has the batch, or another one in its place."""
    place, orders, dead = topics.place, topics.orders, topics.dead
    kafka = connect(place)
    write(place, dead, [letter(orders)] * 4)
    assert topics.redrive("--first", "--execute").code == 0
    partitions = [TopicPartition(dead, number) for number in range(2)]
    before = open_groups(kafka.place_options).committed(topics.group, partitions, require_stable=True)
    write(place, dead, [letter(orders)] * 4, start=4)
    assert topics.redrive("--execute").code == 0
    kafka.groups.commit(topics.group, before)
    assert topics.redrive("--execute").code == 0
    assert values(place, orders) == [*range(8)]
    kafka.groups.commit(topics.group, before)
    write(place, dead, [letter(orders)] * 4, start=8)
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert "with other offsets of its sources than the checkpoint has" in failed.err.replace("\n", " ")
    assert values(place, orders) == [*range(8)]


@pytest.mark.long
@pytest.mark.broker
def test_markers_that_were_set_back_with_the_group(broker: Broker) -> None:
    """As with an older copy of __consumer_offsets: the coordinator of transactions knows better."""
    topics = Topics(broker.bootstrap)
    place, orders, dead = topics.place, topics.orders, topics.dead
    groups = open_groups(connect(place).place_options)
    write(place, dead, [letter(orders)] * 4)
    known = {*groups.group_ids()}
    assert topics.redrive("--first", "--execute").code == 0
    (marker,) = {*groups.group_ids()} - known - {topics.group}
    before = {group: groups.committed(group, require_stable=True) for group in (topics.group, marker)}
    write(place, dead, [letter(orders)] * 4, start=4)
    assert topics.redrive("--execute").code == 0
    for group, offsets in before.items():
        groups.commit(group, offsets)
    failed = topics.redrive("--execute")
    assert failed.code == 3
    assert "has committed a later batch of this query than its marker says" in failed.err
    assert values(place, orders) == [*range(8)]


@pytest.mark.parametrize(
    "partition", [b"\xff", b"9" * 5000, b"-1", b"", None, b" 1", "\u0661".encode(), b"4294967297"]
)
def test_headers_without_a_partition(tmp_path: Path, partition: bytes | None) -> None:
    """Then the key decides, as if the topic had no such partition."""
    topics = Topics(str(tmp_path))
    found = {"topic": topics.orders.encode(), "partition": partition}
    write(
        topics.place, topics.dead, [[{"key": f"__connect.errors.{n}", "value": v} for n, v in found.items()]]
    )
    assert topics.redrive("--first", "--execute").code == 0
    assert values(topics.place, topics.orders) == [0]
