from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.format import ZSTD
from pyspark_kafkalog.codec.isolation import (
    AbortedRecords,
    EndMarker,
    TransactionScan,
    Visibility,
    end_markers,
)
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, TopicPartition
from tests.codec.raw import batch, marker, record, values

TRANSACTIONAL = 0x10
ABORT = struct.pack(">hh", 0, 0)
"""The key of a marker."""
OF_CONTROL = {"attributes": 0x30, "producer_id": 5, "compression": ZSTD}


def test_a_transaction_ends_where_its_last_offset_says() -> None:
    visible = Visibility([AbortedTransaction(1, 10, 20)])
    hidden = {base: visible.hides(1, base, base + 4) for base in (0, 5, 6, 10, 15, 20, 21, 30)}
    assert hidden == {0: False, 5: False, 6: True, 10: True, 15: True, 20: True, 21: False, 30: False}
    assert not visible.hides(2, 12, 13)


def test_a_transaction_without_a_last_offset_ends_at_a_marker() -> None:
    visible = Visibility([AbortedTransaction(1, 10)])
    visible.end_transaction(2, 15)
    visible.end_transaction(1, 9)
    assert visible.hides(1, 1000, 1001)
    visible.end_transaction(1, 20)
    visible.end_transaction(1, 40)
    assert visible.hides(1, 10, 19)
    assert not visible.hides(1, 21, 22)


def test_transactions_may_be_given_again_and_later() -> None:
    visible = Visibility()
    for _ in range(2):
        visible.expect([AbortedTransaction(1, 50), AbortedTransaction(1, 10)])
        visible.end_transaction(1, 20)
    assert [visible.hides(1, base, base) for base in (9, 10, 19, 21, 49, 50, 99)] == [
        False,
        True,
        True,
        False,
        False,
        True,
        True,
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["data", "commit", "abort"]), st.integers(1, 3)),
        max_size=30,
    )
)
def test_a_scan_finds_what_visibility_hides(steps: list[tuple[int, str, int]]) -> None:
    """Compared with a plain model: the next marker of its producer decides the fate of a batch."""
    buffers, offset, plan = [], 0, []
    for producer_id, kind, count in steps:
        if kind == "data":
            fields = {"producer_id": producer_id, "attributes": TRANSACTIONAL}
            buffers.append(values(count, base_offset=offset, **fields))
        else:
            buffers.append(marker(producer_id, commit=kind == "commit", offset=offset))
            count = 1
        plan.append((producer_id, kind, offset, offset + count - 1))
        offset += count
    scan = TransactionScan()
    for buffer in buffers:
        scan.add(buffer, walk(buffer))
    indexed, fetched = Visibility(scan.aborted), Visibility()
    fetched.expect(AbortedTransaction(a.producer_id, a.first_offset) for a in scan.aborted)
    undecided = []
    for at, (producer_id, kind, base_offset, last_offset) in enumerate(plan):
        if kind != "data":
            fetched.end_transaction(producer_id, base_offset)
            continue
        fate = next((k for p, k, *_ in plan[at:] if p == producer_id and k != "data"), None)
        if fate is None:
            undecided.append(base_offset)
        else:
            for visible in (indexed, fetched):
                assert visible.hides(producer_id, base_offset, last_offset) == (fate == "abort")
    assert scan.first_open_offset == min(undecided, default=None)


def test_a_scan_without_transactions_finds_none() -> None:
    scan = TransactionScan()
    data = (
        values(3, producer_id=5)
        + marker(5, commit=False, offset=3)
        + batch([], base_offset=4, count=0, last_offset_delta=0, attributes=0x30, producer_id=5)
    )
    batches = walk(data)
    scan.add(data, batches)
    assert (len(batches), scan.aborted, scan.first_open_offset) == (3, [], None)


def test_an_invalid_marker_is_refused_with_its_place() -> None:
    data = bytearray(values(3) + marker(5, commit=False, offset=3))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError) as e:
        TransactionScan().add(data, walk(data))
    assert e.value.position == len(values(3))


def test_a_marker_that_names_no_type_is_refused() -> None:
    for key in (None, b"", b"\0\0\0"):
        data = batch([record(b"", key=key)], base_offset=3, attributes=0x30, producer_id=5)
        with pytest.raises(CorruptRecordError, match="too short"):
            TransactionScan().add(data, walk(data))


def test_a_control_batch_has_one_marker_whatever_it_claims() -> None:
    """A hostile log has stored a few bytes for each of 200,000."""
    before = values(3)
    data = before + batch(
        [record(b"\0" * 6, delta=delta, key=ABORT) for delta in range(200_000)], base_offset=3, **OF_CONTROL
    )
    assert len(data) < 1 << 20
    buffer, batches = np.frombuffer(data, np.uint8), walk(data)
    tracemalloc.start()
    try:
        markers = end_markers(buffer, batches, np.array([1]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert markers == {3: EndMarker(is_abort=True, coordinator_epoch=0)}
    assert peak < 16 << 20


def test_a_marker_that_decompresses_to_more_than_any_is_refused_with_its_place() -> None:
    data = values(3) + batch([record(bytes(3 << 20), key=ABORT)], base_offset=3, **OF_CONTROL)
    with pytest.raises(CorruptRecordError, match="A marker has more than 1048576 bytes") as e:
        TransactionScan().add(data, walk(data))
    assert e.value.position == len(values(3))


def test_records_of_aborted_transactions_are_counted_within_what_is_read() -> None:
    of = {"attributes": TRANSACTIONAL, "producer_id": 5}
    data = values(3, **of) + values(2, base_offset=3) + marker(5, commit=False, offset=5)
    partition = TopicPartition("t", 0)
    for start, count in [(0, 3), (1, 2), (3, 0)]:
        found = AbortedRecords()
        found.add(partition, data, walk(data), OffsetRange(start, 10))
        assert found.count == count
    for middle in range(1, 6):  # splits get whole batches, and those behind
        forwards = AbortedRecords()
        forwards.add(partition, data, walk(data), OffsetRange(0, middle))
        forwards.add(partition, data, walk(data), OffsetRange(middle, 10))
        assert forwards.count == 3
    backwards = AbortedRecords()  # the marker in one window, and what it ends in the one before
    backwards.add(partition, data, walk(data), OffsetRange(5, 6))
    backwards.add(partition, data, walk(data), OffsetRange(0, 5))
    assert backwards.count == 0
