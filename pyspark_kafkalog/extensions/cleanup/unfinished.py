"""The stored state of a compaction that had no time left, from which the next one goes on.

``.kafkalog-compaction`` in the partition's folder, which brokers ignore: a line with the CRC-32C of what
follows, and JSON. It is only ever a shortcut. If it is gone or malformed, or the log has changed where it
matters, the compaction starts over, as after a crash.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyspark_kafkalog.codec.checksums import crc32c
from pyspark_kafkalog.errors import UNREADABLE
from pyspark_kafkalog.extensions.cleanup.cleaned_transactions import txn_entries
from pyspark_kafkalog.extensions.cleanup.history import StoredBatches, Walked
from pyspark_kafkalog.filesystem.durable import replace
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.snapshot import ProducerEntry

UNFINISHED_FILE = ".kafkalog-compaction"
_VERSION = 1


class TimeLimit:
    """The time that compactions may take together. Each goes on to the end of the segment that it is at.

    :param seconds: None for any time: then nothing is stored of a compaction.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()

    def is_over(self, share: float = 1) -> bool:
        """Whether this share of the time has passed."""
        return self.seconds is not None and time.monotonic() - self._begun >= self.seconds * share


@dataclass(frozen=True, slots=True)
class BegunPass:
    """A pass whose first groups of segments are cleaned, and all that it needs for the others."""

    checkpoint: int | None
    """The entry of ``cleaner-offset-checkpoint`` when it began."""
    first_dirty_offset: int
    map_end: int
    """The map has the keys of the records from ``first_dirty_offset`` up to here."""
    end: int
    """The end of what may be compacted."""
    keys: int
    """No more keys than these are in the map."""
    compacted_ms: int | None
    """See :class:`.cleaning.Pass`."""
    producers: list[ProducerEntry]
    aborted: np.ndarray
    transactions: list[Any]
    """See :meth:`.cleaned_transactions.CleanedTransactions.state`."""
    rest: list[StoredBatches]
    """The segments that are not cleaned yet."""

    def fits(self, closed: list[StoredBatches], checkpoint: int | None, high_watermark: int | None) -> bool:
        """Whether the pass can go on in a log with these closed segments."""
        there = [
            segment for segment in closed if self.rest[0].base_offset <= segment.base_offset < self.map_end
        ]
        return (
            checkpoint == self.checkpoint
            and (high_watermark is None or high_watermark >= self.end)
            and len(there) == len(self.rest)
            and all(map(StoredBatches.is_file_of, self.rest, there))
        )


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The known transactions of a log, and the pass that has begun, if one has."""

    walked: Walked = field(default_factory=Walked)
    begun: BegunPass | None = None


def load(folder: str) -> Unfinished:
    """The state that the partition's last compaction has stored; an empty one if it can't be understood."""
    try:
        checksum, _, data = (local_folder(folder).read(UNFINISHED_FILE) or b"").partition(b"\n")
        if int(checksum, 16) != crc32c(data):
            return Unfinished()
        content = json.loads(data)
        if content["version"] != _VERSION:
            return Unfinished()
        walked = Walked(
            [_segment(folder, row) for row in content["segments"]],
            [ProducerEntry(*row) for row in content["producers"]],
            txn_entries(content["aborted"]),
        )
        return Unfinished(walked, _begun(folder, content["pass"]))
    except (OSError, *UNREADABLE):
        return Unfinished()


def store(folder: str, found: Unfinished) -> None:
    """Store this for the next compaction."""
    walked, begun = found.walked, found.begun
    content = {
        "version": _VERSION,
        "segments": [_row(segment) for segment in walked.segments],
        "producers": walked.producers,
        "aborted": walked.aborted.tolist(),
        "pass": begun
        and {
            "checkpoint": begun.checkpoint,
            "first_dirty_offset": begun.first_dirty_offset,
            "map_end": begun.map_end,
            "end": begun.end,
            "keys": begun.keys,
            "compacted_ms": begun.compacted_ms,
            "producers": begun.producers,
            "aborted": begun.aborted.tolist(),
            "transactions": begun.transactions,
            "rest": [_row(segment) for segment in begun.rest],
        },
    }
    data = json.dumps(content).encode()
    replace(os.path.join(folder, UNFINISHED_FILE), b"%08x\n" % crc32c(data) + data)


def forget(folder: str) -> None:
    """Remove what is stored, if anything is."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, UNFINISHED_FILE))


def _begun(folder: str, content: dict[str, Any] | None) -> BegunPass | None:
    if content is None:
        return None
    return BegunPass(
        **{
            **content,
            "producers": [ProducerEntry(*row) for row in content["producers"]],
            "aborted": txn_entries(content["aborted"]),
            "rest": [_segment(folder, row) for row in content["rest"]],
        }
    )


def _row(segment: StoredBatches) -> list[Any]:
    return [
        os.path.basename(segment.path),
        segment.base_offset,
        segment.size,
        segment.mtime_ns,
        segment.index_bytes,
        segment.time_index_bytes,
        segment.first_timestamp,
        segment.latest_timestamp,
        segment.most_records,
    ]


def _segment(folder: str, row: list[Any]) -> StoredBatches:
    name, *numbers = row
    return StoredBatches(os.path.join(folder, name), *numbers)
