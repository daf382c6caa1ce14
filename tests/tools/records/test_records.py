"""kafkalog dump and verify."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures_dir import case
from tests.tools.cli.running import lines, records, run


def test_dump_shows_batches_and_records(root: Path) -> None:
    done = run("dump", root, "u-0", "--records")
    assert done.code == 0
    batch, *records = done.out.splitlines()
    assert batch.startswith("baseOffset: 0 lastOffset: 2 count: 3 baseSequence: -1 lastSequence: -1")
    assert batch.endswith("isvalid: true")
    assert records[0] == "| offset: 0 CreateTime: 1600000000000 key: null payload: 0000000000"
    assert len(records) == 3


def test_dump_of_the_only_partition_of_a_place(root: Path) -> None:
    assert run("dump", root / "u-0").out == run("dump", root, "u:0").out
    done = run("dump", root)
    assert done.code == 2
    assert "Name one of the 3 partitions" in done.err


def test_dump_as_json(root: Path) -> None:
    (line,) = run("dump", root, "u-0", "--json", "--records").out.splitlines()
    batch = json.loads(line)
    assert [record["value"] for record in batch["records"]] == ["0000000000", "0000000001", "0000000002"]
    assert run("dump", root, "u-0", "--from", 3).out == ""
    values = [
        record["value"]
        for line in run(
            "dump", case("txn-basic").directory, "txn-basic-0", "--json", "--records"
        ).out.splitlines()
        for record in json.loads(line)["records"]
    ]
    assert any(isinstance(value, dict) and value["base64"] for value in values), "bytes that are not text"


def test_dump_decodes_what_cat_decodes() -> None:
    place, topic = case("consumer-offsets").directory, "__consumer_offsets"
    shown = records(place, topic)
    dumped = [
        record
        for number in sorted({one["partition"] for one in shown})
        for line in lines("dump", place, f"{topic}-{number}", "--records", "--json")
        for record in json.loads(line)["records"]
        if record["controlType"] is None
    ]
    assert [(one["key"], one["value"]) for one in dumped] == [(one["key"], one["value"]) for one in shown]
    assert any(isinstance(one["key"], dict) and isinstance(one["value"], dict) for one in dumped)
    text = run("dump", place, f"{topic}-{shown[0]['partition']}", "--records").out
    assert f"key: {json.dumps(shown[0]['key'])} payload: " in text


def test_damage_has_an_exit_code(root: Path) -> None:
    good = run("verify", root)
    assert good.code == 0
    assert [line[0] for line in good.lines[1:]] == ["__consumer_offsets", "__consumer_offsets", "t", "t", "u"]
    assert run("verify", root, "u").lines[1][:4] == ["u", "0", "1", "3"]
    bad = case("bad-flipped-byte").directory
    done = run("verify", bad)
    assert done.code == 1
    assert "bad-flipped-byte-0: Skipped 292 bytes: CRC mismatch (offset 2, file" in done.out
    found = run("verify", bad, "--json").json
    assert found["damages"] == 1
    assert found["partitions"][0]["damages"][0]["position"] == 206
    assert run("dump", bad, "bad-flipped-byte-0").code == 1
    broken = run("dump", case("hurt-magic").directory)
    assert broken.code == 1
    assert "No record batch can be read here" in broken.err


def test_dump_shows_just_the_records_of_the_range(root: Path) -> None:
    out = lines("dump", root, "t-0", "--from", 3, "--to", 5, "--records")
    assert [line.split()[2] for line in out if line.startswith("|")] == ["3", "4"]
