"""Callbacks for tests: one that notes what it hears in a file of its own, and some that fail."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark_kafkalog import BatchEvent, WriteCallback, WriteMetrics, WriteShare, by_value


class Noting:
    """Notes all that it hears, line by line: the method, and what it is given."""

    def __init__(self, folder: str, share: WriteShare) -> None:
        self._file = Path(folder, uuid.uuid4().hex)
        self._note("made", share._asdict())

    def on_enqueue(self, batch: BatchEvent) -> None:
        self._note("on_enqueue", batch._asdict())

    def on_send(self, batch: BatchEvent) -> None:
        self._note("on_send", batch._asdict())

    def on_acknowledgement(self, batch: BatchEvent) -> None:
        self._note("on_acknowledgement", batch._asdict())

    def on_retry(self, batch: BatchEvent) -> None:
        self._note("on_retry", batch._asdict())

    def on_error(self, batch: BatchEvent) -> None:
        self._note("on_error", batch._asdict())

    def on_commit(self, metrics: WriteMetrics) -> None:
        self._note("on_commit", as_dict(metrics))

    def close(self, metrics: WriteMetrics, error: BaseException | None) -> None:
        self._note("close", {**as_dict(metrics), "error": None if error is None else str(error)})

    def _note(self, method: str, given: dict[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([method, given]) + "\n")


def as_dict(metrics: WriteMetrics) -> dict[str, Any]:
    return {name: getattr(metrics, name) for name in WriteMetrics.__dataclass_fields__}


class Story(NamedTuple):
    """What one object has heard: its share, and each call with what it was given."""

    share: dict[str, Any]
    calls: list[tuple[str, dict[str, Any]]]

    def of(self, method: str) -> list[dict[str, Any]]:
        return [given for name, given in self.calls if name == method]

    def ends(self) -> list[dict[str, Any]]:
        """The batches with what became of them in the end."""
        return [given for name, given in self.calls if name in ("on_acknowledgement", "on_error")]


def noting(folder: Path) -> str:
    """The value of ``callback.class`` for objects that note what they hear in this folder."""
    folder.mkdir(exist_ok=True)
    return by_value(partial(Noting, str(folder)))


def stories(folder: Path) -> list[Story]:
    """What the objects have heard: those of tasks in order, then those of commits."""
    found = []
    for name in os.listdir(folder):
        (_, share), *calls = map(json.loads, Path(folder, name).read_text().splitlines())
        found.append(Story(share, [(method, given) for method, given in calls]))
    return sorted(found, key=lambda story: (story.share["task"] is None, *map(str, story.share.values())))


def batches(events: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """The partition and the number of each batch, sorted."""
    return sorted((event["partition"], event["number"]) for event in events)


class TakesNothing(WriteCallback):
    def on_send(self) -> None:  # type: ignore[override]
        """Hear of nothing, by mistake."""


class FailsAtOnce(WriteCallback):
    def __init__(self, share: WriteShare) -> None:
        raise ValueError("not today")


class FailsAtEnqueue(WriteCallback):
    def on_enqueue(self, batch: BatchEvent) -> None:
        raise ValueError("not this batch")


class FailsAtSend(WriteCallback):
    def on_send(self, batch: BatchEvent) -> None:
        raise ValueError("not this batch")


class FailsAtAcknowledgement(WriteCallback):
    def on_acknowledgement(self, batch: BatchEvent) -> None:
        raise SystemExit(3)


class FailsAtRetry(WriteCallback):
    def on_retry(self, batch: BatchEvent) -> None:
        raise KeyError("no such batch")


class FailsAtCommit(WriteCallback):
    def on_commit(self, metrics: WriteMetrics) -> None:
        raise asyncio.CancelledError("not this commit")


class FailsAtClose(WriteCallback):
    def close(self, metrics: WriteMetrics, error: BaseException | None) -> None:
        raise ValueError("never ends")


class Misspelt(WriteCallback):
    def on_ack(self, batch: BatchEvent) -> None:
        """Nothing calls this."""


class Deaf:
    def __init__(self, share: WriteShare) -> None:
        """Nothing can be told to it."""


FAILING = [
    *(FailsAtOnce, FailsAtEnqueue, FailsAtSend, FailsAtAcknowledgement),
    *(FailsAtRetry, FailsAtCommit, FailsAtClose),
]
