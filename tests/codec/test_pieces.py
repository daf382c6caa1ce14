"""Batches that are too large to be decompressed at once: read in pieces, they are as if read whole."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.codec import filtering
from pyspark_kafkalog.codec.compression import compress, compress_pieces, decompress
from pyspark_kafkalog.codec.decode import DecodeLimits, decode
from pyspark_kafkalog.codec.filtering import BatchRules, Filtered, filter_batches
from pyspark_kafkalog.codec.format import GZIP, LZ4, SNAPPY, ZSTD
from pyspark_kafkalog.codec.read_kernels import OFFSET
from pyspark_kafkalog.codec.walk import first_bad_checksum, walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError
from pyspark_kafkalog.model import OffsetRange, Origin, TopicPartition
from tests.codec.decoding import ALL_COLUMNS, FOREVER, rows
from tests.codec.raw import batch, message, record, varint, wrapper

COMPRESSED = [GZIP, SNAPPY, LZ4, ZSTD]
PARTITION = TopicPartition("topic", 3)
WHOLE = DecodeLimits()

contents = st.none() | st.binary(max_size=40) | st.integers(0, 3000).map(bytes)
headers = st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=9)), max_size=3)
records = st.lists(st.tuples(st.integers(1, 3), st.integers(-9, 9), contents, contents, headers), max_size=40)


def v2(found: list[Any], compression: int, base_offset: int = 0, **fields: int) -> bytes:
    """A batch of such records, of which some offsets may be missing."""
    deltas = np.cumsum([0, *(step for step, *_ in found)]).tolist()
    made = [
        record(value, key=key, delta=delta, timestamp_delta=time, headers=its_headers)
        for delta, (_, time, key, value, its_headers) in zip(deltas, found, strict=False)
    ]
    return batch(
        made, base_offset=base_offset, last_offset_delta=deltas[-1], compression=compression, **fields
    )


def old(found: list[Any], compression: int, magic: int) -> bytes:
    """The same as a compressed message set, after some offsets that it does not have."""
    offsets = np.cumsum([0, *(step for step, *_ in found)]).tolist()
    base = 100 if magic == 0 else 0
    messages = [
        message(value, key=key, offset=base + offset, magic=magic, timestamp=10**9 + time)
        for offset, (_, time, key, value, _) in zip(offsets, found, strict=False)
    ]
    last = offsets[len(messages) - 1]
    return wrapper(messages, offset=100 + last, compression=compression, magic=magic)


def outcome(data: bytes, limits: DecodeLimits, offsets: OffsetRange = FOREVER) -> Any:
    """The rows, and what was left out: where, not why."""
    left_out: list[int | None] = []
    found = rows(data, offsets=offsets, limits=limits, on_corrupt=lambda e: left_out.append(e.position))
    return found, left_out


@pytest.mark.long
@pytest.mark.parametrize("compression", COMPRESSED)
@given(st.data())
def test_pieces_are_the_whole(compression: int, data: st.DataObject) -> None:
    """For all compressions and windows, from any offset to any other, beside other batches."""
    found = data.draw(records)
    kind = data.draw(st.sampled_from(["v2", "appended", "v0", "v1"]))
    if kind in ("v0", "v1") and found and compression != ZSTD:
        stored = old(found, compression, int(kind[1]))
    else:
        stored = v2(found, compression, attributes=8 if kind == "appended" else 0)
    small = v2([(1, 0, None, b"before", [])], data.draw(st.sampled_from([0, ZSTD])), 0)
    after = v2([(1, 0, None, b"after", [])], compression, 10_000)
    stored = (small if kind[0] == "v" and stored[16] < 2 else b"") + stored + after
    limits = DecodeLimits(
        max_rows=data.draw(st.sampled_from([1, 3, 1000])),
        max_bytes=data.draw(st.integers(1, 200) | st.integers(1, 10_000)),
    )
    assert outcome(stored, limits) == outcome(stored, WHOLE)
    start, end = sorted(data.draw(st.tuples(st.integers(0, 200), st.integers(0, 200))))
    cut = OffsetRange(start, end)
    assert outcome(stored, limits, cut) == outcome(stored, WHOLE, cut)


@pytest.mark.parametrize("compression", COMPRESSED)
def test_any_offset_in_a_large_batch_is_one_to_go_on_from(compression: int) -> None:
    stored = v2([(2, 0, b"%d" % i, bytes(700), []) for i in range(60)], compression, 1000)
    limits = DecodeLimits(max_bytes=2000)
    decoded = decode(
        stored, topic_partition=PARTITION, offsets=FOREVER, visible=None, schema=ALL_COLUMNS, limits=limits
    )
    everything, nexts = [], []
    for arrow_batch, next_offset in decoded:
        assert arrow_batch.nbytes < 4000
        everything += arrow_batch.to_pylist()
        nexts.append((len(everything), next_offset))
    assert len(nexts) > 20
    assert nexts[-1] == (60, 1121)
    for count, next_offset in nexts:
        assert (
            rows(stored, PARTITION, offsets=OffsetRange(next_offset, 2000), limits=limits)
            == everything[count:]
        )
        assert (
            rows(stored, PARTITION, offsets=OffsetRange(0, next_offset), limits=limits) == everything[:count]
        )


GOOD = [record(bytes(300), delta=i) for i in range(20)]
LIES: dict[str, tuple[bytes, int]] = {
    "more records than counted": (b"".join(GOOD), 19),
    "fewer records than counted": (b"".join(GOOD), 21),
    "a count of -1": (b"".join(GOOD), -1),
    "a count of 0": (b"".join(GOOD), 0),
    "a count of 2^31-1": (b"".join(GOOD), 2**31 - 1),
    "bytes after the records": (b"".join([*GOOD, b"\0"]), 20),
    "a length beyond the batch": (b"".join([*GOOD[:10], varint(5000) + GOOD[10][2:]]), 11),
    "a length beyond the limit": (b"".join([*GOOD[:10], varint(2**30) + GOOD[10][2:]]), 11),
    "a negative length": (b"".join([*GOOD[:10], varint(-5) + GOOD[10][2:]]), 11),
    "a length of 6 bytes": (b"".join([*GOOD[:10], b"\x80" * 5 + b"\1" + GOOD[10]]), 11),
    "a length that is cut off": (b"".join([*GOOD, b"\x80"]), 21),
    "offsets that do not rise": (b"".join([*GOOD[:10], GOOD[9], *GOOD[11:]]), 20),
    "an offset above the last": (b"".join([*GOOD, record(b"", delta=30)]), 21),
    "a key beyond its record": (
        b"".join([*GOOD, varint(6) + b"\0\0" + varint(20) + varint(50) + bytes(2)]),
        21,
    ),
}


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("window", [1, 7, 1000, 5000])
def test_no_record_of_an_invalid_batch_comes_out(lie: str, compression: int, window: int) -> None:
    body, count = LIES[lie]
    first = batch([record(b"first")])
    bad = batch(
        [],
        base_offset=10,
        count=count,
        last_offset_delta=20,
        attributes=compression,
        body=compress(compression, np.frombuffer(body, np.uint8)),
    )
    last = batch([record(b"last")], base_offset=90, compression=compression)
    limits = DecodeLimits(max_bytes=window, max_record_bytes=100_000)
    found, left_out = outcome(first + bad + last, limits)
    assert [row["offset"] for row in found] == [0, 90]
    assert left_out == [len(first)]
    with pytest.raises(CorruptRecordError) as e:
        rows(first + bad + last, PARTITION, limits=limits)
    assert (e.value.topic_partition, e.value.position) == ("topic-3", len(first))


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("window", [1, 100, 3000])
def test_a_batch_that_is_cut_short_is_corrupt(compression: int, window: int) -> None:
    noise = np.random.default_rng(0).integers(0, 255, 6000, dtype=np.uint8).tobytes()
    body = compress(compression, np.frombuffer(record(noise[:3000]) + record(noise, delta=1), np.uint8))
    limits = DecodeLimits(max_bytes=window)
    for size in (len(body) - 1, len(body) - 20, len(body) // 2, 5):
        bad = batch([], count=2, last_offset_delta=1, attributes=compression, body=body[:size])
        assert outcome(bad, limits) == ([], [0])


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_record_above_the_limit_is_an_error_that_nothing_skips(compression: int, magic: int) -> None:
    if compression == ZSTD and magic < 2:
        pytest.skip("zstd exists since 2")
    values = [bytes(500), bytes(200_000), bytes(500)]
    if magic == 2:
        stored = batch(
            [record(v, delta=i) for i, v in enumerate(values)], base_offset=5, compression=compression
        )
    else:
        base = 5 if magic == 0 else 0
        messages = [message(v, offset=base + i, magic=magic) for i, v in enumerate(values)]
        stored = wrapper(messages, offset=7, magic=magic, compression=compression)
    before = batch([record(b"")])
    limits = DecodeLimits(max_bytes=1000, max_record_bytes=100_000)
    reported: list[object] = []
    got = []
    with pytest.raises(OversizedRecordError, match=r"more than 100000.*maxRecordBytes") as e:
        got.extend(
            decode(
                before + stored,
                topic_partition=PARTITION,
                offsets=FOREVER,
                visible=None,
                schema=ALL_COLUMNS,
                limits=limits,
                origin=Origin("file.log", 1000),
                on_corrupt=reported.append,
            )
        )
    assert reported == []
    assert [found.arrow_batch.num_rows for found in got] == [1]
    error = e.value
    assert (error.topic_partition, error.file, error.position) == ("topic-3", "file.log", 1000 + len(before))
    assert (error.offset, error.next_offset) == (6 if magic == 2 else error.offset, 8)
    enough = DecodeLimits(max_bytes=1000, max_record_bytes=201_000)
    assert len(rows(before + stored, limits=enough)) == 4


def test_one_block_of_snappy_is_as_large_as_a_record_may_be() -> None:
    content = b"".join(record(bytes(1000), delta=i) for i in range(100))
    raw = pa.compress(content, codec="snappy", asbytes=True)
    stored = batch([], count=100, last_offset_delta=99, attributes=SNAPPY, body=raw)
    assert len(rows(stored, limits=DecodeLimits(max_bytes=1000))) == 100
    with pytest.raises(OversizedRecordError, match="one block of snappy"):
        rows(stored, limits=DecodeLimits(max_bytes=1000, max_record_bytes=50_000))


@pytest.mark.parametrize("compression", [0, *COMPRESSED])
def test_what_is_compressed_in_pieces_decompresses_to_all_of_them(compression: int) -> None:
    noise = np.random.default_rng(0).integers(0, 20, 300_000, dtype=np.uint8)
    pieces = [noise[:100_000], noise[:0], noise[100_000:100_007], noise[100_007:]]
    stored = np.frombuffer(b"".join(compress_pieces(compression, pieces)), np.uint8)
    assert decompress(compression, stored, magic=2, max_bytes=1 << 20).tobytes() == noise.tobytes()


def filtered(stored: bytes, kept: list[int], horizon: int | None, max_bytes: int) -> Filtered:
    data = np.frombuffer(stored, np.uint8)
    batches = walk(data)
    none = np.zeros(len(batches), bool)
    rules = BatchRules(none, none, ~none, none, horizon)
    limits = DecodeLimits(max_bytes=max_bytes, check_crcs=False)
    with mock.patch.object(filtering, "_LIMITS", limits):
        return filter_batches(data, batches, rules, lambda indexed, _: np.isin(indexed.table[OFFSET], kept))


@pytest.mark.parametrize("compression", COMPRESSED)
@given(st.data())
def test_records_are_left_out_of_pieces_as_of_the_whole(compression: int, data: st.DataObject) -> None:
    found = data.draw(records)
    fields = {"attributes": data.draw(st.sampled_from([0, 8]))}
    stored = v2(found, compression, **fields) + v2([(1, 0, b"k", b"after", [])], compression, 500)
    kept = data.draw(st.lists(st.integers(0, 120)))
    horizon = data.draw(st.none() | st.just(1_800_000_000_000))
    whole = filtered(stored, kept, horizon, 16 << 20)
    pieces = filtered(stored, kept, horizon, data.draw(st.integers(1, 3000)))
    counts = (pieces.changed, pieces.records, pieces.retained)
    assert counts == (whole.changed, whole.records, whole.retained)
    expected, got = walk(whole.data), walk(pieces.data)
    assert first_bad_checksum(pieces.data, got, 0, len(got)) == len(got) == len(expected)
    same = ["base_offset", "last_offset", "base_timestamp", "max_timestamp", "attributes", "count"]
    for name in same:
        assert getattr(got, name).tolist() == getattr(expected, name).tolist(), name
    assert rows(pieces.data) == rows(whole.data)


def test_what_is_too_large_to_be_filtered_has_an_error_of_its_own() -> None:
    large = record(bytes(200_000), delta=1)
    for stored in (
        batch([record(b""), large], compression=GZIP),
        wrapper([message(bytes(200_000))], offset=0),
    ):
        data = np.frombuffer(stored, np.uint8)
        none = np.zeros(1, bool)
        rules = BatchRules(none, none, none, none)
        limits = DecodeLimits(max_bytes=1000, check_crcs=False)
        with mock.patch.object(filtering, "_LIMITS", limits), pytest.raises(OversizedRecordError) as e:
            filter_batches(data, walk(data), rules, lambda i, o: o >= 0, max_record_bytes=100_000)
        assert (e.value.position, e.value.next_offset) == (0, 2 if stored[16] == 2 else 1)
