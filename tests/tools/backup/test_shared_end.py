"""A copy goes on only where source and copy share its last batch, or what a cleaner has left of it."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kafka.errors import TopicAlreadyExistsError

from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.filtering import BatchRules, filter_batches
from pyspark_kafkalog.codec.read_kernels import OFFSET
from pyspark_kafkalog.codec.stamp import stamp
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import OverlapError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import CommittedOffset, EncodeSettings, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copies.log import BackupLog
from pyspark_kafkalog.tools.care.verify import verify
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.codec.raw import marker
from tests.kafka import Broker
from tests.kafka_old import OldBroker
from tests.log.partitions import control_batch, data_batch
from tests.tools.backup.histories import (
    RECORDS,
    SMALL,
    T0,
    TOPIC_ID,
    batch,
    content,
    make_log,
    piece,
    set_log_start,
    visible,
)
from tests.tools.backup.test_history import ALLOW_GAPS, NO_GROUPS, TRUNCATE, check_sound, run

PLAIN = EncodeSettings()


def batch_of(base_offset: int, count: int, mark: str, settings: EncodeSettings = PLAIN) -> bytes:
    """A batch of so many records."""
    values = [f"1 {offset} {mark}".encode() for offset in range(base_offset, base_offset + count)]
    times = pa.array(range(1000, 1000 + count))
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), "timestamp": times})
    data = bytearray(encode(rows, None, settings, topic_partition=T0).data)
    data[:8], data[12:16] = struct.pack(">q", base_offset), struct.pack(">i", 1)
    return bytes(data)


def make(root: Path, batches: Collection[bytes], *, topic_id: str = TOPIC_ID, start: int = 0) -> None:
    """A log of these batches, in place of any other."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    with BackupLog.create(str(root / "t-0"), T0, SMALL, start, topic_id) as log:
        for data in batches:
            log.append(piece(data))


def batches(start: int, end: int, mark: str = "") -> list[bytes]:
    return [batch(offset, 1, mark) for offset in range(start, end, RECORDS)]


def left(data: bytes, *offsets: int, starts_horizon: bool = False) -> bytes:
    """What a cleaner leaves of a batch."""
    parsed = walk(np.frombuffer(data, np.uint8))
    no, yes = np.zeros(1, bool), np.ones(1, bool)
    rules = BatchRules(no, no, yes, yes if starts_horizon else no, horizon=10**12)
    found = filter_batches(
        np.frombuffer(data, np.uint8),
        parsed,
        rules,
        lambda indexed, _: np.isin(indexed.table[OFFSET], offsets),
    )
    return found.data.tobytes()


@pytest.mark.parametrize("topic_id", [TOPIC_ID, ""], ids=["with id", "without id"])
@pytest.mark.parametrize("end", [100, 200])
def test_a_source_that_was_set_back_has_the_same_epochs_but_other_records(
    end: int, topic_id: str, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, before := batches(0, 100), topic_id=topic_id)
    run(source, target)
    held = content(target)
    make(source, after := [*batches(0, 40), *batches(40, end, "other")], topic_id=topic_id)
    assert "Offsets 40 to 99 are not those of the source" in (run(source, target).problem or "")
    assert content(target) == held
    check_sound(target)
    row = run(source, target, TRUNCATE)
    assert (row.problem, row.truncated) == (None, [OffsetRange(40, 100)])
    assert content(target) == b"".join(after)
    check_sound(target)
    kept = (target / "t-0" / ".kafkalog-cut").read_bytes()
    assert all(data in kept for data in before[8:])


def test_a_batch_that_straddles_the_end_of_the_copy_is_not_appended(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, [*batches(0, 5), batch_of(5, 10, "a")])
    run(source, target)
    held = content(target)
    make(source, [*batches(0, 5), batch_of(5, 20, "b")])
    for _ in range(2):
        assert "Offsets 5 to 14 are not those of the source" in (run(source, target).problem or "")
        assert content(target) == held
    check_sound(target)
    assert run(source, target, TRUNCATE).problem is None
    assert content(target) == content(source)


def test_a_log_refuses_a_batch_that_begins_before_its_end(tmp_path: Path) -> None:
    with BackupLog.create(str(tmp_path / "t-0"), T0, SMALL, 7) as log:
        log.append(piece(batch(5, 1)))  # the log start offset lies in it
        with pytest.raises(OverlapError, match="begins before offset 10"):
            log.append(piece(batch_of(5, 10, "")))
        log.append(piece(batch(5, 1) + batch(10, 1)))
        assert log.next_offset == 15
    assert content(tmp_path) == batch(5, 1) + batch(10, 1)


@pytest.mark.parametrize("begin", [20, 10], ids=["behind lost batches", "next"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_gap_ends_within_the_batch_in_which_the_source_begins(
    begin: int, compression: str, tmp_path: Path
) -> None:
    """The marker that aborts what is open before the gap stands before that batch, if one is lost."""
    source, target, log_dir = tmp_path / "source", tmp_path / "target", tmp_path / "broker"
    in_transaction = np.frombuffer(batch(5, 1), np.uint8).copy()
    stamp(in_transaction, producer_id=9, producer_epoch=0, base_sequence=0)
    before = [batch(0, 1), in_transaction.tobytes()]
    make(source, before)
    run(source, target)
    cut = batch_of(begin, 20, "", EncodeSettings(compression=compression))
    after = [cut, batch(begin + 20, 1), marker(9, commit=True, offset=begin + 25)]
    make(source, [*before, *([batch_of(10, 10, "")] if begin == 20 else []), *after])
    set_log_start(source, begin + 10)
    held = content(target)
    gone = f"Offsets 10 to {begin + 9} are gone from the source"
    assert gone in (run(source, target).problem or "")
    assert content(target) == held
    for rules in (ALLOW_GAPS, NO_GROUPS):
        row = run(source, target, rules)
        assert (row.problem, row.gaps) == (None, [OffsetRange(10, begin + 10)])
        assert row.log_end_offset == begin + 26
        committed = range(5 if begin == 20 else 10)
        assert visible(target) == [*committed, *range(begin + 10, begin + 25)]
        kept = [left(cut, *range(begin + 10, begin + 20)), *after[1:]]
        assert content(target).endswith(b"".join(kept))
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\n")
    make_log(log_dir, [])
    assert connect(target).logs.adopt(str(log_dir), groups=False, execute=True)[0].problem is None
    assert visible(log_dir) == visible(target)
    check_sound(target)


def test_a_log_that_was_closed_without_records_may_begin_before_its_start(tmp_path: Path) -> None:
    """As where the source's log start offset lies in a batch, and the first run was stopped before it."""
    with BackupLog.create(str(tmp_path / "t-0"), T0, SMALL, 7):
        pass
    for was_clean in True, False:
        with BackupLog.open(str(tmp_path / "t-0"), T0, SMALL, 7, was_clean=was_clean) as log:
            assert log.is_empty
    with BackupLog.open(str(tmp_path / "t-0"), T0, SMALL, 7, was_clean=True) as log:
        log.append(piece(batch(5, 1) + batch(10, 1)))
    assert [file.name for file in (tmp_path / "t-0").glob("*.log")] == [f"{5:020}.log"]
    assert content(tmp_path) == batch(5, 1) + batch(10, 1)
    assert not [
        damage for found in verify(LogDirectory.open(str(tmp_path)), [T0]) for damage in found.damages
    ]


def test_a_topic_made_anew_without_topic_ids_is_refused(tmp_path: Path) -> None:
    """Neither is its copy ever cut to nothing."""
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50), topic_id="")
    run(source, target)
    held = content(target)
    for end in 50, 200:
        make(source, batches(0, end, "recreated"), topic_id="")
        for rules in NO_GROUPS, TRUNCATE, ALLOW_GAPS:
            row = run(source, target, rules)
            assert "Offsets 0 to 49 are not those of the source" in (row.problem or "")
            assert "never cut to nothing" in (row.problem or "")
            assert (content(target), row.truncated) == (held, [])
    make(source, batches(100, 200, "recreated"), topic_id="", start=100)
    assert "never copied" in (run(source, target).problem or "")
    assert "it has no id, and all that it shared" in (run(source, target, ALLOW_GAPS).problem or "")
    assert content(target) == held


@pytest.mark.parametrize("topic_id", [TOPIC_ID, ""], ids=["with id", "without id"])
@pytest.mark.parametrize(
    "left_of_it",
    [
        [*batches(0, 45), left(batch(45, 1), 46, 49)],
        [*batches(0, 45), left(batch(45, 1))],
        batches(0, 45),
        batches(10, 15),
        [left(batch(10, 1), 13)],
    ],
    ids=["some records", "no record", "batches before it", "one batch", "one record"],
)
def test_what_a_cleaner_has_left_is_the_same(left_of_it: list[bytes], topic_id: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50), topic_id=topic_id)
    run(source, target)
    held = content(target)
    make(source, [*left_of_it, *batches(60, 100)], topic_id=topic_id)
    assert run(source, target).problem is None
    assert content(target) == held + b"".join(batches(60, 100))
    check_sound(target)


@pytest.mark.parametrize(
    "left_of_it",
    [
        [*batches(0, 45), left(batch(45, 1, "other"), 46)],
        batches(10, 15, "other"),
        [left(batch(10, 1, "other"), 13)],
        [*batches(0, 40), batch_of(40, 10, "")],
    ],
    ids=["some records", "one batch", "one record", "other offsets"],
)
def test_what_a_cleaner_has_left_of_another_history_is_not_the_same(
    left_of_it: list[bytes], tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50))
    run(source, target)
    held = content(target)
    make(source, [*left_of_it, *batches(60, 100)])
    assert "are not those of the source" in (run(source, target).problem or "")
    assert content(target) == held


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_header_that_a_cleaner_has_left_is_compressed_no_more(compression: str, tmp_path: Path) -> None:
    """Kafka's DefaultRecordBatch.writeEmptyHeader, for the last batch of each idempotent producer."""
    source, target = tmp_path / "source", tmp_path / "target"
    of_producer = EncodeSettings(compression, producer_id=7, producer_epoch=0, base_sequence=0)
    last = batch_of(45, 5, "", of_producer)
    make(source, before := [*batches(0, 45), last])
    run(source, target)
    make(source, [*batches(0, 45), left(last), *batches(60, 100)])
    assert run(source, target).problem is None
    assert content(target) == b"".join([*before, *batches(60, 100)])


def test_where_a_cleaner_has_left_nothing_the_topic_id_decides(tmp_path: Path) -> None:
    for topic_id, problem in (TOPIC_ID, None), ("", "none of the records that were copied is left"):
        source, target = tmp_path / f"source{topic_id}", tmp_path / f"target{topic_id}"
        make(source, batches(0, 50), topic_id=topic_id)
        run(source, target)
        make(source, batches(60, 100), topic_id=topic_id)
        found = run(source, target).problem
        assert found is None if problem is None else problem in (found or "")
        assert content(target) == b"".join([*batches(0, 50), *(batches(60, 100) if topic_id else [])])


def test_what_retention_has_deleted_at_the_source_needs_no_comparison(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, batches(0, 50))
    run(source, target)
    make(source, batches(50, 100), start=50)
    assert run(source, target).problem is None
    assert content(target) == b"".join(batches(0, 100))


def made(broker: OldBroker, topic: str) -> bool:
    try:
        broker.make_topic(topic)
    except TopicAlreadyExistsError:
        return False
    return True


@pytest.mark.broker
@pytest.mark.slow
def test_a_topic_made_anew_in_brokers_without_topic_ids(old_broker: OldBroker, tmp_path: Path) -> None:
    topic = unused_topic()
    partition = TopicPartition(topic, 0)
    options = {"kafka.bootstrap.servers": old_broker.bootstrap}
    groups, rules = connect(options).groups, BackupRules(topics=(topic,))
    old_broker.make_topic(topic)
    produce(connected(old_broker.bootstrap), topic, [numbered(10)])
    groups.commit("g", {partition: CommittedOffset(7)})
    (row,) = connect(options).logs.backup(str(tmp_path), rules)
    assert (row.problem, row.log_end_offset) == (None, 10)
    held = content(tmp_path, partition)
    old_broker.delete_topic(topic)
    old_broker.wait_until(lambda: made(old_broker, topic), "its old name is not free")
    produce(connected(old_broker.bootstrap), topic, [numbered(14, 100)])
    groups.commit("g", {partition: CommittedOffset(3)})
    (row,) = connect(options).logs.backup(str(tmp_path), rules)
    assert "Offsets 0 to 9 are not those of the source" in (row.problem or "")
    assert content(tmp_path, partition) == held
    saved = connect(tmp_path).groups.committed("g")
    assert saved[partition].offset == 7, "that of the topic of old"


@pytest.mark.soak
@pytest.mark.broker
def test_a_broker_whose_disk_was_set_back_by_several_leader_epochs(
    new_broker: Callable[[], Broker], tmp_path: Path
) -> None:
    """It has no answer for the copy's newest leader epochs, except the one that both have."""
    broker, older = new_broker(), tmp_path / "older"
    broker.start()
    topic = unused_topic()
    partition = TopicPartition(topic, 0)
    broker.create_topic(topic, 1)
    options = {"kafka.bootstrap.servers": broker.bootstrap}

    def go_on(count: int, first: int = 0) -> None:
        produce(connected(broker.bootstrap), topic, [numbered(count, first)], enable_idempotence=False)

    go_on(40)
    broker.stop()
    shutil.copytree(broker.log_dir, older)
    for _ in range(2):  # each start begins a leader epoch
        broker.start()
        go_on(10)
        broker.stop()
    broker.start()
    rules = BackupRules((topic,), groups=())
    (row,) = connect(options).logs.backup(str(tmp_path / "target"), rules)
    assert (row.problem, row.log_end_offset) == (None, 60)
    broker.stop()
    shutil.rmtree(broker.log_dir)
    shutil.copytree(older, broker.log_dir)
    broker.start()
    go_on(10, 100)  # in the leader epoch that the copy has for other records of these offsets
    held = content(tmp_path / "target", partition)
    (row,) = connect(options).logs.backup(str(tmp_path / "target"), rules)
    assert "Offsets 50 to 59 are not those of the source" in (row.problem or "")
    assert content(tmp_path / "target", partition) == held
    (row,) = connect(options).logs.backup(str(tmp_path / "target"), replace(rules, truncate=True))
    assert (row.problem, row.log_end_offset) == (None, 50)
    assert row.truncated == [OffsetRange(50, 60), OffsetRange(40, 50)]
    broker.stop()
    assert content(tmp_path / "target", partition) == content(Path(broker.log_dir), partition)
    check_sound(tmp_path / "target")


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["as written", "with a delete horizon"])
def test_a_transaction_that_ended_otherwise_is_another_history(is_cleaned: bool, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    before = [data_batch(0, 7), control_batch(1, 7, commit=True)]
    make(source, before)
    run(source, target)
    for commit in (True, False):
        ended = control_batch(1, 7, commit=commit)
        after = [
            data_batch(0, 7),
            left(ended, 1, starts_horizon=True) if is_cleaned else ended,
            data_batch(2, 8),
        ]
        make(source, after)
        row = run(source, target)
        if commit:
            assert row.problem is None
            assert visible(target) == [0]
            shutil.rmtree(target)
            make(source, before)
            run(source, target)
    assert "Offsets 1 to 1 are not those of the source" in (row.problem or "")
    assert content(target) == b"".join(before)
    row = run(source, target, TRUNCATE)
    assert (row.problem, row.truncated) == (None, [OffsetRange(1, 2)])
    assert visible(target) == []
    check_sound(target)


@pytest.mark.parametrize("change", ["another leader epoch", "another compression"])
def test_the_same_records_in_another_batch_are_another_history(change: str, tmp_path: Path) -> None:
    """Only a cleaner writes a batch again, and it leaves its mark."""
    source, target = tmp_path / "source", tmp_path / "target"
    make(source, [batch_of(0, 5, ""), batch_of(5, 5, "")])
    run(source, target)
    other = batch_of(5, 5, "", EncodeSettings(compression="gzip"))
    if change == "another leader epoch":
        other = batch_of(5, 5, "")
        other = other[:12] + struct.pack(">i", 2) + other[16:]
    make(source, [batch_of(0, 5, ""), other, batch_of(10, 5, "")])
    assert "Offsets 5 to 9 are not those of the source" in (run(source, target).problem or "")
    assert run(source, target, TRUNCATE).problem is None
    assert content(target) == content(source)
