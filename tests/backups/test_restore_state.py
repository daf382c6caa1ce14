"""The map of offsets says the same however its file was written, cut off and written again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.backups.restore_state import OffsetMap, PlannedPartition, RestorePlan, RestoreState
from pyspark_kafkalog.errors import OptionError

PLANNED = PlannedPartition("t", 0, 3, 400, "new", "id", base=7)
PLAN = RestorePlan("cluster", 5, 0, {"topics": None}, {"new": {"max.message.bytes": None}}, [PLANNED])


def filled(offsets: list[int], steps: random.Random | None = None) -> OffsetMap:
    """A map of records at these source offsets, added in steps."""
    found = OffsetMap(PLANNED.base, PLANNED.start)
    left = list(offsets)
    while left:
        count = steps.randrange(1, len(left) + 1) if steps else len(left)
        part, left = np.array(left[:count]), left[count:]
        apart = np.flatnonzero(np.diff(part) != 1) + 1
        spans = [(run[0], run[-1] + 1) for run in np.split(part, apart)]
        found.add(np.array(spans))
    return found


some_offsets = st.lists(st.integers(3, 399), unique=True).map(sorted)


@given(some_offsets, st.integers(0, 410), st.randoms(use_true_random=False))
def test_a_map_translates_both_ways(offsets: list[int], asked: int, steps: random.Random) -> None:
    found = filled(offsets, steps)
    later = [number for number, offset in enumerate(offsets) if offset >= asked]
    assert found.target_of(asked) == 7 + (later[0] if later else len(offsets))
    for number, offset in enumerate(offsets):
        assert found.source_of(number) == offset
        assert found.target_of(offset) == 7 + number
    assert found.source_of(len(offsets)) == found.read_to
    assert found.keeps_offsets == (offsets == list(range(7, 7 + len(offsets))))


@given(offsets=some_offsets, steps=st.randoms(use_true_random=False), cut=st.integers(0, 400))
def test_the_file_can_be_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], steps: random.Random, cut: int
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    state = RestoreState.begin(str(path), PLAN)
    for upto in sorted(steps.choices(range(len(offsets) + 1), k=3)):
        state.maps[PLANNED.source].add(spans_of(offsets[:upto]))
        state.save()
    data = path.read_bytes()
    path.write_bytes(data[: max(data.index(b"\n") + 1, len(data) - cut)])
    again = RestoreState.find(str(path))
    assert again is not None
    assert again.plan == PLAN
    known = again.maps[PLANNED.source]
    assert known.count <= len(offsets)
    assert [known.source_of(n) for n in range(known.count)] == offsets[: known.count]
    known.add(spans_of(offsets))
    known.pass_over(PLANNED.end)
    again.finish()
    last = RestoreState.find(str(path))
    assert last is not None
    assert last.is_done
    found = last.maps[PLANNED.source]
    assert [found.source_of(n) for n in range(found.count)] == offsets
    assert found.read_to == PLANNED.end


def spans_of(offsets: list[int]) -> np.ndarray:
    return np.array([(offset, offset + 1) for offset in offsets], np.int64).reshape(-1, 2)


def test_two_restores_do_not_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    assert RestoreState.find(path) is None
    RestoreState.begin(path, PLAN)
    with pytest.raises(OptionError, match="Another restore"):
        RestoreState.begin(path, PLAN)
    with pytest.raises(OptionError, match="Cannot make the file"):
        RestoreState.begin(str(tmp_path / "missing" / "state"), PLAN)
