"""Every way to read batches of 300 MB in little memory, and what becomes of a record that is too large."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pyspark_kafkalog
from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.codec.compression import compress_pieces
from pyspark_kafkalog.codec.decode import DecodeLimits, decode_slice
from pyspark_kafkalog.codec.encode import put_checksums
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES, GZIP, LZ4, SNAPPY, ZSTD
from pyspark_kafkalog.errors import OversizedRecordError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.backup import history
from pyspark_kafkalog.tools.backup.restore_batches import ANY_SIZE
from pyspark_kafkalog.tools.backup.restore_records import SourceRecords
from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition
from tests.codec.raw import batch, record
from tests.tools.backup.histories import TOPIC_ID, make_log_of, set_log_start, visible
from tests.tools.cli.running import run

RECORDS, SIZE = 300, 1_000_000
ROOM = 150 << 20
"""Bytes that reading may take beside what the libraries take: half of a batch."""
_READ = """
import resource, sys
import pyspark_kafkalog
from pyspark_kafkalog import DecodeLimits
from pyspark_kafkalog.model import TopicPartition

kafka = pyspark_kafkalog.connect(sys.argv[1])
assert kafka.records.count("small") == 1
(warm,) = kafka.logs.compact("small", any_policy=True, execute=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
sizes = [rows.num_rows for rows in kafka.read("t", columns=["offset", "value"])]
assert max(sizes) < 40
(verified,) = kafka.records.verify([TopicPartition("t", 0)])
dumped = sum(batch.is_valid for batch in kafka.records.dump(TopicPartition("t", 0)))
start = {"startingOffsets": '{"t": {"0": 290}}', "endingOffsets": '{"t": {"0": 295}}'}
middle = kafka.read("t", columns=["offset"], options=start).read_all()["offset"].to_pylist()
kafka.logs.compact("t", any_policy=True, execute=True)
left = kafka.records.count("t")
print(sum(sizes), verified.records, len(verified.damages), dumped, middle, left)
"""


def large(compression: int, *, base_offset: int, sizes: list[int], keys: int = 10) -> bytes:
    """A batch of values of these sizes, made without having all of them in memory."""
    made = (
        np.frombuffer(record(b"x" * size, key=b"%d" % (i % keys), delta=i), np.uint8)
        for i, size in enumerate(sizes)
    )
    count = len(sizes)
    return batch(
        [],
        base_offset=base_offset,
        count=count,
        last_offset_delta=count - 1,
        attributes=compression,
        body=b"".join(compress_pieces(compression, made)),
    )


_BACKUP = """
import resource, sys
import pyspark_kafkalog

rules = pyspark_kafkalog.BackupRules(groups=(), topics=("small",))
logs = pyspark_kafkalog.connect(sys.argv[1]).logs
(warm,) = logs.backup(sys.argv[2], rules)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[3]),) * 2)
(row,) = logs.backup(sys.argv[2], pyspark_kafkalog.BackupRules(groups=(), topics=("t",)))
print(row.problem, row.log_end_offset)
"""


def write(root: Path, topic: str, *segments: bytes) -> None:
    """A stopped broker's partition, of a segment for each of these, of which each has its base offset."""
    folder = root / f"{topic}-0"
    folder.mkdir(parents=True)
    for data in segments:
        (folder / f"{int.from_bytes(data[:8], 'big'):020}.log").write_bytes(data)


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
@pytest.mark.parametrize(
    "compression",
    [ZSTD, *(pytest.param(other, marks=pytest.mark.soak) for other in (GZIP, SNAPPY, LZ4))],
    ids=COMPRESSION_NAMES.__getitem__,
)
def test_a_batch_of_300_mb_takes_no_memory_of_its_size(compression: int, tmp_path: Path) -> None:
    write(tmp_path, "small", large(compression, base_offset=0, sizes=[3]), large(0, base_offset=1, sizes=[]))
    write(
        tmp_path,
        "t",
        large(compression, base_offset=0, sizes=[SIZE] * RECORDS),
        large(0, base_offset=RECORDS, sizes=[3]),
    )
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path), str(ROOM)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == f"301 301 0 2 {list(range(290, 295))} 11"


def test_a_record_that_is_too_large_is_never_skipped(tmp_path: Path) -> None:
    """And what names it says which option to raise, with which it is read."""
    sizes = [10, 20_000_000, 10]
    write(tmp_path, "t", large(4, base_offset=0, sizes=sizes), large(1, base_offset=3, sizes=[5]))
    limits = {"path": str(tmp_path), "maxRecordBytes": "18m"}
    kafka = pyspark_kafkalog.connect(limits)
    for options in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(OversizedRecordError, match=r"partition t-0, offset 1, .*Raise maxRecordBytes"):
            kafka.read("t", options=options).read_all()
    with pytest.raises(OversizedRecordError):
        list(kafka.records.dump(TopicPartition("t", 0), records=True))
    with pytest.raises(OversizedRecordError):
        kafka.logs.compact("t", any_policy=True, execute=True)
    assert len(list(kafka.records.dump(TopicPartition("t", 0)))) == 2
    (verified,) = kafka.records.verify()
    assert [(damage.offset, damage.position) for damage in verified.damages] == [(1, 0)]
    assert verified.records == 1, "what follows is verified, too"
    limit = ("-o", "maxRecordBytes=18m")
    for words in (("cat",), ("cat", "--skip-damaged"), ("cat", "--count", "--skip-damaged")):
        done = run(words[0], tmp_path, "t", *words[1:], *limit)
        assert (done.code, "Raise maxRecordBytes" in done.err) == (3, True), done.err
    assert run("verify", tmp_path, *limit).code == 1
    assert run("cat", tmp_path, "t", "--count", "-o", "maxRecordBytes=20m").out == "4\n"
    assert run("cat", tmp_path, "t", "--count").out == "4\n"
    assert pyspark_kafkalog.connect(str(tmp_path)).read("t").read_all().num_rows == 4


def cleaned(data: bytes, *, last_offset_delta: int) -> bytes:
    """The batch as one that a cleaner has taken records from."""
    changed = np.frombuffer(data, np.uint8).copy()
    changed[23:27] = np.frombuffer(last_offset_delta.to_bytes(4, "big"), np.uint8)
    put_checksums(changed, np.zeros(1, np.int64), np.array([changed.size]))
    return changed.tobytes()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
@pytest.mark.parametrize("is_same", [True, False])
def test_what_was_copied_is_compared_in_pieces(is_same: bool, tmp_path: Path) -> None:
    """A cleaner has taken records from the last batch, so all that are left are compared."""
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, "small", large(0, base_offset=0, sizes=[3]))
    last = RECORDS + 1
    write(source, "t", cleaned(large(ZSTD, base_offset=0, sizes=[SIZE] * RECORDS), last_offset_delta=last))
    (row,) = connect(source).logs.backup(str(target), BackupRules(groups=(), topics=("t",)))
    assert row.problem is None
    sizes = [SIZE] * (RECORDS - 2) + [SIZE if is_same else 1]
    log = source / "t-0" / f"{0:020}.log"
    log.write_bytes(cleaned(large(ZSTD, base_offset=0, sizes=sizes), last_offset_delta=last))
    done = subprocess.run(
        [sys.executable, "-c", _BACKUP, str(source), str(target), str(ROOM)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stderr == ""
    told = "None" if is_same else f"Offsets 0 to {last} are not those of the source"
    assert told in done.stdout


@pytest.mark.parametrize("value", [b"", b"other"], ids=["same", "other"])
def test_a_timestamp_that_cannot_be_shown_is_not_compared(value: bytes, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"

    def stored(*found: bytes) -> bytes:
        records = [record(v, delta=i) for i, v in enumerate(found)]
        return cleaned(batch(records, base_timestamp=1 << 62, max_timestamp=1 << 62), last_offset_delta=5)

    write(source, "t", stored(b"", b"", b""))
    rules = BackupRules(groups=())
    (row,) = connect(source).logs.backup(str(target), rules)
    assert row.problem is None
    (source / "t-0" / f"{0:020}.log").write_bytes(stored(b"", value))
    (row,) = connect(source).logs.backup(str(target), rules)
    assert ("are not those of the source" in (row.problem or "")) == (value != b"")
    assert (row.problem is None) == (value == b"")


def test_a_backup_reads_a_batch_in_which_a_gap_ends_as_the_option_says(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    first = large(0, base_offset=0, sizes=[5])
    make_log_of(source, [first])
    connect(source).logs.backup(str(target), BackupRules(groups=()))
    shutil.rmtree(source)
    make_log_of(source, [first, large(ZSTD, base_offset=1, sizes=[10, 20_000_000, 10])])
    set_log_start(source, 2)
    rules = BackupRules(groups=(), allow_gaps=True)
    for _ in range(2):
        (row,) = connect({"path": str(source), "maxRecordBytes": "18m"}).logs.backup(str(target), rules)
        assert "more than 18874368" in (row.problem or "")
        assert (row.problem or "").endswith(
            "Raise maxRecordBytes, if there is memory for three times such a record."
        )
    (row,) = connect({"path": str(source), "maxRecordBytes": "20m"}).logs.backup(str(target), rules)
    assert (row.problem, row.log_end_offset) == (None, 4)
    assert visible(target) == [0, 2, 3]


def test_a_restore_reads_large_records_as_the_option_says(tmp_path: Path) -> None:
    make_log_of(tmp_path, [large(ZSTD, base_offset=0, sizes=[10, 20_000_000, 10])])
    place, planned = LogDirectory.open(str(tmp_path)), PlannedPartition("t", 0, 1, 3, "t", TOPIC_ID)

    def restored(max_record_bytes: int) -> int:
        limits = DecodeLimits(max_record_bytes=max_record_bytes)
        records = SourceRecords(place, read_committed=True, limits=limits)
        return sum(found.records for found in records.batches(planned, 1, ANY_SIZE))

    assert restored(20 << 20) == 2
    with pytest.raises(OversizedRecordError, match="Raise maxRecordBytes"):
        restored(18 << 20)


def test_no_hint_names_an_option_without_effect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where records are only looked into, the default holds; here it is lowered."""
    limits = DecodeLimits(max_bytes=1000, max_record_bytes=1000)
    monkeypatch.setattr(history, "decode_slice", partial(decode_slice, limits=limits))
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, "t", cleaned(large(ZSTD, base_offset=0, sizes=[3, 5000]), last_offset_delta=5))
    (row,) = connect(source).logs.backup(str(target), BackupRules(groups=()))
    assert row.problem is None
    log = source / "t-0" / f"{0:020}.log"
    log.write_bytes(cleaned(large(ZSTD, base_offset=0, sizes=[4, 5000]), last_offset_delta=5))
    (row,) = connect(source).logs.backup(str(target), BackupRules(groups=()))
    assert "Nothing raises this limit here, where what was copied" in (row.problem or "")
    assert "maxRecordBytes" not in (row.problem or "")
