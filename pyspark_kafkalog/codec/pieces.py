"""A compressed batch that is too large to be staged whole, in pieces: memory follows its largest record.

A piece is some whole records at the front of a stage. The one that is cut off behind them is completed for
the next piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark_kafkalog.codec import read_kernels as kernels
from pyspark_kafkalog.codec.buffers import Stage
from pyspark_kafkalog.codec.compression import Content, LargerError
from pyspark_kafkalog.codec.format import MAX_HEADERS
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, walk
from pyspark_kafkalog.errors import CorruptRecordError, OversizedRecordError

NOT_A_MESSAGE = "A compressed message set holds bytes that are not a message"
_LENGTHS = 17
"""Bytes from which the size of any record or message can be told."""


class Piece(NamedTuple):
    """A piece of a large batch: whole v2 records."""

    first: int
    """The number of the first one in its batch."""
    records: int
    end: int
    """The position in the stage after the records, which begin at 0."""


def record_pieces(
    content: Content, stage: Stage, count: int, *, window: int, largest: int
) -> Iterator[Piece]:
    """The ``count`` v2 records of a batch, which are valid as far as their lengths show.

    :param window: about how many bytes are staged at a time, unless a record takes more.
    :raises OversizedRecordError: without a place, at a record of more than ``largest`` bytes.
    :raises CorruptRecordError: without a place, where the content is not so many records.
    """
    stage.clear()
    done, needed, more = 0, 0, True
    while more:
        more = _fill(content, stage, needed, window, largest)
        records, end, status, needed = kernels.whole_records(stage.data, count - done)
        if records:
            yield Piece(done, records, end)
        done += records
        stage.drop(end)
        if status == kernels.INVALID or (status == kernels.END and stage.size):
            raise CorruptRecordError(invalid_record(done))
    if done < count or count < 0:
        raise CorruptRecordError(invalid_record(done))


def message_pieces(content: Content, stage: Stage, *, window: int, largest: int) -> Iterator[Batches]:
    """The messages of a compressed message set, as they lie in ``stage``; see :func:`record_pieces`."""
    stage.clear()
    needed, more = 0, True
    while more:
        more = _fill(content, stage, needed, window, largest)
        messages = walk(stage.data)
        if len(messages):
            yield messages
        stage.drop(messages.end)
        needed = messages.needed
        if messages.status is WalkStatus.INVALID or (stage.size and not more):
            raise CorruptRecordError(NOT_A_MESSAGE)


def invalid_record(number: int) -> str:
    """The fault of a batch of format v2."""
    return f"Record {number} of the batch is invalid, or has more than {MAX_HEADERS} headers"


def _fill(content: Content, stage: Stage, needed: int, window: int, largest: int) -> bool:
    """Stage up to a window, or the ``needed`` bytes of the next record; whether there may be more."""
    try:
        if needed <= largest:
            return content.fill(stage, max(window, needed, stage.size + _LENGTHS) - stage.size)
        left = needed - stage.size
        if _passed_over(content, stage, window, left) < left:  # its length lies
            raise CorruptRecordError(f"A record of {needed} bytes does not fit into its batch")
    except LargerError:
        raise OversizedRecordError(
            f"A record batch is one block of snappy, which decompresses to more than {largest} bytes"
        ) from None
    raise OversizedRecordError(f"A compressed record has {needed} bytes, more than {largest}")


def _passed_over(content: Content, stage: Stage, window: int, most: int) -> int:
    """The number of bytes that were skipped: ``most``, or fewer at the end of the content."""
    found, more = 0, True
    while more and found < most:
        stage.clear()
        more = content.fill(stage, min(window, most - found))
        found += stage.size
    stage.clear()
    return found
