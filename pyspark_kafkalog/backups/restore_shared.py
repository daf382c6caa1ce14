"""Whether a source still has the records that a restore has sent, so that what follows may follow them.

Names and ids don't tell: a disk or a cluster that was set back to an older copy keeps both, and gives the
same offsets to other records.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from pyspark_kafkalog.backups.restore_state import OffsetMap, PlannedPartition
from pyspark_kafkalog.codec.decode import decode_slice
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import DataLossError, InvalidRecordError, KafkaLogError
from pyspark_kafkalog.model import Fetch, OffsetRange, Place, Slice, TopicPartition

_MOST = 1000
"""Records that are compared."""
_COLUMNS = ("offset", "key", "value", "timestamp")


def check_shared(
    source: Place, target: Place, planned: PlannedPartition, known: OffsetMap, written: int
) -> None:
    """Compare the target's last record batch with what the source has at the same offsets.

    What the source has deleted or compacted since is not there to be compared.

    :param written: how many records of the map the target has, at least one.
    :raises DataLossError: if the source has other records there, or ends before.
    """
    end = planned.base + written
    last = list(target.fetch(Fetch(planned.destination, OffsetRange(end - 1, end))))
    sent = _records(last, planned.destination, OffsetRange(max(end - _MOST, planned.base), end))
    if not sent:  # the target has deleted what it had
        return
    wanted = {known.source_of(offset - planned.base): record for offset, record in sent.items()}
    bounds = source.watermarks([planned.source], read_committed=False).get(planned.source)
    if bounds is None:
        raise _other(planned, "it does not exist any more")
    if bounds.high_watermark <= max(wanted):
        raise _other(
            planned, f"it ends at offset {bounds.high_watermark}, before the record at {max(wanted)}"
        )
    offsets = OffsetRange(max(min(wanted), bounds.log_start_offset), max(wanted) + 1)
    if offsets.start >= offsets.end:
        return
    pieces = source.fetch(Fetch(planned.source, offsets, topic_id=planned.source_id))
    for offset, record in _records(list(pieces), planned.source, offsets).items():
        if offset in wanted and wanted[offset][: len(record)] != record[: len(wanted[offset])]:
            raise _other(planned, f"it has another record at offset {offset}")


def _records(
    pieces: Iterable[Slice], partition: TopicPartition, offsets: OffsetRange
) -> dict[int, tuple[object, ...]]:
    """Key, value and timestamp of each record; without timestamps if one can't be shown."""
    try:
        return _decoded(pieces, partition, offsets, _COLUMNS)
    except InvalidRecordError:
        return _decoded(pieces, partition, offsets, _COLUMNS[:-1])


def _decoded(
    pieces: Iterable[Slice], partition: TopicPartition, offsets: OffsetRange, columns: tuple[str, ...]
) -> dict[int, tuple[object, ...]]:
    schema = pa.schema([(name, ROW_TYPES[name]) for name in columns])
    found: dict[int, tuple[object, ...]] = {}
    for piece in pieces:
        rows = decode_slice(piece, topic_partition=partition, offsets=offsets, visible=None, schema=schema)
        for arrow_batch, _ in rows:
            at, *fields = (column.to_pylist() for column in arrow_batch.columns)
            found.update(zip(at, zip(*fields, strict=True), strict=True))
    return found


def _other(planned: PlannedPartition, why: str) -> KafkaLogError:
    return DataLossError(
        f"The source is not the one of which this restore has sent the first records: {why}",
        topic_partition=planned.source,
        hint="It went back to an older copy. Bring back the newer one, or start over: delete what this"
        " restore has made, and its file of --state.",
    )
