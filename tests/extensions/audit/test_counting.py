"""What is counted, in which buckets, and which counts stand when work is done again or fails."""

from __future__ import annotations

import json
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError, OptionError
from pyspark_kafkalog.extensions.audit.auditor import (
    CONSUMER,
    PRODUCER,
    AuditCount,
    AuditedRecord,
    AuditedTask,
    Auditor,
    CountingAuditor,
    format_count,
)
from pyspark_kafkalog.extensions.audit.counting import counted
from pyspark_kafkalog.extensions.audit.counts import audit_counts, audit_rows
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.extensions.audit.stores import FolderStore, Name, _once_read, mark_committed
from pyspark_kafkalog.extensions.audit.task_audit import ReadAudit, WriteAudit, auditor_class
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.options.settings import WriteOptions, read_options, write_options
from pyspark_kafkalog.read.counting import read_counting_of
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.write.counting import write_counting_of
from tests.codec.decoding import ALL_COLUMNS
from tests.fixtures_dir import FIXTURES

TASK = AuditedTask(PRODUCER, "query", 7, "00000")
PARTITION = TopicPartition("t", 3)
HERE = "tests.extensions.audit.test_counting"
BUCKET = 600_000


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def records(
    sizes: Sequence[int], timestamps: Sequence[int], headers: Sequence[Any] | None = None
) -> pa.RecordBatch:
    values = [None if size < 0 else bytes(size) for size in sizes]
    columns = [
        pa.nulls(len(sizes), pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers or [None] * len(sizes), HEADERS),
        pa.array(timestamps, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "headers", "timestamp"])


def written(
    options: AuditOptions,
    rows: pa.RecordBatch,
    *,
    topic: str = "t",
    attempt: int = 0,
    awaits_commit: bool = False,
) -> None:
    with WriteAudit(options, TASK, attempt=attempt, awaits_commit=awaits_commit) as audit:
        audit.attempted(TopicPartition(topic, 3), rows, None)


def failing(options: AuditOptions, rows: pa.RecordBatch, chosen: np.ndarray) -> None:
    with WriteAudit(options, TASK, attempt=0, awaits_commit=False) as audit:
        audit.attempted(PARTITION, rows, chosen)
        _ = 1 / 0


def mark(options: AuditOptions, shares: int = 1) -> None:
    """Note that the batch is complete."""
    store = options.store
    assert store is not None
    mark_committed(store, TASK, shares)


def totals(location: object) -> dict[str, tuple[int, int]]:
    """Kind -> messages and bytes."""
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in audit_rows(FolderStore(str(location))):
        messages[row["kind"]] += row["messages"]
        sizes[row["kind"]] += row["bytes"]
    return {kind: (messages[kind], sizes[kind]) for kind in messages}


TIMESTAMPS = st.integers(-2000, 5000) | st.integers(0, 2**62)
KEYS = st.sampled_from([None, "", "a", "b", "ü"]) | st.text(st.characters(codec="utf-8"), max_size=2)


@given(
    st.lists(st.tuples(st.integers(0, 1000), TIMESTAMPS, KEYS), min_size=1),
    st.integers(1, 1500),
    st.booleans(),
)
def test_the_sums_of_each_key_and_bucket(
    messages: list[tuple[int, int, str | None]], bucket_ms: int, encoded: bool
) -> None:
    sizes, timestamps = (np.array(column, np.int64) for column in list(zip(*messages, strict=True))[:2])
    keys = pa.array([key for _, _, key in messages], pa.string())
    if encoded:
        keys = keys.dictionary_encode()
    expected: dict[Any, list[int]] = {}
    for size, timestamp, key in messages:
        bucket = timestamp // bucket_ms if timestamp >= 0 else -(-timestamp // bucket_ms)
        for place in (key, bucket * bucket_ms), (None, "without keys", bucket * bucket_ms), (key, None):
            sums = expected.setdefault(place, [0, 0])
            sums[0] += 1
            sums[1] += size
    found: dict[Any, list[int]] = {}
    for key, start, count, size in counted(keys, sizes, timestamps, bucket_ms):
        assert (key, start) not in found
        found[key, start] = [count, size]
    for _, start, count, size in counted(None, sizes, timestamps, bucket_ms):
        found[None, "without keys", start] = [count, size]
    for key, _, count, size in counted(keys, sizes, None, bucket_ms):
        found[key, None] = [count, size]
    assert found == expected
    assert list(counted(None, sizes, None, bucket_ms)) == [(None, None, len(messages), int(sizes.sum()))]


def test_what_is_counted_stands_once_however_often_a_task_runs(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    for _ in range(3):
        written(options, records([10, -1, 0], [0, 1, BUCKET]))
    assert totals(tmp_path) == {"ATTEMPT": (3, 10), "SUCCESS": (3, 10)}
    rows = [row for row in audit_rows(FolderStore(str(tmp_path))) if row["kind"] == "SUCCESS"]
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
    mark(options)
    assert totals(tmp_path) == {"ATTEMPT": (1, 10), "SUCCESS": (1, 10)}


def test_a_run_that_divided_the_work_otherwise_does_not_count_beside_the_last(tmp_path: Path) -> None:
    options = AuditOptions(location=str(tmp_path))
    for share in "00000", "00001":
        task = TASK._replace(share=share)
        with WriteAudit(options, task, attempt=0, awaits_commit=True) as audit:
            audit.attempted(PARTITION, records([10], [0]), None)
    written(options, records([10, 10], [0, 0]), awaits_commit=True)
    mark(options)
    assert totals(tmp_path) == {"ATTEMPT": (2, 20), "SUCCESS": (2, 20)}


def read_of(location: Path, start: int, end: int, *, topic: str = "t.1-2") -> None:
    """Count a range of offsets as read, a message at each."""
    partition = TopicPartition(topic, 3)
    task = AuditedTask("consumer", "query", 7, f"{partition}.{start}-{end}")
    audit = ReadAudit(AuditOptions(location=str(location)), task, partition)
    list(audit.passing([records([1] * (end - start), [0] * (end - start)).drop_columns(["timestamp"])]))


def test_a_micro_batch_that_is_read_again_in_other_splits_counts_once(tmp_path: Path) -> None:
    """A leader has moved, or minPartitions has changed, and the first run was killed or not."""
    for splits in ([(0, 10), (10, 20)], [(0, 5), (5, 12)], [(0, 20)]):
        for start, end in splits:
            read_of(tmp_path, start, end)
            read_of(tmp_path, start, end, topic="other")
        assert totals(tmp_path)["SUCCESS"] == (40, 40)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=8))
def test_the_most_offsets_that_do_not_overlap(found: list[tuple[int, int]]) -> None:
    names = {Name("b", f"t-0.{start}-{start + size}"): range(start, start + size) for start, size in found}
    left = [*_once_read(names)]
    chosen = [offset for name in left for offset in names[name]]
    assert len(chosen) == len(set(chosen))
    most = 0
    for count in range(len(names) + 1):
        for some in combinations(names.values(), count):
            offsets = [offset for each in some for offset in each]
            if len(offsets) == len(set(offsets)):
                most = max(most, len(offsets))
    assert len(chosen) == most


def test_nothing_but_whole_files_is_left(tmp_path: Path) -> None:
    written(AuditOptions(location=f"file://{tmp_path}/new-folder"), records([10], [0]))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [str(path.relative_to(tmp_path)) for path in files] == ["new-folder/producer/query/7/00000.jsonl"]


def test_a_folder_that_is_not_one_of_counts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="a folder of auditLocation, got one that does not exist"):
        audit_counts({"path": str(tmp_path / "nowhere")})
    assert audit_counts({"path": str(tmp_path)}).num_rows == 0
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / "7.jsonl").write_text('{"records": 1}')  # of metricsLocation
    with pytest.raises(LogDirectoryError, match="a folder of auditLocation, got one that holds other files"):
        audit_counts({"path": str(tmp_path)})
    written(AuditOptions(location=str(tmp_path)), records([10], [0]))
    assert totals(tmp_path) == {"ATTEMPT": (1, 10), "SUCCESS": (1, 10)}


def test_a_location_may_be_of_any_file_system() -> None:
    pytest.importorskip("fsspec")
    location = "memory://audit"
    for _ in range(2):
        written(AuditOptions(location=location), records([10], [0]), awaits_commit=True)
    mark(AuditOptions(location=location))
    assert totals(location) == {"ATTEMPT": (1, 10), "SUCCESS": (1, 10)}


def test_a_location_that_cannot_be_written_to_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "producer").write_text("a file")
    with pytest.raises(LogDirectoryError, match=r"producer/query/7\).*auditLocation"):
        written(AuditOptions(location=str(tmp_path)), records([10], [0]))


@pytest.mark.parametrize("awaits_commit", [False, True])
def test_once_rows_are_visible_an_audit_fails_no_task(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, awaits_commit: bool
) -> None:
    """Spark would run the task again, and brokers would have its rows twice."""
    options = AuditOptions(location=str(tmp_path / "audit"))
    outcome = pytest.raises(LogDirectoryError, match="00000") if awaits_commit else nullcontext()
    with outcome, WriteAudit(options, TASK, attempt=0, awaits_commit=awaits_commit) as audit:
        audit.attempted(PARTITION, records([10], [0]), None)
        shutil.rmtree(tmp_path / "audit")
        (tmp_path / "audit").write_text("a full disk is as bad")
    assert ("The rows of a task are written, but their audit is lost" in caplog.text) != awaits_commit


class Telling(Auditor):
    """An auditor that reports what it was called with."""

    columns = ("headers",)

    def __init__(self, task: AuditedTask, bucket_ms: int) -> None:
        super().__init__(task, bucket_ms)
        self._calls: list[str] = []

    def audit(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        assert records.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
        place = records.schema.get_field_index("timestamp")
        numbers = records.set_column(place, "timestamp", records.column("timestamp").cast(pa.int64()))
        self._calls.append(f"{partition} {numbers.to_pydict()}")

    def close(self, outcome: str) -> list[AuditCount]:
        about = f"{self.task.query} {self.bucket_ms}"
        return [AuditCount(about, outcome, call, None, 1, 0) for call in self._calls]


def test_users_may_have_an_auditor_of_their_own(tmp_path: Path) -> None:
    options = AuditOptions(f"{HERE}:Telling", str(tmp_path), 1000)
    with WriteAudit(options, TASK, attempt=0, awaits_commit=False) as audit:
        headers = [[("h", b"x")], None, [("i", None)]]
        rows = records([10, 20, 30], [0, 999, 1000], headers)
        audit.attempted(PARTITION, rows, np.array([0, 2]))
        audit.attempted(TopicPartition("t", 4), rows, np.array([1]))
    found = list(audit_rows(FolderStore(str(tmp_path))))
    assert {(row["topic"], row["kind"]) for row in found} == {("query 1000", "SUCCESS")}
    heads = [[{"key": "h", "value": b"x"}], [{"key": "i", "value": None}]]
    seen = {"headers": heads, "timestamp": [0, 1000], "bytes": [10, 30]}
    assert found[0]["auditKey"] == f"t-3 {seen}"
    other = {"headers": [None], "timestamp": [999], "bytes": [20]}
    assert found[1]["auditKey"] == f"t-4 {other}"


class ByHeader(CountingAuditor):
    """Keys from messages, one by one."""

    def audit_key(self, record: AuditedRecord) -> str | None:
        if record.value == bytes(13):
            raise ValueError("unlucky")
        if record.value == bytes(14):
            return 14  # type: ignore[return-value]
        tenant = dict(record.headers).get("tenant")
        return None if tenant is None else f"{record.topic}-{record.partition}-{tenant.decode()}"


class ByHeaderInArrow(CountingAuditor):
    """The same, of many at once."""

    columns = ("headers",)

    def audit_keys(self, partition: TopicPartition, records: pa.RecordBatch) -> pa.Array:
        headers = records.column("headers").to_pylist()
        tenants = [next((h["value"] for h in each or () if h["key"] == "tenant"), None) for each in headers]
        return pa.array([None if t is None else f"{partition}-{t.decode()}" for t in tenants], pa.string())


class Older(ByHeader):
    """A class derived from one with keys asks for what that asks for."""


class Wrong(CountingAuditor):
    """Keys that aren't a column of text with one for each record."""

    columns = ()

    def audit_keys(self, partition: TopicPartition, records: pa.RecordBatch) -> Any:
        size = records.column("bytes")[0].as_py()
        return {1: ["a"], 2: pa.array(["a", "b"]), 3: pa.array([1])}[size]


class Half(Auditor):
    def audit(self, partition: TopicPartition, records: pa.RecordBatch) -> None:
        """See :meth:`Auditor.audit`."""


class WithUnknown(CountingAuditor):
    columns = ("value", "offset")


class Misspelt(CountingAuditor):
    def auditkey(self, record: AuditedRecord) -> str:
        return "never"


class OfTenant(ByHeader):
    def __init__(self, tenant: str) -> None:
        """Take what nothing gives."""


def of_headers(auditor: str, location: Path) -> list[tuple[Any, ...]]:
    options = AuditOptions(f"{HERE}:{auditor}", str(location), 1000)
    headers = [[("tenant", b"x")], None, [("tenant", b"y")], [("a", None), ("tenant", b"x")]]
    with WriteAudit(options, TASK, attempt=0, awaits_commit=False) as audit:
        audit.attempted(PARTITION, records([10, 20, 30, 40], [0, 999, 1000, 5], headers), None)
    rows = [row for row in audit_rows(FolderStore(str(location))) if row["kind"] == "SUCCESS"]
    return sorted((row["auditKey"] or "", row["bucketStart"], row["messages"], row["bytes"]) for row in rows)


@pytest.mark.parametrize("auditor", ["ByHeader", "ByHeaderInArrow", "Older"])
def test_keys_of_ones_own_one_by_one_and_in_arrow(auditor: str, tmp_path: Path) -> None:
    assert of_headers(auditor, tmp_path) == [("", 0, 1, 20), ("t-3-x", 0, 2, 50), ("t-3-y", 1000, 1, 30)]
    keys = audit_counts({"path": str(tmp_path)}).column("auditKey").to_pylist()
    assert set(keys) == {None, "t-3-x", "t-3-y"}


def test_an_auditor_gets_the_columns_that_it_names_and_all_if_it_has_keys_and_names_none() -> None:
    columns = {
        name: tuple(auditor_class(f"{HERE}:{name}").columns) for name in ("ByHeader", "Older", "Wrong")
    }
    every = ("key", "value", "headers", "timestamp")
    assert columns == {"ByHeader": every, "Older": every, "Wrong": ()}
    assert auditor_class("counting").columns == auditor_class("logging").columns == ()


@pytest.mark.parametrize(
    ("auditor", "size", "said"),
    [
        ("ByHeader", 13, r"ByHeader' raised ValueError \(line \d+ of .*test_counting.py\): unlucky"),
        (
            "ByHeader",
            14,
            "raised TypeError: expected audit_key to return a string or None, got int",
        ),
        ("Wrong", 1, "Wrong' raised TypeError: expected audit_keys to return .* of 1 keys, got list"),
        ("Wrong", 2, "expected audit_keys to return a pyarrow.Array of 1 keys, got 2 of them"),
        ("Wrong", 3, "expected keys to be strings, got int64: cast them"),
    ],
)
def test_an_error_of_an_auditor_names_it_and_the_partition(auditor: str, size: int, said: str) -> None:
    options = AuditOptions(f"{HERE}:{auditor}")
    with (
        pytest.raises(KafkaLogError, match=said) as raised,
        WriteAudit(options, TASK, attempt=0, awaits_commit=False) as audit,
    ):
        audit.attempted(PARTITION, records([size], [0]), None)
    assert raised.value.topic_partition == "t-3"


@pytest.mark.parametrize(
    ("auditor", "said"),
    [
        ("tests.nothing:Such", r"auditor 'tests\.nothing:Such' cannot be imported"),
        (f"{HERE}:records", "is not an auditor.*Derive a class"),
        (f"{HERE}:TestCase", "has no such callable"),
        (f"{HERE}:Half", "lacks close"),
        (f"{HERE}:Misspelt", "has no method that is called. Write audit_key or audit_keys"),
        (f"{HERE}:OfTenant", r"too many positional arguments. It is called with \(task, bucket_ms\)"),
        (f"{HERE}:WithUnknown", "asks for the columns .*some of key, value, headers, timestamp"),
    ],
)
def test_what_is_no_auditor_is_refused_before_any_work(auditor: str, said: str, tmp_path: Path) -> None:
    for options in write_options, partial(read_options, batch=True):
        given = {"path": str(tmp_path), "auditor.class": auditor}
        with pytest.raises(OptionError, match=said):
            load(options(given))


def load(options: Any) -> None:
    """As the driver does with options of a write, or of a read."""
    if isinstance(options, WriteOptions):
        write_counting_of(options).load()
    else:
        read_counting_of(options).counted_columns()


def test_a_line_of_a_count_with_a_key() -> None:
    count = AuditCount("t", "SUCCESS", "tenant", None, 2, 30)
    assert format_count(count, 1000) == "(t,SUCCESS,tenant), (2 messages, 30 bytes)"
    first = "[Thu Jan 01 00:00:01 UTC 1970 - Thu Jan 01 00:00:02 UTC 1970]"
    line = format_count(count._replace(bucket_start=1000), 1000)
    assert line == f"{first} : (t,1,SUCCESS,tenant), (2 messages, 30 bytes)"


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
        written(AuditOptions("logging"), rows, topic=example["case"])
    assert sorted(lines(caplog)) == sorted(example["audit"]["producer_log"][1:])


def test_the_lines_of_a_consumer_are_those_of_linkedins(
    example: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    partition = TopicPartition(example["case"], 0)
    audit = ReadAudit(AuditOptions("logging"), AuditedTask(CONSUMER, "query", 0, "share"), partition)
    rules = ReadRules(ALL_COLUMNS, read_committed=False, fail_on_data_loss=True, limits=DecodeLimits())
    place, options = LogDirectory.open(str(FIXTURES / "large-messages")), LargeMessageOptions(enabled=True)
    reader = WholeMessageReader(place, rules, options, audit.dropped)
    rows = reader.read(Split(partition, OffsetRange(EARLIEST, LATEST)))
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        assert sum(batch.num_rows for batch in audit.passing(rows)) == 9
    assert sorted(lines(caplog)) == sorted(example["audit"]["consumer_log"][1:])
