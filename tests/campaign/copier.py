"""A member of a shared group that copies exactly once, without Spark; copies name where they come from."""

from __future__ import annotations

import signal
import sys

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from tests.faults.shared_copier import Copier, main


class PlacedCopier(Copier):
    """It writes what the campaign's streams write: see :data:`tests.campaign.driver.ROW`."""

    schema = StructType(
        [
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("value", BinaryType()),
        ]
    )

    def written(self, rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return [_placed(batch) for batch in rows]


def _placed(batch: pa.RecordBatch) -> pa.RecordBatch:
    values = [
        b"%s %d %d %s" % (row["topic"].encode(), row["partition"], row["offset"], row["value"])
        for row in batch.to_pylist()
    ]
    columns = {"partition": batch.column("partition"), "value": pa.array(values, pa.binary())}
    return pa.RecordBatch.from_pydict(columns)


if __name__ == "__main__":
    # Asked to end, it leaves the group.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    main(PlacedCopier)
