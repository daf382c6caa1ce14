"""The options about large messages: LinkedIn's names, defaults and bounds."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.large_messages.options import (
    LargeMessageOptions,
    SplitOptions,
    assembler_settings,
)
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings, SplitterSettings
from pyspark_kafkalog.options.settings import ReadOptions, common_read_options, read_options, write_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions, log_once_for
from pyspark_kafkalog.read.messages import Messages, messages_of
from pyspark_kafkalog.write.splitting import splitting_of

PLACE = {"path": "/log"}


def options(**given: str) -> LargeMessageOptions:
    named = {k.replace("__", "."): v for k, v in given.items()}
    return large_messages(read_options({**PLACE, **named}, batch=False))


def large_messages(read: ReadOptions) -> LargeMessageOptions:
    found = messages_of(read)
    assert isinstance(found, LargeMessageOptions)
    return found


def split(given: Mapping[str, str]) -> SplitterSettings | None:
    """How a write splits values."""
    found = splitting_of(write_options(given))
    return found.settings if isinstance(found, SplitOptions) else None


def reassemble(given: Mapping[str, object] | None = None) -> AssemblerSettings:
    user = UserOptions(given or {}, Use.REASSEMBLE)
    user.check_names()
    return assembler_settings(user)


def test_the_defaults_are_linkedins() -> None:
    assert reassemble() == AssemblerSettings(32_000_000, 1000, False, None)
    on = options(large__message__enabled="true")
    assert on == LargeMessageOptions(enabled=True, safe_offsets=True)
    assert type(messages_of(read_options(PLACE, batch=False))) is Messages


def test_values_and_their_texts_are_taken_in_any_case_of_the_name() -> None:
    given = {
        "Message.Assembler.Buffer.Capacity": 5,
        "message.assembler.expiration.offset.gap": "7",
        "exception.on.message.dropped": True,
        "message.assembler.expiration.ms": "60000",
    }
    assert reassemble(given) == AssemblerSettings(5, 7, True, 60000)


@pytest.mark.parametrize(
    "name",
    ["message.assembler.buffer.capacity", "message.assembler.expiration.offset.gap"],
)
def test_what_is_below_1_or_above_31_bits_is_refused(name: str) -> None:
    for value in (0, -1, 2**31, "many"):
        with pytest.raises(OptionError, match=f"'{name}': expected a whole number from 1"):
            reassemble({name: value})


def test_reassemble_takes_its_own_options_only() -> None:
    taken = {
        "large.message.dead.letters": True,
        "auditLocation": "/a",
        "message.assembler.expiration.ms": None,
    }
    assert reassemble(taken) == AssemblerSettings()
    with pytest.raises(
        OptionError, match=r"Unknown option 'message.assembler.buffer.capcity'\. Did you mean"
    ):
        reassemble({"message.assembler.buffer.capcity": 1})
    for name in ("subscribe", "path", "kafka.bootstrap.servers", "queryName", "kafka.key.deserializer"):
        with pytest.raises(OptionError, match=f"Unknown option '{name}'"):
            reassemble({name: "x"})


def test_a_reader_that_reassembles_commits_safe_offsets() -> None:
    assert options(large__message__enabled="true") == LargeMessageOptions(enabled=True, safe_offsets=True)
    assert not options(large__message__enabled="true", large__message__safe__offsets="false").safe_offsets
    elsewhere = options(large__message__safe__offsets="true")
    assert (elsewhere.enabled, elsewhere.safe_offsets) == (False, True)


def test_dead_letters_are_a_column() -> None:
    assert "dropped" not in common_read_options({**PLACE, "large.message.enabled": "true"}).record_fields
    letters = {
        "large.message.enabled": "true",
        "large.message.dead.letters": "true",
        "includeHeaders": "true",
    }
    assert list(common_read_options({**PLACE, **letters}).record_fields)[-2:] == ["headers", "dropped"]
    with pytest.raises(OptionError, match="this reader does not reassemble messages"):
        options(large__message__dead__letters="true")


def test_what_has_no_effect_in_the_source_is_told(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    with caplog.at_level(logging.WARNING):
        options(large__message__enabled="true", message__assembler__expiration__ms="5")
        options(large__message__enabled="true", exception__on__message__dropped="true")
    (told,) = caplog.messages
    assert told.startswith("Option message.assembler.expiration.ms has no effect on a reader")


@pytest.mark.parametrize(
    "name",
    [
        "max.message.segment.bytes",
        "message.assembler.expiration.offset.gap",
        "header.timestamp.enabled",
        "li.record.header.enable",
        "li.large.message.segment.wrapping.required",
    ],
)
def test_settings_of_a_splitter_that_is_off_are_told_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_once_for.cache_clear()
    value = "true" if name.startswith(("header", "li.")) else "5000"
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert split({**DIRECTORY, name: value}) is None
        write_options({**DIRECTORY, **ON, name: value})
    assert caplog.messages == [f"Option {name} has no effect without large.message.enabled"]


def test_linkedins_own_formats_are_told_where_nothing_looks_for_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_once_for.cache_clear()
    theirs = "com.linkedin.kafka.clients.largemessage"
    with caplog.at_level(logging.WARNING):
        read_options(
            {**PLACE, "segment.deserializer.class": f"{theirs}.DefaultSegmentDeserializer"}, batch=True
        )
        assert split({**DIRECTORY, "segment.serializer": f"{theirs}.DefaultSegmentSerializer"}) is None
    assert caplog.messages == [
        f"Option {name} has no effect without large.message.enabled"
        for name in ("segment.deserializer.class", "segment.serializer")
    ]


def test_settings_of_an_assembler_that_is_off_are_told(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            read_options({**PLACE, "message.assembler.buffer.capacity": "5"}, batch=False)
            read_options({**PLACE, "exception.on.message.dropped": "true"}, batch=True)
        options(large__message__safe__offsets="true", message__assembler__expiration__offset__gap="5")
    assert caplog.messages == [
        f"Option {name} has no effect without large.message.enabled"
        for name in ("message.assembler.buffer.capacity", "exception.on.message.dropped")
    ]


_BY_ALL = ("auditor.class", "auditor.bucket.ms")
OF_PRODUCERS = (
    *("large.message.enabled", "max.message.segment.bytes", "segment.serializer", *_BY_ALL),
    *("header.timestamp.enabled", "li.record.header.enable", "li.large.message.segment.wrapping.required"),
)
OF_CONSUMERS = (
    *("message.assembler.buffer.capacity", "message.assembler.expiration.offset.gap", *_BY_ALL),
    *("exception.on.message.dropped", "segment.deserializer.class"),
)
"""The settings of LinkedIn's clients that are taken."""
DEFAULTS_OF_THEIRS = {
    "large.message.enabled": "false",
    "max.message.segment.bytes": "800000",
    "segment.serializer": "com.linkedin.kafka.clients.largemessage.DefaultSegmentSerializer",
    "segment.deserializer.class": "com.linkedin.kafka.clients.largemessage.DefaultSegmentDeserializer",
    "auditor.class": "com.linkedin.kafka.clients.auditing.NoOpAuditor",
    "auditor.bucket.ms": "600000",
    "header.timestamp.enabled": "true",
    "li.record.header.enable": "false",
    "li.large.message.segment.wrapping.required": "false",
    "message.assembler.buffer.capacity": "32000000",
    "message.assembler.expiration.offset.gap": "1000",
    "exception.on.message.dropped": "false",
}
"""What LiKafkaProducerConfig and LiKafkaConsumerConfig of 1.0.66 have where nothing is given."""


def test_linkedins_settings_are_taken_by_their_own_names_and_have_their_defaults() -> None:
    producer = {name: DEFAULTS_OF_THEIRS[name] for name in OF_PRODUCERS}
    assert write_options({**DIRECTORY, **producer}) == write_options(DIRECTORY)
    assert split({**DIRECTORY, **producer, **ON}) == split({**DIRECTORY, **ON})
    consumer = {name: DEFAULTS_OF_THEIRS[name] for name in OF_CONSUMERS}
    for batch in (True, False):
        mine = read_options({**PLACE, **ON, **consumer}, batch=batch)
        assert mine == read_options({**PLACE, **ON}, batch=batch)
        assert read_options({**PLACE, **consumer}, batch=batch) == read_options(PLACE, batch=batch)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max.tracked.messages.per.partition", "Leave it out: a read may begin at any offset"),
        ("exception.on.invalid.offset.reset", r"Did you mean failOnDataLoss\?"),
        ("treat.bad.segments.as.payload", "Leave it out: a value that only looks like"),
        ("uuid.factory.class", "Leave it out: message ids are random"),
        ("current.producer", "Leave it out: an auditor gets counts"),
        ("auditor.reporting.interval.ms", "Leave it out: a task gives its counts"),
        ("auditor.reporting.delay.ms", "Leave it out: a task gives its counts"),
        ("enable.auto.tick", "Leave it out: a task gives its counts"),
        ("li.cluster.group", "give the cluster's brokers as kafka.bootstrap.servers"),
        ("li.cluster.environment", "give the cluster's brokers as kafka.bootstrap.servers"),
        ("li.metadata.service.client", "give the cluster's brokers as kafka.bootstrap.servers"),
        ("li.metadata.service.request.timeout.ms", "give the cluster's brokers as kafka.bootstrap.servers"),
    ],
)
def test_their_other_settings_are_refused_with_what_to_do(name: str, hint: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: write_options({**DIRECTORY, name: "x"}),
        lambda: read_options({**PLACE, **ON, name: "x"}, batch=False),
        lambda: reassemble({name: "x"}),
        lambda: connect({"path": "/log", name: "x"}),
    ]
    for use in uses:
        with pytest.raises(OptionError, match=rf"^Option '{re.escape(name)}' is not supported\..*{hint}"):
            use()


def test_the_name_without_class_is_told_by_linkedins() -> None:
    with pytest.raises(OptionError, match=r"Did you mean segment\.deserializer\.class\?"):
        read_options({**PLACE, **ON, "segment.deserializer": "a:b"}, batch=True)


def test_what_the_log_stores_bounds_what_is_encoded() -> None:
    """So that it is refused by a task, and not by the commit."""
    given = {**DIRECTORY, **ON, "max.message.bytes": "20000", "segment.bytes": "10000"}
    with pytest.raises(OptionError, match=r"exceed segment\.bytes = 10000.* Raise 'segment\.bytes'"):
        write_options(given)
    encode = write_options({**given, "max.message.segment.bytes": "5000"}).encode_settings
    assert (encode.max_message_bytes, encode.limit) == (10000, "the option segment.bytes")


DIRECTORY = {"path": "/log"}
BROKERS = {"kafka.bootstrap.servers": "host:9092"}
ON = {"large.message.enabled": "true"}


@pytest.mark.parametrize("place", [DIRECTORY, BROKERS])
def test_nothing_is_split_unless_it_is_asked_and_then_the_defaults_are_linkedins(
    place: dict[str, str],
) -> None:
    assert split({**place, "max.message.segment.bytes": "7"}) is None
    assert split({**place, **ON}) == SplitterSettings(800_000, True, False, False)


def test_names_are_taken_in_any_case() -> None:
    options = {
        **BROKERS,
        "LARGE.message.enabled": "TRUE",
        "Max.Message.Segment.Bytes": " 10 ",
        "header.timestamp.enabled": "false",
        "li.record.header.enable": "true",
        "li.large.message.segment.wrapping.required": "true",
    }
    assert split(options) == SplitterSettings(10, False, True, True)


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
    with pytest.raises(OptionError, match=f"'{name}': expected"):
        write_options({**DIRECTORY, name: value})


def test_functions_for_message_segments_need_some() -> None:
    serializer, deserializer = {"segment.serializer": "a.b.c"}, {"segment.deserializer.class": " a.b:c "}
    assert split({**DIRECTORY, **ON, **serializer}) == SplitterSettings(serializer="a.b:c")
    assert reassemble(deserializer).deserializer == "a.b:c"
    for enabling in ON, {"large.message.safe.offsets": "true"}:
        read = read_options({**PLACE, **enabling, **deserializer}, batch=False)
        assert large_messages(read).settings.deserializer == "a.b:c"
    with pytest.raises(OptionError, match=r"'segment\.serializer' is set, but this writer makes no message"):
        write_options({**DIRECTORY, **serializer})
    with pytest.raises(
        OptionError, match=r"'segment\.deserializer\.class' is set, but this reader does not look for"
    ):
        read_options({**PLACE, **deserializer}, batch=True)
    with pytest.raises(OptionError, match=r"can't be given with 'li\.record\.header\.enable'"):
        write_options({**DIRECTORY, **ON, **serializer, "li.record.header.enable": "true"})
    with pytest.raises(OptionError, match=r"'segment\.deserializer\.class': expected an import path"):
        read_options({**PLACE, **ON, "segment.deserializer.class": "com.linkedin Deserializer"}, batch=True)


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
        match=f"message segments of 1000 bytes exceed {limit} = 1000. Raise '{limit}', or lower"
        " 'max.message.segment.bytes' to at most 850 minus",
    ):
        write_options(options(5000))
    fits = split(options(850))
    assert fits is not None
    compressed = "compression.type" if place is DIRECTORY else "kafka.compression.type"
    smallest = split(options(5000, **{compressed: "zstd"}))
    assert smallest == SplitterSettings(1000), "the smaller of both; compressed it may fit"


def test_a_limit_below_what_any_record_batch_takes_cannot_be_met_by_smaller_ones() -> None:
    with pytest.raises(OptionError, match=r"Raise 'max.message.bytes'\.$"):
        write_options({**DIRECTORY, **ON, "max.message.bytes": "100"})
