"""Kafka for PySpark with no JARs: ``format("kafkalog")`` over brokers and log directories.

Users import the names in ``__all__``, and nothing else, but that pytest loads
:mod:`pyspark_kafkalog.testing`. Every other module is internal and may change in any release.

PySpark imports every installed ``pyspark_*`` package to find data sources, and
one that fails takes all others with it. So this module imports nothing but its version,
and what it offers is loaded on first use.
"""

from typing import TYPE_CHECKING, Any

from pyspark_kafkalog._version import __version__

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka, connect
    from pyspark_kafkalog.client.partitions import PartitionState, SegmentState
    from pyspark_kafkalog.client.read import Changes, RecordSplit
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
        OversizedRecordError,
        RecordTooLargeError,
        RegistrationError,
        SchemaError,
        SchemaRegistryError,
        TopicExistsError,
        TransactionError,
        UnknownTopicOrPartitionError,
        UnsupportedVersionError,
        ZooKeeperError,
    )
    from pyspark_kafkalog.extensions.audit.auditor import (
        AuditCount,
        AuditedRecord,
        AuditedTask,
        Auditor,
        CountingAuditor,
        LoggingAuditor,
    )
    from pyspark_kafkalog.extensions.audit.counts import audit_counts
    from pyspark_kafkalog.extensions.callbacks.callback import BatchEvent, WriteCallback, WriteShare
    from pyspark_kafkalog.extensions.callbacks.metrics import WriteMetrics
    from pyspark_kafkalog.extensions.cleanup.policies import LogSegment
    from pyspark_kafkalog.extensions.large_messages.reassemble import reassemble
    from pyspark_kafkalog.extensions.large_messages.serializers import MessageSegment, in_arrow
    from pyspark_kafkalog.extensions.typed_values.dead_letters import dead_letters
    from pyspark_kafkalog.log.segment.steps import RepairStep
    from pyspark_kafkalog.model import (
        AbortedTransaction,
        BrokerState,
        CommittedOffset,
        Group,
        GroupMember,
        OffsetRange,
        Origin,
        TopicPartition,
    )
    from pyspark_kafkalog.model.topics import ConfigEntry, NewTopic, TopicDescription, TopicPartitionInfo
    from pyspark_kafkalog.options.settings import Selection
    from pyspark_kafkalog.spark.by_value import by_value
    from pyspark_kafkalog.spark.query_checkpoint import QueryCheckpoint
    from pyspark_kafkalog.spark.registration import Registration, register
    from pyspark_kafkalog.spark.source import DefaultSource
    from pyspark_kafkalog.spark.worker_python import worker_python
    from pyspark_kafkalog.tools.backup.copies.adopt import AdoptedPartition
    from pyspark_kafkalog.tools.backup.groups import RestoredOffset
    from pyspark_kafkalog.tools.backup.on_spark import backup
    from pyspark_kafkalog.tools.backup.plan import BackedUpPartition, BackupRules
    from pyspark_kafkalog.tools.backup.restore import Restored, RestoredPartition, RestoreSettings
    from pyspark_kafkalog.tools.care.compact import CompactedPartition
    from pyspark_kafkalog.tools.care.forget import ForgottenQuery
    from pyspark_kafkalog.tools.care.partition_repair import RepairedPartition
    from pyspark_kafkalog.tools.care.repair import RepairedDirectory
    from pyspark_kafkalog.tools.care.retain import DeletedRecords
    from pyspark_kafkalog.tools.care.room import LogCare
    from pyspark_kafkalog.tools.care.verify import Damage, VerifiedPartition
    from pyspark_kafkalog.tools.checkpoint.change import CheckpointChange
    from pyspark_kafkalog.tools.checkpoint.goals import CheckpointStep, RewindTo
    from pyspark_kafkalog.tools.checkpoint.room import CheckpointAdmin
    from pyspark_kafkalog.tools.checkpoint.show import CheckpointOffset, CheckpointState
    from pyspark_kafkalog.tools.doctor.on_spark import doctor
    from pyspark_kafkalog.tools.groups.consumer_groups import GroupLag, GroupOffset
    from pyspark_kafkalog.tools.groups.listeners import AuditListener, LagListener
    from pyspark_kafkalog.tools.groups.reset import ResetStep, ResetTo
    from pyspark_kafkalog.tools.groups.room import GroupAdmin
    from pyspark_kafkalog.tools.groups.watching import GroupPace, LagWatch
    from pyspark_kafkalog.tools.records.dump import DumpedBatch, DumpedRecord
    from pyspark_kafkalog.tools.records.room import Records
    from pyspark_kafkalog.tools.records.select import RecordSelection
    from pyspark_kafkalog.tools.redrive.redrive import Redriven
    from pyspark_kafkalog.tools.topics.room import TopicAdmin
    from pyspark_kafkalog.tools.topics.topic_changes import CreatedTopic, TopicChange, TopicToDelete
    from pyspark_kafkalog.tools.try_out.local_broker import LocalBroker

__all__ = [
    "AbortedTransaction",
    "AdoptedPartition",
    "AuditCount",
    "AuditListener",
    "AuditedRecord",
    "AuditedTask",
    "Auditor",
    "AuthenticationError",
    "AuthorizationError",
    "BackedUpPartition",
    "BackupRules",
    "BatchEvent",
    "BrokerConnectionError",
    "BrokerError",
    "BrokerState",
    "Changes",
    "CheckpointAdmin",
    "CheckpointChange",
    "CheckpointOffset",
    "CheckpointState",
    "CheckpointStep",
    "CommittedOffset",
    "CompactedPartition",
    "ConfigEntry",
    "CorruptRecordError",
    "CountingAuditor",
    "CreatedTopic",
    "Damage",
    "DataLossError",
    "DecodeLimits",
    "Decoded",
    "DefaultSource",
    "DeletedRecords",
    "DumpedBatch",
    "DumpedRecord",
    "FencedError",
    "ForgottenQuery",
    "Group",
    "GroupAdmin",
    "GroupError",
    "GroupLag",
    "GroupMember",
    "GroupOffset",
    "GroupPace",
    "InvalidRecordError",
    "Kafka",
    "KafkaLogError",
    "LagListener",
    "LagWatch",
    "LargeMessageDroppedError",
    "LocalBroker",
    "LogCare",
    "LogDirectoryError",
    "LogDirectoryLockedError",
    "LogSegment",
    "LoggingAuditor",
    "MessageSegment",
    "NewTopic",
    "OffsetRange",
    "OptionError",
    "Origin",
    "OversizedRecordError",
    "PartitionState",
    "QueryCheckpoint",
    "RecordSelection",
    "RecordSplit",
    "RecordTooLargeError",
    "Records",
    "Redriven",
    "Registration",
    "RegistrationError",
    "RepairStep",
    "RepairedDirectory",
    "RepairedPartition",
    "ResetStep",
    "ResetTo",
    "RestoreSettings",
    "Restored",
    "RestoredOffset",
    "RestoredPartition",
    "RewindTo",
    "SchemaError",
    "SchemaRegistryError",
    "SegmentState",
    "Selection",
    "TopicAdmin",
    "TopicChange",
    "TopicDescription",
    "TopicExistsError",
    "TopicPartition",
    "TopicPartitionInfo",
    "TopicToDelete",
    "TransactionError",
    "UnknownTopicOrPartitionError",
    "UnsupportedVersionError",
    "VerifiedPartition",
    "Visibility",
    "WriteCallback",
    "WriteMetrics",
    "WriteShare",
    "ZooKeeperError",
    "__version__",
    "audit_counts",
    "backup",
    "by_value",
    "connect",
    "dead_letters",
    "decode",
    "doctor",
    "in_arrow",
    "reassemble",
    "register",
    "worker_python",
]

_LOADED_ON_USE = {
    "tools.care.compact": ("CompactedPartition",),
    "tools.care.forget": ("ForgottenQuery",),
    "tools.groups.consumer_groups": ("GroupLag", "GroupOffset"),
    "tools.records.dump": ("DumpedBatch", "DumpedRecord"),
    "client.kafka": ("Kafka", "connect"),
    "tools.care.room": ("LogCare",),
    "tools.groups.room": ("GroupAdmin",),
    "tools.records.room": ("Records",),
    "tools.topics.room": ("TopicAdmin",),
    "client.partitions": ("PartitionState", "SegmentState"),
    "client.read": ("Changes", "RecordSplit"),
    "tools.redrive.redrive": ("Redriven",),
    "tools.groups.reset": ("ResetStep", "ResetTo"),
    "tools.care.retain": ("DeletedRecords",),
    "tools.records.select": ("RecordSelection",),
    "tools.topics.topic_changes": ("CreatedTopic", "TopicChange", "TopicToDelete"),
    "tools.try_out.local_broker": ("LocalBroker",),
    "tools.care.verify": ("Damage", "VerifiedPartition"),
    "tools.checkpoint.change": ("CheckpointChange",),
    "tools.checkpoint.goals": ("CheckpointStep", "RewindTo"),
    "tools.checkpoint.room": ("CheckpointAdmin",),
    "tools.checkpoint.show": ("CheckpointOffset", "CheckpointState"),
    "tools.groups.watching": ("GroupPace", "LagWatch"),
    "extensions.cleanup.policies": ("LogSegment",),
    "extensions.audit.auditor": (
        *("AuditCount", "AuditedRecord", "AuditedTask", "Auditor", "CountingAuditor", "LoggingAuditor"),
    ),
    "extensions.audit.counts": ("audit_counts",),
    "extensions.callbacks.callback": ("BatchEvent", "WriteCallback", "WriteShare"),
    "extensions.callbacks.metrics": ("WriteMetrics",),
    "tools.backup.groups": ("RestoredOffset",),
    "tools.backup.plan": ("BackedUpPartition", "BackupRules"),
    "tools.backup.restore": ("Restored", "RestoredPartition", "RestoreSettings"),
    "codec.decode": ("DecodeLimits", "Decoded", "decode"),
    "codec.isolation": ("Visibility",),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "extensions.large_messages.serializers": ("MessageSegment", "in_arrow"),
    "tools.care.partition_repair": ("RepairedPartition",),
    "tools.care.repair": ("RepairedDirectory",),
    "tools.backup.copies.adopt": ("AdoptedPartition",),
    "log.segment.steps": ("RepairStep",),
    "model": (
        "AbortedTransaction",
        "BrokerState",
        "CommittedOffset",
        "Group",
        "GroupMember",
        "OffsetRange",
        "Origin",
        "TopicPartition",
    ),
    "options.settings": ("Selection",),
    "tools.backup.on_spark": ("backup",),
    "spark.by_value": ("by_value",),
    "extensions.typed_values.dead_letters": ("dead_letters",),
    "tools.doctor.on_spark": ("doctor",),
    "tools.groups.listeners": ("AuditListener", "LagListener"),
    "extensions.large_messages.reassemble": ("reassemble",),
    "spark.query_checkpoint": ("QueryCheckpoint",),
    "spark.registration": ("Registration", "register"),
    "spark.source": ("DefaultSource",),
    "spark.worker_python": ("worker_python",),
    "model.topics": ("ConfigEntry", "NewTopic", "TopicDescription", "TopicPartitionInfo"),
}
"""The names by the module that has them."""
_NEED_PYSPARK = {
    "AuditListener",
    "DefaultSource",
    "LagListener",
    "QueryCheckpoint",
    "Registration",
    "backup",
    "by_value",
    "dead_letters",
    "doctor",
    "reassemble",
    "register",
}
_WITH_PYSPARK = "pip install pyspark pandas, or use an environment that has PySpark already"


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
