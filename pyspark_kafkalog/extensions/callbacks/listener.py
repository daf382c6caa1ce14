"""Hears what sinks tell of a write, counts it, and tells the user's object, whose errors end here."""

from __future__ import annotations

import enum
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.callbacks.callback import METHODS, BatchEvent, WriteCallback, WriteShare
from pyspark_kafkalog.extensions.callbacks.files import put_metrics
from pyspark_kafkalog.extensions.callbacks.metrics import WriteMetrics
from pyspark_kafkalog.plugins import check_takes, imported, raised, shown

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.callbacks.options import CallbackOptions
    from pyspark_kafkalog.model import QueryBatch, TaskAttempt
    from pyspark_kafkalog.model.listening import BatchOnItsWay

_FORM = "package.module:Class"
_log = logging.getLogger("pyspark_kafkalog")


class Heard(NamedTuple):
    """The news of a task to the commit: the attempt at it, and what it has written."""

    share: WriteShare
    metrics: WriteMetrics


class Counted(enum.Enum):
    """The event at which the records of a batch count as written."""

    ACKNOWLEDGED = enum.auto()
    STAGED = enum.auto()
    BY_TASKS = enum.auto()
    """The tasks have counted all, so a commit counts none."""


def load_callback(path: str) -> Callable[[WriteShare], Any]:
    """The class at an import path, or sent by value.

    :raises OptionError: if it can't be imported, or has a method that nothing calls, or not one that is
        called, or takes other arguments.
    """
    what = _name(path)
    found: Callable[[WriteShare], Any] = imported(what, path, form=_FORM)
    if isinstance(found, type):
        given = {name for name in dir(found) if name == "close" or name.startswith("on_")}
        if unknown := sorted(given - {*METHODS}):
            raise OptionError(f"{what} has a method {unknown[0]}, which nothing calls", hint=_METHODS)
        if not given:
            raise OptionError(f"{what} has no method that is called", hint=_METHODS)
        for name in sorted(given):
            method = inspect.getattr_static(found, name)
            if inspect.isfunction(method):  # neither static nor a method of the class, which take no self
                heard = inspect.signature(vars(WriteCallback)[name]).parameters
                check_takes(f"The method {name} of the callback {shown(path)!r}", method, *heard)
    check_takes(what, found, "share")
    return found


_METHODS = f"Those that are called are {', '.join(METHODS)}."


def _name(path: str) -> str:
    return f"The callback {shown(path)!r}"


class UsersObject:
    """The user's object of a share. Once it has raised anything, it is not called again.

    ``hears`` has the methods that are called, and do more than nothing, by their names.
    """

    def __init__(self, path: str | None, share: WriteShare) -> None:
        self.hears: dict[str, Callable[..., Any]] = {}
        if path is None:
            return
        self._name = _name(path)
        self.hears = {"make": load_callback(path), "methods": _methods}
        user = self.tell("make", share)
        self.hears = self.tell("methods", user) or {}

    def tell(self, method: str, *given: Any) -> Any:
        """Call a method, if the object has it; returns what it does."""
        hear = self.hears.get(method)
        if hear is None:
            return None
        try:
            return hear(*given)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            self.hears.clear()
            said = "%s %s. It is not called again in this task; the write goes on"
            _log.warning(said, self._name, raised(e))
            return None


def _methods(user: object) -> dict[str, Callable[..., Any]]:
    """The methods of the user's object that do more than nothing, by their names."""
    found = {name: getattr(user, name, None) for name in METHODS}
    return {
        name: method
        for name, method in found.items()
        if method is not None and getattr(method, "__func__", None) is not vars(WriteCallback)[name]
    }


class CallbackListener:
    """Counts what a sink tells, and tells it to the user's object.

    See :class:`pyspark_kafkalog.model.listening.WriteListener`.

    :param user: the user's object.
    :param counted: when the records of a batch count.
    """

    def __init__(self, user: UsersObject, counted: Counted) -> None:
        self.metrics = WriteMetrics()
        self.was_there = False
        """Whether the batch was there before the commit."""
        self._user = user
        self._counted = counted
        self._sent: dict[BatchOnItsWay, tuple[int, float]] = {}
        """The broker to which a batch in flight went, and when, in seconds of a monotonic clock."""

    def enqueued(self, batch: BatchOnItsWay) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.enqueued`."""
        if self._counted is Counted.STAGED:
            self._count(batch)
        if "on_enqueue" in self._user.hears:
            self._user.tell("on_enqueue", _event(batch))

    def sending(self, node: int, batches: Sequence[BatchOnItsWay]) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.sending`."""
        self.metrics.requests += 1
        if "on_send" in self._user.hears:
            for batch in batches:
                self._user.tell("on_send", _event(batch, node))
        sent = node, time.monotonic()
        self._sent.update(dict.fromkeys(batches, sent))

    def throttled(self, node: int, seconds: float) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.throttled`."""
        self.metrics.throttle_ms += round(seconds * 1000)

    def acknowledged(self, batch: BatchOnItsWay, base_offset: int, append_time: int) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.acknowledged`."""
        node, latency = self._ended(batch)
        if latency is not None:
            self.metrics.acknowledgements += 1
            self.metrics.latency_total_ms += latency
            self.metrics.latency_max_ms = max(self.metrics.latency_max_ms, latency)
        if self._counted is Counted.ACKNOWLEDGED:
            self._count(batch)
        if "on_acknowledgement" in self._user.hears:
            event = _event(batch, node, base_offset, append_time, latency)
            self._user.tell("on_acknowledgement", event)

    def retried(self, batch: BatchOnItsWay, reason: str) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.retried`."""
        node, _ = self._ended(batch)
        self.metrics.retries += 1
        self._user.tell("on_retry", _event(batch, node, error=reason))

    def failed(self, batch: BatchOnItsWay, reason: str) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.failed`."""
        node, _ = self._ended(batch)
        self.metrics.errors += 1
        self._user.tell("on_error", _event(batch, node, error=reason))

    def found_there(self) -> None:
        """See :meth:`pyspark_kafkalog.model.listening.WriteListener.found_there`."""
        self.was_there = True

    def committed(self, total: WriteMetrics) -> None:
        """Tell that the batch is written."""
        self._user.tell("on_commit", replace(total))

    def close(self, metrics: WriteMetrics, error: BaseException | None) -> None:
        """Tell that nothing follows."""
        self._user.tell("close", replace(metrics), error)

    def _count(self, batch: BatchOnItsWay) -> None:
        self.metrics.records += batch.records
        self.metrics.batches += 1
        self.metrics.bytes += batch.size
        self.metrics.uncompressed_bytes += batch.plain_size

    def _ended(self, batch: BatchOnItsWay) -> tuple[int | None, float | None]:
        """The broker to which a batch went last, and the time in ms since then; None if it went to none."""
        sent = self._sent.pop(batch, None)
        return (None, None) if sent is None else (sent[0], (time.monotonic() - sent[1]) * 1000)


def _event(
    batch: BatchOnItsWay,
    broker: int | None = None,
    base_offset: int = -1,
    append_time: int = -1,
    latency_ms: float | None = None,
    error: str | None = None,
) -> BatchEvent:
    return BatchEvent(
        *batch.partition,
        batch.number,
        batch.records,
        batch.size,
        time.time_ns() // 1_000_000,
        batch.attempts,
        broker,
        base_offset,
        append_time,
        latency_ms,
        error,
    )


@contextmanager
def listener_of_task(
    options: CallbackOptions, batch: QueryBatch, attempt: TaskAttempt, *, awaits_commit: bool
) -> Iterator[TaskListener]:
    """See :meth:`pyspark_kafkalog.write.listening.Listening.of_task`."""
    share = WriteShare(*batch, attempt.task, attempt.attempt)
    user = UsersObject(options.callback, share)
    listener = TaskListener(user, Counted.STAGED if awaits_commit else Counted.ACKNOWLEDGED, share)
    try:
        yield listener
    except BaseException as e:
        listener.close(listener.metrics, e)
        raise
    listener.close(listener.metrics, None)


class TaskListener(CallbackListener):
    """The listener of one attempt at a task."""

    def __init__(self, user: UsersObject, counted: Counted, share: WriteShare) -> None:
        super().__init__(user, counted)
        self._share = share

    def heard(self) -> Heard:
        """The news for the commit."""
        return Heard(self._share, self.metrics)


@contextmanager
def listener_of_commit(
    options: CallbackOptions, batch: QueryBatch, heard: Sequence[Heard]
) -> Iterator[CallbackListener]:
    """See :meth:`pyspark_kafkalog.write.listening.Listening.of_commit`."""
    share = WriteShare(*batch, None, 0)
    listener = CallbackListener(_of_commit(options.callback, share), Counted.BY_TASKS)
    try:
        yield listener
    except BaseException as e:
        listener.close(listener.metrics, e)
        raise
    shares = [*heard, Heard(share, listener.metrics)] if listener.metrics.requests else heard
    total = WriteMetrics.total(each.metrics for each in shares)
    _log.info("%s was written by %d task%s: %s", batch, len(heard), "s" * (len(heard) != 1), total)
    listener.committed(total)
    if options.location is not None:
        try:
            put_metrics(options.location, batch, shares, once=listener.was_there)
        except Exception:
            _log.warning("%s was written, but its metrics are not stored", batch.job, exc_info=True)
    listener.close(total, None)


def _of_commit(path: str | None, share: WriteShare) -> UsersObject:
    """The user's object of a commit, whose tasks may have written their rows already: that may not fail."""
    try:
        return UsersObject(path, share)
    except OptionError as e:
        _log.warning("The commit goes on without its callback: %s", e)
        return UsersObject(None, share)
