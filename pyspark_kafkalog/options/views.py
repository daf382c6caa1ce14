"""The option ``view``: what a batch read shows instead of records, and by which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.names import OF_PLACES, OPTIONS, Use, Where
from pyspark_kafkalog.options.settings import Selection, read_options
from pyspark_kafkalog.options.user_options import UserOptions

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
"""For each view its columns and their Spark types, in order, all nullable."""

_SELECTING = ("subscribe", "subscribePattern", "assign")
_GROUP = "kafka.group.id"
_FILTERS: Mapping[str, tuple[str, ...]] = {
    "group-offsets": (*_SELECTING, _GROUP),
    "groups": (_GROUP,),
    "topics": _SELECTING,
    "audit": (),
}
_ALWAYS = ("view", *OF_PLACES)


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """What to show: a key of :data:`VIEWS`, which partitions and which groups; None is all groups."""

    view: str
    selection: Selection
    groups: tuple[str, ...] | None


def view_options(options: Mapping[str, str]) -> ViewOptions | None:
    """The view that is asked for; None for records.

    :raises OptionError: for anything unknown, malformed, or of no use to the view.
    """
    given = UserOptions(options, Use.BATCH_READ)
    if "view" not in given:
        return None
    view = given.choice("view", *VIEWS)
    for option in OPTIONS:
        if option.name in given and option.use & Use.READ and option.name not in (*_ALWAYS, *_FILTERS[view]):
            raise OptionError(
                f"Option {option.name!r} makes no sense with view={view}",
                hint=f"What narrows it: {', '.join(_FILTERS[view])}." if _FILTERS[view] else None,
            )
    if view == "audit" and given.where is not Where.DIRECTORY:
        raise OptionError("view=audit shows a folder", hint="Give load() the path that auditLocation named.")
    selection = read_options(options, batch=True).selection
    return ViewOptions(view, selection, _groups(given.text(_GROUP)))


def _groups(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    named = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not named:
        raise OptionError(f"Option {_GROUP!r} names no group")
    return named
