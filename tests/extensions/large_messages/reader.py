"""A consumer of one partition that behaves like LinkedIn's, around our reassembly and tracking."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark_kafkalog.errors import LargeMessageDroppedError
from pyspark_kafkalog.extensions.large_messages.assembler import INCOMPLETE
from pyspark_kafkalog.extensions.large_messages.format import (
    commit_metadata,
    consumer_high_watermark,
    parse_metadata,
)
from pyspark_kafkalog.extensions.large_messages.reassembler import Reassembler
from tests.extensions.large_messages.cases import InMemory, Scenario
from tests.extensions.large_messages.tracker import DeliveredMessages

Committed = tuple[int, str]
"""An offset and its metadata as a plain consumer sees them."""


class NegativeWatermarkError(Exception):
    """Their IllegalArgumentException."""


class Reader:
    """Reads one record at a time; ``committed`` is its group's commit."""

    def __init__(self, scenario: Scenario | InMemory, committed: Committed | None = None) -> None:
        self.scenario = scenario
        self.committed = committed
        self.position = 0 if committed is None else committed[0]
        self.errors: list[int] = []
        self._watermark: int | None = None
        self._watermark_known = False
        self._loaded: Committed | None = None
        self._clear()

    def read(self) -> Iterator[dict[str, Any]]:
        """Delivered rows from the position to the end; offsets in error are noted."""
        offsets = self.scenario.rows.column("offset").to_pylist()
        for row, offset in enumerate(offsets):
            if offset >= self.position:
                self.position = offset + 1
                yield from self._record(row, offset)
        self.position = max(self.position, self.scenario.log_end_offset)

    def read_offsets(self) -> str:
        """Offsets of the rows that :meth:`read` delivers, as in the tables."""
        return "[" + ",".join(str(row["offset"]) for row in self.read()) + "]"

    def commit(self) -> Committed | None:
        """Commit the latest position; None if there is nothing to commit."""
        if self.tracker is not None and self.tracker.last_offset is not None:
            wanted = self.tracker.last_offset + 1
        elif self.tracker is not None or self._watermark is not None:
            wanted = self.position
        else:
            return None
        offset = self._offset_to_commit(wanted)
        watermark = self._high_watermark()
        number = wanted if watermark is None else max(wanted, watermark)
        if offset == wanted and self._loaded is not None and offset == self._loaded[0]:
            number = max(watermark or 0, consumer_high_watermark(self._loaded[1]) or 0)
        self.committed = offset, commit_metadata(number)
        return self.committed

    def commit_at(self, wanted: int, text: str) -> Committed:
        """Commit an offset of the user's."""
        return self._offset_to_commit(wanted), commit_metadata(wanted, text)

    def seek(self, offset: int) -> None:
        """Seek to a message."""
        if self.tracker is not None and self.tracker.last_offset == offset - 1:
            return
        if self.committed is not None and self.api_committed()[0] == offset:
            self.seek_to_committed()
            return
        self.position = offset if self.tracker is None else self.tracker.seek_target(offset)
        self._clear()
        self._watermark, self._watermark_known = offset, True

    def seek_to_committed(self) -> None:
        assert self.committed is not None
        self.position = self.committed[0]
        self._clear()
        self._watermark_known = False
        if self._high_watermark() is None:
            self._watermark, self._watermark_known = self.position, True

    def api_committed(self) -> Committed:
        """What their ``committed()`` returns."""
        assert self.committed is not None
        number, text = parse_metadata(self.committed[1])
        if number is None:
            return self.committed
        if number < 0:
            raise NegativeWatermarkError
        return number, text

    def _clear(self) -> None:
        self.tracker: DeliveredMessages | None = None
        self.reassembler = Reassembler(
            self.scenario.topic_partition, self.scenario.settings, extra_columns=True
        )

    def _high_watermark(self) -> int | None:
        if not self._watermark_known and self.committed is not None:
            self._watermark = consumer_high_watermark(self.committed[1])
            if self._watermark is not None:
                self._loaded = self.committed
        self._watermark_known = True
        return self._watermark

    def _offset_to_commit(self, wanted: int) -> int:
        if self.tracker is None:
            return wanted
        return self.tracker.offset_to_commit(wanted, self.reassembler.safe_offset)

    def _record(self, row: int, offset: int) -> Iterator[dict[str, Any]]:
        rows = self.scenario.rows.slice(row, 1)
        null = not rows.column("value")[0].is_valid
        try:
            reassembled = self.reassembler.feed(rows)
        except LargeMessageDroppedError:
            self.errors.append(offset)
            return
        in_error = any(drop.reason not in INCOMPLETE for drop in reassembled.dropped)
        if in_error:
            self.errors.append(offset)
            if not null:
                return
        if self.tracker is None:
            self.tracker = DeliveredMessages(offset, self.scenario.max_tracked_messages)
        if not in_error and not reassembled.rows.num_rows:
            self.tracker.read_segment(offset)
            return
        start = offset if in_error else reassembled.rows.column("startingOffset")[0].as_py()
        watermark = self._high_watermark()
        skipped = watermark is not None and watermark > offset
        self.tracker.read_message(offset, start, self.reassembler.safe_offset(offset), skipped=skipped)
        if not skipped:
            self._watermark = offset
            yield from reassembled.rows.to_pylist()
