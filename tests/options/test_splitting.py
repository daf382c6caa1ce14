"""The options of a writer about large messages."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import SplitterSettings
from pyspark_kafkalog.options.settings import write_options

DIRECTORY = {"path": "/log"}
BROKERS = {"kafka.bootstrap.servers": "host:9092"}
ON = {"large.message.enabled": "true"}


@pytest.mark.parametrize("place", [DIRECTORY, BROKERS])
def test_nothing_is_split_unless_it_is_asked_and_then_the_defaults_are_linkedins(
    place: dict[str, str],
) -> None:
    assert write_options({**place, "max.message.segment.bytes": "7"}).splitter is None
    assert write_options({**place, **ON}).splitter == SplitterSettings(800_000, True, False, False)


def test_names_are_taken_in_any_case() -> None:
    options = {
        **BROKERS,
        "LARGE.message.enabled": "TRUE",
        "Max.Message.Segment.Bytes": " 10 ",
        "header.timestamp.enabled": "false",
        "li.record.header.enable": "true",
        "li.large.message.segment.wrapping.required": "true",
    }
    assert write_options(options).splitter == SplitterSettings(10, False, True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("large.message.enabled", "1"),
        ("max.message.segment.bytes", "0"),
        ("max.message.segment.bytes", "2147483648"),
        ("header.timestamp.enabled", "maybe"),
        ("li.record.header.enable", ""),
        ("li.large.message.segment.wrapping.required", "yes"),
    ],
)
def test_bad_values_are_refused_also_where_nothing_is_split(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"'{name}' must be"):
        write_options({**DIRECTORY, name: value})


@pytest.mark.parametrize(
    ("place", "limit"), [(DIRECTORY, "max.message.bytes"), (BROKERS, "kafka.max.request.size")]
)
def test_message_segments_that_no_record_batch_can_hold_are_refused(
    place: dict[str, str], limit: str
) -> None:
    def options(size: int, **more: str) -> dict[str, str]:
        return {**place, **ON, limit: "1000", "max.message.segment.bytes": str(size), **more}

    with pytest.raises(
        OptionError,
        match=f"message segments of 1000 bytes and .* exceed {limit} = 1000. Raise '{limit}', or lower"
        " 'max.message.segment.bytes' to 850 at most",
    ):
        write_options(options(5000))
    fits = write_options(options(850)).splitter
    assert fits is not None
    compressed = "compression.type" if place is DIRECTORY else "kafka.compression.type"
    smallest = write_options(options(5000, **{compressed: "zstd"})).splitter
    assert smallest == SplitterSettings(1000), "the smaller of both; compressed it may fit"


def test_a_limit_below_what_any_record_batch_takes_cannot_be_met_by_smaller_ones() -> None:
    with pytest.raises(OptionError, match=r"Raise 'max.message.bytes'\.$"):
        write_options({**DIRECTORY, **ON, "max.message.bytes": "100"})
