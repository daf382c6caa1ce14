"""What a process keeps of logins: asked for once, and used until it ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_kafkalog.broker.wire import expiring_cache
from pyspark_kafkalog.broker.wire.expiring_cache import ExpiringCache
from pyspark_kafkalog.errors import AuthenticationError


class Source:
    """Gives numbers that are used for 100 seconds and valid for 200, once it may answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.fails = False

    def __call__(self) -> tuple[int, float, float]:
        self.asked += 1
        self.may_answer.wait(10)
        if self.fails:
            raise AuthenticationError("not today")
        return self.asked, time.time() + 100, time.time() + 200


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    now = time.time()
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: now + seconds)


def _together(values: ExpiringCache[int], source: Source) -> list[int | str]:
    """What each of eight threads gets that ask at once."""

    def get() -> int | str:
        try:
            return values.get("a", source)
        except AuthenticationError as e:
            return e.message

    with ThreadPoolExecutor(8) as threads:
        got = [threads.submit(get) for _ in range(8)]
        time.sleep(0.2)
        source.may_answer.set()
        return [one.result() for one in got]


def test_of_many_threads_one_asks(source: Source) -> None:
    assert _together(ExpiringCache(), source) == [1] * 8
    assert source.asked == 1


def test_they_share_its_failure_and_ask_again(source: Source) -> None:
    source.fails = True
    values: ExpiringCache[int] = ExpiringCache()
    assert _together(values, source) == ["not today"] * 8
    assert source.asked == 1
    source.fails = False
    assert values.get("a", source) == 2


def test_a_fork_does_not_wait_for_threads_of_its_parent(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: ExpiringCache[int] = ExpiringCache()
    with ThreadPoolExecutor(1) as threads:
        of_parent = threads.submit(values.get, "a", source)
        while not source.asked:
            time.sleep(0.01)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            assert values.get("a", lambda: (7, 0.0, 0.0)) == 7
        source.may_answer.set()
        assert of_parent.result() == 1


def test_what_can_not_be_renewed_is_used_until_it_ends(
    source: Source, later: Callable[[float], None]
) -> None:
    source.may_answer.set()
    values: ExpiringCache[int] = ExpiringCache()
    assert values.get("a", source) == 1
    source.fails = True
    later(101)
    assert [values.get("a", source) for _ in range(3)] == [1] * 3
    assert source.asked == 2, "it is left alone for a while"
    later(101 + expiring_cache._PAUSE + 1)
    assert values.get("a", source) == 1
    assert source.asked == 3
    later(201)
    with pytest.raises(AuthenticationError):
        values.get("a", source)


@pytest.mark.parametrize("back", [3600, 86_400])
def test_a_clock_that_is_set_back_makes_nothing_last_longer(
    source: Source, monkeypatch: pytest.MonkeyPatch, back: float
) -> None:
    """As of a machine whose clock was ahead when it started: the token would be refused until that time."""
    source.may_answer.set()
    values: ExpiringCache[int] = ExpiringCache()
    wall, monotonic = time.time(), time.monotonic()
    monkeypatch.setattr(time, "time", lambda: wall + back)
    assert values.get("a", source) == 1
    monkeypatch.setattr(time, "time", lambda: wall + 50)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic + 50)
    assert values.get("a", source) == 1
    monkeypatch.setattr(time, "time", lambda: wall + 101)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic + 101)
    assert values.get("a", source) == 2
    source.fails = True
    monkeypatch.setattr(time, "time", lambda: wall - back)
    monkeypatch.setattr(time, "monotonic", lambda: monotonic + 101 + 150)
    assert values.get("a", source) == 2, "it is valid, but can't be renewed"
    monkeypatch.setattr(time, "monotonic", lambda: monotonic + 101 + 201)
    with pytest.raises(AuthenticationError):
        values.get("a", source)


def test_what_was_refused_is_asked_for_again(source: Source) -> None:
    source.may_answer.set()
    values: ExpiringCache[int] = ExpiringCache()
    assert values.get("a", source) == 1
    values.forget("a")
    values.forget("b")
    assert values.get("a", source) == 2


def test_a_thread_that_is_interrupted_interrupts_no_other(source: Source) -> None:
    """As by Ctrl-C, which reaches the main thread only."""
    values: ExpiringCache[int] = ExpiringCache()
    asking, waits = threading.Event(), threading.Event()

    def interrupted() -> tuple[int, float, float]:
        asking.set()
        waits.wait(10)
        raise KeyboardInterrupt

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(values.get, "a", interrupted)
        asking.wait(10)
        source.may_answer.set()
        second = threads.submit(values.get, "a", source)
        time.sleep(0.1)
        waits.set()
        assert isinstance(first.exception(), KeyboardInterrupt)
        assert second.result(10) == 1
