"""Undo what a publish appended to a partition, if all of it is provably the publish's own.

Records of others may follow the recorded end, too: a broker that was started over an
unfinished publish has acknowledged them. So an undo cuts off only record batches that
match, one by one and in place, those that the publish was about to append, and removes
only files that it created.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from pyspark_kafkalog.codec.format import (
    ATTRIBUTES_V2,
    CRC_V2,
    LAST_OFFSET_DELTA_V2,
    LEADER_EPOCH_V2,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_V2,
    OFFSET,
    RECORDS_V2,
    SIZE,
)
from pyspark_kafkalog.codec.walk import find_batch
from pyspark_kafkalog.filesystem.durable import cut, sync_folder
from pyspark_kafkalog.log.checkpoints import read_epochs, read_if_there
from pyspark_kafkalog.log.journal_file import PartitionEnd
from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    TIME_INDEX_SUFFIX,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY
from pyspark_kafkalog.log.segment.scan import opened, read_at, read_data

_HEADER = np.dtype(
    {
        "names": ["offset", "size", "epoch", "crc", "attributes", "last_offset_delta", "max_timestamp"],
        "formats": [">i8", ">i4", ">i4", ">u4", ">i2", ">i4", ">i8"],
        "offsets": [
            OFFSET,
            SIZE,
            LEADER_EPOCH_V2,
            CRC_V2,
            ATTRIBUTES_V2,
            LAST_OFFSET_DELTA_V2,
            MAX_TIMESTAMP_V2,
        ],
        "itemsize": RECORDS_V2,
    }
)
_ROWS = 4096
"""Headers that are compared at a time."""
_CREATED = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_INDEXES = {INDEX_SUFFIX: OFFSET_ENTRY.itemsize, TIME_INDEX_SUFFIX: TIME_ENTRY.itemsize}


class ForeignError(Exception):
    """A partition that another process has changed, or may have; the text is a clause that names the file."""


@dataclass(frozen=True, slots=True)
class Undo:
    """The steps that put a partition back to its end.

    ``appended`` says whether they remove records, and ``traces`` what else others
    have changed: if anything, these records may have been served.
    """

    folder: str
    appended: bool
    traces: tuple[str, ...]
    removed: tuple[str, ...]
    cuts: Mapping[str, int]
    created: bool

    def run(self) -> None:
        """Undo, and flush. After an interruption at any step, the rest can be planned and undone again."""
        for name in self.removed:
            os.unlink(os.path.join(self.folder, name))
        for name, size in self.cuts.items():
            cut(os.path.join(self.folder, name), size)
        if self.created:
            os.rmdir(self.folder)
        elif self.removed:
            sync_folder(self.folder)


def plan_undo(folder: str, end: PartitionEnd, batches: np.ndarray, append_time: int | None) -> Undo | None:
    """The steps that put a partition back to its ``end``; None if it is gone. Changes nothing.

    :param batches: the batches that were to be appended, of dtype :data:`.journal_file.BATCH`.
    :param append_time: the timestamp, in ms, that they were to get if their topic sets it; None
        if none does.
    :raises ForeignError: if others have appended, or may have.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return None  # not created yet, or deleted by the user
    expected = _Expected(folder, end, batches, append_time)
    files = {name: parse_segment_file(name) or (-1, "") for name in names}
    logs = sorted(base for base, suffix in files.values() if suffix == LOG_SUFFIX)
    bases = [base for base in logs if base == end.segment or expected.is_behind(base)]
    if end.segment is not None and end.segment not in bases:
        raise ForeignError(f"{os.path.join(folder, segment_file(end.segment, LOG_SUFFIX))} is gone")
    following = [*bases[1:], None]
    appended = [expected.check_log(*pair) for pair in zip(bases, following, strict=False)]
    removed, traces, cuts = [], [], {}
    for name, (base, suffix) in files.items():
        path = os.path.join(folder, name)
        if suffix in _CREATED and base in expected.bases and (base in bases or name not in end.others):
            removed.append(name)
        elif suffix in _INDEXES and base == end.segment:
            extra = os.lstat(path).st_size - end.sizes[suffix]
            if extra > (batches.size + 1) * _INDEXES[suffix]:
                traces.append(f"{path} is larger than the publish made it")
            elif extra > 0:
                cuts[name] = end.sizes[suffix]
        elif end.created:
            expected.check_made(name)
            removed.append(name)
        elif expected.is_behind(base) and name not in end.others:
            traces.append(f"{path} was created")
        elif name == LEADER_EPOCH_CHECKPOINT and read_epochs(folder) != _pairs(end.leader_epochs):
            traces.append(f"{path} has changed")
    if end.segment is not None and appended[0]:
        cuts[segment_file(end.segment, LOG_SUFFIX)] = end.sizes[LOG_SUFFIX]
    return Undo(folder, any(appended), tuple(traces), tuple(removed), cuts, end.created)


class _Expected:
    """The bytes that the publish was to append to a partition, to compare with those that are there."""

    def __init__(self, folder: str, end: PartitionEnd, batches: np.ndarray, append_time: int | None) -> None:
        self._folder = folder
        self._end = end
        self._batches = batches
        self._append_time = append_time
        records = batches["records"].astype(np.int64)
        self._offsets = end.log_end_offset + np.cumsum(records) - records
        self.bases = {base for base in [end.log_end_offset, *self._offsets.tolist()] if self.is_behind(base)}
        """Base offsets of the segments that it may have created."""

    def is_behind(self, base_offset: int) -> bool:
        """Whether a segment with this base offset follows the active segment."""
        return base_offset > (-1 if self._end.segment is None else self._end.segment)

    def check_log(self, base_offset: int, next_base_offset: int | None) -> bool:
        """Whether a segment's log has anything that the publish appended.

        :param next_base_offset: of the next existing segment; None if there is none.
        :raises ForeignError: if it has anything else.
        """
        path = os.path.join(self._folder, segment_file(base_offset, LOG_SUFFIX))
        if base_offset == self._end.segment:
            first, start = 0, self._end.sizes[LOG_SUFFIX]
        elif base_offset in self.bases:
            first, start = int(np.searchsorted(self._offsets, base_offset)), 0
        else:
            raise ForeignError(f"{path} was created")
        stop = self._offsets.size
        if next_base_offset is not None:
            stop = int(np.searchsorted(self._offsets, next_base_offset))
        with opened(path) as log:
            size = os.fstat(log).st_size
            sizes = self._batches["size"][first:stop].astype(np.int64)
            ends = start + np.cumsum(sizes)
            if size > max([start, *ends[-1:].tolist()]):
                raise ForeignError(f"{path} goes on after what the publish was to append")
            rest, origin = None, 0
            for rows in np.array_split(np.arange(sizes.size), sizes.size // _ROWS + 1):
                positions = ends[rows] - sizes[rows]
                wrong = ~self._are_there(log, positions[positions + _HEADER.itemsize <= size], first + rows)
                regions = np.minimum([positions[wrong], ends[rows][wrong]], size)
                for begin, stop_at in regions.T.tolist():
                    if rest is None:
                        origin, rest = read_data(path, begin)
                    found = find_batch(rest, max(begin - origin, 0), stop=stop_at - origin)
                    if found is not None:
                        raise ForeignError(f"{path} has a foreign record batch at byte {origin + found}")
        return bool(size > start)

    def _are_there(self, log: int, positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Whether the headers at ``positions``, which rise, belong to the batches with these numbers.

        There may be fewer positions than numbers: the last batches are not there.
        """
        headers = np.zeros((positions.size, _HEADER.itemsize), np.uint8)
        for header, position in zip(headers, positions.tolist(), strict=True):
            read_at(log, header, position)
        present = np.arange(rows.size) < positions.size
        found, batches = headers.view(_HEADER).reshape(-1), self._batches[rows[present]]
        same = (
            (found["offset"] == self._offsets[rows[present]])
            & (found["size"] == batches["size"].astype(np.int64) - LOG_OVERHEAD)
            & (found["epoch"] == self._end.leader_epoch)
            & (found["last_offset_delta"] == batches["records"].astype(np.int64) - 1)
        )
        as_it_was = found["crc"] == batches["crc"]
        if self._append_time is None:
            same &= as_it_was
        else:
            stamped = found["attributes"] & LOG_APPEND_TIME_BIT != 0
            same &= as_it_was | (stamped & (found["max_timestamp"] == self._append_time))
        present[present] = same
        return present

    def check_made(self, name: str) -> None:
        """:raises ForeignError: if a file of a partition that the publish created is not as it wrote it."""
        path = os.path.join(self._folder, name)
        text = {
            PARTITION_METADATA_FILE: format_partition_metadata(self._end.topic_id or ""),
            LEADER_EPOCH_CHECKPOINT: format_leader_epoch_checkpoint(_pairs(self._end.leader_epochs)),
        }.get(name)
        found = read_if_there(path)
        # A loss of power may have left a part of it, or zeros.
        if text is None or not all(a in (0, b) for a, b in zip_longest(found, text[: len(found)])):
            raise ForeignError(f"{path} was created, or has changed")


def _pairs(leader_epochs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [(epoch, offset) for epoch, offset in leader_epochs]  # JSON has lists
