"""Segments that are missing in the middle of a log: proved by an index, or suggested by a gap of offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.log.layout import format_offset_checkpoint, format_partition_metadata
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import CommittedOffset, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.care.verify import Damage, verify
from tests.log.partitions import (
    FIRST_TIMESTAMP,
    T0,
    batch,
    data_batch,
    offsets_read,
    write_index,
    write_segment,
    write_time_index,
)
from tests.sleeping import replace_sleep
from tests.tools.cli.running import run

ALL = OffsetRange(0, 40)
KEPT = [*range(10), *range(20, 40)]


def log(root: Path, base_offset: int) -> Path:
    return root / "t-0" / f"{base_offset:020d}.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Offsets 0 to 39 in segments of ten, each with an index, but the segment 10 has lost its ``.log``."""
    for base_offset in range(0, 40, 10):
        segment = write_segment(tmp_path / "t-0", [batch(base_offset, 5), batch(base_offset + 5, 5)])
        write_index(segment, [])
        if base_offset != 10:  # of which tests remove the other one, too
            write_time_index(segment, [(FIRST_TIMESTAMP + base_offset + 9, 9)])
    log(tmp_path, 10).unlink()
    return tmp_path


def damages(root: Path) -> list[Damage]:
    place = LogDirectory.open(str(root))
    return [damage for found in verify(place, [T0]) for damage in found.damages]


def test_a_strict_read_names_what_is_gone(root: Path) -> None:
    place = LogDirectory.open(str(root), slice_bytes=1)
    for start, first in ((0, 10), (7, 10), (10, 10), (15, 15)):
        with pytest.raises(
            DataLossError, match=f"Offsets {first} to 19 are gone: the segment 0*10.log is"
        ) as e:
            offsets_read(place, T0, OffsetRange(start, 40))
        assert (e.value.offset, e.value.next_offset, e.value.file) == (first, 20, str(log(root, 10)))
    with pytest.raises(DataLossError, match="Offsets 10 to 11 are gone"):
        offsets_read(place, T0, OffsetRange(5, 12))
    for within in (OffsetRange(0, 10), OffsetRange(20, 40)):
        assert offsets_read(place, T0, within) == list(range(*within))


def test_else_it_is_told_and_left_out(root: Path) -> None:
    errors: list[CorruptRecordError | DataLossError] = []
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL, on_corrupt=errors.append) == KEPT
    assert [(type(e), e.offset) for e in errors] == [(DataLossError, 10)]


def test_verify_tells_it_once(root: Path) -> None:
    (damage,) = damages(root)
    assert "the segment 00000000000000000010.log is missing" in damage.message
    assert (damage.offset, damage.file, damage.position) == (10, str(log(root, 10)), None)


@pytest.mark.parametrize("suffix", [".log.deleted", ".index.deleted", ".log.cleaned", ".log.swap"])
def test_an_index_proves_nothing_beside_what_comes_or_goes(root: Path, suffix: str) -> None:
    content = batch(10, 10) if suffix == ".log.swap" else b""
    log(root, 10).with_suffix(suffix).write_bytes(content)
    kept = list(range(40)) if content else KEPT
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == kept


def test_an_index_that_is_about_to_be_renamed_proves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a broker deletes the segment: the log first, then its indexes."""
    index = log(root, 10).with_suffix(".index")

    def rename(seconds: float) -> None:
        index.rename(f"{index}.deleted")
        monkeypatch.undo()

    replace_sleep(monkeypatch, rename)
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == KEPT
    assert not index.exists()


def test_an_index_within_the_segment_before_proves_nothing(root: Path) -> None:
    """What a merge of two segments may leave, if a broker is killed twice."""
    write_segment(root / "t-0", [batch(0, 5), batch(12, 5)], base_offset=0)
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == [*range(5), *range(12, 17), *range(20, 40)]


@pytest.mark.parametrize("suffix", [".swap", ".cleaned"])
def test_an_index_behind_an_unfinished_replacement_proves_nothing(root: Path, suffix: str) -> None:
    """The one of the segments 0 and 10, killed between the log of the second and its index."""
    write_segment(root / "t-0", [batch(0, 5)], suffix=suffix)
    kept = [*range(5 if suffix == ".swap" else 10), *range(20, 40)]
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == kept


def test_an_index_before_the_first_segment_proves_nothing(root: Path) -> None:
    log(root, 0).unlink()
    assert not damages(root)
    assert offsets_read(LogDirectory.open(str(root)), T0, OffsetRange(20, 40)) == list(range(20, 40))


def test_verify_tells_that_the_end_is_missing(root: Path) -> None:
    log(root, 30).unlink()
    write_time_index(write_segment(root / "t-0", [batch(10)]), [(FIRST_TIMESTAMP + 19, 9)])
    (damage,) = damages(root)
    assert damage.message == f"The segment {log(root, 30).name} is missing, with all from offset 30 on"
    assert offsets_read(LogDirectory.open(str(root)), T0, OffsetRange(0, 30)) == list(range(30))


def test_a_gap_without_an_index_is_told_by_verify_only(root: Path) -> None:
    log(root, 10).with_suffix(".index").unlink()
    assert offsets_read(LogDirectory.open(str(root)), T0, ALL) == KEPT
    (damage,) = damages(root)
    assert damage.message == (
        f"Offsets 10 to 19 are in no segment: one is missing between {log(root, 0).name} "
        f"and {log(root, 20).name}, unless the topic is compacted"
    )
    assert damage.offset == 10


def configured(root: Path) -> None:
    write_topic_configs(str(root), {"t": {"cleanup.policy": "compact,delete"}})


def cleaned(root: Path) -> None:
    (root / "cleaner-offset-checkpoint").write_bytes(format_offset_checkpoint({TopicPartition("t", 0): 30}))


def deleted(root: Path) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({TopicPartition("t", 0): 20}))


def gap_between(root: Path) -> None:
    write_segment(root / "t-0", [batch(20, 5), batch(26, 4)])


def gap_within(root: Path) -> None:
    """An emptied batch, of which only the header is left."""
    emptied = bytearray(data_batch(25, 7))
    from pyspark_kafkalog.codec.checksums import crc32c

    emptied[23:27] = (4).to_bytes(4, "big")
    emptied[17:21] = crc32c(bytes(emptied[21:])).to_bytes(4, "big")
    segment = write_segment(root / "t-0", [batch(20, 5), bytes(emptied)])
    for suffix in (".index", ".timeindex"):
        segment.with_suffix(suffix).unlink()


@pytest.mark.parametrize("sign", [configured, cleaned, deleted, gap_between, gap_within])
def test_a_gap_is_no_news_where_there_may_be_gaps(root: Path, sign: Callable[[Path], None]) -> None:
    log(root, 10).with_suffix(".index").unlink()
    sign(root)
    assert not damages(root)


def test_a_gap_beside_damage_is_told_as_damage_only(root: Path) -> None:
    log(root, 10).with_suffix(".index").unlink()
    with log(root, 0).open("ab") as file:
        file.write(b"\xff" * 100)
    (damage,) = damages(root)
    assert (damage.file, damage.position) == (str(log(root, 0)), log(root, 0).stat().st_size - 100)


def test_a_damaged_batch_is_no_sign_of_compaction(root: Path) -> None:
    """Its offsets may be what is damaged."""
    log(root, 10).with_suffix(".index").unlink()
    hurt = bytearray(batch(25, 5))
    hurt[23:27] = (3).to_bytes(4, "big")
    write_segment(root / "t-0", [batch(20, 5), bytes(hurt), batch(30 - 1, 1)])
    assert [damage.offset for damage in damages(root)] == [25, 10]


@pytest.mark.parametrize("topic_id", ["", "v7k2Yq1mTnqCkqL0cNoH3Q"])
def test_a_command_fails_or_skips_it(root: Path, topic_id: str) -> None:
    if topic_id:
        (root / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(topic_id))
    failed = run("cat", root, "t", "--count")
    assert failed.code == 3
    assert "Offsets 10 to 19 are gone: the segment 00000000000000000010.log is missing" in failed.err
    skipped = run("cat", root, "t", "--count", "--skip-damaged")
    assert skipped.code == 1
    assert skipped.out.split() == ["30"]


def test_commits_in_a_missing_segment_are_missed(tmp_path: Path) -> None:
    write_topic_configs(str(tmp_path), {"__consumer_offsets": {"segment.bytes": "300"}})
    groups = DirectoryGroups.open([str(tmp_path)], num_partitions=1)
    for number in range(10):
        groups.commit("g", {T0: CommittedOffset(number)})
    logs = sorted(tmp_path.glob("__consumer_offsets-0/*.log"))
    assert len(logs) > 3
    logs[1].unlink()
    with pytest.raises(DataLossError, match=rf"the segment {logs[1].name} is missing.*kafkalog repair"):
        DirectoryGroups.open([str(tmp_path)], num_partitions=1).committed("g")
    connect(tmp_path).logs.repair(execute=True)
    committed = DirectoryGroups.open([str(tmp_path)], num_partitions=1).committed("g")
    assert committed[T0].offset == 9
