"""kafkalog cat and export."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.options.user_options import log_once_for
from tests.codec.test_kernels import needs_library
from tests.extensions.large_messages.segment_formats import FORMATS
from tests.fixtures_dir import case
from tests.tools.cli.running import command, lines, records, run

_FIRST = 1_600_000_000_000
HEADERS = case("v2-headers").directory


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        ([], [*range(10), *range(4)]),
        (["-p", 0, "--offset", 8], [8, 9]),
        (["-p", 0, "--offset", -3], [7, 8, 9]),
        (["--tail", 3], [7, 8, 9]),
        (["--tail", 0], []),
        (["--limit", 3], [0, 1, 2]),
        (["-c", 12, "-e"], [*range(10), 0, 1]),
        (["-c", 0], []),
        (["-c", 1, "--tail", 3], [7]),
        (["-c", 1, "--grep", "[34]$"], [3]),
        (["-o", "beginning", "-c", 1], [0]),
        (["-o", "end"], []),
        (["-o", 8, "-p", 0], [8, 9]),
        (["-o", "-1"], [9, 3]),
        (["-o", f"s@{_FIRST + 8}"], [8, 9]),
        (["-o", f"s@{_FIRST + 2}", "-o", f"e@{_FIRST + 3}"], [2, 2]),
        (["--tail", 2, "--grep", "[01]$"], [1, 1]),
        (["--since", _FIRST + 8], [8, 9]),
        (["--since", "2020-09-13T12:26:40.008Z", "--until", _FIRST + 9], [8]),
        (["--since", "1h"], []),
        (["--grep", "7$"], [7]),
        (["--header", "k"], []),
        (["--key", "k"], []),
    ],
)
def test_selections(root: Path, words: list[object], offsets: list[int]) -> None:
    assert [r["offset"] for r in records(root, "t", *words)] == offsets
    assert lines("cat", root, "t", *words, "--count") == [str(len(offsets))]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", 9999], "No partition of t has offset 9999: t-0 has 0 to 9, t-1 has 0 to 3."),
        (["-o", 10], "No partition of t has offset 10: t-0 has 0 to 9, t-1 has 0 to 3."),
        (["-p", 1, "-o", 9, "--skip-damaged"], "No chosen partition of t has offset 9: t-1 has 0 to 3."),
        (["-o", 9], None),
        (["-o", "end"], None),
    ],
)
def test_an_offset_beyond_the_ends_is_said(root: Path, words: list[object], says: str | None) -> None:
    done = run("cat", root, "t", *words, "--count")
    assert done.code == 0
    assert done.err == (f"kafkalog: {says}\n" if says else "")


def test_message_segments_are_said_once(tmp_path: Path) -> None:
    log_once_for.cache_clear()
    large = {"large.message.enabled": "true", "numPartitions": "2"}
    rows = pa.table({"value": ["x" * 3_000_000] * 2, "partition": pa.array([0, 1], pa.int32())})
    connect(tmp_path / "log").write(rows, "scans", options=large)
    says = (
        "kafkalog: Topic scans has message segments, parts of large messages, which are shown one by one;"
        " --large-messages puts the messages together.\n"
    )
    every = (["cat"], ["cat", "--json", "--tail", 4], ["cat", "--skip-damaged"])
    for words in (*every, ["cat", "--count"], ["cat", "--format", "%o"]):
        done = run(words[0], tmp_path / "log", "scans", *words[1:])
        assert (done.code, done.err) == (0, says), words
    done = run("export", tmp_path / "log", "scans", tmp_path / "o.parquet")
    assert done.err.startswith(says)
    whole = run("cat", tmp_path / "log", "scans", "--large-messages")
    assert (len(whole.out), whole.err) == (6_000_002, "")


def test_keys_and_headers() -> None:
    everything = records(HEADERS, "v2-headers")
    assert len(everything) == len(case("v2-headers").records)
    key = everything[0]["key"]
    same = [r for r in everything if r["key"] == key]
    assert records(HEADERS, "v2-headers", "--key", key) == same
    in_hex = key.encode().hex()
    found = records(HEADERS, "v2-headers", "--key", in_hex, "--key-as", "hex")
    assert [r["key"] for r in found] == [{"hex": in_hex}] * len(same)
    having = [r for r in everything if {"key": "a", "value": "2"} in r["headers"]]
    assert having
    assert records(HEADERS, "v2-headers", "--header", "a=2") == having


def test_records_of_aborted_transactions_are_said_once(tmp_path: Path) -> None:
    place, topic = case("txn-basic").directory, "txn-basic"
    says = "kafkalog: 34 records of aborted transactions are among {}; --read-committed leaves them out.\n"
    everything = run("cat", place, topic, "--json")
    assert (len(everything.out.splitlines()), everything.err) == (124, says.format("these"))
    assert run("cat", place, topic, "--count").err == says.format("these")
    looked_at = says.format("those that were looked at")
    assert run("cat", place, topic, "--grep", "zzz").err == looked_at
    assert run("cat", place, topic, "-n", 3).err == looked_at
    exported = run("export", place, topic, tmp_path / "all.jsonl")
    assert exported.err.count(says.format("these")) == 1
    assert (exported.code, run("cat", place, topic, "--skip-damaged").code) == (0, 0)
    committed = run("cat", place, topic, "--json", "--read-committed")
    assert (len(committed.out.splitlines()), committed.err) == (76, "")
    assert "--read-committed to leave them out" in run("export", "--help").out


def test_records_of_an_aborted_transaction_are_said_while_following(root: Path) -> None:
    place = case("txn-basic").directory
    with subprocess.Popen(
        command("cat", place, "txn-basic", "-f"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"kafkalog: 34 records of aborted")
        process.send_signal(signal.SIGINT)
        assert b"aborted" not in process.stderr.read()


def test_seconds_are_refused_as_kcats_time(root: Path) -> None:
    for option in ("s@", "e@"):
        done = run("cat", root, "t", "-o", f"{option}{_FIRST // 1000}")
        assert (done.code, done.out) == (2, "")
        assert f"'-o {option}': {_FIRST // 1000} ms since 1970 is before 1980" in done.err
        assert f"Write {_FIRST}" in done.err


def test_formats(root: Path) -> None:
    template = r"%t %p %o %T [%k] %v %s %h %K %S %% \x41\t\n"
    (line,) = lines("cat", root, "u", "--offset", 2, "--format", template)
    assert line == f"u 0 2 {_FIRST + 2} [] 0000000002 0000000002  -1 10 % A\t"
    assert lines("cat", root, "u", "--format", r"-\n") == ["-"] * 3
    for wrong in "%x", r"\q", "%", "\\", r"\x4":
        done = run("cat", root, "u", "--format", wrong)
        assert (done.code, done.out) == (2, "")


def test_mistakes(root: Path) -> None:
    done = run("cat", root, "tt")
    assert done.code == 3
    assert "Did you mean t?" in done.err
    assert run("cat", root, "t", "-p", 2).code == 3
    done = run("cat", root, "t", "-o", "stored")
    assert (done.code, "as in kcat beginning, end, an offset" in done.err) == (2, True)
    for words in (
        ["-e", "-f"],
        ["-J", "--json"],
        ["--grep", "("],
        ["--json", "--count"],
        ["-f", "--count"],
        ["--since", "x"],
        ["--since", "1h", "--until", "2h"],
    ):
        assert run("cat", root, "t", *words).code == 2, words


def test_the_json_of_kcat(root: Path) -> None:
    (line,) = lines("cat", root, "u", "-J", "-c", 1)
    assert list(json.loads(line).items()) == [
        ("topic", "u"),
        ("partition", 0),
        ("offset", 0),
        ("tstype", "create"),
        ("ts", _FIRST),
        ("broker", -1),
        ("key", None),
        ("payload", "0000000000"),
    ]
    theirs = [json.loads(line) for line in lines("cat", HEADERS, "v2-headers", "-J")]
    ours = records(HEADERS, "v2-headers")
    assert [one["payload"] for one in theirs] == [one["value"] for one in ours]
    assert [one.get("headers", []) for one in theirs] == [
        [text for header in one["headers"] for text in (header["key"], header["value"])] for one in ours
    ]
    assert any("headers" not in one for one in theirs)


def test_damage_is_left_out_only_on_request() -> None:
    bad = case("bad-flipped-byte").directory
    done = run("cat", bad, "bad-flipped-byte")
    assert done.code == 3
    assert "--skip-damaged" in done.err
    done = run("cat", bad, "bad-flipped-byte", "--skip-damaged", "--json")
    assert done.code == 1
    assert "CRC mismatch" in done.err
    assert "failOnDataLoss" not in done.err, "no one gave that option here"
    assert "skipped 1 corrupt stretch in" in done.err
    assert done.out


def test_a_cut_segment_is_left_out_without_advice_that_was_followed(tmp_path: Path) -> None:
    kafka = connect(tmp_path)
    for _ in range(3):
        kafka.write(pa.table({"value": [bytes(600)] * 5}), "t", options={"segment.bytes": "4096"})
    first = min((tmp_path / "t-0").glob("*.log"))
    os.truncate(first, first.stat().st_size // 2)
    done = run("cat", tmp_path, "t")
    assert (done.code, "Read on with --skip-damaged." in done.err) == (3, True)
    done = run("cat", tmp_path, "t", "--count", "--skip-damaged")
    assert (done.code, done.out.strip()) == (1, "10")
    assert "No record batch can be read here" in done.err
    assert "failOnDataLoss" not in done.err


def test_a_warning_is_said_as_errors_are(root: Path) -> None:
    done = run("cat", root, "t", "--since", "2020-01-01 12:34:56.789", "--count")
    assert done.err.startswith("kafkalog: --since: 2020-01-01 12:34:56.789 has no time zone")


def test_how_much_of_a_damaged_log_was_exported(tmp_path: Path) -> None:
    bad, file = case("bad-flipped-byte").directory, tmp_path / "rest.jsonl"
    done = run("export", bad, "bad-flipped-byte", file, "--skip-damaged")
    assert done.code == 1
    assert f"{len(file.read_text().splitlines())} records in {file}" in done.err


def test_an_option_of_readers_names_its_flag(root: Path) -> None:
    done = run("cat", root, "t", "-o", "large.message.enabled=true")
    assert done.code == 2
    assert "--large-messages to a command that reads records." in done.err


def test_a_deserializer_of_segments_needs_large_messages(root: Path) -> None:
    named = ("-o", f"segment.deserializer.class={FORMATS}:from_own")
    done = run("cat", root, "t", *named)
    assert done.code == 2
    assert "'segment.deserializer.class' is set" in done.err
    assert "Give --large-messages" in done.err
    assert run("cat", root, "t", "--large-messages", *named).code == 0


def test_the_isolation_level_in_a_file_for_consumers(root: Path, tmp_path: Path) -> None:
    config = tmp_path / "consumer.properties"
    config.write_text("isolation.level=read_committed\n")
    assert lines("cat", root, "t", "--config", config, "--count") == ["14"]
    config.write_text("isolation.level=serializable\n")
    assert run("cat", root, "t", "--config", config).code == 2
    assert run("topics", root, "--config", config).code == 0


def test_export(root: Path, tmp_path: Path) -> None:
    parquet, csv, jsonl = (tmp_path / f"x.{suffix}" for suffix in ("parquet", "csv", "jsonl"))
    for file in parquet, csv, jsonl:
        assert run("export", root, "t", file).code == 0
        assert run("export", root, "t", file).code == 2
        assert run("export", root, "t", file, "--force").code == 0
    assert sorted(tmp_path.glob("x.*")) == sorted([parquet, csv, jsonl])
    table = pyarrow.parquet.read_table(parquet)
    assert table.column("value").to_pylist()[0] == b"0000000000"
    assert table.num_rows == 14
    same = ("topic", "partition", "offset", "timestamp", "timestampType")
    of_csv = pyarrow.csv.read_csv(csv).select(same).to_pylist()
    assert of_csv == [{name: row[name] for name in same} for row in records(root, "t")]
    assert jsonl.read_text() == run("cat", root, "t", "--json").out
    done = run("export", case("txn-basic").directory, "txn-basic", tmp_path / "y.csv")
    assert done.code == 3
    assert re.search(
        r"The (key|value) is not UTF-8 \(partition txn-basic-0, offset \d+\)\. Give --\1-as base64", done.err
    )
    assert not list(tmp_path.glob("y.*"))


def test_an_object_store(root: Path) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(root / "u-0"), "/cat-test/u-0", recursive=True)
    try:
        assert lines("cat", "memory://cat-test", "u") == lines("cat", root, "u")
    finally:
        store.rm("/cat-test", recursive=True)


def test_committed_offsets_are_decoded(root: Path) -> None:
    found = [r for r in records(root, "__consumer_offsets") if r["key"]["type"] == "OffsetCommit"]
    assert {"type": "OffsetCommit", "group": "g", "topic": "t", "partition": 0} in [r["key"] for r in found]
    assert any(r["value"]["metadata"] == "note" for r in found if r["value"])


def test_head_and_ctrl_c(root: Path) -> None:
    with subprocess.Popen(command("cat", root, "u", "-f"), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0000000000\n"
        while process.poll() is None:  # Python drops one that comes while it collects a generator
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        assert process.returncode == 130
    shell = " ".join(command("cat", root, "u")) + " | head -1; exit ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"0000000000\n", b"")


def test_a_zip_archive(root: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "backup"), "zip", root)
    place = f"zip://::file://{archive}"
    assert lines("cat", place, "t", "--json") == lines("cat", root, "t", "--json")
    assert lines("cat", place, "u", "--tail", 1) == ["0000000002"]


def test_an_empty_topic(root: Path, tmp_path: Path) -> None:
    (root / "e-0").mkdir()
    (root / "e-0" / f"{0:020}.log").touch()
    assert lines("cat", root, "e") == lines("cat", root, "e", "--json", "--tail", 3) == []
    assert lines("cat", root, "e", "--count") == ["0"]
    for suffix in "parquet", "csv", "jsonl":
        done = run("export", root, "e", tmp_path / f"e.{suffix}")
        assert (done.code, done.err.split()[0]) == (0, "0")
    assert pyarrow.parquet.read_table(tmp_path / "e.parquet").num_rows == 0
    assert pyarrow.csv.read_csv(tmp_path / "e.csv").num_rows == 0
    assert (tmp_path / "e.jsonl").read_bytes() == b""


@pytest.mark.slow
def test_a_terminal_gets_a_bar_on_stderr(root: Path, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    words = command("export", root, "t", tmp_path / "x.parquet")
    subprocess.run(words, stderr=terminal, env=environment, timeout=120, check=True)
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the end, on Linux
        while part := os.read(controller, 4096):
            shown += part
    os.close(controller)
    assert b"Offsets" in shown
    assert b"14/14" in shown
    assert b"14 records in" in shown


@needs_library
def test_nothing_is_loaded_that_is_not_used(root: Path) -> None:
    words = [sys.executable, "-X", "importtime", *command("cat", root, "t", "--json")[1:]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow" in loaded
    assert not loaded & {"numba.core", "pandas.core", "pyspark.sql"}
