"""Views, which ``option("view", ...)`` shows instead of records: their columns and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog.client.partitions import PartitionState, SegmentState, segments, topics
from pyspark_kafkalog.extensions.views.options import ViewOptions
from pyspark_kafkalog.model import Group
from pyspark_kafkalog.model.rows import plain, sql_types
from pyspark_kafkalog.options.settings import PlaceOptions
from pyspark_kafkalog.places import open_groups, open_report
from pyspark_kafkalog.tools.groups.consumer_groups import GroupOffset, group_offsets, groups

if TYPE_CHECKING:
    import pyarrow as pa

VIEWS: Mapping[str, Mapping[str, str]] = {
    "group-offsets": sql_types(GroupOffset),
    "groups": sql_types(Group),
    "topics": sql_types(PartitionState),
    "segments": sql_types(SegmentState),
    "batches": {
        "topic": "string",
        "partition": "int",
        "segment": "string",
        "baseOffset": "bigint",
        "lastOffset": "bigint",
        "records": "int",
        "storedBytes": "bigint",
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
        "auditKey": "string",
        "bucketStart": "timestamp",
        "bucketEnd": "timestamp",
        "messages": "bigint",
        "bytes": "bigint",
        "query": "string",
        "batch": "bigint",
    },
    "metrics": {
        "query": "string",
        "batch": "bigint",
        "task": "int",
        "attempt": "int",
        "time": "timestamp",
        "records": "bigint",
        "batches": "bigint",
        "bytes": "bigint",
        "uncompressedBytes": "bigint",
        "compressionRatio": "double",
        "requests": "bigint",
        "retries": "bigint",
        "throttleMs": "bigint",
        "latencyAvgMs": "double",
        "latencyMaxMs": "double",
    },
}
"""The columns of each view with their Spark types, in order, all nullable."""
MAX_MS = (2**63 - 1) // 1000
"""The greatest time that a timestamp in microseconds can hold."""


def arrow_types(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The Arrow types of the columns of a view, which :data:`VIEWS` gives."""
    import pyarrow as pa

    assigned = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
    member = pa.struct(
        [
            ("memberId", pa.string()),
            ("clientId", pa.string()),
            ("host", pa.string()),
            ("partitions", pa.list_(pa.field("element", assigned))),
            ("instanceId", pa.string()),
        ]
    )
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return {name: types.get(kind, pa.list_(pa.field("element", member))) for name, kind in columns.items()}


def _to_table(rows: Iterable[Any], columns: dict[str, pa.DataType]) -> pa.Table:
    """Dataclasses as an Arrow table; timestamps beyond its range are null."""
    import pyarrow as pa

    values = [plain(row) for row in rows]
    arrays = {}
    for name, kind in columns.items():
        column = [row[name] for row in values]
        if pa.types.is_timestamp(kind):
            shown = [None if ms is None or ms > MAX_MS else ms * 1000 for ms in column]
            arrays[name] = pa.array(shown, kind)
        else:
            arrays[name] = pa.array(column, kind)
    return pa.table(arrays, schema=pa.schema(list(columns.items())))


def view_table(place: PlaceOptions, options: ViewOptions) -> pa.Table:
    """The current rows of a view but ``batches``, with the columns that :data:`VIEWS` lists.

    :raises KafkaLogError: if a named topic or group does not exist, or the place can't be read.
    """
    rows: list[Any] = []
    if options.view == "audit":
        from pyspark_kafkalog.extensions.audit.counts import counts_table

        return counts_table(place, options.selection)
    if options.view == "metrics":
        from pyspark_kafkalog.extensions.callbacks.files import metrics_rows

        rows = [row for location in place.paths for row in metrics_rows(location)]
    elif options.view == "topics":
        rows = topics(open_report(place), options.selection)
    elif options.view == "segments":
        rows = segments(open_report(place), options.selection)
    elif options.view == "groups":
        rows = groups(open_groups(place.of_report), options.groups)
    else:
        rows = group_offsets(
            open_report(place), open_groups(place.of_report), options.groups, options.selection
        )
    return _to_table(rows, arrow_types(VIEWS[options.view]))
