"""Kafka for PySpark with no JARs: ``format("kafkalog")`` over log directories.

PySpark imports every installed ``pyspark_*`` package to find data sources, and
one that fails takes all others with it. So this module imports nothing, and
:class:`DefaultSource` is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafkalog.spark.source import KafkaLogDataSource as DefaultSource

__all__ = ["DefaultSource", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        try:
            from pyspark_kafkalog.spark.source import KafkaLogDataSource
        except ImportError as e:
            raise AttributeError(f"pyspark_kafkalog.DefaultSource needs pyspark >= 4.2: {e}") from e
        return KafkaLogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
