"""A directory continues a query's history only where it is proven that both share it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.extensions.cleanup.after_commit import AfterCommit
from pyspark_kafkalog.log.publish.journal import ledger_file
from pyspark_kafkalog.log.publish.ledger import Provenance
from pyspark_kafkalog.log.publish.publish import Published
from pyspark_kafkalog.log.publish.topics import delete_topics
from pyspark_kafkalog.model import Plan, QueryBatch, TopicPartition
from tests.log.writing import (
    T0,
    T1,
    files_beside_partitions,
    publish_staged,
    read,
    stage,
    values,
    write_batch,
)

LEDGER = ledger_file("query")


def plan(number: int, history: str = "") -> Plan:
    """That of a micro-batch, in one of several histories that part at micro-batch 1."""
    parted = [history if each else "" for each in (number, number - 1)]
    return Plan(f"{number}{parted[0]}", before=f"{number - 1}{parted[1]}")


def run(root: Path, number: int, history: str = "", rows: int = 1, *, required: bool = True) -> Published:
    """Write a micro-batch of so many rows; each is of its batch."""
    records = {T0: [b"%d" % number] * rows} if rows else {}
    return write_batch(root, number, records, history=Provenance(plan(number, history), required=required))


def test_a_micro_batch_that_runs_again_is_skipped(tmp_path: Path) -> None:
    for number in range(3):
        assert not run(tmp_path, number).skipped
    assert run(tmp_path, 2, rows=7).skipped
    assert read(tmp_path)[T0] == [b"0", b"1", b"2"]


def test_a_micro_batch_that_was_planned_anew_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 0)
    run(tmp_path, 1)
    for required in (True, False):
        with pytest.raises(
            LogDirectoryError, match=rf"has micro-batch 1 .*other offsets.*{LEDGER}.*new chec"
        ):
            run(tmp_path, 1, "replanned", required=required)
    assert read(tmp_path)[T0] == [b"0", b"1"]


def test_a_checkpoint_that_was_set_back_goes_on_as_the_error_says(tmp_path: Path) -> None:
    for number in range(3):
        run(tmp_path, number)
    with pytest.raises(
        LogDirectoryError, match="delete this file and set failOnMissingMarker to false for one run"
    ) as e:
        run(tmp_path, 1, "replanned")
    Path(str(e.value.file)).unlink()
    with pytest.raises(LogDirectoryError, match="none of the earlier ones"):
        run(tmp_path, 1, "replanned")
    run(tmp_path, 1, "replanned", required=False)
    run(tmp_path, 2, "replanned")
    assert read(tmp_path)[T0] == [b"0", b"1", b"2", b"1", b"2"]


def test_a_micro_batch_that_follows_another_history_is_refused(tmp_path: Path) -> None:
    run(tmp_path, 0)
    run(tmp_path, 1)
    with pytest.raises(LogDirectoryError, match=r"has micro-batch 1 .*other offsets"):
        run(tmp_path, 2, "of a copy")
    assert read(tmp_path)[T0] == [b"0", b"1"]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_directory_that_is_older_than_the_checkpoint_is_refused(tmp_path: Path, rows: int) -> None:
    root, copy = tmp_path / "log", tmp_path / "copy"
    run(root, 0)
    shutil.copytree(root, copy)
    run(root, 1, rows=rows)
    run(root, 2, rows=rows)
    with pytest.raises(
        LogDirectoryError, match=rf"Expected micro-batch 1 of .*, got 3.*{LEDGER}.*failOnMiss"
    ):
        run(copy, 3, rows=rows)
    assert read(copy)[T0] == [b"0"]
    run(copy, 3, required=False)
    run(copy, 4)
    assert read(copy)[T0] == [b"0", b"3", b"4"]
    run(root, 3)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_directory_that_is_gone_is_refused(tmp_path: Path, rows: int) -> None:
    root = tmp_path / "log"
    with pytest.raises(
        LogDirectoryError, match=rf"Micro-batch 7 .*none of the earlier.*{LEDGER}.*failOnMiss"
    ):
        run(root, 7, rows=rows)
    assert not root.exists() or not read(root)
    run(root, 7, rows=rows, required=False)
    run(root, 8)
    assert read(root)[T0] == [b"7"] * rows + [b"8"]


def test_micro_batches_without_rows_are_noted(tmp_path: Path) -> None:
    root = tmp_path / "new" / "log"
    for number in range(3):
        assert run(root, number, rows=0) == Published()
        assert files_beside_partitions(root) == {LEDGER}
    assert run(root, 2, rows=0).skipped
    with pytest.raises(LogDirectoryError, match="Expected micro-batch 2 or later"):
        run(root, 1, rows=0)
    with pytest.raises(LogDirectoryError, match="other offsets"):
        run(root, 2, "replanned", rows=0)
    run(root, 3)
    assert read(root)[T0] == [b"3"]


def write_both(
    root: Path, number: int, *partitions: TopicPartition, required: bool = True, **settings: Any
) -> Published:
    """Write a micro-batch with a row for each of the partitions."""
    records = {partition: [b"%d" % number] for partition in partitions}
    history = Provenance(plan(number), required=required)
    return write_batch(root, number, records, history=history, **settings)


def set_back(root: Path, partition: TopicPartition, copy: Path) -> None:
    shutil.rmtree(root / str(partition))
    shutil.copytree(copy / str(partition), root / str(partition))


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A directory whose partition 1 lacks micro-batch 1; its last one, 3, has a row for partition 0."""
    root, copy = tmp_path / "log", tmp_path / "copy"
    write_both(root, 0, T0, T1)
    shutil.copytree(root, copy)
    write_both(root, 1, T0, T1)
    run(root, 2, rows=0)
    write_both(root, 3, T0)
    set_back(root, T1, copy)
    return root


REPLACED = r"at offset 1 is not the one that query query has written.*t-1.*set back.*failOnMissingMarker"
OLDER = r"ends at offset 1, and query query .* up to offset 2.*t-1.*set back.*failOnMissingMarker"


def test_a_partition_that_was_set_back_is_refused(older: Path) -> None:
    """Whichever micro-batch wrote to it last."""
    before = {partition: list(values) for partition, values in read(older).items()}
    for _ in range(2):
        with pytest.raises(LogDirectoryError, match=OLDER):
            write_both(older, 4, T0, T1)
    assert read(older) == before
    write_both(older, 4, T0, T1, required=False)
    write_both(older, 5, T0, T1)
    assert read(older)[T1] == [b"0", b"4", b"5"]


def test_a_micro_batch_that_runs_again_misses_its_partition(tmp_path: Path) -> None:
    root, copy = tmp_path / "log", tmp_path / "copy"
    write_both(root, 0, T0, T1)
    shutil.copytree(root, copy)
    write_both(root, 1, T0, T1)
    set_back(root, T1, copy)
    with pytest.raises(LogDirectoryError, match=OLDER):
        write_both(root, 1, T0, T1)
    assert write_both(root, 1, T0, T1, required=False).skipped


def write_as_other(root: Path, number: int, rows: int, **settings: Any) -> None:
    """Write a micro-batch of another query to partition 1."""
    records = {T1: [b"other"] * rows}
    write_batch(root, number, records, "other", history=Provenance(plan(number)), **settings)


APPEND_TIME = pytest.mark.parametrize("log_append_time", [False, True], ids=["create time", "append time"])


@APPEND_TIME
@pytest.mark.parametrize("rows", [1, 3], ids=["as far", "farther"])
def test_a_partition_that_was_set_back_and_filled_again_is_refused(
    tmp_path: Path, rows: int, *, log_append_time: bool
) -> None:
    root, copy = tmp_path / "log", tmp_path / "copy"
    write_both(root, 0, T0, T1, log_append_time=log_append_time)
    shutil.copytree(root, copy)
    write_both(root, 1, T0, T1, log_append_time=log_append_time)
    set_back(root, T1, copy)
    write_as_other(root, 0, rows, log_append_time=log_append_time)
    for number in 1, 2:
        with pytest.raises(LogDirectoryError, match=REPLACED):
            write_both(root, number, T0, T1)
    write_both(root, 2, T0, T1, required=False)
    write_both(root, 3, T0, T1)
    assert read(root)[T1] == [b"0", *[b"other"] * rows, b"2", b"3"]


@APPEND_TIME
def test_others_may_write_behind_a_query(tmp_path: Path, *, log_append_time: bool) -> None:
    """The last batch is known with the offsets, and the timestamp, that it gets as it is appended."""
    for number in range(3):
        write_both(tmp_path, number, T0, T1, log_append_time=log_append_time)
        write_as_other(tmp_path, number, 2, log_append_time=log_append_time)
    assert read(tmp_path)[T1] == [v for n in range(3) for v in (b"%d" % n, b"other", b"other")]


@pytest.mark.parametrize("kept", [0, 1])
def test_compaction_does_not_set_a_partition_back(tmp_path: Path, kept: int) -> None:
    """Neither where it takes records out of the last batch, nor where it takes all of the batch."""
    keys = [b"a", b"b"]
    options: dict[str, Any] = {"keyed": True, "segment_bytes": 200}
    write_batch(tmp_path, 0, {T0: keys}, history=Provenance(plan(0)), **options)
    for _ in range(2):  # the last one is in the active segment, which no cleaner touches
        write_batch(tmp_path, 0, {T0: [*keys[kept:], b"c"]}, uuid4().hex, **options)
    assert connect(tmp_path).logs.compact(["t"], any_policy=True, execute=True)
    write_batch(tmp_path, 1, {T0: [b"d"]}, history=Provenance(plan(1)), **options)
    offsets = connect(tmp_path).read("t").read_all()["offset"].to_pylist()
    assert [offset for offset in offsets if offset < 2] == [*range(kept)]


@pytest.mark.parametrize("known", [False, True], ids=["when it was written to", "now"])
@pytest.mark.parametrize("metadata", [None, b"malformed"])
def test_a_topic_whose_id_is_not_known_is_the_same(
    tmp_path: Path, metadata: bytes | None, *, known: bool
) -> None:
    root, copy = tmp_path / "log", tmp_path / "copy"
    write_both(root, 0, T0, T1)
    shutil.copytree(root, copy)
    folder = copy if known else root
    file = folder / str(T1) / "partition.metadata"
    file.unlink() if metadata is None else file.write_bytes(metadata)
    write_both(root, 1, T0, T1)
    set_back(root, T1, copy)
    with pytest.raises(LogDirectoryError, match=OLDER):
        write_both(root, 2, T0, T1)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("others", [[], [T1]])
def test_a_partition_that_is_gone_is_refused(
    tmp_path: Path, number: int, others: list[TopicPartition]
) -> None:
    """Also where the micro-batch, which may be the last one again, has no row for it."""
    write_both(tmp_path, 0, T0, T1)
    write_both(tmp_path, 1, T0, T1)
    shutil.rmtree(tmp_path / str(T1))
    for rows in (T0, *others), ():
        with pytest.raises(LogDirectoryError, match=r"is missing.* up to offset 2.*t-1.*failOnMissingMarker"):
            write_both(tmp_path, number, *rows)
    assert write_both(tmp_path, number, T0, required=False).skipped == (number == 1)
    write_both(tmp_path, 2, T0, required=False)
    write_both(tmp_path, 3, T0)
    assert read(tmp_path) == {T0: [b"0", b"1", b"2", b"3"]}


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_that_may_go_on_forgets_no_partition_that_is_there(tmp_path: Path, rows: int) -> None:
    root, copy = tmp_path / "log", tmp_path / "copy"
    write_both(root, 0, T0, T1)
    shutil.copytree(root, copy)
    write_both(root, 1, T0, T1)
    run(root, 2, rows=rows, required=False)
    set_back(root, T1, copy)
    with pytest.raises(LogDirectoryError, match=OLDER):
        write_both(root, 3, T0, T1)


def test_a_micro_batch_that_runs_again_needs_no_topic_that_is_gone(tmp_path: Path) -> None:
    write_both(tmp_path, 0, T0, T1)
    for partition in T0, T1:
        shutil.rmtree(tmp_path / str(partition))
    assert write_both(tmp_path, 0, T0, T1).skipped


def test_a_micro_batch_that_runs_again_may_go_on_with_a_damaged_partition(tmp_path: Path) -> None:
    write_both(tmp_path, 0, T0, T1)
    log = tmp_path / str(T1) / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    with pytest.raises(CorruptRecordError):
        write_both(tmp_path, 0, T0, T1)
    assert write_both(tmp_path, 0, T0, T1, required=False).skipped


def test_partitions_that_a_query_has_not_written_to_are_not_its_matter(older: Path) -> None:
    write_both(older, 4, T0)
    write_batch(older, 0, {T1: [b"other"]}, "other", history=Provenance(plan(0)))
    assert read(older)[T1] == [b"0", b"other"]


def test_a_topic_that_was_deleted_and_created_again_is_another(tmp_path: Path) -> None:
    run(tmp_path, 0, rows=5)
    delete_topics(str(tmp_path), ["t"], lambda _: {})
    run(tmp_path, 1)
    assert read(tmp_path)[T0] == [b"1"]


def test_retention_does_not_set_a_partition_back(tmp_path: Path) -> None:
    run(tmp_path, 0, rows=5)
    AfterCommit()(str(tmp_path), {"t"}, {"retention.ms": "1"}, lambda: None, rolled=True)
    assert read(tmp_path)[T0] == []
    run(tmp_path, 1)
    assert read(tmp_path)[T0] == [b"1"]


def test_without_knowing_the_checkpoint(tmp_path: Path) -> None:
    """A query that may go on nevertheless writes a micro-batch again."""
    run(tmp_path, 0)
    with pytest.raises(LogDirectoryError, match="nothing tells"):
        write_batch(tmp_path, 0, {T0: values(1)}, history=Provenance(Plan(None)))
    assert not write_batch(tmp_path, 0, {T0: [b"0"]}, history=Provenance(Plan(None), required=False)).skipped
    assert read(tmp_path)[T0] == [b"0", b"0"]


def test_a_job_numbers_its_batches(tmp_path: Path) -> None:
    def job(number: int, digest: str = "") -> Published:
        return write_batch(
            tmp_path, number, {T0: [b"%d" % number]}, history=Provenance(Plan(digest), is_job=True)
        )

    for number in (3, 3, 7):
        job(number)
    assert read(tmp_path)[T0] == [b"3", b"7"]
    with pytest.raises(
        LogDirectoryError, match=r"Expected txnVersion 7 or later of this txnAppId, got 5.*another"
    ):
        job(5)
    job(8, "plan")
    assert job(8, "plan").skipped
    assert job(8).skipped
    with pytest.raises(LogDirectoryError, match="other offsets"):
        job(8, "replanned")


def test_a_ledger_of_another_query(tmp_path: Path) -> None:
    run(tmp_path, 0)
    (tmp_path / LEDGER).rename(tmp_path / ledger_file("other"))
    (file,) = stage(tmp_path, "other-1", {T0: values(1)})
    with pytest.raises(LogDirectoryError, match="Cannot read the file"):
        publish_staged(tmp_path, [file], QueryBatch("other", 1))
