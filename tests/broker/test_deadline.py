"""Deadlines are made once and passed down: what is left of them bounds each step."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.broker.wire import deadline as module
from pyspark_kafkalog.broker.wire.deadline import Deadline


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_time_runs_out(clock: Clock) -> None:
    deadline = Deadline.after_ms(2_000)
    assert (deadline.left, deadline.expired) == (2.0, False)
    clock.now += 2
    assert (deadline.left, deadline.expired) == (0.0, True)
    clock.now += 1
    assert (deadline.left, deadline.expired) == (0.0, True)


def test_attempts_share_the_time_that_is_left(clock: Clock) -> None:
    deadline = Deadline.after(8)
    assert deadline.share(2) == Deadline.after(4)
    clock.now += 6
    assert deadline.share(2) == Deadline.after(1)
    clock.now += 6
    assert deadline.share(2).expired


def test_the_earlier_bounds_the_later(clock: Clock) -> None:
    soon, late = Deadline.after(1), Deadline.after(2)
    assert late.bounded_by(soon) == soon.bounded_by(late) == soon
    assert late.bounded_by(None) == late
