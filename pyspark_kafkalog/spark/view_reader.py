"""``option("view", ...)``: partitions, groups, group offsets or audits, as rows of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_kafkalog.options.columns import read_columns
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.options.views import VIEWS, ViewOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ViewReader(DataSourceReader):
    """One task looks everything up, so that each run of a DataFrame, whose plan Spark keeps, is current."""

    def __init__(self, options: Mapping[str, str], view: ViewOptions, schema: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._place_options = place_options(options)
        self._view = view
        fields = ((field.name, field.dataType.simpleString(), field.nullable) for field in schema)
        self._columns = read_columns(fields, VIEWS[view.view])
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> Sequence[InputPartition]:
        """The one task."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows, as arrow batches."""
        from pyspark_kafkalog.admin.view_table import view_table

        table = view_table(self._place_options, self._view).select(list(self._columns))
        yield from table.cast(self._schema).to_batches()
