"""A look at records that are read one by one: says once that some are message segments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.codec.buffers import binary_column
from pyspark_kafkalog.options.user_options import log_once

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.read.ranges import Existing, SplitReader
    from pyspark_kafkalog.read.splits import Split


def log_segments(topic: str) -> None:
    """Say once of a topic that its records have message segments."""
    log_once(
        logging.WARNING,
        "Topic %s has message segments, which are read as values. large.message.enabled=true puts large"
        " messages together",
        topic,
    )


@dataclass(frozen=True, slots=True)
class WatchingReader:
    """A reader of single records which says so once of a topic that has message segments.

    What tells them for certain is loaded only for rows that may have some: with headers, or with a value
    that begins as a message segment does, with a byte that no text begins with.

    :ivar tell: called with the topic that has such segments.
    """

    reader: SplitReader
    tell: Callable[[str], None] = log_segments

    def read(self, split: Split, found: Existing | None = None) -> Iterator[pa.RecordBatch]:
        """See :meth:`.ranges.SplitReader.read`."""
        is_done = False
        for rows in self.reader.read(split, found):
            if not is_done and _may_have_segments(rows) and has_segments(rows):
                is_done = True
                self.tell(split.partition.topic)
            yield rows


def has_segments(rows: pa.RecordBatch) -> bool:
    """Whether some of the rows, which have a column ``value``, are message segments, as far as they show."""
    import numpy as np

    from pyspark_kafkalog.extensions.large_messages.kernels import find_lm, find_prefixes

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


def _may_have_segments(rows: pa.RecordBatch) -> bool:
    names = rows.schema.names
    if "value" not in names:
        return False
    if "headers" in names:
        return True
    offsets, _, data = binary_column(rows.column("value"))
    starts = data[offsets[:-1][offsets[1:] > offsets[:-1]]]
    return bool(((starts - 1) >= 127).any())  # 0 or from 128 on
