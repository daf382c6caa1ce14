"""Our reader of responses reads what kafka-python wrote, and rejects what is broken."""

from __future__ import annotations

import importlib
import pkgutil
import random
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from pyspark_kafkalog.broker.groups.protocol import ConsumerGroupDescribeRequest
from pyspark_kafkalog.broker.wire.answers import UNREADABLE, read_body, read_header, read_varint, response_of
from tests.broker import fuzz_answers

CALLED = {18: 3, 3: 12, 2: 9, 1: 13, 0: 12, 8: 9, 9: 9}
"""The newest versions that we use, where kafka-python has newer ones."""


def response_class(api_key: int) -> Any:
    return ResponseClassRegistry._response_class_registry[api_key]


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            assert_same(left, right)
    elif hasattr(theirs, "to_dict"):
        for name in theirs.fields:
            if "authorized_operations" not in name:  # bits, which we don't ask for
                assert_same(getattr(ours, name), getattr(theirs, name))
    else:
        assert (ours or None) == (theirs or None)


VERSIONS = [
    (api_key, version)
    for api_key, (request, _) in fuzz_answers.SOUND.items()
    for version in range(
        fuzz_answers.LOWEST.get(api_key, 0), min(request.max_version, CALLED.get(api_key, 99)) + 1
    )
]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_it_reads_what_kafka_python_wrote(api_key: int, version: int) -> None:
    rng = random.Random(api_key * 100 + version)
    (_, make), kind = fuzz_answers.SOUND[api_key], response_class(api_key)
    request = fuzz_answers.new_request()
    for _ in range(20):
        data = bytes(make(request, version).encode(version=version))
        assert_same(read_body(kind, version, data, 0), kind.decode(data, version=version))
        assert_same(read_body(kind, version, b"head" + data, 4), kind.decode(data, version=version))
        at = rng.randrange(len(data))
        with pytest.raises(UNREADABLE):
            read_body(kind, version, data[:at], 0)
        with pytest.raises(ValueError, match="its layout ends at byte"):
            read_body(kind, version, data + b"\0", 0)


def test_headers() -> None:
    assert read_header(MetadataResponse, 8, struct.pack(">i", 7) + b"rest") == (7, 4)
    assert read_header(MetadataResponse, 9, struct.pack(">i", 7) + b"\0rest") == (7, 5)
    assert read_header(MetadataResponse, 9, struct.pack(">i", 7) + b"\1\5\2abrest") == (7, 9)
    assert read_header(ApiVersionsResponse, 3, struct.pack(">i", 7) + b"rest") == (7, 4)
    with pytest.raises(ValueError, match="has 90 bytes, but only 2 are left"):
        read_header(MetadataResponse, 9, struct.pack(">i", 7) + b"\1\5\x5aab")


def test_an_error_of_api_versions_is_in_the_first_layout() -> None:
    assert read_body(ApiVersionsResponse, 3, struct.pack(">hi", 35, 0), 0).error_code == 35


def test_fields_that_a_version_has_not() -> None:
    body = read_body(OffsetFetchResponse, 1, struct.pack(">i", 0), 0)
    assert (body.topics, body.groups, body.error_code, body.throttle_time_ms) == ([], (), 0, 0)
    with pytest.raises(AttributeError):
        body.no_such_field  # noqa: B018


def test_varints() -> None:
    assert read_varint(b"\x00", 0) == (0, 1)
    assert read_varint(b"x\x7f", 1) == (127, 2)
    assert read_varint(b"\x80\x01", 0) == (128, 2)
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    for longer in (b"\xff\xff\xff\xff\xff\x0f", b"\x80" * 5 + b"\0", b"\xff" * 400_000):
        with pytest.raises(ValueError, match="more than 5 bytes"):
            read_varint(longer, 0)
    with pytest.raises(IndexError):
        read_varint(b"\xff\xff", 0)


@pytest.mark.parametrize(
    ("kind", "version", "body", "match"),
    [
        (ListOffsetsResponse, 1, b"\xff\xff\xff\xff", "topics is null"),
        (ListOffsetsResponse, 6, b"\0\0\0\0\0\0", "topics is null"),
        (ListOffsetsResponse, 1, b"\0\0\0\1\xff\xff\0\0\0\0", "name is null"),
        (
            ListOffsetsResponse,
            1,
            b"\x7f\xff\xff\xff" + bytes(50),
            "topics has 2147483647 items, but only 50 bytes",
        ),
        (ListOffsetsResponse, 1, b"\0\0\0\1\0\x09ab", "name has 9 bytes, but only 2 are left"),
        (ListOffsetsResponse, 6, b"\0\0\0\0\1\1\x09\x64abc", "a tagged field has 100 bytes, but only 3 are"),
        (ListOffsetsResponse, 6, b"\0\0\0\0" + b"\xff" * 500, "a varint of more than 5 bytes at byte 4"),
    ],
)
def test_what_is_broken_is_told(kind: Any, version: int, body: bytes, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        read_body(kind, version, body, 0)


def test_null_where_it_may_stand() -> None:
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=100, name=None, topic_id=uuid.uuid4(), is_internal=False, partitions=[]
    )
    whole = MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=[topic])
    body = read_body(MetadataResponse, 12, bytes(whole.encode(version=12)), 0)
    assert body.cluster_id is None
    assert body.topics[0].name is None


def test_an_answer_full_of_tagged_fields_is_read_in_one_pass() -> None:
    """kafka-python copies the rest of the response for each field: 40 GB here."""
    count = 100_000
    partition = struct.pack(">ihqqi", 0, 0, -1, 5, 1) + b"\1\x63\0"
    topic = b"\2t" + b"\xa1\x8d\x06" + partition * count + b"\0"
    data = struct.pack(">i", 0) + b"\2" + topic + b"\0"
    begun = time.process_time()
    assert len(read_body(ListOffsetsResponse, 9, data, 0).topics[0].partitions) == count
    assert time.process_time() - begun < 3


def test_a_tagged_field_that_is_known_is_as_long_as_it_says() -> None:
    data = bytes(fuzz_answers.SOUND[18][1](None, 3).encode(version=3))
    read_body(ApiVersionsResponse, 3, data, 0)
    end = data.rindex(b"\2\2f")
    size = data[end - 1]
    with pytest.raises(UNREADABLE):
        read_body(ApiVersionsResponse, 3, data[: end - 1] + bytes((size + 1,)) + data[end:] + b"\0", 0)


def test_members_of_groups() -> None:
    data = bytes(fuzz_answers.SOUND[15][1](fuzz_answers.new_request(), 5).encode(version=5))
    (group,) = read_body(DescribeGroupsResponse, 5, data, 0).groups
    assert isinstance(group.members[0].member_assignment, bytes)


def test_the_response_of_every_request_is_found_beside_it() -> None:
    """As kafka-python's registry has it, as long as that lives."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        importlib.import_module(module.name)
    requests = {
        kind for kind in _subclasses(ApiMessage) if kind.type == "request" and kind._class_version is None
    }
    assert ConsumerGroupDescribeRequest in requests
    for request in requests:
        registered = ResponseClassRegistry._response_class_registry[request.API_KEY]
        assert response_of(request)[0].__name__ == registered[0].__name__


def _subclasses(kind: type) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)
