"""kafkalog retain and delete-records."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from kafka import KafkaProducer

from pyspark_kafkalog import connect
from pyspark_kafkalog.broker.delete_records import delete_records as delete_from_brokers
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tools.care.retain import parse_offset_json
from tests.extensions.cleanup.test_retention import BATCH, DAY, NOW, log, start_of, starts
from tests.kafka import Broker, run_kafka_class
from tests.log.writing import T0, T1, read, values, write
from tests.tools.cli.running import run

U0 = TopicPartition("u", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 has 9 batches of 10 records, a day apart, the last one of now; u-0 the same."""
    root = tmp_path / "log"
    root.mkdir()
    for partition in (T0, U0):
        log(root, 9, partition, newest=NOW - 1000)
    return root


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {T0: 0, T1: 0, U0: 0}),
        (["--set", "retention.ms=132h"], {T0: 20, T1: 0, U0: 20}),
        (["t", "--set", f"retention.ms={5 * DAY + DAY // 2}"], {T0: 20, T1: 0, U0: 0}),
        (["t", "u", "--set", f"retention.bytes={7 * BATCH}"], {T0: 20, T1: 0, U0: 20}),
        (["--set", "retention.bytes=0", "--set", "cleanup.policy=compact"], {T0: 0, T1: 0, U0: 0}),
        (["--set", "retention.bytes=0"], {T0: 90, T1: 0, U0: 90}),
        (["--set", "retention.bytes=-1", "--set", "retention.ms=-1"], {T0: 0, T1: 0, U0: 0}),
    ],
)
def test_retain(root: Path, words: list[str], expected: dict[TopicPartition, int]) -> None:
    dry = run("retain", root, *words)
    assert dry.code == 0
    assert "Dry run" in dry.err
    assert start_of(root) == 0
    done = run("retain", root, *words, "--execute")
    assert (done.code, done.out, done.err) == (0, dry.out, "")
    assert {p: start_of(root, p) for p in expected} == expected
    assert not any(row["segments"] for row in run("retain", root, *words, "--json").rows)


def test_what_retain_shows(root: Path) -> None:
    done = run(
        "retain", root, "t", "--set", "retention.ms=9d", "--set", f"retention.bytes={7 * BATCH}", "--execute"
    )
    titles = "TOPIC PARTITION START NEW START SEGMENTS SIZE BECAUSE OF"
    assert done.lines[0] == titles.split()
    assert done.lines[1] == ["t", "0", "0", "20", "1", "1.3", "KiB", "retention.bytes"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "retention.ms=soon"], 2, "'retention.ms': expected milliseconds"),
        (["--set", "cleanup.policy=shrink"], 2, "'cleanup.policy': expected some of delete, compact"),
        (["nothing"], 3, "No such topic: nothing"),
    ],
)
def test_what_retain_refuses(root: Path, words: list[str], code: int, message: str) -> None:
    done = run("retain", root, *words, "--execute")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert run("retain", "host:9092").code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["t=0"], [0, 0, 0]),
        (["t:0=45", "u=-1"], [45, 0, 90]),
        (["t:0", "u", "--until", "4d"], [50, 0, 50]),
        (["t", "--until", "2100-01-01"], [90, 0, 0]),
        (["t", "--until", "2000-01-01"], [0, 0, 0]),
    ],
)
def test_delete_records(root: Path, words: list[str], expected: list[int]) -> None:
    before = read(root)
    dry = run("delete-records", root, *words)
    assert (dry.code, starts(root)) == (0, {})
    done = run("delete-records", root, *words, "--execute")
    assert (done.code, done.out) == (0, dry.out)
    assert [start_of(root, p) for p in (T0, T1, U0)] == expected
    now = read(root)
    for partition, start in zip((T0, T1, U0), expected, strict=True):
        assert now[partition] == before[partition][start:]


def test_delete_records_by_the_file_of_kafkas_tool(root: Path) -> None:
    partitions = [{"topic": "t", "partition": 0, "offset": 30}, {"topic": "u", "partition": 0, "offset": -1}]
    text = json.dumps({"partitions": partitions, "version": 1})
    rows = run("delete-records", root, "--offset-json-file", "-", "--execute", "--json", text=text).rows
    assert [(row["topic"], row["logStartOffset"], row["newLogStartOffset"]) for row in rows] == [
        ("t", 0, 30),
        ("u", 0, 90),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions":[{"topic":"t","partition":0}]}',
        '{"partitions":[{"topic":"t","partition":0,"offset":-2}]}',
        '{"partitions":[{"topic":"t","partition":"0","offset":1}]}',
        '{"partitions":[],"version":2}',
        '{"partitions":[{"topic":"t","partition":0,"offset":1},{"topic":"t","partition":0,"offset":2}]}',
    ],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="Cannot use the offsets of the file"):
        parse_offset_json(text)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Give TOPIC=OFFSET, TOPIC --until TIME, or --offset-json-file FILE"),
        (["t=1", "--until", "1h"], 2, "Give either OFFSET or --until"),
        (["--until", "1h"], 2, "Give TOPIC=OFFSET, TOPIC --until TIME"),
        (["t"], 2, "Expected TOPIC=OFFSET"),
        (["t=1", "t:0=2"], 2, "Two offsets were given"),
        (["t:0=91"], 2, "the high watermark is 90"),
        (["t:7=1"], 3, "No such partition: t-7"),
        (["x=1"], 3, "No such topic"),
    ],
)
def test_what_delete_records_refuses(root: Path, words: list[str], code: int, message: str) -> None:
    done = run("delete-records", root, *words, "--execute")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert starts(root) == {}


@pytest.mark.parametrize(
    "words", [["retain", "--set", "retention.bytes=0"], ["delete-records", "t=-1", "u=-1"]]
)
def test_what_cannot_be_used_is_a_row_and_the_rest_is_done(
    root: Path, tmp_path: Path, words: list[object]
) -> None:
    (root / "t-0").rename(tmp_path / "t-0")
    (root / "t-0").symlink_to(tmp_path / "t-0")
    before = sorted((path.name, path.read_bytes()) for path in (tmp_path / "t-0").iterdir())
    log(root, 9, T1, newest=NOW - 1000)
    (root / "t-1" / "leader-epoch-checkpoint").write_bytes(b"broken")
    command, *rest = words
    for more in [], ["--execute"]:
        done = run(command, root, *rest, *more, "--json")
        assert done.code == 1
        rows = {f"{row['topic']}-{row['partition']}": row for row in done.rows}
        assert "leads out of" in rows["t-0"]["note"]
        assert "leader-epoch-checkpoint" in rows["t-1"]["note"]
        assert rows["t-0"]["newLogStartOffset"] is rows["t-1"]["newLogStartOffset"] is None
        assert (rows["u-0"]["newLogStartOffset"], rows["u-0"]["note"]) == (90, "")
    assert start_of(root, U0) == 90
    assert sorted((path.name, path.read_bytes()) for path in (tmp_path / "t-0").iterdir()) == before
    assert "NOTE" in run(command, root, *rest).lines[0]


def test_admin_refuses_unknown_configurations(root: Path) -> None:
    with pytest.raises(OptionError, match=r"Unknown configuration 'retention\.hours'"):
        connect(root).logs.retain(configs={"retention.hours": "1"})
    with pytest.raises(OptionError, match="apply retention by themselves"):
        connect({"kafka.bootstrap.servers": "host:9092"}).logs.retain()


def test_a_single_partition(root: Path) -> None:
    done = run("retain", root / "u-0", "--set", "retention.bytes=0", "--execute", "--json")
    assert [(row["topic"], row["newLogStartOffset"]) for row in done.rows] == [("u", 90)]
    assert start_of(root) == 0
    write(root, {U0: values(1)})
    assert read(root)[U0] == values(1)


@pytest.mark.broker
def test_brokers(broker: Broker, tmp_path: Path) -> None:
    topics = [f"retain-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for topic in topics:
        broker.create_topic(topic, 2)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for n in range(10):
            for partition in (0, 1):
                producer.send(topic, b"%d" % n, partition=partition, timestamp_ms=NOW - (9 - n) * DAY)
        producer.close()
    ours, theirs = topics

    def bounds(topic: str) -> list[int]:
        return [row["logStartOffset"] for row in run("topics", at, topic, "--json").rows]

    at = broker.bootstrap
    file = tmp_path / "offsets.json"
    for topic in topics:
        partitions = [{"topic": topic, "partition": n, "offset": offset} for n, offset in enumerate((3, -1))]
        file.write_text(json.dumps({"partitions": partitions, "version": 1}))
        if topic == theirs:
            tool = ["--bootstrap-server", at, "--offset-json-file", file]
            run_kafka_class("org.apache.kafka.tools.DeleteRecordsCommand", *tool)
            continue
        dry = run("delete-records", at, "--offset-json-file", file)
        assert (dry.code, bounds(ours)) == (0, [0, 0])
        done = run("delete-records", at, "--offset-json-file", file, "--execute")
        assert (done.code, done.out) == (0, dry.out)
    assert bounds(ours) == bounds(theirs) == [3, 10]
    assert run("delete-records", at, f"{ours}:0=1", "--execute", "--json").rows[0]["newLogStartOffset"] == 3
    assert run("delete-records", at, f"{ours}:0", "--until", "36h", "--execute").code == 0
    assert bounds(ours) == [8, 10]
    refused = run("delete-records", at, f"{ours}:0=11", "--execute")
    assert (refused.code, bounds(ours)) == (2, [8, 10])
    assert "the high watermark is 10" in refused.err
    assert run("delete-records", at, f"{ours}:5=0").code == 3
    place = place_options({"kafka.bootstrap.servers": at})
    assert place.brokers is not None
    first, second = (TopicPartition(ours, number) for number in range(2))
    done, failures = delete_from_brokers(place.brokers, {first: 11, second: 10})
    assert (done, failures.keys()) == ({second: 10}, {first})
    assert failures[first].message == "Deleting records: OFFSET_OUT_OF_RANGE"
