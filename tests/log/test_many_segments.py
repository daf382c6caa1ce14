"""A partition of thousands of tiny segments: asking again is cheap, and reads don't pay for every file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, StoredSize, Watermarks
from tests.calls import calls_of
from tests.log.partitions import (
    FIRST_TIMESTAMP,
    T0,
    batch,
    fetched,
    offset_after_bytes,
    offsets_read,
    write_index,
    write_segment,
    write_time_index,
)

COUNT = 4_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One record in each segment, with both indexes, written long ago."""
    root = tmp_path_factory.mktemp("many")
    for offset in range(COUNT):
        log = write_segment(root / "t-0", [batch(offset, 1)])
        write_index(log, [])
        write_time_index(log, [(FIRST_TIMESTAMP + offset, 0)])
    long_ago = time.time() - 10
    os.utime(root / "t-0", (long_ago, long_ago))
    yield root
    for path in (root / "t-0").iterdir():
        path.unlink()


QUESTIONS: dict[str, tuple[Callable[[LogDirectory], object], object]] = {
    "watermarks": (
        lambda place: place.watermarks([T0], read_committed=False),
        {T0: Watermarks(0, COUNT, COUNT)},
    ),
    "watermarks, committed": (
        lambda place: place.watermarks([T0], read_committed=True),
        {T0: Watermarks(0, COUNT, COUNT)},
    ),
    "offsets_for_times": (
        lambda place: place.offsets_for_times({T0: FIRST_TIMESTAMP + COUNT - 5}),
        {T0: COUNT - 5},
    ),
    "newest_timestamps": (lambda place: place.newest_timestamps([T0]), {T0: FIRST_TIMESTAMP + COUNT - 1}),
    "offset_after_bytes": (
        lambda place: offset_after_bytes(place, T0, OffsetRange(3, COUNT), 10 * len(batch(0, 1))),
        13,
    ),
    "stored_sizes": (
        lambda place: place.stored_sizes([T0]),
        {T0: StoredSize(COUNT * len(batch(0, 1)), tuple(range(COUNT)))},
    ),
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_asked_again_costs_little(root: Path, question: str) -> None:
    ask, answer = QUESTIONS[question]
    place = LogDirectory.open(str(root))
    cold = calls_of(lambda: ask(place))
    warm = calls_of(lambda: ask(place))
    print(f"{question}: {cold} calls, then {warm}")
    assert ask(place) == answer
    assert warm < cold / 20


@pytest.mark.long
@pytest.mark.slow
def test_reading_is_not_paid_by_the_file(root: Path) -> None:
    place = LogDirectory.open(str(root))
    calls = calls_of(lambda: fetched(place, T0, OffsetRange(0, COUNT)))
    print(f"{calls} calls")
    assert calls < 250 * COUNT
    assert offsets_read(place, T0, OffsetRange(COUNT - 5, COUNT)) == list(range(COUNT - 5, COUNT))
