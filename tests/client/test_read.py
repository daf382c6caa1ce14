"""Records as Arrow without Spark: in one go, in splits that other processes read, and once for a group."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog import (
    CommittedOffset,
    GroupError,
    KafkaLogError,
    NewTopic,
    OptionError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    connect,
)
from tests.fixtures_dir import SMALL_CASES, Case, case

TOPIC = "t"
PARTITIONS = 3
COUNT = 90


@pytest.fixture
def topic(request: pytest.FixtureRequest, options: Mapping[str, str]) -> str:
    """A topic of :data:`COUNT` records: number n is in partition n % 3, at n seconds."""
    name = f"{TOPIC}-{abs(hash(request.node.name))}"
    with connect(options) as kafka:
        kafka.topics.create([NewTopic(name, PARTITIONS)])
        kafka.write(numbered(range(COUNT)), name)
    return name


def numbered(numbers: range) -> list[pa.RecordBatch]:
    rows = {
        "value": [b"%d" % number for number in numbers],
        "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
        "timestamp": pa.array([number * 1_000_000 for number in numbers], pa.timestamp("us", tz="UTC")),
    }
    return [pa.RecordBatch.from_pydict(rows)]


def values(rows: pa.RecordBatchReader) -> list[int]:
    return sorted(int(value) for value in rows.read_all().column("value").to_pylist())


def test_a_read_has_what_a_data_frame_has(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    rows = kafka.read(topic).read_all()
    assert rows.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert rows.num_rows == COUNT
    by_place = {(row["partition"], row["offset"]): row for row in rows.to_pylist()}
    assert by_place[1, 2]["value"] == b"7"
    assert by_place[1, 2]["timestamp"] == datetime.fromtimestamp(7, timezone.utc)
    few = kafka.read(
        topic, columns=["offset"], options={"startingOffsets": f'{{"{topic}":{{"0":28,"1":30,"2":29}}}}'}
    )
    assert few.read_all().to_pydict() == {"offset": [28, 29, 29]}
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        kafka.read("nothing")


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("partition", "=", 1)], range(1, COUNT, 3)),
        ([("partition", "in", [0, 1]), ("offset", "<", 2)], [0, 1, 3, 4]),
        ([("offset", "==", 5)], [15, 16, 17]),
        ([("timestamp", ">=", datetime.fromtimestamp(80, timezone.utc))], range(80, COUNT)),
        ([("value", "=", b"42")], [42]),
        ([("topic", "!=", "other"), ("offset", ">", 28)], [87, 88, 89]),
        ([("offset", ">", 1000)], []),
    ],
)
def test_filters_hold_for_every_row(
    options: Mapping[str, str], topic: str, filters: list[Any], expected: Any
) -> None:
    kafka = connect(options)
    assert values(kafka.read(topic, columns=["value"], filters=filters)) == list(expected)
    planned = kafka.plan(topic, columns=["value"], filters=filters, options={"minPartitions": "7"})
    assert sorted(value for split in planned for value in values(split.read())) == list(expected)


def test_splits_are_read_by_other_processes(options: Mapping[str, str], topic: str, tmp_path: Path) -> None:
    kafka = connect(options)
    planned = kafka.plan(topic, columns=["value"], options={"minPartitions": "6"})
    assert len(planned) >= 6
    kafka.write(numbered(range(COUNT, COUNT + 9)), topic)  # not planned
    code = (
        "import pickle, sys\n"
        "split = pickle.load(sys.stdin.buffer)\n"
        "print(*(int(value) for value in split.read().read_all().column('value').to_pylist()))"
    )
    found: list[int] = []
    for split in planned[:2]:
        done = subprocess.run(
            [sys.executable, "-c", code], input=pickle.dumps(split), check=True, capture_output=True
        )
        found += map(int, done.stdout.split())
    for split in planned[2:]:
        found += values(pickle.loads(pickle.dumps(split)).read())
    assert sorted(found) == list(range(COUNT))


def test_a_split_shows_no_secret() -> None:
    (split, *_) = connect(case("txn-basic").directory).plan("txn-basic")
    assert "options" not in repr(split)


def test_changes_come_once_and_again_after_an_error(options: Mapping[str, str], topic: str) -> None:
    kafka, group = connect(options), f"g-{topic}"
    with kafka.changes(topic, group=group, columns=["value"]) as changes:
        assert values(changes.read()) == list(range(COUNT))
    assert {p: c.offset for p, c in kafka.groups.committed(group).items()} == {
        TopicPartition(topic, number): COUNT // PARTITIONS for number in range(PARTITIONS)
    }
    with kafka.changes(topic, group=group) as changes:
        assert values(changes.read()) == []
    kafka.write(numbered(range(COUNT, COUNT + 9)), topic)
    with pytest.raises(ZeroDivisionError), kafka.changes(topic, group=group) as changes:
        _ = changes.read().read_all().num_rows / 0
    with (
        pytest.raises(KafkaLogError, match="all was pulled"),
        kafka.changes(topic, group=group) as changes,
    ):
        _ = changes.read().read_next_batch()
    with kafka.changes(topic, group=group, columns=["value"]) as changes:
        kafka.write(numbered(range(COUNT + 9, COUNT + 12)), topic)  # for the next run
        assert values(changes.read()) == list(range(COUNT, COUNT + 9))
        assert values(changes.read()) == list(range(COUNT, COUNT + 9))
    with kafka.changes(topic, group=group, columns=["value"]) as changes:
        assert values(changes.read()) == list(range(COUNT + 9, COUNT + 12))


def test_a_group_of_another_log_is_refused(options: Mapping[str, str], topic: str) -> None:
    kafka, group = connect(options), f"beyond-{topic}"
    kafka.groups.commit(group, {TopicPartition(topic, 0): CommittedOffset(1000)})
    with pytest.raises(GroupError, match="the log ends at 30"):
        kafka.changes(topic, group=group)


def test_changes_of_another_run_are_noticed(options: Mapping[str, str], topic: str) -> None:
    """Else the one that ends last would move the group back."""
    kafka, group = connect(options), f"two-{topic}"
    older = kafka.changes(topic, group=group)
    kafka.write(numbered(range(COUNT, COUNT + 3)), topic)
    with kafka.changes(topic, group=group) as newer:
        newer.read().read_all()
    with pytest.raises(GroupError, match="other commits than at the start"), older:
        older.read().read_all()
    with pytest.raises(GroupError, match="other commits than at the start"), newer:
        newer.read().read_all()
    assert {commit.offset for commit in kafka.groups.committed(group).values()} == {31}


def test_a_topic_that_is_recreated_meanwhile_gets_no_commit(options: Mapping[str, str], topic: str) -> None:
    kafka, group = connect(options), f"recreated-{topic}"
    changes = kafka.changes(topic, group=group)
    changes.read().read_all()
    kafka.topics.delete(kafka.topics.plan_deletion(topic))
    deadline = time.monotonic() + 30
    while kafka.place.topics([topic]):  # a broker hears of it a moment later
        assert time.monotonic() < deadline
        time.sleep(0.02)
    kafka.topics.create([NewTopic(topic, PARTITIONS)])
    with pytest.raises(GroupError, match="deleted, or recreated, meanwhile"), changes:
        pass
    assert not kafka.groups.committed(group)


def test_where_a_group_began_is_committed_too(options: Mapping[str, str], topic: str) -> None:
    """Else what comes next to a partition without new records would be the beginning again."""
    kafka, group = connect(options), f"latest-{topic}"
    latest = {"startingOffsetsByCommittedStrategy": "latest"}
    with kafka.changes(topic, group=group, options=latest) as changes:
        assert values(changes.read()) == []
    assert {commit.offset for commit in kafka.groups.committed(group).values()} == {30}
    kafka.write(numbered(range(COUNT, COUNT + 1)), topic)
    before = kafka.groups.committed(group)
    with kafka.changes(topic, group=group, options=latest, filters=[("partition", "=", 1)]) as changes:
        assert values(changes.read()) == []
    assert kafka.groups.committed(group).keys() == before.keys()
    with kafka.changes(topic, group=group, columns=["value"]) as changes:
        assert values(changes.read()) == [COUNT]


def test_a_read_says_that_it_commits_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kafka, given = connect(str(tmp_path / "logs")), {"kafka.group.id": "etl"}
    kafka.write(numbered(range(3)), "t", options={"numPartitions": "3"})
    said = "A batch read commits nothing to group etl: its lag stays as it is. kafka.changes(topic, group="
    for read in kafka.read, kafka.plan:
        read("t", options=given)
        assert caplog.messages.pop().startswith(said)
        caplog.clear()
    with kafka.changes("t", group="etl") as changes:
        changes.read().read_all()
    assert not caplog.messages


def test_a_plan_has_no_open_ends(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    ends = json.dumps({topic: {"0": -1, "1": 5, "2": -1}})
    planned = kafka.plan(topic, columns=["value"], options={"endingOffsets": ends})
    kafka.write(numbered(range(COUNT, COUNT + 9)), topic)
    assert sum(len(values(split.read())) for split in planned) == 65


@pytest.mark.parametrize(
    "name",
    ["startingTimestamp", "startingOffsets", "endingOffsets", "StartingOffsetsByTimestamp", "kafka.group.id"],
)
def test_changes_begin_where_the_group_is(name: str) -> None:
    with pytest.raises(OptionError, match=f"Option '{name}' can't be given"):
        connect(case("txn-basic").directory).changes("txn-basic", group="g", options={name: "1"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("key", "=", None)], COUNT),
        ([("key", "!=", None)], 0),
        ([("value", "in", ["1", b"2"])], 2),
        ((each for each in [("offset", "<", 1)]), PARTITIONS),
        ([("offset", "=", np.int64(3))], PARTITIONS),
        ([("timestamp", "in", [datetime.fromtimestamp(7, timezone.utc)])], 1),
    ],
)
def test_filters_of_many_kinds(tmp_path: Path, filters: Any, expected: int) -> None:
    with connect(tmp_path) as kafka:
        kafka.topics.create([NewTopic(TOPIC, PARTITIONS)])
        kafka.write(numbered(range(COUNT)), TOPIC)
        assert kafka.read(TOPIC, filters=filters).read_all().num_rows == expected


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (("offset", ">"), "expected a column, an operator and a value"),
        ([("offset", ">", 1)], r"expected a column.* got a list of them.*\(\"offset\", \"in\", \[1, 2\]\)"),
        (("offset", "like", 1), "expected one of"),
        (("offset", ["<"], 1), "expected one of"),
        (("value", "=", "\ud800"), "text that UTF-8 can hold"),
        (("offset", "=", "abc"), "Not a filter"),
        (("offset", "<", 2**63), "Not a filter"),
        (("offset", "in", 5), "expected several values"),
        (("timestamp", ">", datetime(2026, 1, 1)), "a time with a zone"),
    ],
)
def test_what_is_not_a_filter_is_refused_at_once(wanted: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        connect(case("txn-basic").directory).read("txn-basic", filters=[wanted])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_are_written(tmp_path: Path, unit: str) -> None:
    at = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)
    rows = pa.table({"value": [b"x"], "timestamp": pa.array([at], pa.timestamp(unit, "UTC"))})
    with connect(tmp_path) as kafka:
        kafka.write(rows, TOPIC)
        assert kafka.read(TOPIC).read_all().column("timestamp").to_pylist() == [at]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"vlaue": [b"x"]}, "Required column 'value' not found"),
        ({"VALUE": [b"x"]}, "Did you mean 'VALUE'"),
        ({"value": [1]}, "Column 'value' has type int, expected binary or string"),
        ({"value": [b"x"], "timestamp": [1]}, "Column 'timestamp' has type int"),
        (
            {"value": [b"x"], "timestamp": pa.array([10**15], pa.timestamp("s", "UTC"))},
            "would result in out of bounds",
        ),
        (
            {"value": [b"x"], "timestamp": pa.array([0], pa.timestamp("ms"))},
            r"type timestamp_ntz, expected timestamp\. It has no time zone\. .*pc\.assume_timezone",
        ),
        ({"value": [b"x"], "partition": [2**40]}, "Column 'partition' has a value that a record can't hold"),
        ({"value": [b"x"], "headers": [[{"key": 1, "value": 2}]]}, "Column 'headers' has type list"),
    ],
)
def test_rows_that_are_no_records_are_refused(tmp_path: Path, rows: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        connect(tmp_path).write(pa.table(rows), TOPIC)
    with pytest.raises(OptionError, match="Expected rows as an Arrow table or record batches, got dict"):
        connect(tmp_path).write({"value": [b"x"]}, TOPIC)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"got dict\. Make a table"):
        connect(tmp_path).write([{"value": b"x"}], TOPIC)  # type: ignore[list-item]
    twice = pa.Table.from_arrays([pa.array([b"x"])] * 2, ["value", "value"])
    with pytest.raises(OptionError, match="Column 'value' occurs twice"):
        connect(tmp_path).write(twice, TOPIC)
    assert not list(tmp_path.glob("*-0"))


def test_arrow_of_many_kinds_is_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "value": pa.array(["a", "b"], pa.string_view()),
            "key": pa.array(["k", "k"]).dictionary_encode(),
            "partition": pa.array([0, 0], pa.int64()),
            "headers": pa.array([[{"key": "h", "value": "text"}], None]),
        }
    )
    with connect(tmp_path) as kafka:
        for rows in (table, table.to_reader(), table.to_batches(), table.to_batches()[0]):
            assert kafka.write(rows, TOPIC) == 2
        found = kafka.read(TOPIC, columns=["key", "value", "headers"]).read_all().to_pydict()
    assert found == {
        "key": [b"k"] * 8,
        "value": [b"a", b"b"] * 4,
        "headers": [[{"key": "h", "value": b"text"}], None] * 4,
    }


def test_one_name_is_not_its_letters(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    assert [row.topic for row in kafka.topics.plan_deletion(topic)] == [topic]
    assert kafka.read(topic, columns="offset").schema.names == ["offset"]


def test_none_is_what_was_not_given(tmp_path: Path) -> None:
    kafka = connect(tmp_path)
    kafka.write(pa.table({"value": [b"a", b"b", b"c"]}), "t")
    assert kafka.read("t", columns=None, filters=None, options=None).read_all().num_rows == 3
    (split,) = kafka.plan("t", filters=None)
    assert split.read().read_all().num_rows == 3
    with kafka.changes("t", group="g", filters=None) as changes:
        assert changes.read().read_all().num_rows == 3
    assert {row.topic for row in kafka.logs.compact(None, exclude=None)} == {"__consumer_offsets"}
    assert {row.topic for row in kafka.logs.retain(None, None, exclude=None)} == {"__consumer_offsets", "t"}


def test_what_is_wrong_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    kafka = connect(case("txn-basic").directory)
    for wrong, text in (
        ({"columns": ["ofset"]}, "Unknown column 'ofset'"),
        ({"columns": ["dropped"]}, "Set the option large.message.dead.letters=true to have it"),
        ({"columns": []}, "at least one column"),
        ({"columns": [5]}, "Unknown column 5"),
        ({"columns": ["offset", "offset"]}, "Column 'offset' occurs twice"),
        ({"filters": [("ofset", "=", 1)]}, "Unknown column 'ofset'"),
        ({"filters": [("offset", "~", 1)]}, "Not a filter"),
        ({"options": {"startingOfsets": "1"}}, "Unknown option"),
        ({"options": {"Subscribe": "other"}}, "is 'txn-basic', and option 'Subscribe' names others. Leave"),
        ({"filters": [("timestamp", ">", "2026")]}, r"a datetime that has a zone: \(\"timestamp\", \">=\", "),
        ({"filters": [("partition", "=", "0")]}, r"A partition is a number: \(\"partition\", \"=\", 0\)"),
        ({"options": {"auditTopic": "audits"}}, "'auditTopic' is for brokers, .*Give auditLocation"),
        ({"options": {"view": "topics"}}, "Only Spark reads views"),
    ):
        with pytest.raises(OptionError, match=text):
            kafka.read("txn-basic", **wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="the name of a consumer group, got None"):
        kafka.changes("txn-basic", group=None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'topic' is required"):
        connect(tmp_path).write(numbered(range(3)))
    assert not list(tmp_path.glob("*-0"))


@pytest.mark.parametrize("fixture", SMALL_CASES[:4], ids=lambda fixture: fixture.name)
def test_rows_are_those_of_real_readers(fixture: Case) -> None:
    for topic in {name.rpartition("-")[0] for name in fixture.partitions}:
        rows = connect(fixture.directory).read(topic, columns=["partition", "offset"]).read_all()
        expected = {(r["partition"], r["offset"]) for r in fixture.records if r.get("topic", topic) == topic}
        found = set(zip(*(rows.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
        assert found == expected


def test_a_table_is_written_as_it_was_read(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    before = kafka.read(topic, columns=["key", "value", "partition", "timestamp"]).read_all()
    copy = f"{topic}-copy"
    kafka.topics.create([NewTopic(copy, PARTITIONS)])
    assert kafka.write(before, copy) == COUNT
    after = kafka.read(copy, columns=before.schema.names).read_all()
    order = [("timestamp", "ascending")]
    assert after.sort_by(order) == before.sort_by(order)


def test_records_of_aborted_transactions_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """librdkafka leaves them out by default, and with it kcat and confluent-kafka."""
    place = str(case("txn-basic").directory)
    says = "34 records of aborted transactions are among {}; kafka.isolation.level=read_committed leaves"
    says += " them out"
    assert connect(place).read("txn-basic").read_all().num_rows == 124
    assert caplog.messages == [says.format("these")]
    caplog.clear()
    connect(place).read("txn-basic", filters=[("offset", "<", 200)]).read_all()
    assert caplog.messages == [says.format("those that were looked at")]
    caplog.clear()
    assert connect(place).records.select("txn-basic").read_all().num_rows == 124
    assert "read_committed=True leaves them out" in caplog.text
    caplog.clear()
    committed = connect({"path": place, "kafka.isolation.level": "read_committed"})
    assert committed.read("txn-basic").read_all().num_rows == 76
    assert caplog.messages == []
