"""The rows of a view as an Arrow table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_kafkalog.admin.consumer_groups import group_offsets, groups
from pyspark_kafkalog.admin.partitions import segments, topics
from pyspark_kafkalog.admin.rows import arrow_types, to_table
from pyspark_kafkalog.audit.counting import audit_rows
from pyspark_kafkalog.options.settings import PlaceOptions
from pyspark_kafkalog.options.views import VIEWS, ViewOptions
from pyspark_kafkalog.places import open_groups, open_place


def view_table(place: PlaceOptions, options: ViewOptions) -> pa.Table:
    """The current rows of a view but ``batches``, with the columns that :data:`.views.VIEWS` lists.

    :raises KafkaLogError: if a named topic or group does not exist, or the place can't be read.
    """
    rows: list[Any] = []
    if options.view == "audit":
        rows = [row for location in place.paths for row in audit_rows(location)]
    elif options.view == "topics":
        rows = topics(open_place(place), options.selection)
    elif options.view == "segments":
        rows = segments(open_place(place), options.selection)
    elif options.view == "groups":
        rows = groups(open_groups(place), options.groups)
    else:
        rows = group_offsets(open_place(place), open_groups(place), options.groups, options.selection)
    return to_table(rows, arrow_types(VIEWS[options.view]))
