"""Safe offsets of a place, a query or a checkpoint, for users who keep offsets outside of Kafka.

The safe offset of a partition is where a reader must begin to miss no message segment of a large message that
is not complete (LiKafkaConsumerImpl.safeOffsets).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from pyspark_kafkalog.client.partitions import bounds_of
from pyspark_kafkalog.errors import DataLossError, OptionError
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    At = Mapping[TopicPartition, int] | Collection[TopicPartition] | StreamingQuery | str | os.PathLike[str]


def positions(place: Place, at: At) -> dict[TopicPartition, int]:
    """The offsets below which everything has been processed.

    See :meth:`.room.GroupAdmin.safe_offsets`.
    """
    if isinstance(at, str | os.PathLike):
        return _of_checkpoint(os.fsdecode(at))
    if hasattr(at, "lastProgress"):
        return _of_query(cast("StreamingQuery", at))
    if not isinstance(at, Collection) or not all(isinstance(partition, TopicPartition) for partition in at):
        raise OptionError(
            f"Expected partitions, offsets by partition, a query or a checkpoint, got {type(at).__name__}",
            hint='Write, for example, safe_offsets([TopicPartition("orders", 0)]).',
        )
    bounds = bounds_of(place, at)
    if not isinstance(at, Mapping):
        return {partition: watermarks.high_watermark for partition, watermarks in bounds.items()}
    for partition, offset in at.items():
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise OptionError(
                f"Expected an offset, a whole number from 0, got {offset!r}", topic_partition=partition
            )
    return dict(at)


def safe_offsets(place: Place, ends: Offsets, settings: AssemblerSettings) -> dict[TopicPartition, int]:
    """The safe offset at each of ``ends``; the end itself where no message is open.

    Message segments of open and aborted transactions count, too, so no reader misses a message.

    :raises DataLossError: if a log ends before an offset: it is that of another log.
    :raises KafkaLogError: if the records before an offset can't be read.
    """
    import pyarrow as pa

    from pyspark_kafkalog.extensions.large_messages.looking_back import OpenMessages
    from pyspark_kafkalog.read.ranges import ReadRules

    for partition, watermarks in bounds_of(place, ends).items():
        if ends[partition] > watermarks.high_watermark:
            raise DataLossError(
                f"Expected an offset up to the end of the log, {watermarks.high_watermark}",
                topic_partition=partition,
                offset=ends[partition],
                hint="The topic was recreated, or its log was cut: the offset is that of the old log.",
            )
    rules = ReadRules(pa.schema([]), read_committed=False, fail_on_data_loss=True)
    return dict(OpenMessages(lambda: place, rules, settings).safe_offsets(ends))


def _of_checkpoint(location: str) -> dict[TopicPartition, int]:
    if not location.strip():
        raise OptionError("The location of a checkpoint is empty", hint="Give a path or a URI.")
    from pyspark_kafkalog.stream.checkpoint import QueryLog

    log = QueryLog(location)
    log.query_id()  # so that another folder is refused
    return _least(log.read_so_far(), "The query of this checkpoint")


def _of_query(query: StreamingQuery) -> dict[TopicPartition, int]:
    progress = query.lastProgress
    ends = []
    for source in () if progress is None else progress["sources"]:
        with suppress(OptionError):  # another source's
            ends.append(parse_offsets(source["endOffset"] or "", option="endOffset"))
    return _least(ends, f"Query {query.name or query.id}")


def _least(ends: Iterable[Offsets], what: str) -> dict[TopicPartition, int]:
    """The least offset of each partition, which several sources may read."""
    found: dict[TopicPartition, int] = {}
    for offsets in ends:
        for partition, offset in offsets.items():
            found[partition] = min(offset, found.get(partition, offset))
    if not found:
        raise OptionError(
            f"{what} has completed no micro-batch that reads topics", hint="Wait for the first one."
        )
    return found
