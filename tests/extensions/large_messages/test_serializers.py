"""Message segments by functions of the user's: results as without them, and what they may not return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.extensions.large_messages.segments import finder
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings, SplitterSettings
from pyspark_kafkalog.extensions.large_messages.splitter import Splitter
from pyspark_kafkalog.model import TopicPartition
from tests.extensions.large_messages.records import Record
from tests.extensions.large_messages.segment_formats import FORMATS, WRONG
from tests.extensions.large_messages.test_splitting import ID, arrow, plain, split

PARTITION = TopicPartition("t", 3)
GIVEN = [
    Record(b"k", b"small", [("a", b"1")], 5),
    Record(None, b"x" * 25, [], 6),
    Record(b"k", None, [], 7),
    Record(b"k", b"", [], 8),
    Record(b"k", bytes(range(30)), [("_lm", b"old")], 9),
    Record(None, b"exactly 10", [], 10),
]


@pytest.mark.parametrize("name", ["prefix", "prefixes"])
@pytest.mark.parametrize("wrap", [False, True])
def test_their_format_by_a_function_is_that_of_the_package(name: str, wrap: bool) -> None:
    settings = SplitterSettings(10, wrap=wrap)
    own = replace(settings, serializer=f"{FORMATS}:{name}")
    assert split(GIVEN, own) == split(GIVEN, settings)
    assert split(GIVEN, own, chosen=[4, 0]) == split(GIVEN, settings, chosen=[4, 0])
    assert split(GIVEN, own, max_bytes=1) == split(GIVEN, settings)


def test_small_values_are_bare_if_the_function_leaves_them_so() -> None:
    settings = SplitterSettings(10, wrap=True, serializer=f"{FORMATS}:own")
    found = split(GIVEN, settings)
    assert [record.value for record in found if record.timestamp in (5, 7, 8, 10)] == [
        b"small",
        None,
        b"",
        b"exactly 10",
    ]
    assert sum(bytes(record.value or b"").startswith(b"own:") for record in found) == 6


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", r"raised ValueError \(line \d+ of .*\): these bytes are bad"),
        ("gives_text", "returned str, expected bytes"),
        ("gives_nothing", "returned NoneType, expected bytes"),
        ("a_list_of_values", "returned list, expected a pyarrow.Array of binary"),
        ("values_of_text", "returned string, expected a pyarrow.Array of binary"),
        ("too_many_values", "returned 5 values for 4 message segments"),
        ("null_values", "returned a null, expected a value for each message segment"),
        ("values_of_negative_sizes", "returned broken values: "),
    ],
)
def test_what_a_serializer_may_not_return(name: str, said: str) -> None:
    settings = SplitterSettings(10, serializer=f"{FORMATS}:{name}")
    records = Splitter(settings, lambda count: ID * count).split(arrow([Record(b"k", b"bad" * 13, [], 1)]))
    with pytest.raises(KafkaLogError, match=rf"^The segment serializer '{FORMATS}:{name}' {said}") as e:
        list(records.of(None, PARTITION))
    assert e.value.topic_partition == "t-3"


def rows(*values: bytes | None) -> pa.RecordBatch:
    offsets = pa.array(range(70, 70 + len(values)), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, pa.array(values, pa.binary())], ["offset", "value"])


def find(name: str) -> Callable[[pa.RecordBatch], Any]:
    return finder(AssemblerSettings(deserializer=f"{FORMATS}:{name}"), PARTITION)


def test_slices_may_lie_anywhere_in_a_value() -> None:
    settings = SplitterSettings(10, serializer=f"{FORMATS}:own")
    splitter = Splitter(settings, lambda count: ID * count)
    records = splitter.split(arrow([Record(b"k", b"0123456789abcdef", [], 1)])).of(None, PARTITION)
    values = [record.value for part, wanted in records for record in plain(part, wanted)]
    given = rows(b"old", None, *values, b"", b"new").slice(1)
    found = find("from_own")(given)
    assert found.row.tolist() == [1, 2]
    assert found.message_ids() == [ID, ID]
    assert (found.number.tolist(), found.count.tolist(), found.length.tolist()) == ([0, 1], [2, 2], [16, 16])
    slices = [found.slice(at, np.empty(0, np.uint8)).tobytes() for at in range(2)]
    assert slices == [b"0123456789", b"abcdef"]


@pytest.mark.parametrize("name", ["from_own", "from_prefix", "from_prefixes"])
def test_rows_without_any(name: str) -> None:
    for given in rows(b"old", None, b""), rows(None), rows():
        found = find(name)(given)
        assert found is None or not found.row.size


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_message_segment_may_not_be(wrong: str) -> None:
    said = {
        "short_id": "a message segment with a message_id of other than 16 bytes",
        "text_as_id": "str as message_id, expected bytes",
        "no_id": "NoneType as message_id, expected bytes",
        "negative_number": "a message segment with a number outside of 0 to count - 1",
        "number_outside": "a message segment with a number outside of 0 to count - 1",
        "no_segments": "a message segment with a count below 1",
        "negative_count": "a message segment with a count below 1",
        "too_many": "2147483648 as count, expected a whole number of 32 bits",
        "fraction": "float as count, expected a whole number of 32 bits",
        "negative_length": "a message segment with a negative length",
        "slice_too_long": "a message segment with a slice longer than its message",
        "text_as_slice": "str as slice, expected bytes",
    }[wrong]
    text = f"^The segment deserializer '{FORMATS}:wrong' returned {said} .*It returns None for"
    with pytest.raises(KafkaLogError, match=text) as raised:
        find("wrong")(rows(b"old", None, wrong.encode()))
    assert (raised.value.topic_partition, raised.value.offset) == ("t-3", 72)


@pytest.mark.parametrize(
    ("name", "said", "offset"),
    [
        ("raises", r"raised ValueError \(line \d+ of .*\): these bytes are bad", 72),
        ("gives_text", "returned str, expected a MessageSegment or None", 70),
        ("table_of_segments", "returned Table, expected a pyarrow.RecordBatch or None", 70),
        ("too_few_segments", "returned 1 rows for 2 values", 70),
        ("segments_without_slices", "returned a batch without one column 'slice'", 70),
        ("segments_with_text", "returned broken columns: expected binary, got string", 70),
        ("segments_with_fractions", "returned broken columns: expected int32, got double", 70),
        ("segments_with_large_numbers", "returned broken columns: Integer value 1099511627776", 70),
        ("segments_with_nulls", "returned a message segment with no count", 70),
        ("segments_with_negative_sizes", "returned broken columns: ", 70),
        ("segments_with_negative_lengths", "returned a message segment with a negative length", 72),
    ],
)
def test_what_a_deserializer_may_not_return(name: str, said: str, offset: int) -> None:
    text = rf"^The segment deserializer '{FORMATS}:{name}' {said}"
    with pytest.raises(KafkaLogError, match=text) as raised:
        find(name)(rows(b"good", None, b"bad"))
    assert (raised.value.topic_partition, raised.value.offset) == ("t-3", offset)


def test_what_can_t_be_imported_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"^The segment deserializer 'a\.b:c' cannot be imported: there is no"
    ):
        finder(AssemblerSettings(deserializer="a.b:c"), PARTITION)
    with pytest.raises(
        OptionError, match=r"^The segment serializer 'a\.b:c' cannot be imported: there is no"
    ):
        Splitter(SplitterSettings(serializer="a.b:c"), lambda count: ID * count)
