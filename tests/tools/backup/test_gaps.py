"""Gaps of a backup, which ``verify`` does not count as damage, also between segments.

How transactions ended whose markers are in one is unknown, so nothing of them is shown.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import BackedUpPartition, BackupRules, connect
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.log.layout import BACKUP_FILE
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, TopicPartition, not_copied
from pyspark_kafkalog.tools.care.verify import verify
from tests.codec.raw import marker, values
from tests.tools.backup.histories import T0, content, make_log_of, set_log_start, visible
from tests.tools.backup.test_history import check_sound

NO_GROUPS = BackupRules(groups=())
ALLOW_GAPS = BackupRules(groups=(), allow_gaps=True)
GAP = OffsetRange(7, 20)


def of_transaction(base_offset: int, producer_id: int, count: int = 2) -> bytes:
    return values(count, base_offset=base_offset, attributes=TRANSACTIONAL_BIT, producer_id=producer_id)


BEFORE = [
    values(1, base_offset=0),
    of_transaction(1, 5),
    of_transaction(3, 6),
    of_transaction(5, 5),
]
"""Two transactions are open at the end."""
BEHIND = [values(5, base_offset=20)]
LATER = [
    *BEHIND,
    of_transaction(25, 5),
    marker(5, commit=True, offset=27),
    of_transaction(28, 6),
    marker(6, commit=False, offset=30),
    of_transaction(31, 6),
    marker(6, commit=True, offset=33),
]


def run(
    source: Path, target: Path, batches: Sequence[bytes], rules: BackupRules, *, start: int = 0
) -> BackedUpPartition:
    shutil.rmtree(source, ignore_errors=True)
    make_log_of(source, batches, start=start)
    set_log_start(source, start)
    (row,) = connect(source).logs.backup(str(target), rules)
    return row


def check_open(root: Path, end: int) -> None:
    """No transaction is open."""
    watermarks = LogDirectory.open(str(root)).watermarks([T0], read_committed=True)[T0]
    assert (watermarks.high_watermark, watermarks.last_stable_offset) == (end, end)


@pytest.mark.parametrize("behind", [[], BEHIND, LATER], ids=["nothing", "records", "transactions"])
def test_what_is_open_at_a_gap_ends_as_aborted(behind: list[bytes], tmp_path: Path) -> None:
    """Whether records follow in the same run, in a later one, or never."""
    source, target, log_dir = tmp_path / "source", tmp_path / "target", tmp_path / "broker"
    assert run(source, target, BEFORE, NO_GROUPS).problem is None
    held = content(target)
    row = run(source, target, behind, NO_GROUPS, start=20)
    assert "Offsets 7 to 19 are gone from the source" in (row.problem or "")
    assert content(target) == held
    row = run(source, target, behind, ALLOW_GAPS, start=20)
    end = {0: 20, 1: 25}.get(len(behind), 34)
    assert (row.problem, row.gaps, row.log_end_offset) == (None, [GAP], end)
    check_open(target, end)
    check_sound(target)
    row = run(source, target, LATER, NO_GROUPS, start=20)
    assert (row.problem, row.gaps, row.log_end_offset) == (None, [GAP], 34)
    check_open(target, 34)
    check_sound(target)
    assert visible(target) == [0, *range(20, 27), 31, 32] == [0, *visible(source)]
    (verified,) = verify(connect(target).place, [T0])
    assert verified.damages == ()
    assert verified.notes == ("Offsets 7 to 19 are not in this backup: its source had deleted them",)
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\n")
    make_log_of(log_dir, [])
    assert connect(target).logs.adopt(str(log_dir), groups=False, execute=True)[0].problem is None
    assert visible(log_dir) == visible(target)


def put(source: Path, day: int) -> None:
    """Write five records of this day; by default, segments roll after seven days."""
    timestamps = pa.array([(1_600_000_000 + day * 86_400) * 1_000_000] * 5, pa.timestamp("us", "UTC"))
    connect(source).write(pa.table({"value": [b"v"] * 5, "timestamp": timestamps}), "t")


def test_verify_does_not_take_a_gap_between_segments_for_damage(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    put(source, 0)
    connect(source).logs.backup(str(target), NO_GROUPS)
    for deleted in (10, 15):  # the second gap begins where the first ends
        put(source, 8)
        connect(source).logs.delete_records({T0: deleted}, execute=True)
        (row,) = connect(source).logs.backup(str(target), ALLOW_GAPS)
        assert row.problem is None
    for day in (8, 16):
        put(source, day)
    (row,) = connect(source).logs.backup(str(target), NO_GROUPS)
    gaps = [OffsetRange(5, 10), OffsetRange(10, 15)]
    assert (row.problem, row.gaps) == (None, gaps)
    assert sorted(int(log.stem) for log in (target / "t-0").glob("*.log")) == [0, 15, 20]
    (verified,) = verify(connect(target).place, [T0])
    assert verified.damages == ()
    assert verified.notes == tuple(map(not_copied, gaps))
    for file in (target / "t-0").glob(f"{15:020d}.*"):
        file.unlink()
    (verified,) = verify(connect(target).place, [T0])
    assert ["Offsets 5 to 19 are in no segment" in damage.message for damage in verified.damages] == [True]


def test_a_kill_between_two_markers(tmp_path: Path) -> None:
    """The gap was noted, and one marker is on disk: the next run goes on, whatever it allows."""
    source, target = tmp_path / "source", tmp_path / "target"
    run(source, target, BEFORE, NO_GROUPS)
    run(source, target, [], ALLOW_GAPS, start=20)
    whole = content(target)
    (log,) = (target / "t-0").glob("*.log")
    for kept in (78, 100, 156):
        log.write_bytes(whole[: len(whole) - kept])
        (target / ".kafka_cleanshutdown").unlink()
        row = run(source, target, [], NO_GROUPS, start=20)
        assert (row.problem, row.gaps, row.log_end_offset) == (None, [GAP], 20)
        assert content(target) == whole
        check_open(target, 20)
        check_sound(target)


def test_a_gap_without_room_is_refused(tmp_path: Path) -> None:
    """Two transactions are open, and one offset is gone."""
    source, target = tmp_path / "source", tmp_path / "target"
    run(source, target, BEFORE, NO_GROUPS)
    held = content(target)
    behind = [values(5, base_offset=8)]
    for rules in (ALLOW_GAPS, ALLOW_GAPS, NO_GROUPS):
        row = run(source, target, behind, rules, start=8)
        assert (row.gaps, row.log_end_offset) == ([], 7)
        assert ("2 transactions are open there" in (row.problem or "")) == rules.allow_gaps
        assert content(target) == held
        check_sound(target)


def test_a_source_that_was_truncated_within_a_gap(tmp_path: Path) -> None:
    """Its new records there are copied, not passed over, and the transactions may still be committed."""
    source, target = tmp_path / "source", tmp_path / "target"
    run(source, target, BEFORE, NO_GROUPS)
    run(source, target, [], ALLOW_GAPS, start=20)
    anew = [
        *BEFORE,
        *(values(1, base_offset=offset) for offset in range(7, 12)),
        marker(6, commit=True, offset=12),
    ]
    row = run(source, target, anew, BackupRules(groups=(), truncate=True))
    assert (row.problem, row.gaps, row.log_end_offset) == (None, [], 13)
    noted = json.loads((target / BACKUP_FILE).read_text())
    assert (noted["gaps"], noted["next_batches"]) == ({"t-0": []}, {})
    assert content(target) == content(source)
    check_sound(target)


def test_a_topic_that_is_created_again_inherits_nothing(tmp_path: Path) -> None:
    """A gap of the deleted topic would hide that the new one has lost its last segment."""
    source, target = tmp_path / "source", tmp_path / "target"
    other = TopicPartition("other", 0)
    make_log_of(source, BEFORE, partition=other)
    run(source, target, BEFORE, NO_GROUPS)
    make_log_of(source, BEFORE, partition=other)
    run(source, target, [], ALLOW_GAPS, start=20)
    kafka, noted = connect(target), target / BACKUP_FILE
    before = json.loads(noted.read_text())
    kafka.topics.delete(kafka.topics.plan_deletion(["t"]))
    after = json.loads(noted.read_text())
    for name in ("gaps", "next_batches", "complete"):
        assert before[name].pop("t-0")
    assert after == before
    kafka.write(pa.table({"value": [b"new"] * 5}), "t")
    kafka.write(pa.table({"value": [b"late"] * 10}), "t", options={"segment.bytes": "200"})
    assert LogDirectory.open(str(target)).watermarks([T0], read_committed=False)[T0].high_watermark == 15
    last = max((target / "t-0").glob("*.log"))
    for file in last.parent.glob(f"{last.stem}.*"):
        file.unlink()
    (found,) = connect(target).records.verify([T0])
    assert "the backup lacks their segments" in found.damages[0].message


def test_what_is_written_to_a_backup_follows_a_gap_at_its_end(tmp_path: Path) -> None:
    """The source has had other records there: an append in the gap would seem to be shared."""
    source, target = tmp_path / "source", tmp_path / "target"
    run(source, target, BEFORE, NO_GROUPS)
    row = run(source, target, [], ALLOW_GAPS, start=20)
    assert (row.problem, row.gaps) == (None, [GAP])
    connect(target).write(pa.table({"value": [b"written"] * 3}), "t")
    place = LogDirectory.open(str(target))
    assert place.watermarks([T0], read_committed=False)[T0].high_watermark == GAP.end + 3
    assert visible(target)[-3:] == [20, 21, 22]
    check_sound(target)
    assert "are not those of the source" in (run(source, target, BEHIND, ALLOW_GAPS, start=20).problem or "")
