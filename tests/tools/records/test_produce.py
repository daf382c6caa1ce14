"""kafkalog produce, and what cat makes of it."""

from __future__ import annotations

import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.fixtures_dir import case
from tests.kafka import Broker
from tests.tools.cli.running import command, lines, records, run

HEADERS = case("v2-headers").directory


def test_json_goes_round(tmp_path: Path) -> None:
    printed = run("cat", HEADERS, "v2-headers", "--json").out
    place = tmp_path / "log"
    assert run("produce", place, "t", "--json", "--keep-partitions", "-z", "zstd", text=printed).code == 0
    assert run("cat", place, "t", "--json").out == printed.replace('"topic":"v2-headers"', '"topic":"t"')


def test_lines_become_records(tmp_path: Path) -> None:
    place, file = tmp_path / "log", tmp_path / "lines"
    file.write_bytes(b"a\tb\tc\nd\n\te\nf\t\n\nlast")
    assert run("produce", place, "t", "-K", r"\t", "-p", 0, file).code == 0
    expected = ["1 a=b\tc", "-1 =d", "0 =e", "1 f=", "-1 =", "-1 =last"]
    assert lines("cat", place, "t", "--format", r"%K %k=%v\n") == expected
    done = run("produce", place, "t", "--json", text='{"value": "x"}\n{"value": 1}\n')
    assert done.code == 3
    assert "Line 2: expected a string, null" in done.err
    assert "No records were written" in done.err
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"value": "x"}\n' * 3)
    bad.write_text('{"value": "x"}\n[]\n')
    done = run("produce", place, "t", "--json", good, bad)
    assert done.err.startswith("kafkalog: Line 2: expected an object"), "counted in each file"
    assert f"(file {bad})" in done.err
    assert lines("cat", place, "t", "--count") == ["6"]


def test_lines_of_windows_are_told_of_once(tmp_path: Path) -> None:
    place, says = tmp_path / "log", "kafkalog: Lines end with CR LF: the CR is a part of the values."
    file = tmp_path / "lines"
    file.write_bytes(b"a:1\r\nb:2\r\n")
    done = run("produce", place, "t", "-K", ":", "-p", 0, file, file)
    assert (done.code, done.err.count(says)) == (0, 1)
    assert lines("cat", place, "t", "--value-as", "hex", "-c", 1) == ["310d"]
    file.write_bytes(b'{"value": "a"}\r\n')
    assert says not in run("produce", place, "t", "--json", file).err
    file.write_bytes(b"a\nb\rc\n")
    assert says not in run("produce", place, "t", file).err


def test_blank_lines_of_json_are_skipped(tmp_path: Path) -> None:
    place = tmp_path / "log"
    assert run("produce", place, "t", "--json", "-p", 0, text='{"value": "a"}\n\n{"value": "b"}\n').code == 0
    assert lines("cat", place, "t") == ["a", "b"]


def test_what_is_written_is_counted(tmp_path: Path) -> None:
    done = run("produce", tmp_path / "log", "t", text="a\n")
    assert done.err == "Topic t was created\n1 record was written\n"
    assert run("produce", tmp_path / "log", "t", text="a\nb\n").err == "2 records were written\n"
    assert run("produce", tmp_path / "log", "u", text="a\n").err.startswith("Topic u was created\n")


def test_tombstones(tmp_path: Path) -> None:
    place = tmp_path / "log"
    assert run("produce", place, "t", "-K", ":", "-Z", "-p", 0, text="a:1\na:\n\nb").code == 0
    assert lines("cat", place, "t", "--format", r"%K %k=%S %s\n") == [
        "1 a=1 1",
        "1 a=-1 ",
        "-1 =-1 ",
        "-1 =1 b",
    ]
    assert run("produce", place, "u", "-Z", text="\n").code == 0
    assert [row["value"] for row in records(place, "u")] == [None]
    assert "don't go with --json" in run("produce", place, "t", "-Z", "--json").err
    assert "-K expects some text" in run("produce", place, "t", "-K", "").err


def test_the_json_of_kcat(tmp_path: Path) -> None:
    line = '{"topic":"t","partition":0,"offset":1,"ts":5,"headers":["a","b"],"key":null,"payload":"x"}\n'
    done = run("produce", tmp_path / "log", "t", "--json", text=line)
    assert done.code == 3
    assert "Line 1: this is kcat's JSON: rename payload to value and ts to timestamp" in done.err


@pytest.mark.parametrize(
    ("line", "field", "meant"),
    [
        ('{"KEY": "a", "value": "b"}', "KEY", "key"),
        ('{"value": "b", "time_stamp": 1796097840000}', "time_stamp", "timestamp"),
        ('{"value": "b", "header": []}', "header", "headers"),
    ],
)
def test_a_slip_of_a_field_is_refused(tmp_path: Path, line: str, field: str, meant: str) -> None:
    place = tmp_path / "log"
    done = run("produce", place, "t", "--json", text='{"value": "a", "id": 1, "topic": "u"}\n' + line)
    assert done.code == 3
    assert f"Line 2: field {field!r} is not {meant!r}: rename it, or leave it out" in done.err
    assert run("cat", place, "t").code != 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__remote_log_metadata"])
def test_internal_topics_are_refused(tmp_path: Path, topic: str) -> None:
    """A broker does not load a group from a partition that has records of others."""
    place = tmp_path / "log"
    done = run("produce", place, topic, text="plain\n")
    assert (done.code, f"{topic} is an internal topic" in done.err) == (2, True)
    assert not place.exists()


def test_no_lines_are_no_records(tmp_path: Path) -> None:
    done = run("produce", tmp_path / "log", "t", text="")
    assert (done.code, done.err) == (0, "0 records were written\n")


@pytest.mark.broker
def test_brokers(broker: Broker, tmp_path: Path) -> None:
    topic = f"cat-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2)
    at = broker.bootstrap
    assert run("produce", at, topic, "-K", ":", "-p", 0, text="a:1\nb:2\n").code == 0
    assert lines("cat", at, topic, "--format", r"%k=%v\n") == ["a=1", "b=2"]
    with subprocess.Popen(command("cat", at, topic, "-n", 1, "-f"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"2\n"
        assert run("produce", at, topic, "-p", 1, text="3\n").code == 0
        assert process.stdout.readline() == b"3\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    producer = Producer({"bootstrap.servers": at, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush()
    producer.abort_transaction()
    assert "aborted" in lines("cat", at, topic)
    assert lines("cat", at, topic, "--read-committed") == ["1", "2", "3"]
    config = tmp_path / "consumer.properties"
    config.write_text("isolation.level=read_committed\n")
    assert lines("cat", at, topic, "--config", config) == ["1", "2", "3"]
    states = [r for r in records(at, "__transaction_state") if r["key"]["transactionalId"] == topic]
    assert states[-1]["value"]["status"] in ("PrepareAbort", "CompleteAbort")
    dumped = run("dump", at, f"__transaction_state-{states[-1]['partition']}", "--records").out
    assert f'key: {{"transactionalId": "{topic}"}} payload: {{"producerId": ' in dumped
    large = "x" * 2_000_000
    assert run("produce", at, topic, "-o", "large.message.enabled=true", "-p", 1, text=large).code == 0
    assert lines("cat", at, topic, "-n", 1, "--large-messages") == [large]


@pytest.mark.broker
def test_a_refusal_ends_the_write(broker: Broker) -> None:
    """At once, and not only when kafka.delivery.timeout.ms is over."""
    topic = f"cat-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2, {"cleanup.policy": "compact", "message.timestamp.after.max.ms": "1000"})
    for words, text, code in (
        (("-p", 0), "no key\n", "INVALID_RECORD"),
        (
            ("-p", 1, "--json"),
            '{"key": "k", "value": "v", "timestamp": 4102444800000}\n',
            "INVALID_TIMESTAMP",
        ),
    ):
        done = subprocess.run(
            command("produce", broker.bootstrap, topic, *words, "-o", "kafka.delivery.timeout.ms=600000"),
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, code in done.stderr) == (3, True), done.stderr
        assert "No records were written before." in done.stderr


@pytest.mark.broker
def test_a_failure_says_how_many_records_were_written(broker: Broker) -> None:
    topic = f"cat-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1, {"max.message.bytes": 1000})
    with subprocess.Popen(
        command("produce", broker.bootstrap, topic), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"a\nb\n")
        process.stdin.flush()
        broker.wait_until(
            lambda: lines("cat", broker.bootstrap, topic) == ["a", "b"], "Nothing came", timeout=60
        )
        _, err = process.communicate(b"x" * 5000 + b"\n", timeout=60)
    assert process.returncode == 3
    assert b"At least 2 records were written before." in err
    assert lines("cat", broker.bootstrap, topic) == ["a", "b"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_said(tmp_path: Path, encoding: str) -> None:
    """Editors of Windows begin a file with it."""
    (tmp_path / "lines").write_text("a\nb\n", encoding=encoding)
    done = run("produce", tmp_path / "log", "t", tmp_path / "lines")
    assert done.code == 0
    assert f"The text is {encoding.upper().removesuffix('-SIG')} with a byte order mark" in done.err
    done = run("produce", tmp_path / "log", "t", text="c\n")
    assert "byte order mark" not in done.err
