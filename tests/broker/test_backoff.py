"""When retries end, and with which error."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.broker.wire import backoff as module
from pyspark_kafkalog.broker.wire.backoff import Backoff, Repeated
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import OutOfTimeError
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError, KafkaLogError
from pyspark_kafkalog.options.brokers import ConnectionOptions
from tests.sleeping import replace_sleep

LOADING = BrokerError("The coordinator loads")
TIMED_OUT = BrokerConnectionError("The broker did not answer")
CUT_SHORT = OutOfTimeError("The time was over")


class Clock:
    """A clock that pauses and tests move; a pause is exactly as long as requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        replace_sleep(monkeypatch, self.attempt_of)
        monkeypatch.setattr(module.random, "uniform", lambda low, high: 1.0)

    def attempt_of(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def backoff_of(seconds: float) -> Backoff:
    options = ConnectionOptions(("b:1",), retry_backoff_ms=100, retry_backoff_max_ms=1000)
    return Backoff(options, Deadline.after(seconds))


def test_pauses_double_until_no_other_fits(clock: Clock) -> None:
    backoff = backoff_of(0.8)
    resumed = []
    for _ in range(3):
        backoff.pause(LOADING)
        resumed.append(round(clock.now, 3))
    with pytest.raises(BrokerError, match="loads"):
        backoff.pause(LOADING)
    assert resumed == [0.1, 0.3, 0.7]


def test_an_attempt_that_had_no_time_does_not_hide_why_the_one_before_failed(clock: Clock) -> None:
    backoff = backoff_of(0.35)
    backoff.pause(LOADING)
    backoff.pause(LOADING)
    clock.attempt_of(backoff.deadline.left)
    with pytest.raises(BrokerError, match="loads"):
        backoff.pause(CUT_SHORT)


def test_an_attempt_that_had_no_time_tells_so_if_none_told_more(clock: Clock) -> None:
    backoff = backoff_of(0.15)
    backoff.pause(CUT_SHORT)
    clock.attempt_of(backoff.deadline.left)
    with pytest.raises(OutOfTimeError):
        backoff.pause(OutOfTimeError("Over, too"))


def test_an_attempt_that_had_time_tells_why_it_failed(clock: Clock) -> None:
    backoff = backoff_of(0.35)
    backoff.pause(LOADING)
    clock.attempt_of(backoff.deadline.left)
    with pytest.raises(BrokerConnectionError, match="did not answer"):
        backoff.pause(TIMED_OUT)


def test_an_attempt_is_repeated_while_it_returns_an_error(clock: Clock) -> None:
    outcomes = [LOADING, TIMED_OUT, "done"]
    assert backoff_of(1).repeat(lambda: outcomes.pop(0)) == "done"
    with pytest.raises(BrokerError, match="loads"):
        backoff_of(1).repeat(lambda: LOADING)


def test_only_what_failed_is_repeated_and_the_last_error_of_each_is_told(clock: Clock) -> None:
    asked = []

    def attempt(names: list[str]) -> dict[str, KafkaLogError]:
        asked.append(names)
        return {"a": LOADING, "b": TIMED_OUT} if len(asked) == 1 else {"b": LOADING}

    failures: dict[str, KafkaLogError] = {}
    backoff_of(0.25).repeat_each(["b", "a", "c"], attempt, failures)
    assert asked == [["a", "b", "c"], ["a", "b"]]
    assert failures == {"b": LOADING}
    with pytest.raises(BrokerError, match="loads"):
        backoff_of(0.25).repeat_each(["b"], lambda _: {"b": LOADING})


def test_each_keeps_its_own_error_if_the_last_attempt_had_no_time(clock: Clock) -> None:
    asked = []

    def attempt(names: list[str]) -> dict[str, KafkaLogError]:
        asked.append(names)
        if len(asked) < 3:
            return {"a": TIMED_OUT, "b": LOADING}
        clock.attempt_of(0.05)
        return {"a": CUT_SHORT}

    failures: dict[str, KafkaLogError] = {}
    backoff_of(0.35).repeat_each(["a", "b"], attempt, failures)
    assert (len(asked), failures) == (3, {"a": TIMED_OUT})


def test_waits_that_were_cut_short_hide_no_error_however_many_they_are(clock: Clock) -> None:
    outcomes = [TIMED_OUT, CUT_SHORT, CUT_SHORT, CUT_SHORT]
    failures: dict[str, KafkaLogError] = {}
    backoff_of(0.75).repeat_each(["a"], lambda _: {"a": outcomes.pop(0)}, failures)
    assert (outcomes, failures) == ([], {"a": TIMED_OUT})


def test_a_wait_that_is_repeated_is_told_once_with_all_its_time(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeated = Repeated(60)
    for _ in range(3):
        options = ConnectionOptions(("b:1",), retry_backoff_ms=100, retry_backoff_max_ms=1000)
        backoff = Backoff(options, Deadline.after(30), repeated=repeated)
        with pytest.raises(BrokerError, match="loads"):
            backoff.repeat(lambda: LOADING)
        repeated.more -= 30
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "Retrying for up to 87 s: The coordinator loads"
    ]
