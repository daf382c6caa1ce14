"""Columns as text are what Python's json and base64 make of each row; states of transactions."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.text import (
    TEXT,
    Choices,
    Decimals,
    base64_strings,
    hex_strings,
    joined_rows,
    joined_texts,
    json_strings,
    texts_of_lists,
)
from pyspark_kafkalog.codec.transaction_topic import decode_transaction, decode_transactional_id
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model import TopicPartition

_BAD = [bytes.fromhex(b) for b in ("ff", "eda080", "c080", "f4908080", "e08080", "6162e282", "f0808080")]
_rows = st.none() | st.binary(max_size=12) | st.text(max_size=12).map(str.encode) | st.sampled_from(_BAD)
_STATE = (
    struct.pack(">hqhib", 0, 7, 1, 60_000, 1)
    + struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 3)
    + struct.pack(">qq", 5, 4)
)


def shown(row: bytes | None) -> Any:
    if row is None:
        return None
    with suppress(UnicodeDecodeError):
        return row.decode()
    return {"base64": base64.b64encode(row).decode()}


@given(st.lists(_rows, max_size=40), st.integers(0, 12))
def test_every_row_is_what_python_makes_of_it(rows: list[bytes | None], skipped: int) -> None:
    column = pa.array(rows, pa.binary()).slice(min(skipped, len(rows)))
    left = column.to_pylist()
    assert [json.loads(text) for text in json_strings(column).to_pylist()] == [shown(row) for row in left]
    in_base64 = [row if row is None else base64.b64encode(row) for row in left]
    assert base64_strings(column).to_pylist() == in_base64
    assert hex_strings(column).to_pylist() == [row if row is None else row.hex().encode() for row in left]


_integers = st.integers(-(2**63), 2**63 - 1)
_near_powers_of_ten = st.builds(
    lambda e, d, s: s * (10**e + d), st.integers(0, 18), st.integers(-1, 1), st.sampled_from((1, -1))
)
_line = st.tuples(
    _rows, _integers | _near_powers_of_ten, st.none() | st.integers(-(2**31), 2**31 - 1), st.integers(0, 2)
)
_CHOICES = (b"", b"one", b",two")


@given(st.lists(_line, max_size=40), st.integers(0, 12), st.binary(max_size=5))
def test_rows_are_their_parts_one_after_another(
    rows: list[tuple[bytes | None, int, int | None, int]], skipped: int, between: bytes
) -> None:
    kinds = {"text": TEXT, "long": pa.int64(), "int": pa.int32(), "choice": pa.uint8()}
    columns = [[row[place] for row in rows] for place in range(len(kinds))]
    table = pa.RecordBatch.from_pydict(
        {name: pa.array(values, kinds[name]) for name, values in zip(kinds, columns, strict=True)}
    ).slice(min(skipped, len(rows)))
    choices = Choices(_CHOICES, table["choice"].to_numpy())
    parts = [table["long"], between, table["text"], table["int"], choices, table["text"]]

    def expected(row: dict[str, Any]) -> bytes:
        text, number = row["text"] or b"", b"" if row["int"] is None else b"%d" % row["int"]
        return b"%d%b%b%b%b%b" % (row["long"], between, text, number, _CHOICES[row["choice"]], text)

    assert joined_rows(parts, table.num_rows).to_pybytes() == b"".join(map(expected, table.to_pylist()))


_unscaled = st.none() | _integers | _near_powers_of_ten | st.integers(-1000, 1000)


@given(st.lists(_unscaled, min_size=1, max_size=40), st.integers(0, 6), st.integers(0, 12))
def test_decimals_are_as_arrow_writes_them(numbers: list[int | None], scale: int, skipped: int) -> None:
    given_ = [None if number is None else Decimal(number).scaleb(-scale) for number in numbers]
    column = pa.array(given_, pa.decimal128(38, scale)).slice(min(skipped, len(numbers)))
    decimals = Decimals.of(column)
    assert decimals is not None
    found = joined_texts([decimals], len(column)).to_pylist()
    assert found == [b"" if text is None else text.encode() for text in column.cast(pa.string()).to_pylist()]


def test_decimals_that_do_not_fit() -> None:
    assert Decimals.of(pa.array([Decimal(2**63)], pa.decimal128(38, 0))) is None
    assert Decimals.of(pa.array([Decimal(-(2**63) - 1)], pa.decimal128(38, 0))) is None
    assert Decimals.of(pa.array([Decimal("1E-7")], pa.decimal128(38, 7))) is None
    assert Decimals.of(pa.array([2**64 - 1], pa.uint64())) is None
    assert Decimals.of(pa.array([1.5])) is None


def test_the_texts_of_lists() -> None:
    items = pa.array([b"a", b"", b"bc", b"d"], TEXT)
    assert texts_of_lists(items, np.array([0, 2, 2, 4])).to_pylist() == [b"a", b"", b"bcd"]
    assert texts_of_lists(items.slice(0, 0), np.zeros(3, np.int64)).to_pylist() == [b"", b""]


def test_the_state_of_a_transaction() -> None:
    state = decode_transaction(_STATE)
    assert (state.producer_id, state.producer_epoch, state.status) == (7, 1, "Ongoing")
    assert state.partitions == (TopicPartition("t", 0), TopicPartition("t", 3))
    assert (state.last_update_timestamp, state.start_timestamp) == (5, 4)
    assert decode_transactional_id(b"\0\0\0\2id") == "id"


@given(st.binary(max_size=60))
def test_hostile_bytes_are_refused(data: bytes) -> None:
    for decode in decode_transaction, decode_transactional_id:
        with suppress(CorruptRecordError):
            decode(data)


@pytest.mark.parametrize("size", range(len(_STATE)))
def test_a_state_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        decode_transaction(_STATE[:size])
