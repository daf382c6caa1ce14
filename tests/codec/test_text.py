"""Columns as text are what Python's json and base64 make of each row; states of transactions."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.text import base64_strings, hex_strings, json_strings
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
