"""Spark's JSON forms of partitions and offsets (its JsonUtilsSuite and KafkaSourceOffsetSuite)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import parse_offsets, parse_partitions, to_json

PARTITIONS = st.builds(
    TopicPartition,
    st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda topic: topic not in (".", "..")),
    st.integers(0, 2**31 - 1),
)


def test_parsing_partitions() -> None:
    assert parse_partitions('{"topicB":[10, 2],"topicA":[0,0]}', option="assign") == (
        TopicPartition("topicA", 0),
        TopicPartition("topicB", 2),
        TopicPartition("topicB", 10),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "topic",
        "[0]",
        '{"t":0}',
        '{"t":["0"]}',
        '{"t":[0.0]}',
        '{"t":[true]}',
        '{"t":[-1]}',
        '{"t":[2147483648]}',
    ],
)
def test_partitions_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"'assign'.*Write it as, for example, \{\"topicA\":\[0,1\]"):
        parse_partitions(text, option="assign")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        '{"t":7}',
        '{"t":[7]}',
        '{"t":{"x":7}}',
        '{"t":{"-1":7}}',
        '{"t":{"00":7}}',
        '{"t":{"2147483648":7}}',
        '{"t":{"\u0663":7}}',
        '{"t":{"0":"7"}}',
        '{"t":{"0":7.0}}',
        '{"t":{"0":true}}',
        '{"t":{"0":null}}',
        '{"t":{"0":-3}}',
        '{"t":{"0":9223372036854775808}}',
        '{"t":{"0":NaN}}',
        '{"t":{"0":1,"0":2}}',
        '{"t":{"0":1},"t":{"1":2}}',
        "[" * 100_000,
    ],
)
def test_offsets_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="'startingOffsets'"):
        parse_offsets(text, option="startingOffsets", lowest=-2)


def test_parsing_offsets() -> None:
    text = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    assert parse_offsets(text, option="startingOffsets", lowest=-2) == {
        TopicPartition("topicA", 0): 23,
        TopicPartition("topicA", 1): -1,
        TopicPartition("topicB", 0): -2,
    }


def test_offsets_as_spark_2_1_logged_them() -> None:
    assert parse_offsets('{"topic1":{"0":456,"1":789},"topic2":{"0":0}}', option="offsets") == {
        TopicPartition("topic1", 0): 456,
        TopicPartition("topic1", 1): 789,
        TopicPartition("topic2", 0): 0,
    }


def test_illegal_topics_are_refused() -> None:
    with pytest.raises(OptionError, match="Illegal topic name"):
        parse_offsets('{"../etc":{"0":7}}', option="startingOffsets")
    with pytest.raises(OptionError, match="Illegal topic name"):
        parse_partitions('{"a/b":[0]}', option="assign")


def test_the_order_is_canonical_and_the_form_sparks() -> None:
    offsets = parse_offsets('{"b": {"10": 3, "9": 2}, "a": {"0": 1}}', option="offsets")
    assert list(offsets) == [TopicPartition("a", 0), TopicPartition("b", 9), TopicPartition("b", 10)]
    for order in (offsets, dict(reversed(offsets.items()))):
        assert json.dumps(to_json(order)) == '{"a": {"0": 1}, "b": {"9": 2, "10": 3}}'
    assert to_json({}) == {}


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1)))
def test_offsets_survive_the_way_through_spark(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offsets(json.loads(json.dumps(to_json(offsets))), option="offsets") == offsets
