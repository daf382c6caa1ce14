"""What verify finds: nothing in what brokers wrote, and every damage with its place."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.care.verify import VerifiedPartition, verify
from tests.fixtures_dir import CASES, Case, case
from tests.log.partitions import copy
from tests.log.test_hostile_directories import hurt
from tests.tools.cli.running import run


def verified(root: Path) -> list[VerifiedPartition]:
    place = LogDirectory.open(str(root))
    return list(verify(place, partitions_of(place, internal=True)))


@pytest.mark.parametrize(
    "fixture",
    [fixture for fixture in CASES if fixture.name.partition("-")[0] not in ("bad", "hurt")],
    ids=lambda fixture: fixture.name,
)
def test_nothing_is_wrong_with_what_brokers_wrote(fixture: Case) -> None:
    found = verified(fixture.directory)
    assert not [damage for partition in found for damage in partition.damages]
    if fixture.records:
        assert sum(partition.records for partition in found) == len(fixture.records)


@pytest.mark.parametrize(
    ("name", "damages"),
    [
        ("bad-flipped-byte", [("CRC mismatch", 2, ".log", 206)]),
        (
            "hurt-magic",
            [
                ("unknown format", 39, ".log", 2104),
                ("Entry 1 of 14", None, ".index", 8),
                ("Entry 1 of 13", None, ".timeindex", 12),
            ],
        ),
        ("bad-v1-flip", [("CRC mismatch", 239, ".log", 849)]),
        ("bad-garbage-tail", [("the log ends here", 240, ".log", 12413)]),
    ],
)
def test_damage_is_told_with_its_place(name: str, damages: list[tuple[str, int | None, str, int]]) -> None:
    (found,) = verified(case(name).directory)
    assert len(found.damages) == len(damages)
    for damage, (message, offset, suffix, position) in zip(found.damages, damages, strict=True):
        assert message in damage.message
        assert (damage.topic, damage.offset, damage.position) == (name, offset, position)
        assert str(damage.file).endswith(suffix)


def test_after_damage_the_next_partition_is_looked_at(tmp_path: Path) -> None:
    for name in ("bad-flipped-byte", "txn-basic"):
        shutil.copytree(case(name).directory, tmp_path, dirs_exist_ok=True)
    found = {(partition.topic, len(partition.damages)) for partition in verified(tmp_path)}
    assert found >= {("bad-flipped-byte", 1), ("txn-basic", 0)}


def test_a_broken_checkpoint_is_damage(tmp_path: Path) -> None:
    root = copy(case("txn-basic"), tmp_path / "root")
    (root / "log-start-offset-checkpoint").write_text("0\n1\n")
    for partition in verified(root):
        (damage,) = partition.damages
        assert "Malformed file" in damage.message
        assert str(damage.file).endswith("log-start-offset-checkpoint")


@pytest.mark.parametrize("name", ["txn-basic", "v1-snappy", "v2-lz4"])
def test_whatever_is_in_the_files_is_told(name: str, tmp_path: Path) -> None:
    root = copy(case(name), tmp_path / "root")
    chance = random.Random(name)
    files = [file for file in sorted(root.glob("*-*/*")) if file.is_file() and file.stat().st_size]
    for _ in range(20):
        file = chance.choice(files)
        before = file.read_bytes()
        file.write_bytes(hurt(before, chance))
        verified(root)
        file.write_bytes(before)
    assert not [damage for partition in verified(root) for damage in partition.damages]


def test_progress_counts_bytes_and_what_is_gone_is_left_out() -> None:
    fixture = case("txn-basic")
    place = LogDirectory.open(str(fixture.directory))
    done: list[int] = []
    partitions = [TopicPartition("txn-basic", 0), TopicPartition("gone", 0)]
    (found,) = verify(place, partitions, progress=done.append)
    assert sum(done) == found.stored_bytes == place.stored_sizes(partitions)[partitions[0]].stored_bytes


def test_nothing_to_verify_is_no_success(tmp_path: Path) -> None:
    """A disk that is not mounted is an empty folder."""
    done = run("verify", tmp_path)
    assert (done.code, "nothing was verified" in done.err) == (1, True)
    for command in ("topics", "repair", "retain"):
        done = run(command, tmp_path)
        assert (done.code, "No partition is here" in done.err) == (0, True), command
    done = run("copy", tmp_path, tmp_path.parent / "copy")
    assert (done.code, "nothing was copied" in done.err) == (1, True)
