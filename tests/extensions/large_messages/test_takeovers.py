"""Groups that pass from LinkedIn's consumer to a query and back, from any commit: each message once."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.extensions.large_messages.looking_back import WANTED, OpenMessages
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.safe_offsets import SafeOffsets, WantedOffsets
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import CommittedOffset, OffsetRange
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from tests.extensions.large_messages.cases import InMemory
from tests.extensions.large_messages.interleaved import interleaved
from tests.extensions.large_messages.reader import Committed, Reader
from tests.extensions.large_messages.tracker import OffsetNotTrackedError
from tests.large_log import T0, Log
from tests.read.fake_groups import FakeGroups

RULES = ReadRules(WANTED, False, True, DecodeLimits(max_rows=5))


def theirs(log: Log, gap: int, committed: Committed | None = None) -> Reader:
    return Reader(InMemory(log.values, AssemblerSettings(expiration_offset_gap=gap)), committed)


def offsets(delivered: str) -> list[int]:
    found: list[int] = json.loads(delivered)
    return found


def wanted(committed: Committed) -> int:
    groups = FakeGroups({"g": {T0: CommittedOffset(committed[0], metadata=committed[1])}})
    return WantedOffsets(groups).committed("g", [T0])[T0].offset


def ours(log: Log, gap: int, ends: list[int]) -> tuple[list[int], Committed]:
    """What a query delivers in micro-batches with these ends, and what its group has then."""
    place: Any = log
    limits = AssemblerSettings(expiration_offset_gap=gap)
    safe_offsets = SafeOffsets(OpenMessages(lambda: place, RULES, limits))
    found: list[int] = []
    for start, end in pairwise(ends):
        options = LargeMessageOptions(enabled=True, settings=limits)
        for rows in WholeMessageReader(place, RULES, options).read(Split(T0, OffsetRange(start, end))):
            found += rows.column("offset").to_pylist()
        committed = safe_offsets({T0: end})[T0]
    return sorted(found), (committed.offset, committed.metadata)


@st.composite
def logs(draw: st.DrawFn, longest_gap: int = 40) -> tuple[Log, int]:
    """Several producers' messages, each sent once and in order, some without a segment; a gap to read with.

    Here and there are offsets without a record.
    """
    written = interleaved(
        str(draw(st.integers(0, 2**32))), 40, size=10, lost=draw(st.sampled_from([0, 0.1, 0.4]))
    )
    values: list[bytes | None] = []
    for value in written.records:
        values += [None] * draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 3]))
        values.append(value)
    values += [None] * draw(st.sampled_from([0, 0, 1, 4]))
    return Log(values), draw(st.sampled_from([1, 5, 12, longest_gap]))


@settings(max_examples=30, deadline=None)
@given(logs(), st.data())
def test_every_message_comes_once_whoever_goes_on(read: tuple[Log, int], data: st.DataObject) -> None:
    log, gap = read
    end = len(log.values)
    all_of_them = offsets(theirs(log, gap).read_offsets())
    first = theirs(log, gap)
    stop = data.draw(st.integers(0, len(all_of_them)))
    for _ in zip(range(stop), first.read(), strict=False):
        pass
    committed = first.commit() or (0, "0,")
    if stop and data.draw(st.booleans()):
        with contextlib.suppress(OffsetNotTrackedError):
            committed = first.commit_at(data.draw(st.integers(0, all_of_them[stop - 1] + 1)), "")
    start = wanted(committed)
    ends = sorted(data.draw(st.sets(st.integers(start, end), min_size=1, max_size=4)) | {start})
    if len(ends) == 1:
        return
    found, handed_over = ours(log, gap, ends)
    assert found == [offset for offset in all_of_them if start <= offset < ends[-1]]
    rest = offsets(theirs(log, gap, handed_over).read_offsets())
    assert rest == [offset for offset in all_of_them if offset >= ends[-1]], handed_over
