"""A driver that dies at a step of a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pyspark_kafkalog.extensions.exactly_once import committing


class DeadError(BaseException):
    """The driver is dead."""


@contextmanager
def dies_at(
    monkeypatch: pytest.MonkeyPatch, step: str, *, time: int = 1, last: Callable[[], None] = lambda: None
) -> Iterator[pytest.MonkeyPatch]:
    """The driver of the block dies at a step, and ends nothing; what else the block patches ends with it.

    :param time: the how many-th time that the step is reached.
    :param last: what it does last.
    """
    left = time

    def stop(reached: str) -> None:
        nonlocal left
        left -= reached == step
        if not left:
            last()
            raise DeadError

    with monkeypatch.context() as dying:
        dying.setattr(committing, "stop_at", stop)
        dying.setattr(committing.Committing, "give_up", lambda _: None)
        with pytest.raises(DeadError):
            yield dying
