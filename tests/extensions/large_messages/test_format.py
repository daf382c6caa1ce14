"""Metadata of commits, whatever a group may have there."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.extensions.large_messages.format import (
    commit_metadata,
    consumer_high_watermark,
    parse_metadata,
)


@pytest.mark.parametrize(
    ("metadata", "watermark"),
    [
        ("10,", 10),
        ("7,note, and more", 7),
        ("+5,", 5),
        ("-3,x", -3),
        ("-1,x", None),
        ("0" * 5000 + "12,", 12),
        (f"{2**63 - 1},", 2**63 - 1),
        (f"{2**63},", None),
        ("9" * 5000 + ",", None),
        (" 5,", None),
        ("5", None),
        ("+,", None),
        ("1_0,", None),
        (",", None),
        ("", None),
        (None, None),
    ],
)
def test_consumer_high_watermark(metadata: str | None, watermark: int | None) -> None:
    """Like Java's Long.parseLong; -1 stands for none."""
    assert consumer_high_watermark(metadata) == watermark


def test_metadata_of_a_user() -> None:
    assert parse_metadata(commit_metadata(7, "a,b")) == (7, "a,b")
    assert parse_metadata("plain") == (None, "plain")
