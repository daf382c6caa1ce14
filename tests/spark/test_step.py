"""The step over packed rows, without Spark: however rows are cut into steps, whole messages come out."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import LargeMessageDroppedError
from pyspark_kafkalog.extensions.large_messages.row_blobs import Blob, pack
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.step import (
    PartitionAssembly,
    ReassemblyPlan,
    assemble_sorted,
    in_batches,
    unpack,
)
from pyspark_kafkalog.model import DROPPED_FIELD, TopicPartition
from tests.extensions.large_messages.interleaved import interleaved, segment_values
from tests.large_log import DROPPED, Message

T0 = TopicPartition("t", 0)
WRITTEN = interleaved("assembling", 120)
SCHEMA = pa.schema(
    [("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)
PLAIN = ReassemblyPlan(AssemblerSettings(), SCHEMA)


def rows(values: list[bytes], offsets: list[int], topic: str = "t") -> pa.RecordBatch:
    count = len(values)
    return pa.record_batch([values, [topic] * count, [0] * count, offsets], schema=SCHEMA)


def blobs(batches: list[pa.RecordBatch]) -> list[Blob]:
    packed = [row for batch in pack(batches) for row in batch.to_pylist()]
    found = [Blob(row["firstOffset"], row["lastOffset"], row["rows"]) for row in packed]
    return sorted(found, key=lambda blob: blob.first_offset)


@given(st.lists(st.integers(0, len(WRITTEN.records)), max_size=8), st.integers(1, 4), st.booleans())
def test_any_cuts_give_the_same(cuts: list[int], tasks: int, again: bool) -> None:
    """Each cut ends a micro-batch, whose rows lie spread over so many tasks; a failed one is done again."""
    state: bytes | None = None
    found: list[tuple[int, bytes]] = []
    bounds = [0, *sorted(cuts), len(WRITTEN.records)]
    for start, end in pairwise(bounds):
        offsets = list(range(start, end))
        spread = [offsets[task::tasks] for task in range(tasks)]
        batches = [rows([WRITTEN.records[offset] for offset in some], some) for some in spread if some]
        for _ in range(1 + again):
            assembly = PartitionAssembly(T0, PLAIN, state)
            out = list(unpack(in_batches(assembly.feed(blobs(batches))), SCHEMA))
        state = assembly.state()
        found += [(row["offset"], row["value"]) for batch in out for row in batch.to_pylist()]
        assert all(batch.schema == SCHEMA for batch in out)
    assert found == WRITTEN.messages


def test_a_batch_is_walked_partition_by_partition() -> None:
    batch = pa.concat_batches(
        [rows(WRITTEN.records, list(range(len(WRITTEN.records))), topic) for topic in ("a", "b")]
    )
    packed = list(pack([batch.slice(0, 150), batch.slice(150)]))
    whole = [row for batch in unpack(assemble_sorted(packed, PLAIN), SCHEMA) for row in batch.to_pylist()]
    for topic in ("a", "b"):
        found = [(row["offset"], row["value"]) for row in whole if row["topic"] == topic]
        assert found == WRITTEN.messages


def test_counts_and_dead_letters() -> None:
    added = [("startingOffset", pa.int64()), ("segmentCount", pa.int32()), (DROPPED_FIELD[0], DROPPED)]
    plan = ReassemblyPlan(
        AssemblerSettings(expiration_offset_gap=2),
        pa.schema([*SCHEMA, *(pa.field(*column) for column in added)]),
        extra_columns=True,
        dead_letters=True,
    )
    segment = segment_values(3, bytes(50), 20)[1]
    assembly = PartitionAssembly(T0, plan)
    step_rows = list(assembly.feed(blobs([rows([segment, b"a", b"b", b"c"], [10, 11, 12, 13])])))
    step_rows += assembly.counts()
    assert step_rows[-1] == ("t", 0, None, "expired_by_offset", 1)
    assert assembly.state() is None
    out = [row for batch in unpack(in_batches(step_rows), plan.schema) for row in batch.to_pylist()]
    messages = [row for row in out if row["dropped"] is None]
    assert [(row["offset"], row["startingOffset"], row["segmentCount"]) for row in messages] == [
        (11, 11, 1),
        (12, 12, 1),
        (13, 13, 1),
    ]
    (dead,) = [row for row in out if row["dropped"] is not None]
    assert (dead["topic"], dead["partition"], dead["value"], dead["startingOffset"]) == ("t", 0, None, 10)
    assert dead["dropped"]["segments"] == [{"offset": 10, "number": 1, "value": bytes(20)}]


def test_time_expires_what_waits() -> None:
    plan = ReassemblyPlan(AssemblerSettings(expiration_ms=100), SCHEMA)
    assembly = PartitionAssembly(T0, plan)
    assert not list(assembly.feed(blobs([rows(segment_values(3, bytes(50), 20)[:2], [0, 1])]), now_ms=1000))
    expiry = assembly.next_expiry_ms()
    assert expiry is not None
    assert 1100 <= expiry <= 1101
    later = PartitionAssembly(T0, plan, assembly.state())
    assert later.next_expiry_ms() == expiry
    list(later.expire(expiry - 1))
    assert later.state() is not None
    list(later.expire(expiry))
    assert (later.state(), later.next_expiry_ms()) == (None, None)
    assert [row[3:] for row in later.counts()] == [("expired_by_time", 1)]


def test_segments_that_contradict_each_other_can_fail_the_step_and_incomplete_messages_never_do() -> None:
    plan = ReassemblyPlan(
        AssemblerSettings(expiration_offset_gap=3, exception_on_message_dropped=True), SCHEMA
    )
    incomplete = [Message(7, 3).segment(0), *[b"x"] * 9]
    passed = list(PartitionAssembly(T0, plan).feed(blobs([rows(incomplete, list(range(10)))])))
    assert passed
    contradictory = [b"x", Message(7, 3).segment(0), Message(7, 2).segment(1)]
    with pytest.raises(LargeMessageDroppedError, match="has another count or length") as raised:
        list(PartitionAssembly(T0, plan).feed(blobs([rows(contradictory, [0, 1, 2])])))
    assert (raised.value.topic_partition, raised.value.offset) == ("t-0", 2)
    silent = ReassemblyPlan(AssemblerSettings(), SCHEMA)
    assert list(PartitionAssembly(T0, silent).feed(blobs([rows(contradictory, [0, 1, 2])])))
