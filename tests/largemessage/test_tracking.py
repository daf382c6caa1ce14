"""Metadata of commits, and what is no longer known; the rest is among the fixtures."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OffsetNotTrackedError
from pyspark_kafkalog.largemessage.tracking import (
    DeliveredMessages,
    commit_metadata,
    consumer_high_watermark,
    parse_metadata,
)
from pyspark_kafkalog.model import TopicPartition


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
    """As Java's Long.parseLong; -1 stands for none."""
    assert consumer_high_watermark(metadata) == watermark


def test_metadata_of_a_user() -> None:
    assert parse_metadata(commit_metadata(7, "a,b")) == (7, "a,b")
    assert parse_metadata("plain") == (None, "plain")


def test_what_is_no_longer_tracked() -> None:
    """The error tells what is."""
    delivered = DeliveredMessages(TopicPartition("t", 1), 0, 1)
    for offset in (1, 3):
        delivered.read_segment(offset - 1)
        delivered.read_message(offset, offset - 1, None)
    assert delivered.seek_target(3) == 2
    assert delivered.seek_target(2) == 2
    with pytest.raises(OffsetNotTrackedError, match=r"known: 2 to 3\) \(partition t-1, offset 1\)"):
        delivered.seek_target(1)
