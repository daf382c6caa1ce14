"""Which rows are message segments; the fixtures have more, and the tests with the model odd ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.large_messages.kernels import find_prefixes
from pyspark_kafkalog.extensions.large_messages.segments import find
from tests.extensions.large_messages.model import Record
from tests.extensions.large_messages.strategies import arrow_batch, lm, prefixed

_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
_VALUE = bytes.fromhex("001133557600112233445566778899aabbccddeeff00000000000000030000000a61626364")
_LM = bytes.fromhex("018899aabbccddeeff001122334455667700000000000000030000000a")
"""The first of three message segments of ``abcdefghij``, as LinkedIn's producer writes it."""


def test_example() -> None:
    assert prefixed(_ID, 0, 3, 10, b"abcd") == _VALUE
    assert lm(1, _ID, 0, 3, 10) == _LM
    records = [
        Record(0, b"ordinary"),
        Record(1, _VALUE),
        Record(2, b"abcd", [("_t", bytes(8)), ("_lm", b"\2" + _LM[1:])]),
        Record(3, b"short", [("_lm", _LM[:24])]),
    ]
    found = find(arrow_batch(records))
    assert found is not None
    assert found.row.tolist() == [1, 2, 3]
    assert found.message_ids() == [_ID, _ID, b""]
    assert found.number.tolist() == [0, 0, 0]
    assert found.count.tolist() == [3, 3, 0]
    assert found.length.tolist() == [10, 10, 0]
    assert found.slice_start.tolist() == [33, 0, 0]
    assert found.error.tolist() == [0, 0, 1]
    assert found.marks.row.tolist() == [2]


def test_a_copy_of_a_whole_message_is_none() -> None:
    """By its header; a number or an id that is not a reader's makes it an error."""
    marks = [lm(2, bytes(16), -1, 3, 10), lm(2, _ID, -1, 3, 10), lm(2, bytes(16), -2, 3, 10)]
    found = find(arrow_batch([Record(n, _VALUE, [("_lm", mark)]) for n, mark in enumerate(marks)]))
    assert found is not None
    assert found.row.tolist() == [1, 2]
    assert found.marks.of_whole.tolist() == [True, False, False]


def test_rows_without_any() -> None:
    records = [
        Record(n, value) for n, value in enumerate([None, b"", bytes(32), b"\1" + bytes(40), b"x" * 99])
    ]
    assert find(arrow_batch(records)) is None
    assert find(arrow_batch(records).select(["value"])) is None
    assert find(arrow_batch([])) is None


def test_nulls_hold_no_message_segments() -> None:
    """Arrow allows bytes under a null."""
    offsets = pa.py_buffer(np.array([0, len(_VALUE)], np.int32))
    values = pa.Array.from_buffers(pa.binary(), 1, [pa.py_buffer(b"\0"), offsets, pa.py_buffer(_VALUE)])
    assert find(pa.RecordBatch.from_arrays([values], ["value"])) is None


def test_offsets_outside_of_the_bytes() -> None:
    data = np.zeros(40, np.uint8)
    offsets = np.array([-50, 0, 41, 2**31 - 1, -(2**31), 7, 40], np.int32)
    found = np.empty(6, np.int64)
    assert found[: find_prefixes(data, offsets, found)].tolist() == [5]
