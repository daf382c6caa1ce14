"""Batch and stream readers over one base."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_kafkalog.model import OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.columns import read_columns
from pyspark_kafkalog.options.offsets_json import MAX_LONG, Offsets, parse_offsets, to_json
from pyspark_kafkalog.options.settings import PlaceOptions, place_options, read_options
from pyspark_kafkalog.planning.offsets import plan_batch
from pyspark_kafkalog.planning.stream import StreamPlanner
from pyspark_kafkalog.transfer.start_offsets import kept_start_offsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_kafkalog.planning.splitting import Split

_LOOK_UP_SECONDS = 0.02
"""An idle stream is asked for its latest offsets about 92 times a second; the place is asked less often."""


@dataclass(frozen=True)
class LogInputPartition(InputPartition):
    """One split, in plain values: all that crosses to the task besides the reader."""

    topic: str
    partition: int
    start: int
    end: int


class _LogReader:
    """What batch and stream share. Pickled to the tasks, so it opens nothing before it is asked."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, batch: bool) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._place_options = place_options(options)
        self._options = read_options(options, batch=batch)
        read_columns((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one split as arrow batches, in offset order."""
        from pyspark_kafkalog.codec.decode import DecodeLimits
        from pyspark_kafkalog.transfer.reading import ReadRules, read_range

        if not isinstance(partition, LogInputPartition):
            return iter(())  # Spark makes one empty partition of an empty plan
        rules = ReadRules(
            schema=self._schema,
            read_committed=self._options.read_committed,
            fail_on_data_loss=self._options.fail_on_data_loss,
            limits=DecodeLimits(check_crcs=self._options.check_crcs),
        )
        return read_range(
            open_place(self._place_options),
            TopicPartition(partition.topic, partition.partition),
            OffsetRange(partition.start, partition.end),
            rules,
        )


class LogBatchReader(_LogReader, DataSourceReader):
    """``spark.read``."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, batch=True)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits; open ends stay open for the tasks to look up."""
        return _input_partitions(plan_batch(open_place(self._place_options), self._options))


class LogStreamReader(_LogReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``: one instance plans a whole run of a query, copies of it read.

    Offsets are Spark's Kafka offsets, ``{"topic":{"0":10}}``.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema, batch=False)
        self._looked_up = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_planner", "_initial")}

    @cached_property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(open_place(self._place_options), self._options)

    @cached_property
    def _initial(self) -> Offsets:
        source = (self._place_options.paths, self._options.selection, self._options.starting)
        return kept_start_offsets(self._options.checkpoint_location, source, self._planner.initial_offsets)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where a query without checkpoint starts. Spark asks more than once, so it is chosen once."""
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit that is none, so that ``Trigger.Once``, which asks for all, can be told apart."""
        return ReadMaxRows(self._options.limits.max_offsets or MAX_LONG)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` itself if there is to be none."""
        begin = self._initial if start is None else parse_offsets(start, option="offsets")
        wait = self._looked_up + _LOOK_UP_SECONDS - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        self._looked_up = time.monotonic()
        return to_json(self._planner.next_offsets(begin, all_available=isinstance(limit, ReadAllAvailable)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of all partitions, for Spark's progress: what a lag is measured against."""
        return to_json(self._planner.latest) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query reads what is there at the next look-up, and stops."""
        self._planner.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of one micro-batch."""
        begin, stop = (parse_offsets(offsets, option="offsets") for offsets in (start, end))
        return _input_partitions(self._planner.plan(begin, stop))


def open_place(options: PlaceOptions) -> Place:
    """The place that the options name, opened in this process."""
    from pyspark_kafkalog.log.directory import LogDirectory

    return LogDirectory.open(options.paths)


def _input_partitions(splits: Sequence[Split]) -> list[InputPartition]:
    return [
        LogInputPartition(split.partition.topic, split.partition.partition, *split.offsets)
        for split in splits
    ]
