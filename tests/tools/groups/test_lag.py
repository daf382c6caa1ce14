"""How far behind a stream is, in offsets as Spark counts them and in bytes where their size is known."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.tools.groups.lag import QueryLag, SourceLag, source_lag

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SIZES = {A0: 10.0, A1: 100.0}


def lag(start: Offsets | None, end: Offsets, latest: Offsets, **how: dict) -> SourceLag | None:
    return source_lag(start, end, latest, rows=5, record_bytes=how.get("record_bytes", {}))


def test_offsets_behind() -> None:
    assert lag({A0: 0, A1: 0}, {A0: 3, A1: 7}, {A0: 5, A1: 8}) == SourceLag({A0: 2, A1: 1}, None, None)


def test_of_all_partitions() -> None:
    found = SourceLag({A0: 2, A1: 1}, None, None)
    assert (found.min_offsets_behind, found.avg_offsets_behind, found.max_offsets_behind) == (1, 1.5, 2)
    assert found.offsets_behind == 3


def test_a_partition_of_which_nothing_is_consumed_counts_from_zero() -> None:
    assert lag({A0: 0}, {A0: 3}, {A0: 3, A1: 8}) == SourceLag({A0: 0, A1: 8}, None, None)


def test_partitions_that_are_gone_do_not_count() -> None:
    assert lag({A0: 0, A1: 0}, {A0: 3, A1: 8}, {A0: 3}) == SourceLag({A0: 0}, None, None)


def test_a_log_that_ends_before_what_was_read_hides_no_lag() -> None:
    found = lag({A0: 0, A1: 0}, {A0: 500, A1: 3}, {A0: 20, A1: 8})
    assert found == SourceLag({A0: 0, A1: 5}, None, None, {A0: 480})
    assert found.offsets_behind == 5
    event = QueryLag("id", "run", "q", 1, "now", 0, 0.0, 0.0, None, (found,))
    assert str(event).endswith("logs that end before what was read: a-0")


def test_an_end_that_cannot_be_looked_up() -> None:
    found = source_lag(None, {A0: 3, A1: 7}, {A0: 5}, rows=5, record_bytes={}, unknown={A1: "no leader"})
    assert found == SourceLag({A0: 2}, None, None, unknown={A1: "no leader"})
    event = QueryLag("id", "run", "q", 1, "now", 0, 0.0, 0.0, None, (found,))
    assert str(event).endswith("ends unknown: a-1")


def test_no_partitions() -> None:
    assert lag({}, {}, {}) is None


def test_bytes() -> None:
    found = lag({A0: 1, A1: 1}, {A0: 3, A1: 7}, {A0: 5, A1: 8}, record_bytes=SIZES)
    assert found == SourceLag({A0: 2, A1: 1}, 2 * 10 + 6 * 100, 2 * 10 + 1 * 100)


def test_bytes_of_a_first_batch_follow_from_its_rows() -> None:
    found = lag(None, {A0: 3, A1: 7}, {A0: 3, A1: 7}, record_bytes=SIZES)
    assert found is not None
    assert found.bytes_read == 5 * (10 + 100) / 2
    assert found.bytes_behind == 0


@pytest.mark.parametrize(
    ("latest", "behind"), [({A0: 3, B0: 0}, 0), ({A0: 5, B0: 0}, 20), ({A0: 5, B0: 1}, None)]
)
def test_only_partitions_with_unread_offsets_need_a_size(latest: Offsets, behind: int | None) -> None:
    found = lag({A0: 1}, {A0: 3, B0: 0}, latest, record_bytes=SIZES)
    assert found is not None
    assert (found.bytes_read, found.bytes_behind) == (20, behind)
