"""Which topic and partition a row goes to, and how a row becomes a record."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from pyspark_kafkalog.errors import InvalidRecordError, OptionError
from pyspark_kafkalog.write.routing import Router, load_partitioner
from pyspark_kafkalog.write.rows import to_records

NOW = 1_700_000_000_000
UTC = datetime.timezone.utc


def routed(rows: pa.RecordBatch, **settings: Any) -> dict[str, list[int]]:
    """Partition -> its row numbers."""
    router = Router(
        **{"topic": "t", "partition_count": lambda _: 4, "partitioner": None, "batch_size": 100, **settings}
    )
    found = router.route(rows, to_records(rows, now_ms=NOW))
    return {
        str(p): list(range(rows.num_rows)) if indices is None else indices.tolist() for p, indices in found
    }


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_partition_beats_partitioner_beats_key() -> None:
    batch = rows(value=["a", "b", "c"], key=["k", "k", None], partition=pa.array([3, None, None], pa.int32()))
    hashed = (murmur2(b"k") & 0x7FFFFFFF) % 4
    found = routed(batch)
    assert 0 in found["t-3"]
    assert 1 in found[f"t-{hashed}"]
    assert routed(batch, partitioner=lambda key, every, _: every[0] if key else every[1]) == {
        "t-0": [1],
        "t-1": [2],
        "t-3": [0],
    }


def test_null_keys_stay_until_a_batch_is_full_and_then_move_on() -> None:
    batch = rows(value=["x" * 50] * 8)
    assert routed(batch, first=3, batch_size=124) == {
        "t-0": [2, 3],
        "t-1": [4, 5],
        "t-2": [6, 7],
        "t-3": [0, 1],
    }


def test_keys_may_be_ignored() -> None:
    batch = rows(value=["x" * 50] * 6, key=["same"] * 6)
    assert routed(batch, distribution="sticky", first=3, batch_size=132) == {
        "t-0": [2, 3],
        "t-1": [4, 5],
        "t-3": [0, 1],
    }
    assert routed(batch, distribution="round-robin", first=3) == {
        "t-0": [1, 5],
        "t-1": [2],
        "t-2": [3],
        "t-3": [0, 4],
    }


def test_turns_go_on_with_the_next_rows() -> None:
    router = Router(
        topic="t",
        partition_count=lambda _: 3,
        partitioner=None,
        batch_size=100,
        distribution="round-robin",
    )
    batch = rows(value=["x"] * 4)
    records = to_records(batch, now_ms=NOW)
    found = [
        {p.partition: indices.tolist() for p, indices in router.route(batch, records) if indices is not None}
        for _ in range(2)
    ]
    assert found == [{0: [0, 3], 1: [1], 2: [2]}, {0: [2], 1: [0, 3], 2: [1]}]


def test_the_topic_option_beats_the_column() -> None:
    batch = rows(value=["1", "2", "3"], topic=["b", "a", "b"], partition=pa.array([0, 0, 1], pa.int32()))
    assert routed(batch, topic=None) == {"a-0": [1], "b-0": [0], "b-1": [2]}
    assert routed(batch) == {"t-0": [0, 1], "t-1": [2]}


@pytest.mark.parametrize("partition", [-1, 4])
def test_partitions_that_do_not_exist_are_refused(partition: int) -> None:
    with pytest.raises(InvalidRecordError, match=f"partition {partition}, but topic 't' has 4"):
        routed(rows(value=["a"], partition=pa.array([partition], pa.int32())))


def test_a_partition_that_has_come_since_gets_the_rows_that_name_it() -> None:
    batch = rows(value=["a", "b", "c"], key=["k", "k", "k"], partition=pa.array([5, None, 5], pa.int32()))
    found = routed(batch, has_partition=lambda partition: partition == ("t", 5))
    without = routed(rows(value=["b"], key=["k"]))
    assert found == {"t-5": [0, 2], **{name: [1] for name in without}}
    with pytest.raises(InvalidRecordError, match="partition 6, but topic 't' has 4"):
        routed(rows(value=["a"], partition=pa.array([6], pa.int32())), has_partition=lambda p: p[1] == 5)


def test_no_rows_go_nowhere() -> None:
    assert routed(rows(value=pa.array([], pa.string()), partition=pa.array([], pa.int32()))) == {}


def test_a_partitioners_odd_answer_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="returned 9"):
        routed(rows(value=["a"]), partitioner=lambda *_: 9)


def test_partitioners_are_found_by_their_import_path() -> None:
    assert load_partitioner(None) is None
    assert load_partitioner("operator:itemgetter") is not None
    for path in ("no_such_module:f", "operator:no_such_name", "math:pi"):
        with pytest.raises(OptionError, match=path):
            load_partitioner(path)


def no_partitioner(key: bytes) -> int:
    return 0


def test_a_partitioner_that_takes_other_arguments_is_refused() -> None:
    with pytest.raises(OptionError, match=r"called with \(key, all_partitions, available_partitions\)"):
        load_partitioner(f"{__name__}:no_partitioner")


def test_timestamps_are_milliseconds_rounded_down() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    batch = rows(value=["a", "b", "c"], timestamp=pa.array([moment, None, before], pa.timestamp("us", "UTC")))
    assert to_records(batch, now_ms=NOW).column("timestamp").to_pylist() == [
        int(moment.timestamp() * 1000),
        NOW,
        -1,
    ]
    assert to_records(rows(value=["a"]), now_ms=NOW).column("timestamp").to_pylist() == [NOW]
