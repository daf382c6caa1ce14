"""Stamped record batches are those of a transactional producer, as other readers see them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.codec.stamp import stamp
from pyspark_kafkalog.codec.walk import check_batch, walk
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import EncodeSettings, TopicPartition
from tests.codec.strategies import COMPRESSIONS, Row, arrow_batch

HERE = TopicPartition("here", 0)


def batches_of(counts: list[int], compression: str = "none") -> np.ndarray:
    settings = EncodeSettings(compression=compression, batch_size=1)
    parts = [
        encode(
            arrow_batch([Row(None, b"%d" % n, None, n) for n in range(count)]),
            None,
            EncodeSettings(compression=compression, batch_size=1 << 20) if count > 1 else settings,
            topic_partition=HERE,
        ).data
        for count in counts
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_batch_continues_the_one_before(compression: str) -> None:
    data = batches_of([3, 1, 5], compression)
    encoded = stamp(data, producer_id=2**40, producer_epoch=7, base_sequence=10)
    assert (encoded.records, len(encoded.sizes)) == (9, 3)
    batches = walk(data)
    assert batches.base_sequence.tolist() == [10, 13, 14]
    assert set(batches.producer_id) == {2**40}
    assert set(batches.producer_epoch) == {7}
    assert batches.is_transactional.all()
    assert all(check_batch(data, position) for position in batches.position.tolist())
    records = MemoryRecords(data.tobytes())
    values = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        values += [record.value for record in batch]
    assert values == [b"%d" % n for count in (3, 1, 5) for n in range(count)]


@given(st.integers(2**31 - 20, 2**31 - 1))
def test_sequence_numbers_wrap(base: int) -> None:
    data = batches_of([15, 2])
    stamp(data, producer_id=1, producer_epoch=0, base_sequence=base)
    assert walk(data).base_sequence.tolist() == [base, (base + 15) & 0x7FFFFFFF]


def test_anything_else_is_refused() -> None:
    data = batches_of([3, 1])
    old = data.copy()
    old[16] = 1
    for damaged in (data[:-1], np.concatenate([data, np.zeros(5, np.uint8)]), old, np.zeros(80, np.uint8)):
        with pytest.raises(CorruptRecordError):
            stamp(damaged.copy(), producer_id=1, producer_epoch=0, base_sequence=0)
