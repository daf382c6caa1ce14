"""What is counted, in which buckets, and which counts stand when work is done again or fails."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.extensions.audit.counting import (
    CONSUMER,
    PRODUCER,
    AuditCount,
    AuditedTask,
    ReadAudit,
    WriteAudit,
    audit_rows,
    committed,
    counted,
    load_auditor,
)
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.codec.decoding import ALL_COLUMNS
from tests.fixtures_dir import FIXTURES

TASK = AuditedTask(PRODUCER, "query", 7, "00000")
BUCKET = 600_000


def records(sizes: Sequence[int], timestamps: Sequence[int]) -> pa.RecordBatch:
    values = [None if size < 0 else bytes(size) for size in sizes]
    return pa.RecordBatch.from_arrays(
        [pa.nulls(len(sizes), pa.binary()), pa.array(values, pa.binary()), pa.array(timestamps, pa.int64())],
        names=["key", "value", "timestamp"],
    )


def written(
    options: AuditOptions,
    rows: pa.RecordBatch,
    *,
    topic: str = "t",
    attempt: int = 0,
    awaits_commit: bool = False,
) -> None:
    with WriteAudit(options, TASK, attempt=attempt, awaits_commit=awaits_commit) as audit:
        audit.attempted(topic, rows, None)


def failing(options: AuditOptions, rows: pa.RecordBatch, chosen: np.ndarray) -> None:
    with WriteAudit(options, TASK, attempt=0, awaits_commit=False) as audit:
        audit.attempted("t", rows, chosen)
        _ = 1 / 0


def totals(location: object) -> dict[str, tuple[int, int]]:
    """Kind -> messages and bytes."""
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in audit_rows(str(location)):
        messages[row["kind"]] += row["messages"]
        sizes[row["kind"]] += row["bytes"]
    return {kind: (messages[kind], sizes[kind]) for kind in messages}


TIMESTAMPS = st.integers(-2000, 5000) | st.integers(0, 2**62)


@given(st.lists(st.tuples(st.integers(0, 1000), TIMESTAMPS), min_size=1), st.integers(1, 1500))
def test_the_sums_of_each_bucket(messages: list[tuple[int, int]], bucket_ms: int) -> None:
    sizes, timestamps = (np.array(column, np.int64) for column in zip(*messages, strict=True))
    expected: dict[int, list[int]] = {}
    for size, timestamp in messages:
        bucket = timestamp // bucket_ms if timestamp >= 0 else -(-timestamp // bucket_ms)
        sums = expected.setdefault(bucket * bucket_ms, [0, 0])
        sums[0] += 1
        sums[1] += size
    found = list(counted("t", "ATTEMPT", sizes, timestamps, bucket_ms))
    assert {count.bucket_start: [count.messages, count.bytes] for count in found} == expected
    assert len(found) == len(expected)
    without = list(counted("t", "ATTEMPT", sizes, None, bucket_ms))
    assert without == [AuditCount("t", "ATTEMPT", None, len(messages), int(sizes.sum()))]


def test_what_is_counted_stands_once_however_often_a_task_runs(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    for _ in range(3):
        written(options, records([10, -1, 0], [0, 1, BUCKET]))
    assert totals(tmp_path) == {"ATTEMPT": (3, 10), "SUCCESS": (3, 10)}
    rows = [row for row in audit_rows(str(tmp_path)) if row["kind"] == "SUCCESS"]
    assert [(row["bucketStart"], row["bucketEnd"], row["messages"]) for row in rows] == [
        (0, BUCKET, 2),
        (BUCKET, 2 * BUCKET, 1),
    ]
    assert {(row["side"], row["query"], row["batch"]) for row in rows} == {("producer", "query", 7)}


def test_failed_attempts_are_told_of_beside_the_one_that_succeeds(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing(options, records([10, 20], [0, 0]), np.array([1]))
    written(options, records([10, 20], [0, 0]), attempt=1)
    assert totals(tmp_path) == {"ATTEMPT": (3, 50), "FAILURE": (1, 20), "SUCCESS": (2, 30)}


def test_what_awaits_a_commit_succeeds_with_it(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    written(options, records([10], [0]), awaits_commit=True)
    assert totals(tmp_path) == {"ATTEMPT": (1, 10)}
    committed(options, TASK, 1)
    assert totals(tmp_path) == {"ATTEMPT": (1, 10), "SUCCESS": (1, 10)}


def test_a_run_that_divided_the_work_otherwise_does_not_count_beside_the_last(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    for share in "00000", "00001":
        task = TASK._replace(share=share)
        with WriteAudit(options, task, attempt=0, awaits_commit=True) as audit:
            audit.attempted("t", records([10], [0]), None)
    written(options, records([10, 10], [0, 0]), awaits_commit=True)
    committed(options, TASK, 1)
    assert totals(tmp_path) == {"ATTEMPT": (2, 20), "SUCCESS": (2, 20)}


def test_nothing_but_whole_files_is_left(tmp_path: Path) -> None:
    written(AuditOptions(location=f"file://{tmp_path}/new-folder"), records([10], [0]))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [str(path.relative_to(tmp_path)) for path in files] == ["new-folder/producer/query/7/00000.jsonl"]
    assert list(audit_rows(str(tmp_path / "no such folder"))) == []


def test_a_location_may_be_of_any_file_system() -> None:
    pytest.importorskip("fsspec")
    location = "memory://audit"
    for _ in range(2):
        written(AuditOptions(location=location), records([10], [0]), awaits_commit=True)
    committed(AuditOptions(location=location), TASK, 1)
    assert totals(location) == {"ATTEMPT": (1, 10), "SUCCESS": (1, 10)}


def test_a_location_that_cannot_be_written_to_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "producer").write_text("a file")
    with pytest.raises(LogDirectoryError, match=r"producer/query/7/00000.*auditLocation"):
        written(AuditOptions(location=str(tmp_path)), records([10], [0]))


class Telling:
    """An auditor that reports only how often it was called."""

    def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
        self._about = f"{task.query} {bucket_ms}"
        self._calls: Counter[str] = Counter()

    def record(self, count: AuditCount) -> None:
        self._calls[count.kind] += 1

    def close(self) -> list[AuditCount]:
        return [AuditCount(self._about, kind, None, count, 0) for kind, count in self._calls.items()]


def test_users_may_have_an_auditor_of_their_own(tmp_path: Path) -> None:
    options = AuditOptions("tests.extensions.audit.test_counting:Telling", str(tmp_path), 1000)
    written(options, records([10, 20, 30], [0, 999, 1000]))
    assert totals(tmp_path) == {"ATTEMPT": (2, 0), "SUCCESS": (2, 0)}
    assert {row["topic"] for row in audit_rows(str(tmp_path))} == {"query 1000"}
    with pytest.raises(OptionError, match=r"auditor 'tests\.nothing:Such' cannot be imported"):
        load_auditor("tests.nothing:Such", TASK, 1000)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """What LinkedIn's producer and consumer counted of one topic."""
    manifest = FIXTURES / "large-messages" / "manifest.json"
    if not manifest.is_file():
        pytest.skip("needs the fixture collection, see KAFKALOG_FIXTURES")
    cases = json.loads(manifest.read_text())["cases"]
    return next(case for case in cases if case["case"] == "li_s21_audit")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "messages" in record.getMessage()]


def test_the_lines_of_a_producer_are_those_of_linkedins(
    example: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    sent = [message for message in example["messages"] if message["writer"] == "lm29-audit"]
    sizes = [(message["value_length"] or 0) + len(message["key_hex"] or "") // 2 for message in sent]
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        rows = records(sizes, [message["timestamp"] for message in sent])
        written(AuditOptions(), rows, topic=example["case"])
    assert sorted(lines(caplog)) == sorted(example["audit"]["producer_log"][1:])


def test_the_lines_of_a_consumer_are_those_of_linkedins(
    example: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    partition = TopicPartition(example["case"], 0)
    audit = ReadAudit(AuditOptions(), AuditedTask(CONSUMER, "query", 0, "share"), partition.topic)
    rules = ReadRules(ALL_COLUMNS, read_committed=False, fail_on_data_loss=True, limits=DecodeLimits())
    place, options = LogDirectory.open(str(FIXTURES / "large-messages")), LargeMessageOptions(enabled=True)
    reader = WholeMessageReader(place, rules, options, audit.dropped)
    rows = reader.read(Split(partition, OffsetRange(EARLIEST, LATEST)))
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        assert sum(batch.num_rows for batch in audit.passing(rows)) == 9
    assert sorted(lines(caplog)) == sorted(example["audit"]["consumer_log"][1:])
