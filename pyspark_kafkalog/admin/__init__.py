"""Administration of log directories and clusters from Python, without Spark.

::

    from pyspark_kafkalog import admin

    options = {"kafka.bootstrap.servers": "host:9092"}  # or {"path": "/data/kafka-logs"}
    place, groups = admin.place_of(options), admin.groups_of(options)
    admin.topics(place)
    admin.lags(admin.group_offsets(place, groups))
    steps = admin.plan_reset(place, groups, "my-group", None, admin.ResetTo.SHIFT, -100)
    admin.execute(groups, steps)
    new = admin.NewTopic("orders", partitions=3, configs={"retention.ms": "-1"})
    admin.create_topics(place, admin.topics_of(options), [new])

Functions that read or write records, such as ``dump``, ``batches`` and ``produce``, are loaded on first use.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.admin.consumer_groups import (
    GroupLag,
    GroupOffset,
    delete_group,
    delete_offsets,
    group_offsets,
    groups,
    lags,
    total_lag,
)
from pyspark_kafkalog.admin.exchange import export_csv, export_json, parse
from pyspark_kafkalog.admin.partitions import PartitionState, SegmentState, partitions_of, segments, topics
from pyspark_kafkalog.admin.prometheus import prometheus_text
from pyspark_kafkalog.admin.reset import (
    ResetStep,
    ResetTo,
    execute,
    for_whole_messages,
    plan_import,
    plan_reset,
)
from pyspark_kafkalog.admin.topic_changes import (
    CreatedTopic,
    TopicChange,
    TopicToDelete,
    alter_topics,
    create_topics,
    delete_topics,
    plan_alteration,
    plan_deletion,
)
from pyspark_kafkalog.admin.watching import GroupPace, LagWatch
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import Place
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_groups, open_place, open_topics
from pyspark_kafkalog.topics import NewTopic, Topics

if TYPE_CHECKING:
    from pyspark_kafkalog.admin.backing_up import adopt, backup, copy
    from pyspark_kafkalog.admin.batch_headers import batches
    from pyspark_kafkalog.admin.compacting import CompactedPartition, compact
    from pyspark_kafkalog.admin.dumping import DumpedBatch, DumpedRecord, dump
    from pyspark_kafkalog.admin.exporting import export
    from pyspark_kafkalog.admin.input_lines import JsonLines, keyed, records_of, values_of, with_tombstones
    from pyspark_kafkalog.admin.lines import Lines, format_lines, json_lines
    from pyspark_kafkalog.admin.producing import produce
    from pyspark_kafkalog.admin.repairing import RepairedDirectory, RepairedPartition, RepairStep, repair
    from pyspark_kafkalog.admin.restoring import restore
    from pyspark_kafkalog.admin.retaining import (
        DeletedRecords,
        delete_records,
        offsets_before,
        parse_offset_json,
        retain,
    )
    from pyspark_kafkalog.admin.selecting import RecordSelection, count_records, read_records
    from pyspark_kafkalog.admin.verifying import Damage, VerifiedPartition, verify
    from pyspark_kafkalog.backups.plan import BackedUpPartition, BackupRules
    from pyspark_kafkalog.backups.restore import RestoreSettings
    from pyspark_kafkalog.backups.restore_groups import RestoredOffset
    from pyspark_kafkalog.backups.restore_rows import Restored, RestoredPartition
    from pyspark_kafkalog.log.write.adopting import AdoptedPartition

__all__ = [
    "AdoptedPartition",
    "BackedUpPartition",
    "BackupRules",
    "CompactedPartition",
    "CreatedTopic",
    "Damage",
    "DeletedRecords",
    "DumpedBatch",
    "DumpedRecord",
    "GroupLag",
    "GroupOffset",
    "GroupPace",
    "JsonLines",
    "LagWatch",
    "Lines",
    "NewTopic",
    "PartitionState",
    "RecordSelection",
    "RepairStep",
    "RepairedDirectory",
    "RepairedPartition",
    "ResetStep",
    "ResetTo",
    "RestoreSettings",
    "Restored",
    "RestoredOffset",
    "RestoredPartition",
    "SegmentState",
    "TopicChange",
    "TopicToDelete",
    "VerifiedPartition",
    "adopt",
    "alter_topics",
    "backup",
    "batches",
    "compact",
    "copy",
    "count_records",
    "create_topics",
    "delete_group",
    "delete_offsets",
    "delete_records",
    "delete_topics",
    "dump",
    "execute",
    "export",
    "export_csv",
    "export_json",
    "for_whole_messages",
    "format_lines",
    "group_offsets",
    "groups",
    "groups_of",
    "json_lines",
    "keyed",
    "lags",
    "offsets_before",
    "parse",
    "parse_offset_json",
    "partitions_of",
    "place_of",
    "plan_alteration",
    "plan_deletion",
    "plan_import",
    "plan_reset",
    "produce",
    "prometheus_text",
    "read_records",
    "records_of",
    "repair",
    "restore",
    "retain",
    "segments",
    "topics",
    "topics_of",
    "total_lag",
    "values_of",
    "verify",
    "with_tombstones",
]

_LOADED_ON_USE = {
    "AdoptedPartition": "backing_up",
    "BackedUpPartition": "backing_up",
    "BackupRules": "backing_up",
    "adopt": "backing_up",
    "backup": "backing_up",
    "copy": "backing_up",
    "batches": "batch_headers",
    "CompactedPartition": "compacting",
    "compact": "compacting",
    "DumpedBatch": "dumping",
    "DumpedRecord": "dumping",
    "dump": "dumping",
    "export": "exporting",
    "JsonLines": "input_lines",
    "keyed": "input_lines",
    "records_of": "input_lines",
    "values_of": "input_lines",
    "with_tombstones": "input_lines",
    "Lines": "lines",
    "format_lines": "lines",
    "json_lines": "lines",
    "produce": "producing",
    "RepairStep": "repairing",
    "RepairedDirectory": "repairing",
    "RepairedPartition": "repairing",
    "repair": "repairing",
    "RestoreSettings": "restoring",
    "Restored": "restoring",
    "RestoredOffset": "restoring",
    "RestoredPartition": "restoring",
    "restore": "restoring",
    "DeletedRecords": "retaining",
    "delete_records": "retaining",
    "offsets_before": "retaining",
    "parse_offset_json": "retaining",
    "retain": "retaining",
    "RecordSelection": "selecting",
    "count_records": "selecting",
    "read_records": "selecting",
    "Damage": "verifying",
    "VerifiedPartition": "verifying",
    "verify": "verifying",
}


def place_of(options: Mapping[str, str]) -> Place:
    """The log directory in ``path``, or the cluster behind ``kafka.bootstrap.servers``.

    :raises OptionError: for invalid options.
    """
    return open_place(_checked(options))


def groups_of(options: Mapping[str, str]) -> GroupOffsets:
    """The consumer groups of that place; see :func:`place_of`."""
    return open_groups(_checked(options))


def topics_of(options: Mapping[str, str]) -> Topics:
    """The topics of that place, to make, change and delete; see :func:`place_of`."""
    return open_topics(_checked(options))


def _checked(options: Mapping[str, str]) -> PlaceOptions:
    UserOptions(options, Use.ADMIN).check_names()
    return place_options(options)


def __getattr__(name: str) -> Any:
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LOADED_ON_USE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
