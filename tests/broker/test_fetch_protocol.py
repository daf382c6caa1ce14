"""Our reader of fetch responses reads what kafka-python wrote, and rejects what is broken."""

from __future__ import annotations

import struct
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse

from pyspark_kafkalog.broker.fetch.protocol import MAX_VERSION, MIN_VERSION, Fetched, read_fetch_response
from pyspark_kafkalog.model import AbortedTransaction

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
INT64 = st.integers(-1, 2**63 - 1)


def encoded(version: int, partition: dict[str, Any] | None, **response: Any) -> bytes:
    """A response of one partition as kafka-python encodes it."""
    topic = FetchResponse.FetchableTopicResponse
    responses = []
    if partition is not None:
        fields = {
            "partition_index": 3,
            "error_code": 0,
            "high_watermark": 1,
            "last_stable_offset": 1,
            **partition,
        }
        responses = [topic(topic="topic", topic_id=uuid.uuid4(), partitions=[topic.PartitionData(**fields)])]
    return bytes(FetchResponse(responses=responses, **response).encode(version=version))


def read(version: int, data: bytes, header: bytes = b"head") -> Fetched:
    return read_fetch_response(memoryview(header + data), len(header), version)


@given(
    version=st.sampled_from(VERSIONS),
    records=st.binary(max_size=300),
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=4),
    offsets=st.tuples(INT64, INT64, INT64),
    codes=st.tuples(st.integers(-1, 120), st.integers(-1, 120)),
    throttle=st.integers(0, 2**31 - 1),
    replica=st.integers(-1, 2**31 - 1),
)
def test_it_reads_what_kafka_python_wrote(
    version: int,
    records: bytes,
    aborted: list[tuple[int, int]] | None,
    offsets: tuple[int, int, int],
    codes: tuple[int, int],
    throttle: int,
    replica: int,
) -> None:
    kind = FetchResponse.FetchableTopicResponse.PartitionData.AbortedTransaction
    partition = {
        "error_code": codes[0],
        "high_watermark": offsets[0],
        "last_stable_offset": offsets[1],
        "log_start_offset": offsets[2],
        "aborted_transactions": aborted and [kind(producer_id=p, first_offset=o) for p, o in aborted],
        "preferred_read_replica": replica,
        "records": records,
    }
    data = encoded(version, partition, throttle_time_ms=throttle, error_code=codes[1])
    fetched = read(version, data)
    found = fetched.partition
    assert found is not None
    assert fetched.throttle_time_ms == throttle
    assert fetched.error_code == (codes[1] if version >= 7 else 0)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (codes[0], *offsets[:2])
    assert found.log_start_offset == (offsets[2] if version >= 5 else -1)
    assert found.preferred_read_replica == (replica if version >= 11 else -1)
    assert found.aborted == tuple(AbortedTransaction(p, o) for p, o in aborted or ())
    assert (b"head" + data)[found.position : found.position + found.size] == records


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_without_records(version: int) -> None:
    found = read(version, encoded(version, {"records": None})).partition
    assert found is not None
    assert found.size == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_throttled_response_holds_no_partition(version: int) -> None:
    assert read(version, encoded(version, None, throttle_time_ms=7)) == Fetched(7, 0, None)


@given(version=st.sampled_from(VERSIONS), data=st.data())
def test_what_is_cut_or_changed_is_read_or_refused(version: int, data: st.DataObject) -> None:
    whole = bytearray(encoded(version, {"records": b"x" * 50}))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    part = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        found = read(version, part).partition
    except (ValueError, IndexError, struct.error):
        return
    assert found is None or found.position + found.size <= len(part) + 4


@pytest.mark.parametrize("version", VERSIONS)
def test_what_follows_the_response_is_not_left_unread(version: int) -> None:
    with pytest.raises(ValueError, match="ends at byte"):
        read(version, encoded(version, {"records": b"abc"}) + b"\0")


@pytest.mark.parametrize("count", [2, 2**30, 2**31 - 1])
@pytest.mark.parametrize("version", [4, 10])
def test_more_aborted_transactions_than_bytes(version: int, count: int) -> None:
    data = bytearray(encoded(version, {"aborted_transactions": [], "records": b""}))
    struct.pack_into(">i", data, len(data) - 8, count)
    with pytest.raises(ValueError, match=f"{count} aborted transactions in 4 bytes"):
        read(version, bytes(data))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_beginning_of_a_response_is_read_as_far_as_it_came(version: int) -> None:
    data = encoded(version, {"records": b"x" * 300})
    whole = read(version, data).partition
    assert whole is not None
    for there in range(len(data)):
        part = memoryview(b"head" + data[:there])
        try:
            found = read_fetch_response(part, 4, version, len(data) + 4).partition
        except (ValueError, IndexError, struct.error):
            assert there + 4 < whole.position
            continue
        assert found is not None
        assert (found.position, found.high_watermark) == (whole.position, whole.high_watermark)
        assert found.size == min(there + 4 - whole.position, 300)


def test_varints_without_end_cost_nothing() -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="more than 5 bytes"):
        read(12, bytes(10) + b"\xff" * 1_000_000)
    assert time.process_time() - begun < 0.5
