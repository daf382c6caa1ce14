"""The options about large messages: LinkedIn's names, defaults and bounds."""

from __future__ import annotations

import logging

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import AssemblerSettings
from pyspark_kafkalog.options.largemessages import LargeMessageOptions, assembler_settings
from pyspark_kafkalog.options.settings import default_columns, read_options

PLACE = {"path": "/log"}


def options(**given: str) -> LargeMessageOptions:
    return read_options(
        {**PLACE, **{k.replace("__", "."): v for k, v in given.items()}}, batch=False
    ).large_messages


def test_the_defaults_are_linkedins() -> None:
    assert assembler_settings({}) == AssemblerSettings(32_000_000, 1000, 500, False, None)
    assert options() == LargeMessageOptions()


def test_values_and_their_texts_are_taken_in_any_case_of_the_name() -> None:
    given = {
        "Message.Assembler.Buffer.Capacity": 5,
        "message.assembler.expiration.offset.gap": "7",
        "max.tracked.messages.per.partition": 9,
        "exception.on.message.dropped": True,
        "message.assembler.expiration.ms": "60000",
    }
    assert assembler_settings(given) == AssemblerSettings(5, 7, 9, True, 60000)


@pytest.mark.parametrize(
    "name",
    [
        "message.assembler.buffer.capacity",
        "message.assembler.expiration.offset.gap",
        "max.tracked.messages.per.partition",
    ],
)
def test_what_is_below_1_or_above_31_bits_is_refused(name: str) -> None:
    for value in (0, -1, 2**31, "many"):
        with pytest.raises(OptionError, match=f"'{name}' must be a whole number from 1 to 2147483647"):
            assembler_settings({name: value})


def test_other_names_are_refused_where_all_are_known() -> None:
    assert assembler_settings({"sort": 1}) == AssemblerSettings()
    assert assembler_settings({"sort": 1}, others=["sort"]) == AssemblerSettings()
    with pytest.raises(
        OptionError, match=r"Unknown option 'message.assembler.buffer.capcity'\. Did you mean"
    ):
        assembler_settings({"message.assembler.buffer.capcity": 1}, others=())


def test_a_reader_that_reassembles_commits_safe_offsets() -> None:
    assert options(large__message__enabled="true") == LargeMessageOptions(enabled=True, safe_offsets=True)
    assert not options(large__message__enabled="true", large__message__safe__offsets="false").safe_offsets
    elsewhere = options(large__message__safe__offsets="true")
    assert (elsewhere.enabled, elsewhere.safe_offsets) == (False, True)


def test_dead_letters_are_a_column() -> None:
    assert "dropped" not in default_columns({**PLACE, "large.message.enabled": "true"})
    asked = {"large.message.enabled": "true", "large.message.dead.letters": "true", "includeHeaders": "true"}
    assert list(default_columns({**PLACE, **asked}))[-2:] == ["headers", "dropped"]
    with pytest.raises(OptionError, match="the reader reassembles nothing"):
        options(large__message__dead__letters="true")


def test_what_has_no_effect_in_the_source_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        options(large__message__enabled="true", exception__on__message__dropped="true")
    assert "exception.on.message.dropped has no effect on a reader" in caplog.text
