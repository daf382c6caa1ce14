"""A driver that dies at a step of a commit."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.broker.transactions import committing


class DeadError(BaseException):
    """The driver is dead."""


def die_at(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Let drivers die at a step, and end nothing."""

    def stop(reached: str) -> None:
        if reached == step:
            raise DeadError

    monkeypatch.setattr(committing, "stop_at", stop)
    monkeypatch.setattr(committing.Committing, "give_up", lambda _: None)
