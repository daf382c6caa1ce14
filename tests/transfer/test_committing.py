"""When a query's offsets reach its group, and what a commit that fails does to the query."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.transfer.committing import METADATA, OffsetCommitter
from tests.planning.fake_groups import FakeGroups

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def offsets(groups: FakeGroups) -> dict[TopicPartition, int]:
    return {partition: its.offset for partition, its in groups.offsets.get("g", {}).items()}


def test_only_what_is_news_is_committed() -> None:
    groups = FakeGroups()
    committer = OffsetCommitter(groups, "g", required=False)
    committer.finished({A0: 5, A1: 7})
    committer.finished({A0: 5, A1: 7})
    assert groups.commits == 1
    groups.offsets["g"][A1] = CommittedOffset(1)  # somebody else's
    committer.finished({A0: 6, A1: 7})
    assert offsets(groups) == {A0: 6, A1: 1}
    assert groups.offsets["g"][A0] == CommittedOffset(6, metadata=METADATA)


def test_a_commit_that_fails_is_made_up_for_after_a_pause_that_grows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups, clock = FakeGroups(trouble=BrokerError("No coordinator")), Clock()
    committer = OffsetCommitter(groups, "g", required=False, clock=clock)
    attempts = []
    for second in range(200):
        clock.now = 100.0 + second
        committer.finished({A0: second})
        attempts.append(groups.commits)
    assert [second for second in range(1, 200) if attempts[second] > attempts[second - 1]] == [
        1, 3, 7, 15, 31, 63, 123, 183,
    ]  # fmt: skip
    assert "What group g has read is not committed, next attempt in 1 s: No coordinator" in caplog.text
    groups.trouble = None
    clock.now += 60
    committer.finished({A0: 199})
    assert offsets(groups) == {A0: 199}


def test_no_error_of_any_kind_ends_the_query(caplog: pytest.LogCaptureFixture) -> None:
    committer = OffsetCommitter(FakeGroups(trouble=ZeroDivisionError("oops")), "g", required=False)
    committer.finished({A0: 1})
    assert "ZeroDivisionError('oops')" in caplog.text


def test_one_that_is_required_does() -> None:
    committer = OffsetCommitter(FakeGroups(trouble=BrokerError("No coordinator")), "g", required=True)
    for _ in range(2):
        with pytest.raises(BrokerError, match="No coordinator"):
            committer.finished({A0: 1})
