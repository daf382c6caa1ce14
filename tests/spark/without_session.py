"""Builds each reader and writer of a log directory with a PySpark that has no session, and plans a batch.

Usage: ``python -m tests.spark.without_session``. It prints the features of this PySpark.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import datasource
from pyspark.sql.types import StructType

import pyspark_kafkalog
from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.spark.features import features


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "log")
        (root / "orders-0").mkdir(parents=True)
        (root / "orders-0" / "00000000000000000000.log").touch()
        source = DefaultSource({"path": str(root)})
        rows = StructType().add("value", "binary").add("timestamp", "timestamp")
        reader = source.reader(rows)
        assert isinstance(reader, datasource.DataSourceReader)
        assert len(reader.partitions()) <= 1
        view = DefaultSource({"path": str(root), "view": "topics"}).reader(
            StructType().add("topic", "string")
        )
        assert [batch.num_rows for batch in view.read(*view.partitions())] == [1]
        assert isinstance(source.streamReader(rows), datasource.DataSourceStreamReader)
        sink = DefaultSource({"path": str(root), "topic": "orders"})
        assert isinstance(sink.writer(rows, overwrite=False), datasource.DataSourceArrowWriter)
        assert isinstance(sink.streamWriter(rows, overwrite=False), datasource.DataSourceStreamWriter)
    assert all(hasattr(pyspark_kafkalog, name) for name in pyspark_kafkalog.__all__)
    for feature in features():
        print(f"  {feature.name}: {'found' if feature.found else 'not found'}")


if __name__ == "__main__":
    main()
