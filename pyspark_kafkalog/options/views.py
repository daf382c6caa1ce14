"""The option ``view``: what a batch read shows instead of records, and in which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import Selection, selection
from pyspark_kafkalog.options.table import VIEW_USES, Use, Where
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
    },
    "groups": {
        "groupId": "string",
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
        "sizeBytes": "bigint",
        "earliestTimestamp": "timestamp",
        "latestTimestamp": "timestamp",
        "segments": "int",
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


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What to show: a key of :data:`VIEWS`, which partitions, and which groups (None: all)."""

    view: str
    selection: Selection
    groups: tuple[str, ...] | None


def view_options(options: Mapping[str, str]) -> ViewOptions | None:
    """The requested view; None for records.

    :raises OptionError: for anything unknown, malformed, or not applicable to the view.
    """
    view = UserOptions(options, Use.BATCH_READ).value("view")
    if view is None:
        return None
    user = UserOptions(options, VIEW_USES[view])
    user.check_names()
    if view == "audit" and user.where is not Where.DIRECTORY:
        raise OptionError(
            "view=audit reads a folder, not brokers", hint="Give load() the path of auditLocation."
        )
    return ViewOptions(view, selection(user), _groups(user.value(_GROUP)))


def _groups(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    groups = tuple(dict.fromkeys(separated(_GROUP, text)))
    if not groups:
        raise OptionError(f"Option {_GROUP!r} names no group")
    return groups
