"""The ceilings: Python data sources that do nothing but hand Arrow batches over."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyspark_kafkalog.model import ROW_FIELDS

# The workers need not find this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

_BATCH_ROWS = 50_000
_LETTERS = b"{" + b'"a": 1234567, ' * 20
_TOPIC = b"benchmark"


class Trivial(DataSource):
    """Reads prebuilt rows: ``rows`` with values of ``size`` bytes in ``partitions``. Writes by counting.

    As a stream it has so many in each of its ``micro_batches``, of which there is one by default. If it is
    ``simple``, they come with the plan, as in PySpark's simple sources.
    """

    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in ROW_FIELDS.items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        kind = _SimpleStreamReader if self.options.get("simple") == "true" else _StreamReader
        return kind(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _CountingStreamWriter()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _CountingWriter()


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._rows, self._size, self._partitions = (
            int(options[name]) for name in ("rows", "size", "partitions")
        )
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        count = self._rows // self._partitions
        batch = self._batch(min(_BATCH_ROWS, count))
        for start in range(0, count, _BATCH_ROWS):
            yield batch.slice(0, min(_BATCH_ROWS, count - start))

    def _batch(self, count: int) -> pa.RecordBatch:
        """Of buffers: at its first Python value pyarrow imports pandas, which no source has to pay for."""
        ends = np.arange(count + 1, dtype=np.int32)
        of_bytes = [None, pa.py_buffer(ends * self._size), pa.py_buffer(bytes(count * self._size))]
        of_text = [None, pa.py_buffer(ends * len(_TOPIC)), pa.py_buffer(_TOPIC * count)]
        zeros = [None, pa.py_buffer(np.zeros(count, np.int32))]
        numbers = [None, pa.py_buffer(np.arange(count))]
        buffers = {
            "value": of_bytes,
            "topic": of_text,
            "partition": zeros,
            "offset": numbers,
            "timestamp": numbers,
            "timestampType": zeros,
        }
        columns = [
            pa.Array.from_buffers(field.type, count, buffers[field.name])
            if field.name in buffers
            else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._batch = _Reader(options, schema)
        self._micro_batches = int(options.get("micro_batches", "1"))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batches": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"batches": min(start["batches"] + 1, self._micro_batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._batch.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batch.read(partition)


class _SimpleStreamReader(_StreamReader, _SimpleStreamReaderWrapper):
    @property
    def simple_reader(self) -> _SimpleStreamReader:
        return self

    def getCache(self, start: dict[str, int], end: dict[str, int]) -> Iterator[pa.RecordBatch]:  # noqa: N802
        return (rows for partition in self._batch.partitions() for rows in self.read(partition))

    def commit(self, end: dict[str, int]) -> None:
        pass


@dataclass
class _Counted(WriterCommitMessage):
    rows: int


class _CountingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Counted(sum(batch.num_rows for batch in iterator))


class _CountingStreamWriter(DataSourceStreamArrowWriter):
    write = _CountingWriter.write


def made_before(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Values of the sizes in the column ``size``, which cost nothing to make: a transform of a write."""
    sizes = rows.column("size").to_numpy()
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    text = _LETTERS * (int(ends[-1]) // len(_LETTERS) + 1)
    value = pa.Array.from_buffers(pa.binary(), sizes.size, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return pa.RecordBatch.from_pydict({"value": value})
