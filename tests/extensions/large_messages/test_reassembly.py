"""Whatever happens to message segments on their way, what is delivered is what a plain model delivers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.extensions.large_messages.assembler import INCOMPLETE, Dropped
from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembler
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.slice_file import SliceFile
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.large_messages.model import Message, Model, Record, SegmentError
from tests.extensions.large_messages.strategies import IDS, arrow_batch, lm, partitions, prefixed

pytestmark = pytest.mark.slow

PARTITION = TopicPartition("t", 0)
INFINITE = 1 << 40
rooms = st.integers(0, 40)
many = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def modelled(
    records: Sequence[Record], capacity: int, gap: int
) -> tuple[list[Message], list[int], list[bytes]]:
    """Messages, offsets in error and ids of dropped messages."""
    model = Model(capacity, gap)
    delivered, errors = [], []
    for record in records:
        try:
            message = model.record(record)
        except SegmentError:
            errors.append(record.offset)
        else:
            delivered += [message] if message else []
    return delivered, errors, model.lost


def fed(
    records: Sequence[Record], cuts: Sequence[int], capacity: int, gap: int
) -> tuple[list[Message], list[Dropped]]:
    """The results of batches of these sizes, each fed to a reassembler with the state of the one before."""
    rows = arrow_batch(records)
    state: bytes | None = None
    out: list[pa.RecordBatch] = []
    dropped: list[Dropped] = []
    start = 0
    for size in [*cuts, rows.num_rows]:
        reassembler = Reassembler(
            PARTITION,
            AssemblerSettings(buffer_capacity=capacity, expiration_offset_gap=gap),
            state=state,
            extra_columns=True,
        )
        reassembled = reassembler.feed(rows.slice(start, size))
        reassembled.rows.validate(full=True)
        out.append(reassembled.rows)
        dropped += reassembled.dropped
        state = reassembler.state()
        assert held(reassembler) <= capacity
        start += size
    return [_message(row, records) for batch in out for row in batch.to_pylist()], dropped


def held(reassembler: Reassembler) -> int:
    """Bytes of the slices that are kept."""
    pieces = [piece for message in reassembler.open_messages() for piece in message.pieces.values()]
    return sum(piece.slice.size for piece in pieces if piece.slice is not None)


def _message(row: dict, records: Sequence[Record]) -> Message:  # type: ignore[type-arg]
    assert records[row["row"]].offset == row["offset"]
    headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
    return Message(row["offset"], row["value"], headers, row["startingOffset"], row["segmentCount"])


gaps = st.sampled_from([1, 3, 10, 1000])
cuts = st.lists(st.integers(0, 8), max_size=8)


@many
@given(partitions(), cuts, st.sampled_from([2, 5, 12, 20, 1000]), gaps)
def test_any_order_loss_and_repetition(
    records: list[Record], cuts: list[int], capacity: int, gap: int
) -> None:
    delivered, errors, lost = modelled(records, capacity, gap)
    ours, dropped = fed(records, cuts, capacity, gap)
    assert ours == delivered
    assert [drop.offset for drop in dropped if drop.reason not in INCOMPLETE] == errors
    assert sorted(drop.message_id for drop in dropped if drop.reason in INCOMPLETE) == sorted(lost)


@pytest.mark.long
@many
@given(partitions(hostile=True), cuts, st.sampled_from([5, 12, 20, 1000]), gaps)
def test_broken_segments(records: list[Record], cuts: list[int], capacity: int, gap: int) -> None:
    """Claims of 2**31 - 1 segments or bytes included."""
    delivered, errors, lost = modelled(records, capacity, gap)
    ours, dropped = fed(records, cuts, capacity, gap)
    assert ours == delivered
    assert [drop.offset for drop in dropped if drop.reason not in INCOMPLETE] == errors
    assert sorted(drop.message_id for drop in dropped if drop.reason in INCOMPLETE) == sorted(lost)


@pytest.mark.long
@many
@given(
    partitions(hostile=True), cuts, st.integers(0, 30), st.integers(1, 20), gaps, st.integers(0, 30), rooms
)
def test_slices_leave_memory_and_are_read_again(
    records: list[Record], cuts: list[int], adopted: int, capacity: int, gap: int, max_bytes: int, room: int
) -> None:
    """Without eviction, memory is bounded and the rows are those of an unbounded buffer.

    Slices may go to a file of ``room`` bytes.
    Even if from some row on another reassembler goes on, which is told what is open there.
    """
    rows = arrow_batch(records)
    by_offset = {record.offset: row for row, record in enumerate(records)}

    def read_again(offsets: Sequence[int]) -> pa.RecordBatch:
        return rows.take(pa.array([by_offset[offset] for offset in offsets]))

    aside = SliceFile(room)

    def reassembler() -> Reassembler:
        settings = AssemblerSettings(buffer_capacity=capacity, expiration_offset_gap=gap)
        return Reassembler(
            PARTITION, settings, evict=False, read_again=read_again, aside=aside, extra_columns=True
        )

    first, second = reassembler(), reassembler()
    out, dropped = [], []
    start = 0
    with aside:
        for size in [*cuts, rows.num_rows]:
            if first is not second and start >= adopted:
                second.adopt(first.open_messages())
                first = second
            some = rows.slice(start, size)
            for part in first.feed_in_parts(some, first.find(some), max_bytes=max_bytes):
                out += [_message(row, records) for row in part.rows.to_pylist()]
                dropped += part.dropped
            assert held(first) <= capacity
            start += size
    delivered, errors, _ = modelled(records, INFINITE, gap)
    assert out == delivered
    assert [drop.offset for drop in dropped if drop.reason not in INCOMPLETE] == errors


@pytest.mark.parametrize("evict", [True, False])
def test_claims_cost_nothing(evict: bool) -> None:
    """Message segments that claim to be 2**31 - 1, of as many bytes."""
    records = [
        Record(n, prefixed(n.to_bytes(16, "big"), 2**31 - 2, 2**31 - 1, 2**31 - 1, b"x")) for n in range(900)
    ]
    rows = arrow_batch(records)
    reassembler = Reassembler(PARTITION, AssemblerSettings(), evict=evict)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        assert reassembler.feed(rows).rows.num_rows == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    assert pa.total_allocated_bytes() - before < 200_000
    assert len(reassembler.state() or b"") < 200_000


def test_what_cannot_be_read_again_is_dropped() -> None:
    records = [Record(n, prefixed(IDS[0], n, 3, 6, b"ab")) for n in range(3)]
    rows = arrow_batch(records)
    settings = AssemblerSettings(buffer_capacity=1)
    reassembler = Reassembler(
        PARTITION, settings, evict=False, read_again=lambda offsets: rows.slice(offsets[0], 1)
    )
    reassembled = reassembler.feed(rows)
    assert reassembled.rows.num_rows == 0
    assert [(drop.reason.value, drop.offset) for drop in reassembled.dropped] == [("not_read_again", 2)]
    assert reassembler.state() is None


def test_ordinary_rows_are_passed_on_as_they_are() -> None:
    rows = arrow_batch([Record(n, bytes(50)) for n in range(10)])
    assert Reassembler(PARTITION, AssemblerSettings()).feed(rows).rows is rows


def test_waiting_too_long() -> None:
    reassembler = Reassembler(PARTITION, AssemblerSettings(expiration_ms=100))
    reassembler.feed(arrow_batch([Record(5, prefixed(IDS[0], 0, 2, 4, b"ab"))]), now_ms=1000)
    restored = Reassembler(PARTITION, AssemblerSettings(expiration_ms=100), state=reassembler.state())
    assert restored.next_expiry_ms() == 1101
    assert restored.expire(1100) == []
    (dropped,) = restored.expire(1101)
    assert (dropped.reason.value, dropped.starting_offset, dropped.segments[0].slice) == (
        "expired_by_time",
        5,
        b"ab",
    )
    assert restored.state() is None
    assert restored.next_expiry_ms() is None


@pytest.mark.parametrize("name", ["value", "headers"])
def test_slices_of_arrow_arrays(name: str) -> None:
    """A batch that is cut out of a longer one, with nulls."""
    record = Record(3, b"abc", [("_lm", lm(2, IDS[0], 0, 1, 3))])
    records = [Record(0, None), Record(1, b"x", [("a", None)]), Record(2, None), record, Record(4, b"y")]
    rows = arrow_batch(records).slice(2, 2)
    found = Reassembler(PARTITION, AssemblerSettings()).feed(rows).rows.column(name).to_pylist()
    assert (
        found
        == {
            "value": [None, b"abc"],
            "headers": [
                None,
                [{"key": "_lm", "value": b"\2" + bytes(16) + b"\xff" * 4 + b"\0\0\0\1\0\0\0\3"}],
            ],
        }[name]
    )
