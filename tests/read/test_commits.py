"""A query continues a group only if its commits are of the logs that are there."""

from __future__ import annotations

import logging

import pytest

from pyspark_kafkalog.errors import GroupError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.read import commits
from tests.read.fake_place import FakePlace

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_PAUSE", 0.0)


def check(place: FakePlace, committed: CommittedOffset, *, fail_on_data_loss: bool = True) -> None:
    commits.check_commits(place, "g", {A0: committed}, fail_on_data_loss=fail_on_data_loss)


@pytest.mark.parametrize(
    ("committed", "ended"),
    [
        (CommittedOffset(20, 3), {A0: (3, 20)}),
        (CommittedOffset(7, 3), {A0: (3, 20)}),
        (CommittedOffset(2, 3), {A0: (3, 5)}),
        (CommittedOffset(7, 3), {A0: (2, 7)}),  # an epoch in which nothing was written
        (CommittedOffset(7, 3), {}),  # brokers before Kafka 2.3, and logs without epochs
        (CommittedOffset(7, -1), {A0: (-1, -1)}),
        (CommittedOffset(0, 3), {A0: (-1, -1)}),  # nothing before it that could differ
        (CommittedOffset(5, 3), {A0: (-1, -1)}),  # what was before it is gone, and its epoch with it
    ],
)
def test_what_fits_is_believed(
    committed: CommittedOffset, ended: dict[TopicPartition, tuple[int, int]]
) -> None:
    check(FakePlace({A0: (5, 20)}, ended=ended), committed)


@pytest.mark.parametrize(
    ("committed", "ended", "said"),
    [
        (CommittedOffset(21), {}, "committed offset 21, but the log ends at 20"),
        (CommittedOffset(7, 3), {A0: (-1, -1)}, "leader epoch 3, which the log's leader has never had"),
        (CommittedOffset(7, 3), {A0: (3, 6)}, "leader epoch 3, and the log's records of that epoch end at 6"),
        (CommittedOffset(7, 3), {A0: (1, 6)}, "leader epoch 3, and the log's records of that epoch end at 6"),
    ],
)
def test_what_is_of_another_history_is_refused(
    committed: CommittedOffset,
    ended: dict[TopicPartition, tuple[int, int]],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = FakePlace({A0: (0, 20)}, ended=ended)
    with pytest.raises(GroupError, match=f"Group 'g' .*{said}.*a-0.*offsets reset --group g"):
        check(place, committed)
    with caplog.at_level(logging.WARNING, "pyspark_kafkalog"):
        check(place, committed, fail_on_data_loss=False)
    assert said in caplog.text


def test_a_leader_that_does_not_know_its_end_yet_is_asked_again() -> None:
    class Late(FakePlace):
        asked = 0

        def end_offsets(self, partitions, *, read_committed):  # type: ignore[no-untyped-def]
            self.asked += 1
            return {A0: 20 if self.asked > 1 else 3}

    check(Late({A0: (0, 20)}), CommittedOffset(15))
