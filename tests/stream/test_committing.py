"""When a query's offsets reach its group, and what a commit that fails does to the query."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.options.offsets_json import to_json
from pyspark_kafkalog.stream import committing
from pyspark_kafkalog.stream.checkpoint import QueryLog
from pyspark_kafkalog.stream.committing import METADATA, REPEAT, CompletionWatch, OffsetCommitter
from tests.read.fake_groups import FakeGroups

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def offsets(groups: FakeGroups) -> dict[TopicPartition, int]:
    return {partition: offset.offset for partition, offset in groups.offsets.get("g", {}).items()}


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


def test_a_group_that_was_set_back_is_brought_up_to_date_in_an_hour() -> None:
    groups, clock = FakeGroups(), Clock()
    committer = OffsetCommitter(groups, "g", required=True, clock=clock)
    committer.finished({A0: 5, A1: 7})
    groups.offsets["g"] = {A1: CommittedOffset(1)}  # moved, or from an older copy of __consumer_offsets
    clock.now += REPEAT - 1
    committer.finished({A0: 5, A1: 7})
    assert offsets(groups) == {A1: 1}
    clock.now += 1
    committer.finished({A0: 5, A1: 7})
    assert offsets(groups) == {A0: 5, A1: 7}
    groups.trouble = BrokerError("A topic is gone")
    clock.now += REPEAT
    committer.finished({A0: 5, A1: 7})
    assert groups.commits == 3, "tried, and the query goes on"


def test_a_run_sets_its_group_back_only_behind_a_micro_batch_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From a checkpoint that was set back, the sink may refuse to go on: then the group alone knows."""
    groups = FakeGroups({"g": {A0: CommittedOffset(30), A1: CommittedOffset(5)}})
    committer = OffsetCommitter(groups, "g", required=False, before=groups)
    groups.trouble = BrokerError("No coordinator")
    committer.finished({A0: 10, A1: 7})
    assert offsets(groups) == {A0: 30, A1: 5}
    committer = OffsetCommitter(groups, "g", required=False, before=groups)
    groups.trouble = None
    for _ in range(2):
        committer.finished({A0: 10, A1: 7})
        assert offsets(groups) == {A0: 30, A1: 7}
    assert (
        "Group g is ahead of the checkpoint in a-0: the first is at 30, not at 10. If kafkalog" in caplog.text
    )
    committer.finished({A0: 12, A1: 7})
    assert offsets(groups) == {A0: 12, A1: 7}


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
    assert "The offsets of group g were not committed; next attempt in 1 s: No coordinator" in caplog.text
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


def test_a_commit_that_is_not_waited_for_holds_nothing_up() -> None:
    class Slow(FakeGroups):
        free = threading.Event()

        def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
            assert self.free.wait(10)
            super().commit(group, offsets)

    groups = Slow()
    committer = OffsetCommitter(groups, "g", required=False)
    for offset in range(1, 4):
        committer.finished({A0: offset}, wait=False)
    groups.free.set()
    committer.finished({A0: 4})
    assert offsets(groups) == {A0: 4}
    assert groups.commits == 2, "those between are left to the next"


def test_what_waits_for_a_commit_is_committed_next_and_can_be_waited_for() -> None:
    class Slow(FakeGroups):
        def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
            time.sleep(0.3)
            super().commit(group, offsets)

    groups = Slow()
    committer = OffsetCommitter(groups, "g", required=False)
    committer.flush()
    for offset in range(1, 6):
        committer.finished({A0: offset}, wait=False)
    assert offsets(groups) == {}
    committer.flush()
    assert offsets(groups) == {A0: 5}
    assert groups.commits == 2


def test_a_commit_that_hangs_is_waited_for_in_bounds() -> None:
    class Hung(FakeGroups):
        free = threading.Event()

        def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
            assert self.free.wait(20)

    committer = OffsetCommitter(Hung(), "g", required=False)
    begun = time.monotonic()
    committer.finished({A0: 1}, wait=False)
    committer.flush()
    assert 1.9 < time.monotonic() - begun < 15
    Hung.free.set()


class TestWatch:
    @pytest.fixture
    def groups(self) -> FakeGroups:
        return FakeGroups()

    @pytest.fixture
    def watch(self, tmp_path: Path, groups: FakeGroups) -> CompletionWatch:
        for name in "offsets", "commits":
            (tmp_path / name).mkdir()
        committer = OffsetCommitter(groups, "g", required=False)
        return CompletionWatch(QueryLog(str(tmp_path)), committer)

    def plan(self, checkpoint: Path, batch: int, end: dict[TopicPartition, int]) -> None:
        lines = ["v1", '{"batchWatermarkMs":0}', "-", json.dumps(to_json(end))]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))

    def complete(self, checkpoint: Path, batch: int) -> None:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")

    def wait(self, groups: FakeGroups, expected: dict[TopicPartition, int]) -> None:
        deadline = time.monotonic() + 10
        while offsets(groups) != expected and time.monotonic() < deadline:
            time.sleep(0.01)
        assert offsets(groups) == expected

    def test_a_batch_is_committed_when_it_is_complete_and_not_before(
        self, tmp_path: Path, groups: FakeGroups, watch: CompletionWatch
    ) -> None:
        for batch in 9, 10:
            end = {A0: batch, A1: 7}
            self.plan(tmp_path, batch, end)
            watch.begin(end)
            time.sleep(0.5)
            assert groups.commits == batch - 9
            self.complete(tmp_path, batch)
            self.wait(groups, end)

    def test_once_spark_asks_nothing_is_watched(
        self, tmp_path: Path, groups: FakeGroups, watch: CompletionWatch
    ) -> None:
        self.plan(tmp_path, 0, {A0: 5})
        watch.begin({A0: 5})
        watch.stop()
        self.complete(tmp_path, 0)
        time.sleep(0.6)
        assert groups.commits == 0

    def test_at_the_end_of_the_query_what_is_complete_is_committed(
        self, tmp_path: Path, groups: FakeGroups, watch: CompletionWatch
    ) -> None:
        self.plan(tmp_path, 0, {A0: 5})
        watch.begin({A0: 5})
        watch.end()
        assert groups.commits == 0
        self.plan(tmp_path, 1, {A0: 7})
        watch.begin({A0: 7})
        self.complete(tmp_path, 1)
        watch.end()
        assert offsets(groups) == {A0: 7}

    def test_the_end_of_the_query_waits_for_a_commit_but_not_for_long(
        self, tmp_path: Path, groups: FakeGroups, watch: CompletionWatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(committing, "TIMEOUT", 0.3)
        free = threading.Event()
        groups.commit = lambda *given: free.wait()  # type: ignore[assignment, method-assign]
        self.plan(tmp_path, 0, {A0: 5})
        watch.begin({A0: 5})
        self.complete(tmp_path, 0)
        began = time.monotonic()
        watch.end()
        assert 0.3 <= time.monotonic() - began < 3
        free.set()

    def test_spark_does_not_wait_while_a_commit_is_prepared(self, tmp_path: Path, groups: FakeGroups) -> None:
        for name in "offsets", "commits":
            (tmp_path / name).mkdir()
        started, free = threading.Event(), threading.Event()

        def slowly(ends: dict[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
            started.set()
            assert free.wait(10)
            return {partition: CommittedOffset(offset) for partition, offset in ends.items()}

        committer = OffsetCommitter(groups, "g", required=False, as_committed=slowly)
        watch = CompletionWatch(QueryLog(str(tmp_path)), committer)
        self.plan(tmp_path, 0, {A0: 5})
        self.complete(tmp_path, 0)
        watch.begin({A0: 5})
        assert started.wait(10)
        watch.stop()
        committer.finished({A0: 5}, wait=False)
        assert groups.commits == 0
        free.set()
        self.wait(groups, {A0: 5})

    def test_a_checkpoint_of_another_query_tells_nothing(
        self, tmp_path: Path, groups: FakeGroups, watch: CompletionWatch
    ) -> None:
        self.plan(tmp_path, 0, {A0: 4})
        self.complete(tmp_path, 0)
        watch.begin({A0: 5})
        time.sleep(0.6)
        assert groups.commits == 0

    def test_a_checkpoint_that_is_not_there_harms_nothing(self, tmp_path: Path, groups: FakeGroups) -> None:
        log = QueryLog(str(tmp_path / "none"))
        watch = CompletionWatch(log, OffsetCommitter(groups, "g", required=False))
        watch.begin({A0: 5})
        time.sleep(0.5)
        assert groups.commits == 0
