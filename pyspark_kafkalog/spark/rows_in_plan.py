"""The rows of a small micro-batch, read where it is planned, so that it needs no task of Python."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.garbage import freeze_modules, loading
from pyspark_kafkalog.spark.short_errors import with_short_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.model import Place
    from pyspark_kafkalog.reading.ranges import Existing, ReadRules
    from pyspark_kafkalog.reading.splits import Split

_log = logging.getLogger("pyspark_kafkalog")

_LEAST_ROW_BYTES = 24
"""What a row with its offset, timestamp and topic takes at least: with more rows there is no need to try."""
_MOST_PARTITIONS = 100
"""Each takes a quarter of a millisecond, one after another; tasks that share more of them are sooner."""
_MOST_SECONDS = 1.0
"""If it takes longer to read the rows, as from an object store, tasks do it in parallel."""
_LONGEST_PAUSE = 64


class RowsInPlan:
    """Reads small micro-batches. After a vain or slow one it leaves some to tasks: 1, then 2, 4, ... 64."""

    def __init__(self, kind: type[Any], max_bytes: int) -> None:
        self.kind = kind
        """See :func:`.features.simple_reader`."""
        self.waiting: list[pa.RecordBatch] | None = None
        """The rows for which PySpark is about to ask."""
        self._max_bytes = max_bytes
        self._pause = 1
        self._left_out = 0

    def read(
        self,
        place: Place,
        rules: ReadRules,
        splits: Sequence[Split],
        read: Callable[[Split, Existing], Iterator[pa.RecordBatch]],
    ) -> bool:
        """Whether the rows of ``splits`` are ``waiting`` now. Tasks read what is too much, or fails here."""
        offsets = sum(split.offsets.end - split.offsets.start for split in splits)
        if len(splits) > _MOST_PARTITIONS or offsets * _LEAST_ROW_BYTES > self._max_bytes:
            return False
        if self._left_out:
            self._left_out -= 1
            return False
        until = time.monotonic() + _MOST_SECONDS
        try:
            self.waiting = self._read(place, rules, splits, read, until)
        except Exception as e:
            _log.info("Leaving a micro-batch to tasks: %s", e)
        freeze_modules()
        if self.waiting is None or time.monotonic() > until:
            self._left_out, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self._pause = 1
        return self.waiting is not None

    def _read(
        self,
        place: Place,
        rules: ReadRules,
        splits: Sequence[Split],
        read: Callable[[Split, Existing], Iterator[pa.RecordBatch]],
        until: float,
    ) -> list[pa.RecordBatch] | None:
        with loading():
            from pyspark_kafkalog.reading.together import prefetch, rows_together

        found, is_whole = prefetch(place, splits, rules, max_bytes=self._max_bytes)
        if not is_whole:
            return None
        arrow_batches: list[pa.RecordBatch] = []
        size, is_late = 0, False
        for arrow_batch in rows_together(found, read, max_bytes=self._max_bytes):
            size += arrow_batch.nbytes
            if size > self._max_bytes or is_late:
                return None
            arrow_batches.append(arrow_batch)
            is_late = time.monotonic() > until
        return arrow_batches


@with_short_errors
class WithRowsInPlan:
    """A stream reader that PySpark takes for one of its simple readers while it has rows to hand over."""

    _rows_in_plan: RowsInPlan | None

    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        """PySpark asks with ``isinstance``, which looks here, too, as it does for proxies."""
        rows = self.__dict__.get("_rows_in_plan")
        return type(self) if rows is None or rows.waiting is None else rows.kind

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        """The rows of the micro-batch that has just been planned."""
        rows_in_plan = self._rows_in_plan
        assert rows_in_plan is not None
        rows, rows_in_plan.waiting = rows_in_plan.waiting, None
        return iter(rows or ())

    def _check_asked(self) -> None:
        """Read no more rows for a PySpark that does not ask for them."""
        rows_in_plan = self.__dict__.get("_rows_in_plan")
        if rows_in_plan is not None and rows_in_plan.waiting is not None:
            self._rows_in_plan = None
