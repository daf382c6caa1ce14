"""Kafka for PySpark with no JARs: ``format("kafkalog")`` over brokers and log directories.

PySpark imports every installed ``pyspark_*`` package to find data sources, and
one that fails takes all others with it. So this module imports nothing, and
what it offers is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafkalog.spark.audit_listener import AuditListener
    from pyspark_kafkalog.spark.progress import LagListener
    from pyspark_kafkalog.spark.reassemble import reassemble
    from pyspark_kafkalog.spark.source import KafkaLogDataSource as DefaultSource
    from pyspark_kafkalog.spark.worker_python import worker_python

__all__ = ["AuditListener", "DefaultSource", "LagListener", "__version__", "reassemble", "worker_python"]
__version__ = "0.1.0"

_LOADED_ON_USE = {
    "AuditListener": ("pyspark_kafkalog.spark.audit_listener", "AuditListener"),
    "DefaultSource": ("pyspark_kafkalog.spark.source", "KafkaLogDataSource"),
    "LagListener": ("pyspark_kafkalog.spark.progress", "LagListener"),
    "reassemble": ("pyspark_kafkalog.spark.reassemble", "reassemble"),
    "worker_python": ("pyspark_kafkalog.spark.worker_python", "worker_python"),
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LOADED_ON_USE[name]
    try:
        from importlib import import_module

        return getattr(import_module(module), attribute)
    except ImportError as e:
        raise AttributeError(f"pyspark_kafkalog.{name} needs pyspark >= 4.2: {e}") from e
