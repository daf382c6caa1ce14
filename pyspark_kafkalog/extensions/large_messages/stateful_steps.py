"""Runs the step of :mod:`.step` with Spark's state, through either of its two APIs.

Both touch the state once per key and micro-batch. Both APIs use pandas, but the frames
have few rows here, since each row holds a blob of many rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pyspark_kafkalog.extensions.large_messages.row_blobs import Blob
from pyspark_kafkalog.extensions.large_messages.step import (
    STEP_OUTPUT,
    PartitionAssembly,
    ReassemblyPlan,
    StepRow,
    in_batches,
)
from pyspark_kafkalog.garbage import freeze_modules
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.spark.short_errors import short_errors, with_short_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

_STATE = "open binary, timer bigint"
"""The open messages, and the time of the timer; -1 without a timer."""
_NO_TIMER = -1


class StateApi(str, Enum):
    """Spark's two APIs for state in Python, by the names of their methods."""

    TRANSFORM_WITH_STATE = "transformWithStateInPandas"
    APPLY_WITH_STATE = "applyInPandasWithState"


def with_state(packed: DataFrame, api: StateApi, plan: ReassemblyPlan) -> DataFrame:
    """The step over the packed rows of a stream."""
    groups = packed.groupBy("topic", "partition")
    timed = plan.settings.expiration_ms is not None
    if api is StateApi.TRANSFORM_WITH_STATE:
        mode = "ProcessingTime" if timed else "None"
        return groups.transformWithStateInPandas(ReassemblyProcessor(plan), STEP_OUTPUT, "Append", mode)
    timeout = GroupStateTimeout.ProcessingTimeTimeout if timed else GroupStateTimeout.NoTimeout
    step = partial(apply_with_state, plan)
    return groups.applyInPandasWithState(step, STEP_OUTPUT, _STATE, "append", timeout)


@with_short_errors
class ReassemblyProcessor(StatefulProcessor):
    """The step for ``transformWithStateInPandas``. The timer of a key is set to its next expiry, if any."""

    def __init__(self, plan: ReassemblyPlan) -> None:
        self._plan = plan
        self._timed = plan.settings.expiration_ms is not None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the handle of the state."""
        self._handle = handle
        self._state = handle.getValueState("open", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Any]:  # noqa: N802, N803
        """The whole messages of a partition."""
        now_ms = timerValues.getCurrentProcessingTimeInMs() if self._timed else -1
        yield from self._run_step(key, _blobs(rows), now_ms, fired=_NO_TIMER)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Any]:
        """The expired messages of a partition."""
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._run_step(key, None, now_ms, fired=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        """Called at the end of a task; nothing is open."""
        freeze_modules()

    def _run_step(self, key: Any, blobs: list[Blob] | None, now_ms: int, fired: int) -> Iterator[Any]:
        found = self._state.get()
        before, timer = (None, _NO_TIMER) if found is None else found
        if blobs is None and before is None:
            return
        assembly = PartitionAssembly(_partition(key), self._plan, _as_bytes(before))
        yield from _frames(_one_step(assembly, blobs, now_ms))
        after = assembly.state()
        wanted = _NO_TIMER if after is None else _timer(assembly, now_ms)
        if timer != wanted:
            # Spark itself deletes the timer that fired.
            if timer not in (_NO_TIMER, fired):
                self._handle.deleteTimer(timer)
            if wanted != _NO_TIMER:
                self._handle.registerTimer(wanted)
        if after is not None:
            self._state.update((after, wanted))
        elif before is not None:
            self._state.clear()


@short_errors
def apply_with_state(
    plan: ReassemblyPlan, key: Any, frames: Iterator[Any], state: GroupState
) -> Iterator[Any]:
    """The step for ``applyInPandasWithState``: the whole messages of a partition, or its expired ones."""
    timed = plan.settings.expiration_ms is not None
    now_ms = state.getCurrentProcessingTimeMs() if timed else -1
    before = _as_bytes(state.get[0]) if state.exists else None
    blobs = None if state.hasTimedOut else _blobs(frames)
    assembly = PartitionAssembly(_partition(key), plan, before)
    yield from _frames(_one_step(assembly, blobs, now_ms))
    after = assembly.state()
    if after is not None:
        wanted = _timer(assembly, now_ms)
        state.update((after, wanted))
        if wanted != _NO_TIMER:
            state.setTimeoutDuration(wanted - now_ms)
    elif before is not None:
        state.remove()
    freeze_modules()


def _one_step(assembly: PartitionAssembly, blobs: list[Blob] | None, now_ms: int) -> Iterator[StepRow]:
    yield from assembly.expire(now_ms) if blobs is None else assembly.feed(blobs, now_ms)
    yield from assembly.counts()


def _timer(assembly: PartitionAssembly, now_ms: int) -> int:
    expiry = assembly.next_expiry_ms()
    return _NO_TIMER if expiry is None else max(expiry, now_ms + 1)


def _blobs(frames: Iterable[Any]) -> list[Blob]:
    """All blobs of a key, sorted; they arrive in the order of the tasks that packed them."""
    columns = ("firstOffset", "lastOffset", "rows")
    return sorted(
        (Blob(*row) for frame in frames for row in zip(*(frame[name] for name in columns), strict=True)),
        key=lambda blob: blob.first_offset,
    )


def _frames(rows: Iterable[StepRow]) -> Iterator[Any]:
    for batch in in_batches(rows):
        yield batch.to_pandas()


def _partition(key: Any) -> TopicPartition:
    topic, number = key
    return TopicPartition(str(topic), int(number))


def _as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
