"""Partitions as Kafka's clients choose them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from pyspark_kafkalog.codec.partitioner import (
    StickyPartitioner,
    murmur2_partitions,
    payload_sizes,
    rows_by_partition,
)

# Kafka's UtilsTest::testMurmur2
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", GOLDEN)
@pytest.mark.parametrize("partitions", [1, 7, 2**31 - 1])
def test_golden_hashes(key, partitions):
    expected = (GOLDEN[key] & 0x7FFFFFFF) % partitions
    assert murmur2_partitions(pa.array([key]), partitions).tolist() == [expected]


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(1, 2**31 - 1), st.integers(0, 20))
def test_as_kafka_python(keys, partitions, start):
    column = pa.array(keys, pa.binary())[start:]
    expected = [-1 if k is None else (murmur2(k) & 0x7FFFFFFF) % partitions for k in keys[start:]]
    assert murmur2_partitions(column, partitions).tolist() == expected


def test_empty_key_is_hashed():
    assert murmur2_partitions(pa.array([b""]), 1000).tolist() == [(murmur2(b"") & 0x7FFFFFFF) % 1000]


def test_strings_hash_as_their_utf8():
    assert (
        murmur2_partitions(pa.array(["é"]), 100).tolist()
        == murmur2_partitions(pa.array(["é".encode()]), 100).tolist()
    )


def test_sticky_stays_for_batch_size_bytes():
    sticky = StickyPartitioner(3, batch_size=100)
    assert sticky.partitions(np.array([50, 50, 50, 50, 10])).tolist() == [0, 0, 1, 1, 2]
    assert sticky.partitions(np.array([80, 10, 1])).tolist() == [2, 2, 0]


@given(st.lists(st.lists(st.integers(0, 300))), st.integers(1, 9), st.integers(0, 9))
def test_sticky_does_not_depend_on_how_rows_come(chunks, partitions, first):
    one_by_one = StickyPartitioner(partitions, 100, first)
    expected = [one_by_one.partitions(np.array([s])).tolist()[0] for chunk in chunks for s in chunk]
    at_once = StickyPartitioner(partitions, 100, first)
    found = [p for chunk in chunks for p in at_once.partitions(np.array(chunk, np.int64)).tolist()]
    assert found == expected


def test_sticky_is_balanced_by_bytes():
    sizes = np.random.default_rng(1).integers(0, 2000, 100_000)
    chosen = StickyPartitioner(7, 16384).partitions(sizes)
    shares = np.bincount(chosen, weights=sizes)
    assert shares.max() - shares.min() < 0.01 * shares.mean()
    assert np.count_nonzero(np.diff(chosen)) < sizes.sum() / 16384 + 1


@given(st.lists(st.tuples(*[st.none() | st.binary(max_size=9)] * 2)), st.integers(0, 9))
def test_payload_sizes(rows, start):
    key, value = (pa.array([row[i] for row in rows], pa.binary())[start:] for i in (0, 1))
    assert payload_sizes(key, value).tolist() == [sum(map(len, filter(None, row))) for row in rows[start:]]


@given(st.integers(1, 9), st.data())
def test_rows_by_partition(partitions, data):
    chosen = data.draw(st.lists(st.integers(0, partitions - 1)))
    found = rows_by_partition(np.array(chosen, np.int32), partitions)
    assert [rows.tolist() for rows in found] == [
        [row for row, partition in enumerate(chosen) if partition == p] for p in range(partitions)
    ]
