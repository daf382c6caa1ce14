"""Finds the large messages that are incomplete at an offset, without reading a record twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyspark_kafkalog.largemessage.assembler import Assembler
from pyspark_kafkalog.model import AssemblerSettings, OffsetRange, Place, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.reading.looking_back import History, PartitionRecords, arrivals
from pyspark_kafkalog.reading.ranges import ReadRules


@dataclass(slots=True)
class _Known:
    """The messages of one partition that are open at ``position``, without slices."""

    position: int
    assembler: Assembler
    last_visible: int


class OpenMessages:
    """The open messages of partitions, at offsets that rise from one call to the next.

    Before a requested offset, at most ``message.assembler.expiration.offset.gap`` + 1 offsets are read,
    because messages that began earlier have expired (more if message segments were lost), and
    none that the previous call has read. Capacity does not matter: nothing is evicted, since the
    log can be read again.

    :param open_place: called once, in the first thread that needs the place.
    :param rules: the rules of the query; the schema does not matter.
    """

    def __init__(
        self, open_place: Callable[[], Place], rules: ReadRules, settings: AssemblerSettings
    ) -> None:
        self._open_place = open_place
        self._rules = rules
        self._settings = settings
        self._known: dict[TopicPartition, _Known] = {}

    @cached_property
    def _place(self) -> Place:
        return self._open_place()

    def safe_offsets(self, ends: Offsets) -> Offsets:
        """For each partition the least offset of a message that is open at its end, or the end itself.

        It is never below the log start offset, as no consumer can begin there.

        :raises KafkaLogError: if the records can't be read.
        """
        bounds = self._place.watermarks(ends, read_committed=False)
        found = {}
        for partition, end in ends.items():
            watermarks = bounds.get(partition)
            log_start = end if watermarks is None else watermarks.log_start_offset
            records = PartitionRecords(self._place, partition, self._rules, log_start)
            self._known[partition] = known = self._at(records, end)
            oldest = known.assembler.safe_offset(known.last_visible)
            found[partition] = end if oldest is None else min(max(oldest, records.log_start), end)
        return found

    def _at(self, records: PartitionRecords, end: int) -> _Known:
        """The open messages at ``end``, continued from the last known ones if these are not too old."""
        gap = self._settings.expiration_offset_gap
        known = self._known.pop(records.partition, None)  # A failed read must not leave it half updated.
        if known is not None and end - 1 - gap <= known.position <= end:
            self._read(records, known, end)
            return known
        history = History(records, self._settings, end)
        opened, are_all = history.open_in_order()
        if not are_all:
            opened = history.all_open()
        assembler = Assembler(records.partition, self._settings, evict=False)
        assembler.restore(opened, 0)
        return _Known(end, assembler, history.last_visible)

    def _read(self, records: PartitionRecords, known: _Known, end: int) -> None:
        for rows in records.rows(OffsetRange(known.position, end)):
            offsets = rows.column("offset").to_numpy()
            for arrival in arrivals(rows):
                row = int(np.searchsorted(offsets, arrival.offset))
                known.assembler.expire(int(offsets[row - 1]) if row else known.last_visible)
                known.assembler.add(arrival)
                known.assembler.dropped.clear()
            known.last_visible = int(offsets[-1])
        known.position = max(known.position, end)
