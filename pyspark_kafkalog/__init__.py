"""Kafka for PySpark with no JARs: ``format("kafkalog")`` over brokers and log directories.

Users import the names in ``__all__``, and :mod:`pyspark_kafkalog.admin`. Every other module is
internal and may change in any release.

PySpark imports every installed ``pyspark_*`` package to find data sources, and
one that fails takes all others with it. So this module imports nothing but its version,
and what it offers is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from pyspark_kafkalog._version import __version__

if TYPE_CHECKING:
    from pyspark_kafkalog.audit.counting import AuditCount, AuditedTask, Auditor
    from pyspark_kafkalog.codec.decode import Decoded, DecodeLimits, decode
    from pyspark_kafkalog.codec.isolation import Visibility
    from pyspark_kafkalog.errors import (
        AuthenticationError,
        AuthorizationError,
        BrokerConnectionError,
        BrokerError,
        CorruptRecordError,
        DataLossError,
        FencedError,
        GroupError,
        InvalidRecordError,
        KafkaLogError,
        LargeMessageDroppedError,
        LogDirectoryError,
        LogDirectoryLockedError,
        OptionError,
        RecordTooLargeError,
        RegistrationError,
        TopicExistsError,
        TransactionError,
        UnknownTopicOrPartitionError,
        UnsupportedVersionError,
    )
    from pyspark_kafkalog.model import AbortedTransaction, OffsetRange, Origin, TopicPartition
    from pyspark_kafkalog.spark.backup import backup
    from pyspark_kafkalog.spark.doctor import doctor
    from pyspark_kafkalog.spark.listeners import AuditListener, LagListener
    from pyspark_kafkalog.spark.reassemble import reassemble
    from pyspark_kafkalog.spark.registration import Registration, register
    from pyspark_kafkalog.spark.source import DefaultSource
    from pyspark_kafkalog.spark.worker_python import worker_python

__all__ = [
    "AbortedTransaction",
    "AuditCount",
    "AuditListener",
    "AuditedTask",
    "Auditor",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerConnectionError",
    "BrokerError",
    "CorruptRecordError",
    "DataLossError",
    "DecodeLimits",
    "Decoded",
    "DefaultSource",
    "FencedError",
    "GroupError",
    "InvalidRecordError",
    "KafkaLogError",
    "LagListener",
    "LargeMessageDroppedError",
    "LogDirectoryError",
    "LogDirectoryLockedError",
    "OffsetRange",
    "OptionError",
    "Origin",
    "RecordTooLargeError",
    "Registration",
    "RegistrationError",
    "TopicExistsError",
    "TopicPartition",
    "TransactionError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "Visibility",
    "__version__",
    "backup",
    "decode",
    "doctor",
    "reassemble",
    "register",
    "worker_python",
]

_LOADED_ON_USE = {
    "audit.counting": ("AuditCount", "AuditedTask", "Auditor"),
    "codec.decode": ("DecodeLimits", "Decoded", "decode"),
    "codec.isolation": ("Visibility",),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "model": ("AbortedTransaction", "OffsetRange", "Origin", "TopicPartition"),
    "spark.backup": ("backup",),
    "spark.doctor": ("doctor",),
    "spark.listeners": ("AuditListener", "LagListener"),
    "spark.reassemble": ("reassemble",),
    "spark.registration": ("Registration", "register"),
    "spark.source": ("DefaultSource",),
    "spark.worker_python": ("worker_python",),
}
"""The names by the module that has them."""
_NEED_PYSPARK = {
    name for module, names in _LOADED_ON_USE.items() if module.startswith("spark.") for name in names
} - {"worker_python"}
_WITH_PYSPARK = "pip install 'pyspark-kafkalog[spark]', or use an environment that has PySpark already"


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _LOADED_ON_USE.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{module}"), name)
    except ImportError as e:
        if name in _NEED_PYSPARK and not _has_pyspark():
            # An AttributeError's text would not reach who wrote ``from pyspark_kafkalog import ..``.
            raise ImportError(f"{__name__}.{name} needs PySpark: {_WITH_PYSPARK}", name="pyspark") from None
        missing = "needs PySpark with Python data sources" if name in _NEED_PYSPARK else "cannot be imported"
        raise AttributeError(f"{__name__}.{name} {missing}: {e}") from e


def __dir__() -> list[str]:
    return sorted(name for name in __all__ if name not in _NEED_PYSPARK or _has_pyspark())


def _has_pyspark() -> bool:
    from importlib.util import find_spec

    return find_spec("pyspark") is not None
