"""The option ``view``: what a batch read shows instead of records, and in which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import Selection, selection
from pyspark_kafkalog.options.table import VIEW_USES, Use, Where, from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import separated

VIEWS: Mapping[str, Mapping[str, str]] = {
    "group-offsets": {
        "group": "string",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "leaderEpoch": "int",
        "metadata": "string",
        "commitTimestamp": "timestamp",
        "expireTimestamp": "timestamp",
        "lag": "bigint",
        "logEndOffset": "bigint",
        "expired": "bigint",
        "state": "string",
        "note": "string",
    },
    "groups": {
        "group": "string",
        "state": "string",
        "protocolType": "string",
        "protocol": "string",
        "members": "array<struct<memberId:string,clientId:string,host:string,"
        "partitions:array<struct<topic:string,partition:int>>>>",
        "coordinator": "int",
    },
    "topics": {
        "topic": "string",
        "partition": "int",
        "topicId": "string",
        "logStartOffset": "bigint",
        "highWatermark": "bigint",
        "lastStableOffset": "bigint",
        "storedBytes": "bigint",
        "earliestTimestamp": "timestamp",
        "latestTimestamp": "timestamp",
        "segments": "int",
    },
    "segments": {
        "topic": "string",
        "partition": "int",
        "segment": "string",
        "file": "string",
        "baseOffset": "bigint",
        "storedBytes": "bigint",
        "earliestTimestamp": "timestamp",
        "latestTimestamp": "timestamp",
        "indexState": "string",
        "active": "boolean",
    },
    "batches": {
        "topic": "string",
        "partition": "int",
        "segment": "string",
        "baseOffset": "bigint",
        "lastOffset": "bigint",
        "records": "int",
        "storedBytes": "bigint",
        "rawBytes": "bigint",
        "compression": "string",
        "firstTimestamp": "timestamp",
        "maxTimestamp": "timestamp",
        "producerId": "bigint",
        "producerEpoch": "int",
        "transactional": "boolean",
        "control": "boolean",
        "position": "bigint",
        "magic": "int",
        "valid": "boolean",
    },
    "audit": {
        "side": "string",
        "topic": "string",
        "kind": "string",
        "bucketStart": "timestamp",
        "bucketEnd": "timestamp",
        "messages": "bigint",
        "bytes": "bigint",
        "query": "string",
        "batch": "bigint",
    },
}
"""The columns of each view with their Spark types, in order, all nullable."""

_GROUP = "kafka.group.id"
_OF_FOLDERS = {
    "audit": "Give load() the path of auditLocation.",
    "segments": "Brokers don't show their segments. Give load() a log directory, or use view=batches.",
}
"""Views that no broker can show, and what to do instead."""


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What to show: a key of :data:`VIEWS`, which partitions, and which groups (None: all).

    The other fields are for ``batches``: whether to verify checksums, whether to decompress what states no
    size, and the least number of tasks.
    """

    view: str
    selection: Selection
    groups: tuple[str, ...] | None
    check_crcs: bool = from_option("checkCrcs")
    measure_raw_bytes: bool = from_option("rawBytes")
    min_partitions: int | None = from_option("minPartitions")


def view_options(options: Mapping[str, str]) -> ViewOptions | None:
    """The requested view; None for records.

    :raises OptionError: for anything unknown, malformed, or not applicable to the view.
    """
    view = UserOptions(options, Use.BATCH_READ).value("view")
    if view is None:
        return None
    user = UserOptions(options, VIEW_USES[view])
    user.check_names()
    if view in _OF_FOLDERS and user.where is not Where.DIRECTORY:
        raise OptionError(f"view={view} reads a folder, not brokers", hint=_OF_FOLDERS[view])
    return user.fill(ViewOptions, view=view, selection=selection(user), groups=_groups(user.value(_GROUP)))


def _groups(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    groups = tuple(dict.fromkeys(separated(_GROUP, text)))
    if not groups:
        raise OptionError(f"Option {_GROUP!r} names no group")
    return groups
