"""Compiled: the batches that fit into a segment, and the index entries that they get.

Every batch counts as one append, so that the indexes are, entry for entry,
what a broker's recovery would rebuild (Kafka's ``LogSegment.append``,
``shouldRoll``, ``recover``, ``onBecomeInactiveSegment``).
"""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.codec.kernel import Integer, inlined, kernel
from pyspark_kafkalog.codec.signature import INT64, INT64S, OUT_INT64, OUT_TABLE

# Elements of ``segment``: the state that appending to a segment needs.
(
    BASE_OFFSET,
    SIZE,
    FIRST_TIMESTAMP,
    UNINDEXED_BYTES,
    MAX_TIMESTAMP,
    OFFSET_OF_MAX_TIMESTAMP,
    OFFSET_ENTRIES,
    TIME_ENTRIES,
    LAST_TIME_ENTRY,
) = range(9)
SEGMENT_FIELDS = 9

# Elements of ``limits``.
SEGMENT_BYTES, SEGMENT_MS, INDEX_INTERVAL_BYTES, MAX_OFFSET_ENTRIES, MAX_TIME_ENTRIES = range(5)

_MAX_RELATIVE_OFFSET = (1 << 31) - 1


@inlined
def _index_time(segment: np.ndarray, time_entries: np.ndarray, times: Integer) -> Integer:
    """Add an entry after the first ``times``, if the largest timestamp has grown."""
    if segment[MAX_TIMESTAMP] > segment[LAST_TIME_ENTRY]:
        time_entries[0, times] = segment[MAX_TIMESTAMP]
        time_entries[1, times] = segment[OFFSET_OF_MAX_TIMESTAMP] - segment[BASE_OFFSET]
        times += 1
        segment[TIME_ENTRIES] += 1
        segment[LAST_TIME_ENTRY] = segment[MAX_TIMESTAMP]
    return times


@kernel(INT64S, INT64S, INT64S, INT64, INT64, INT64S, OUT_INT64, OUT_TABLE, OUT_TABLE, results=3)
def append_batches(
    sizes: np.ndarray,
    last_offsets: np.ndarray,
    max_timestamps: np.ndarray,
    first: int,
    closing: int,
    limits: np.ndarray,
    segment: np.ndarray,
    offset_entries: np.ndarray,
    time_entries: np.ndarray,
) -> tuple[int, int, int]:
    """Append batches, from number ``first`` on, to ``segment`` until one needs the next segment.

    Fills ``offset_entries`` (relative offset; position) and ``time_entries``
    (timestamp; relative offset), with that which ends a closed segment if
    ``closing`` is not 0. The second table needs one column more than there
    are batches.

    :return: number of the first batch that was not appended, offset entries, time entries.
    """
    offsets = 0
    times = 0
    batch = first
    while batch < sizes.size:
        relative = last_offsets[batch] - segment[BASE_OFFSET]
        if segment[SIZE] > 0 and (
            segment[SIZE] > limits[SEGMENT_BYTES] - sizes[batch]
            or (
                segment[FIRST_TIMESTAMP] >= 0
                and max_timestamps[batch] - segment[FIRST_TIMESTAMP] > limits[SEGMENT_MS]
            )
            or segment[OFFSET_ENTRIES] >= limits[MAX_OFFSET_ENTRIES]
            or segment[TIME_ENTRIES] >= limits[MAX_TIME_ENTRIES] - 1
            or relative > _MAX_RELATIVE_OFFSET
        ):
            break
        if segment[SIZE] == 0:
            segment[FIRST_TIMESTAMP] = max_timestamps[batch]
        if max_timestamps[batch] > segment[MAX_TIMESTAMP]:
            segment[MAX_TIMESTAMP] = max_timestamps[batch]
            segment[OFFSET_OF_MAX_TIMESTAMP] = last_offsets[batch]
        if segment[UNINDEXED_BYTES] > limits[INDEX_INTERVAL_BYTES]:
            offset_entries[0, offsets] = relative
            offset_entries[1, offsets] = segment[SIZE]
            offsets += 1
            segment[OFFSET_ENTRIES] += 1
            segment[UNINDEXED_BYTES] = 0
            times = _index_time(segment, time_entries, times)
        segment[UNINDEXED_BYTES] += sizes[batch]
        segment[SIZE] += sizes[batch]
        batch += 1
    if closing != 0:
        times = _index_time(segment, time_entries, times)
    return batch, offsets, times
