"""The map of offsets says the same however its file was written, cut off and written again."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.tools.backup.restore_state import (
    PlannedPartition,
    RestoredOffsets,
    RestorePlan,
    RestoreState,
)

PLANNED = PlannedPartition("t", 0, 3, 400, "new", "from", ((9, 70), (11, 80)), "id", base=7)
PLAN = RestorePlan(
    "place", "cluster", 5, 0, {"topics": None}, {"new": {"max.message.bytes": None}}, [PLANNED]
)


def filled(offsets: list[int], steps: random.Random | None = None) -> RestoredOffsets:
    """A map of records at these source offsets, added in steps."""
    found = RestoredOffsets(PLANNED.base, PLANNED.start)
    left = list(offsets)
    while left:
        count = steps.randrange(1, len(left) + 1) if steps else len(left)
        part, left = np.array(left[:count]), left[count:]
        apart = np.flatnonzero(np.diff(part) != 1) + 1
        spans = [(run[0], run[-1] + 1) for run in np.split(part, apart)]
        found.add(found.count, np.array(spans))
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
    assert found.source_of(len(offsets)) == (offsets[-1] + 1 if offsets else PLANNED.start)
    assert found.keeps_offsets == (offsets == list(range(7, 7 + len(offsets))))


@given(offsets=some_offsets, steps=st.randoms(use_true_random=False), cut=st.integers(0, 400))
def test_the_file_can_be_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, offsets: list[int], steps: random.Random, cut: int
) -> None:
    path = tmp_path_factory.mktemp("state") / "state"
    state = RestoreState.begin(str(path), PLAN)
    for upto in sorted(steps.choices(range(len(offsets) + 1), k=3)):
        state.maps[PLANNED.source].add(0, spans_of(offsets[:upto]))
        state.save()
    data = path.read_bytes()
    path.write_bytes(data[: max(data.index(b"\n") + 1, len(data) - cut)])
    again = RestoreState.find(str(path))
    assert again is not None
    assert again.plan == PLAN
    known = again.maps[PLANNED.source]
    assert known.count <= len(offsets)
    assert [known.source_of(n) for n in range(known.count)] == offsets[: known.count]
    known.add(0, spans_of(offsets))
    again.finish()
    last = RestoreState.find(str(path))
    assert last is not None
    assert last.is_done
    found = last.maps[PLANNED.source]
    assert [found.source_of(n) for n in range(found.count)] == offsets


def spans_of(offsets: list[int]) -> np.ndarray:
    return np.array([(offset, offset + 1) for offset in offsets], np.int64).reshape(-1, 2)


@given(some_offsets, some_offsets, st.integers(0, 400))
def test_a_map_is_not_contradicted(offsets: list[int], others: list[int], number: int) -> None:
    """What is added again from some number on must be what is known, and may be longer."""
    found = filled(offsets)
    number = min(number, len(offsets), len(others))
    both = min(len(offsets), len(others))
    # Only what follows the last known offset is new.
    grows = not offsets or len(others) <= both or others[both] > offsets[-1]
    if offsets[number:both] == others[number:both] and grows:
        found.add(number, spans_of(others[number:]))
        longer = max(offsets, offsets[:number] + others[number:], key=len)
        assert [found.source_of(n) for n in range(found.count)] == longer
    else:
        with pytest.raises(ValueError, match=r"was at offset|expected an offset"):
            found.add(number, spans_of(others[number:]))


def lines_of(path: Path, **fields: object) -> None:
    line = {"topic": "t", "partition": 0, "start": 3, "end": 9, "target": 7, **fields}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize(
    "fields",
    [
        {"end": 2**70},
        {"end": float("inf")},
        {"end": 401},
        {"start": -1},
        {"target": 2**70},
        {"target": -(2**70)},
        {"target": 8},
        {"topic": ["t"]},
        {"start": 9},
    ],
    ids=str,
)
def test_a_line_that_no_restore_wrote(tmp_path: Path, fields: dict[str, object]) -> None:
    path = tmp_path / "state"
    RestoreState.begin(str(path), PLAN)
    lines_of(path, **fields)
    lines_of(path)
    state = RestoreState.find(str(path))
    assert state is not None
    assert list(state.maps[PLANNED.source].ranges(0)) == [(3, 9, 7)]


@pytest.mark.parametrize("value", [2**63, -1, float("inf"), "x"])
def test_a_plan_that_no_restore_wrote(tmp_path: Path, value: object) -> None:
    row = json.loads(PLAN.text())
    row["partitions"][0]["base"] = value
    (tmp_path / "state").write_text(json.dumps(row) + "\n")
    with pytest.raises(OptionError, match="is not that of a restore"):
        RestoreState.find(str(tmp_path / "state"))


@pytest.mark.parametrize("text", ["", PLAN.text()], ids=["empty", "cut off"])
def test_a_file_without_a_plan(tmp_path: Path, text: str) -> None:
    """No restore leaves one: the file appears with its first line."""
    (tmp_path / "state").write_text(text)
    with pytest.raises(OptionError, match="is not that of a restore"):
        RestoreState.find(str(tmp_path / "state"))


def test_what_the_disk_refuses(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"Could not read the file of what .*: Is a directory"):
        RestoreState.find(str(tmp_path))
    path = tmp_path / "state"
    state = RestoreState.begin(str(path), PLAN)
    path.unlink()
    state.maps[PLANNED.source].add(0, spans_of([5]))
    for place, why in ((path, "No such file"), (Path("/dev/full"), "No space left")):
        if place.exists() or place == path:
            state.path = str(place)
            with pytest.raises(
                KafkaLogError, match=f"Could not write to the file of what .*: {why}.* goes on"
            ):
                state.save()
    state.path = str(path)
    path.write_text(PLAN.text() + "\n")
    state.save()
    again = RestoreState.find(str(path))
    assert again is not None
    assert again.maps[PLANNED.source].count == 1


def test_two_restores_do_not_share_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "state")
    assert RestoreState.find(path) is None
    RestoreState.begin(path, PLAN)
    with pytest.raises(OptionError, match="Another restore"):
        RestoreState.begin(path, PLAN)
    with pytest.raises(OptionError, match="Could not make the file"):
        RestoreState.begin(str(tmp_path / "missing" / "state"), PLAN)
