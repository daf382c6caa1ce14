"""The rows of a view as an Arrow table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_kafkalog.admin.consumer_groups import group_offsets, groups
from pyspark_kafkalog.admin.partitions import topics
from pyspark_kafkalog.admin.rows import to_table
from pyspark_kafkalog.audit.counting import audit_rows
from pyspark_kafkalog.options.settings import PlaceOptions
from pyspark_kafkalog.options.views import VIEWS, ViewOptions
from pyspark_kafkalog.places import open_groups, open_place

_ASSIGNED = pa.struct([("topic", pa.string()), ("partition", pa.int32())])
_MEMBER = pa.struct(
    [
        ("memberId", pa.string()),
        ("clientId", pa.string()),
        ("host", pa.string()),
        ("partitions", pa.list_(pa.field("element", _ASSIGNED))),
    ]
)
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def view_table(place: PlaceOptions, options: ViewOptions) -> pa.Table:
    """The current rows of a view, with the columns that :data:`~pyspark_kafkalog.options.views.VIEWS` lists.

    :raises KafkaLogError: if a named topic or group does not exist, or the place can't be read.
    """
    rows: list[Any] = []
    if options.view == "audit":
        rows = [row for location in place.paths for row in audit_rows(location)]
    elif options.view == "topics":
        rows = topics(open_place(place), options.selection)
    elif options.view == "groups":
        rows = groups(open_groups(place), options.groups)
    else:
        rows = group_offsets(open_place(place), open_groups(place), options.groups, options.selection)
    columns = VIEWS[options.view]
    members = pa.list_(pa.field("element", _MEMBER))
    return to_table(rows, {name: _TYPES.get(kind, members) for name, kind in columns.items()})
