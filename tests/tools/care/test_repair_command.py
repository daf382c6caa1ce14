"""``kafkalog repair``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from tests.fixtures_dir import case
from tests.log.partitions import copy
from tests.tools.cli.running import run


def test_dry_run_then_execute_then_nothing_left(tmp_path: Path) -> None:
    root = copy(case("bad-flipped-byte"), tmp_path / "root")
    log = "bad-flipped-byte-0/00000000000000000000.log"
    cut = f"cut 5153 bytes of {log} from byte 206 on, offset 2: its checksum is wrong"
    planned = run("repair", root)
    assert planned.code == 1
    assert cut in planned.out.splitlines()
    assert planned.out.splitlines()[-3:-1] == [
        "bad-flipped-byte-0: what was stored from offset 2 on is lost."
        " The log ends there, and new records get these offsets.",
        "bad-flipped-byte-0: 52 valid records behind the damage, up to offset 57, go with it;"
        " --salvage keeps them.",
    ]
    kept = "bad-flipped-byte-0: what is cut is kept in bad-flipped-byte-0/.kafkalog-cut."
    assert kept in planned.out.splitlines()
    assert "Dry run: nothing was changed. Add --execute to apply it." in planned.err
    salvaged = run("repair", root, "--salvage", "--discard")
    assert "behind the damage" not in salvaged.out
    lost = "bad-flipped-byte-0: offsets 2 to 5 can't be salvaged."
    assert lost in salvaged.out.splitlines()
    assert "bad-flipped-byte-0: what is cut is not kept (--discard)." in salvaged.out.splitlines()
    done = run("repair", root, "--execute")
    assert done.code == 0, done.err
    assert {cut, kept} <= set(done.out.splitlines())
    assert "52 valid records behind the damage, up to offset 57, went with it." in done.out
    assert "A broker starts on it without recovery." in done.out
    assert (root / "bad-flipped-byte-0" / ".kafkalog-cut").stat().st_size > 5153
    assert run("repair", root).code == 0
    assert run("verify", root).code == 0


def test_json_salvage_and_one_partition(tmp_path: Path) -> None:
    root = copy(case("bad-flipped-byte"), tmp_path / "root")
    done = run("repair", root, "bad-flipped-byte:0", "--execute", "--salvage", "--discard", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    (partition,) = found["partitions"]
    assert (partition["topic"], partition["logEndOffset"], partition["cutBytes"]) == (
        "bad-flipped-byte",
        58,
        292,
    )
    assert partition["lost"] == [{"start": 2, "end": 6}]
    assert found["cleanShutdown"] is False
    (step,) = partition["steps"]
    assert (step["action"], step["position"], step["size"], step["offset"]) == ("cut", 206, 292, 2)
    assert not (root / "bad-flipped-byte-0" / ".kafkalog-cut").exists()


@pytest.mark.long
def test_what_is_wrong_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = copy(case("bad-flipped-byte"), tmp_path / "root")
    assert run("repair", root, "nothing").code == 2
    assert run("repair", root / "bad-flipped-byte-0").code == 2
    assert run("repair", tmp_path / "gone").code == 3
    assert run("repair", "host:9092").err == (
        "kafkalog: Expected one log directory, got brokers. Brokers mend theirs when they start."
        " Give a folder, such as /data/kafka-logs.\n"
    )
    for place in ("etl:hunter2@host:9092", "s3://k:hunter2@bucket/x"):
        for words in (("repair", place), ("adopt", root, place), ("copy", root, place)):
            refused = run(*words)
            assert (refused.code > 1, "hunter2" in refused.err + refused.out) == (True, False)
    assert {entry.name for entry in tmp_path.iterdir()} == {"root"}
    gone = run("repair", root, "gone-0")
    assert gone.code == 3
    assert "No such partition: " in gone.err


def test_what_cannot_be_mended_is_told(tmp_path: Path) -> None:
    root = copy(case("v2-rolled"), tmp_path / "root")
    (root / "v2-rolled-0" / "partition.metadata").write_text("")
    done = run("repair", root, "--execute")
    assert done.code == 1
    assert "leave v2-rolled-0/partition.metadata: the topic's id is not known" in done.out


def test_damage_in_the_middle_and_at_the_end_is_all_told(tmp_path: Path) -> None:
    with connect(tmp_path) as kafka:
        for _ in range(4):
            kafka.write(pa.table({"value": [b"v"] * 3}), "t")
    file = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    for position in len(data) // 2 - 1, -1:  # the second and the last batch
        data[position] ^= 1
    file.write_bytes(data)
    assert run("repair", tmp_path).out.splitlines()[-3:-1] == [
        "t-0: what was stored from offset 3 on is lost."
        " The log ends there, and new records get these offsets.",
        "t-0: 3 valid records behind the damage, up to offset 8, go with it; --salvage keeps them.",
    ]


@pytest.mark.parametrize("words", [[], ["--salvage"]])
def test_a_damaged_end_is_told(tmp_path: Path, words: list[str]) -> None:
    rows = [pa.table({"value": [b"v"] * 3})] * 2
    with connect(tmp_path) as kafka:
        for each in rows:
            kafka.write(each, "t")
    file = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    says = (
        "t-0: what was stored from offset 3 on is {}. The log ends there, and new records get these offsets."
    )
    assert says.format("lost") in run("repair", tmp_path, *words).out
    assert says.format("gone") in run("repair", tmp_path, *words, "--execute").out
    assert "what was stored" not in run("repair", tmp_path, *words).out
