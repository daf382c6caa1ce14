"""What is read of a checkpoint, and what is refused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import CorruptRecordError, KafkaLogError, OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles, checksums
from pyspark_kafkalog.tools.checkpoint.offset_log import LoggedPlan
from tests.tools.checkpoint.checkpoints import METADATA, at, checkpoint, plan

OURS = '{"t": {"0": 5, "1": 7}}'
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("version", "lines", "names"),
    [
        ("v1", [OURS, "-", '{"logOffset":1}', "1796033616319"], ["0", "1", "2", "3"]),
        (
            "v2",
            [f"clicks:{OURS}", "1:-", 'log:{"logOffset":1}', "rate:5"],
            ["clicks", "1", "log", "rate"],
        ),
    ],
)
def test_sources_of_both_versions(version: str, lines: list[str], names: list[str]) -> None:
    data = "\n".join([version, METADATA, *lines]).encode()
    found = LoggedPlan.parse(data, "offsets/0")
    assert [source.name for source in found.sources] == names
    assert [source.offsets for source in found.sources] == [{T0: 5, T1: 7}, None, None, None]
    assert found.data() == data


@pytest.mark.parametrize("text", [OURS, '{"t":{"0":5,"1":7}}'])
def test_a_source_keeps_its_form(text: str) -> None:
    found = LoggedPlan.parse(f"v1\n\n{text}".encode(), "offsets/0")
    assert found.at({"0": {T0: 5, T1: 7}}).data() == f"v1\n\n{text}".encode()
    assert found.at({"0": {T0: 1}}).sources[0].offsets == {T0: 1}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", 1),
        (b"\0\0\0\0", 1),
        (b"v3\n{}\n{}", 1),
        (b"hello", 1),
        (b"v1", 2),
        (b"v1\n{}", 3),
        (b'v1\n{"batchWater', 2),
        (b'v1\n{}\n{"t":{"0":', 3),
        (b'v1\n{}\n-\n{"t":{"0":', 4),
        (b"v1\n{}\n-\n\xff", 4),
        (b"v2\n{}\n{no colon}", 3),
        (b"v2\n{}\nname:", 3),
    ],
)
def test_a_damaged_plan_is_refused_with_its_line(tmp_path: Path, data: bytes, line: int) -> None:
    folder = checkpoint(tmp_path, [[OURS]])
    (folder / "offsets" / "0").write_bytes(data)
    with pytest.raises(CorruptRecordError, match=rf"Line {line} of .*file .*offsets/0"):
        CheckpointFiles.open(str(folder)).plan(0)


def test_a_commit_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [[OURS]])
    files = CheckpointFiles.open(str(folder))
    files.check_commit(0)
    (folder / "commits" / "0").write_text('v1\n{"nextBat')
    with pytest.raises(CorruptRecordError, match="Line 2"):
        files.check_commit(0)


def test_the_position_is_the_end_of_what_is_complete(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [[at(t={0: 1})], [at(t={0: 2})], [at(t={0: 3})]], done=2)
    files = CheckpointFiles.open(str(folder))
    assert (files.newest, files.newest_complete, files.is_complete) == (2, 1, False)
    assert files.position()["0"].offsets == {T0: 2}
    plan(folder, 7, at(t={0: 9}))  # as async progress tracking leaves gaps
    assert CheckpointFiles.open(str(folder)).position()["0"].offsets == {T0: 3}


def test_checksums_are_hadoops(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [[OURS]])
    file, sums = folder / "offsets" / "0", folder / "offsets" / ".0.crc"
    sums.write_bytes(checksums(file.read_bytes()))
    files = CheckpointFiles.open(str(folder))
    files.plan(0)
    file.write_text(file.read_text().replace("5", "6"))
    with pytest.raises(KafkaLogError, match=r"differs from its checksums"):
        files.plan(0)


@pytest.mark.parametrize("name", ["", "   "])
def test_an_empty_location_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="empty"):
        CheckpointFiles.open(name)


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not the checkpoint"):
        CheckpointFiles.open(str(tmp_path))
    with pytest.raises(KafkaLogError, match="does not exist"):
        CheckpointFiles.open(str(tmp_path / "none"))


def test_many_micro_batches_take_seconds(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, [[OURS]])
    for batch in range(1, 20_000):
        (folder / "offsets" / str(batch)).touch()
        (folder / "commits" / str(batch)).touch()
    plan(folder, 19_999, OURS)
    begun = time.monotonic()
    files = CheckpointFiles.open(str(folder))
    assert files.position()["0"].offsets == {T0: 5, T1: 7}
    assert time.monotonic() - begun < 5
