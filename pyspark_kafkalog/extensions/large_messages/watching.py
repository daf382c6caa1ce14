"""A look at records that are read one by one: says once that some are message segments."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import binary_column
from pyspark_kafkalog.extensions.large_messages.kernels import find_lm, find_prefixes
from pyspark_kafkalog.options.user_options import log_once


def log_segments(topic: str) -> None:
    """Say once of a topic that its records have message segments."""
    log_once(
        logging.WARNING,
        "Topic %s has message segments, which are read as values. large.message.enabled=true puts large"
        " messages together",
        topic,
    )


def has_segments(rows: pa.RecordBatch) -> bool:
    """Whether some of the rows, which have a column ``value``, are message segments, as far as they show."""
    offsets, _, data = binary_column(rows.column("value"))
    hits = find_prefixes(data, offsets, np.empty(rows.num_rows, np.int64))
    if not hits and "headers" in rows.schema.names:
        keys = rows.column("headers").values.field("key")
        offsets, _, data = binary_column(keys)
        hits = find_lm(data, offsets, np.empty(len(keys), np.int64))
    if not hits:
        return False
    from pyspark_kafkalog.extensions.large_messages.segments import find

    segments = find(rows)  # which knows what only looks like one
    return segments is not None and bool((segments.error == 0).any())
