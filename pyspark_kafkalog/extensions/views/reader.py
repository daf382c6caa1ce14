"""The readers of views: their rows come like a batch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafkalog.extensions.views.batch_headers import batches_of_split, plan_batches
from pyspark_kafkalog.extensions.views.options import ViewOptions
from pyspark_kafkalog.extensions.views.views import view_table
from pyspark_kafkalog.options.columns import read_columns
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_place, open_report
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.spark.features import arrow_schema
from pyspark_kafkalog.spark.reader import LogInputPartition
from pyspark_kafkalog.spark.worker import with_short_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@with_short_errors
class ViewReader(DataSourceReader):
    """``option("view", ...)``: partitions, segments, groups, group offsets, audits or metrics, as rows.

    One task looks everything up, so that each run of a DataFrame, whose plan Spark keeps, is current.
    """

    def __init__(self, options: Mapping[str, str], view: ViewOptions, schema: StructType) -> None:
        self._place_options = place_options(options)
        self._view = view
        fields = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
        self._columns = read_columns(fields, view.columns, of_records=False)
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows, as arrow batches."""
        table = view_table(self._place_options, self._view).select(list(self._columns))
        yield from table.cast(self._schema).to_batches()


@with_short_errors
class BatchesReader(ViewReader):
    """``view=batches``: a task for each segment of a log directory, or partition of a cluster.

    Only the columns of the user's schema are made; the checksums are verified for ``valid`` alone.
    """

    def partitions(self) -> Sequence[InputPartition]:
        """The splits. The last of each partition is open, so that each run of a DataFrame is current."""
        place, view = open_report(self._place_options), self._view
        with said("Looking up segments"):
            splits = plan_batches(place, view.selection, min_partitions=view.min_partitions)
        return [LogInputPartition((split,)) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one split, as arrow batches."""
        if not isinstance(partition, LogInputPartition):
            return  # for an empty plan Spark makes one empty partition
        (split,) = partition.splits
        rows = batches_of_split(
            open_place(self._place_options, reached=True),
            split,
            self._columns,
            check_crcs=self._view.check_crcs,
        )
        for arrow_batch in rows:
            yield arrow_batch.cast(self._schema)
