"""Keys and values of ``__consumer_offsets``: what brokers wrote, what we write, and hostile bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_kafkalog.codec.offsets_topic import (
    ClassicGroup,
    ClassicMember,
    CoordinatorKey,
    decode_consumer_member,
    decode_group,
    decode_key,
    decode_offset,
    encode_group_key,
    encode_offset,
    encode_offset_key,
    offsets_partition,
    raw_group,
)
from pyspark_kafkalog.errors import CorruptRecordError, InvalidRecordError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.fixtures_dir import case

CASES = ("consumer-offsets", "consumer-offsets-010")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)


def stored(name: str) -> list[tuple[bytes, bytes | None, dict[str, Any]]]:
    """Key, value and the output of DumpLogSegments for each record of a fixture, without markers."""
    fixture = case(name)
    records = {
        (f"{r['topic']}-{r['partition']}", r["offset"]): r
        for r in fixture.records
        if r["topic"] == "__consumer_offsets"
    }
    found = []
    with (fixture.logs / fixture.entry["expected"]["decoded"]).open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if "control" not in line:
                record = records[line["file"].partition("/")[0], line["offset"]]
                value = record["value"]
                found.append((bytes.fromhex(record["key"]), value and bytes.fromhex(value), line))
    assert len(found) > 50
    return found


@pytest.mark.parametrize("name", CASES)
def test_what_brokers_wrote_is_decoded_like_by_kafkas_own_tool(name: str) -> None:
    for key, value, line in stored(name):
        decoded, expected = decode_key(key), line["key"]["data"]
        kind = int(line["key"]["type"])
        group = expected.get("group", expected.get("groupId"))
        partition = TopicPartition(expected["topic"], expected["partition"]) if kind == 1 else None
        member_id = expected["memberId"] if kind == 5 else ""
        assert decoded == CoordinatorKey(kind, group, partition, member_id)
        assert raw_group(key) == group.encode()
        if value is None:
            assert line["value"] is None
            continue
        content = line["value"]["data"]
        if kind == 1:
            assert key == encode_offset_key(group, TopicPartition(expected["topic"], expected["partition"]))
            check_offset(value, content)
        elif kind == 2:
            check_group(value, content)
        elif kind == 5:
            assert decode_consumer_member(value) == (
                content["clientId"],
                content["clientHost"],
                content["instanceId"],
            )


def check_offset(value: bytes, content: dict[str, Any]) -> None:
    committed = decode_offset(value)
    assert committed == CommittedOffset(
        content["offset"],
        content.get("leaderEpoch", -1),
        content["metadata"],
        content["commitTimestamp"],
        content.get("expireTimestamp", -1),
    )
    if value[:2] == b"\0\1":
        assert encode_offset(committed) == value


def check_group(value: bytes, content: dict[str, Any]) -> None:
    group = decode_group(value)
    names = ("protocolType", "generation", "protocol", "leader")
    assert (group.protocol_type, group.generation, group.protocol, group.leader) == tuple(
        content[name] for name in names
    )
    assert group.state_timestamp == content.get("currentStateTimestamp", -1)
    for member, expected in zip(group.members, content["members"], strict=True):
        assert member.member_id == expected["memberId"]
        assert member.group_instance_id == expected.get("groupInstanceId")
        assert (member.client_id, member.client_host) == (expected["clientId"], expected["clientHost"])
        assert member.rebalance_timeout == expected["rebalanceTimeout"]
        assert member.session_timeout == expected["sessionTimeout"]
        assert list(member.subscribed_topics()) == expected["subscription"]["topics"]
        assert member.assigned_partitions() == tuple(
            TopicPartition(entry["topic"], number)
            for entry in expected["assignment"]["assignedPartitions"]
            for number in entry["partitions"]
        )


@given(texts, texts, int32)
def test_keys_round_trip(group: str, topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    key = encode_offset_key(group, partition)
    assert decode_key(encode_group_key(group)) == CoordinatorKey(2, group)
    assert decode_key(key) == decode_key(b"\0\0" + key[2:]) == CoordinatorKey(1, group, partition)


@given(st.builds(CommittedOffset, int64, int32, texts, int64, st.just(-1)))
def test_offsets_round_trip(committed: CommittedOffset) -> None:
    assert decode_offset(encode_offset(committed)) == committed


@given(st.builds(CommittedOffset, int64, st.just(-1), texts, int64, st.integers(0, 2**63 - 1)))
def test_an_expire_timestamp_of_its_own_takes_version_1(committed: CommittedOffset) -> None:
    value = encode_offset(committed)
    assert value[:2] == b"\0\1"
    assert decode_offset(value) == committed


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="32768 bytes"):
        encode_offset_key("é" * 16384, TopicPartition("t", 0))
    with pytest.raises(InvalidRecordError, match="do not fit"):
        encode_offset_key("g", TopicPartition("t", 1 << 31))
    with pytest.raises(InvalidRecordError, match="do not fit"):
        encode_offset(CommittedOffset(1 << 63))


def short(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def compact(data: bytes | None) -> bytes:
    assert data is None or len(data) < 127
    return b"\0" if data is None else bytes([len(data) + 1]) + data


TAGGED = b"\2\0\x03abc\x05\0"
"""Two unknown tagged fields."""


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset(version: int) -> None:
    value = struct.pack(">hq", version, 7)
    value += struct.pack(">i", 3) * (version >= 3)
    value += compact(b"m") if version == 4 else short("m")
    value += struct.pack(">q", 1000) + struct.pack(">q", 2000) * (version == 1) + TAGGED * (version == 4)
    assert decode_offset(value) == CommittedOffset(
        7, 3 if version >= 3 else -1, "m", 1000, 2000 if version == 1 else -1
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group(version: int) -> None:
    flexible = version == 4

    def text(content: str | None) -> bytes:
        return compact(content and content.encode()) if flexible else short(content)

    def blob(content: bytes) -> bytes:
        return compact(content) if flexible else struct.pack(">i", len(content)) + content

    member = text("m") + text("i") * (version >= 3) + text("c") + text("h")
    member += struct.pack(">i", 60) * (version >= 1) + struct.pack(">i", 30) + blob(b"s") + blob(b"a")
    member += TAGGED * flexible
    value = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 5) + text("range") + text(None)
    value += struct.pack(">q", 1000) * (version >= 2)
    value += (b"\3" if flexible else struct.pack(">i", 2)) + member * 2 + TAGGED * flexible
    expected = ClassicMember(
        "m", "c", "h", 30, 60 if version else -1, "i" if version >= 3 else None, b"s", b"a"
    )
    assert decode_group(value) == ClassicGroup(
        "consumer", 5, "range", None, (expected, expected), 1000 if version >= 2 else -1
    )


@pytest.mark.parametrize("version", [-1, 5, 300])
def test_unknown_versions_are_refused(version: int) -> None:
    for decode in (decode_offset, decode_group):
        with pytest.raises(CorruptRecordError, match=f"got version {version}.*byte 0"):
            decode(struct.pack(">h", version) + bytes(100))


def test_keys_of_unknown_types_still_tell_the_group() -> None:
    assert decode_key(b"\0\x18\0\2gr" + b"anything") == CoordinatorKey(24, "gr")
    assert decode_key(b"\0\x63\0\x7fgr") == CoordinatorKey(99, "")
    assert raw_group(b"\0\x63\0\x7fgr") is None


def hostile() -> st.SearchStrategy[bytes]:
    """Random bytes, and valid ones with a part cut out or replaced."""
    member = short("m") * 3 + struct.pack(">ii", 1, 1) + struct.pack(">i", 0) * 2
    group = struct.pack(">h", 1) + short("consumer") + struct.pack(">i", 1) + short("r") * 2
    valid = st.sampled_from(
        [
            encode_offset_key("group", TopicPartition("topic", 1)),
            encode_offset(CommittedOffset(1, 2, "metadata", 3)),
            b"\0\4" + bytes(12) + compact(b"m") + bytes(8) + TAGGED,
            group + struct.pack(">i", 2) + member * 2,
            b"\0\5" + short("group") + short("member"),
            b"\0\0\0\0" + compact(b"c") * 2,
        ]
    )
    cut = st.integers(0, 60)
    mutated = st.builds(lambda data, i, n, new: data[:i] + new + data[i + n :], valid, cut, cut, st.binary())
    return st.binary(max_size=80) | mutated


@given(hostile())
@example(
    struct.pack(">h", 1) + short("consumer") + struct.pack(">i", 1) + short("r") * 2 + b"\x7f\xff\xff\xff"
)
@example(b"\0\4" + bytes(12) + b"\xff" * 20)
def test_hostile_bytes_are_accepted_or_corrupt(data: bytes) -> None:
    def parts(value: bytes) -> None:
        for member in decode_group(value).members:
            member.subscribed_topics()
            member.assigned_partitions()

    for decode in (decode_key, decode_offset, parts, decode_consumer_member, raw_group):
        position: int | None = 0
        try:
            decode(data)
        except CorruptRecordError as e:
            position = e.position
        assert position is not None
        assert 0 <= position <= len(data)


def java_hash(text: str) -> int:
    """String.hashCode, by its definition: s[0]*31^(n-1) + ... + s[n-1] in 32 bits."""
    data = text.encode("utf-16-be")
    units = [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units)) % 2**32
    return total - 2**32 if total >= 2**31 else total


def test_java_hash_of_well_known_strings() -> None:
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("polygenelubricants", 0),
        ("", 0),
        ("hello", 99162322 % 50),
        ("consumer-group", abs(java_hash("consumer-group")) % 50),
        # A pair of surrogates, not four bytes and not one code point.
        ("\N{GRINNING FACE}", (0xD83D * 31 + 0xDE00) % 50),
    ],
)
def test_groups_are_where_kafka_looks_for_them(group: str, partition: int) -> None:
    assert offsets_partition(group, 50) == partition


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(1, 1000))
def test_partition_is_the_absolute_hash(group: str, count: int) -> None:
    code = java_hash(group)
    assert offsets_partition(group, count) == (0 if code == -(2**31) else abs(code)) % count


def test_brokers_put_groups_into_the_partitions_that_we_think() -> None:
    for name in CASES:
        for _, _, line in stored(name):
            data = line["key"]["data"]
            partition = int(line["file"].partition("/")[0].rpartition("-")[2])
            assert offsets_partition(data.get("group") or data["groupId"], 2) == partition
