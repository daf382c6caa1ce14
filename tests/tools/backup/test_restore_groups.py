"""Which commits a restore translates."""

from __future__ import annotations

import numpy as np

from pyspark_kafkalog.errors import GroupError
from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.tools.backup.groups import restore_groups
from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition, RestoredOffsets
from tests.read.fake_groups import FakeGroups

T0 = TopicPartition("t", 0)


def test_a_marker_is_no_offset_to_translate() -> None:
    metadata = marker_metadata(MarkerDetails("query", "c", "", 5, 7, 0, (0, 0, 0), ()))
    source = FakeGroups(
        {"etl": {T0: CommittedOffset(4)}, "kafkalog-x": {T0: CommittedOffset(7, metadata=metadata)}}
    )
    target = FakeGroups()
    rows = restore_groups(
        source, target, None, [PlannedPartition("t", 0, 0, 10, "t")], {T0: RestoredOffsets(0, 0)}
    )
    assert [row.group for row in rows] == ["etl"]
    assert target.offsets.keys() == {"etl"}


def test_an_offset_beyond_the_end_is_told() -> None:
    source = FakeGroups(
        {"etl": {T0: CommittedOffset(10)}, "far": {T0: CommittedOffset(13)}, "near": {T0: CommittedOffset(4)}}
    )
    known = RestoredOffsets(100, 0)
    known.add(0, np.array([[0, 10]]))
    planned = [PlannedPartition("t", 0, 0, 10, "t")]
    target = FakeGroups()
    rows = restore_groups(source, target, None, planned, {T0: known})
    assert [(row.group, row.target_offset, row.note) for row in rows] == [
        ("etl", 110, ""),
        ("far", 110, "beyond the end of what is restored, 10: becomes 110"),
        ("near", 104, ""),
    ]
    assert target.offsets["far"][T0].offset == 110
    rows = restore_groups(source, FakeGroups(trouble=GroupError("it is in use")), None, planned, {T0: known})
    assert [(row.refused, row.note) for row in rows] == [(True, "not committed: it is in use")] * 3


def test_a_dry_run_says_who_has_committed_in_the_target() -> None:
    source = FakeGroups({group: {T0: CommittedOffset(4)} for group in ("gone-on", "new")})
    commits = {"gone-on": {T0: CommittedOffset(9)}}
    target = FakeGroups(commits)
    planned, offsets = [PlannedPartition("t", 0, 0, 10, "t")], {T0: RestoredOffsets(0, 0)}
    rows = restore_groups(source, target, None, planned, offsets, execute=False)
    assert [(row.group, row.target_offset, row.note) for row in rows] == [
        ("gone-on", 9, "committed before"),
        ("new", 0, ""),
    ]
    assert target.offsets == commits


def test_a_dry_run_asks_nothing_of_topics_that_are_missing() -> None:
    """To find the group's coordinator would make __consumer_offsets."""
    source = FakeGroups({"etl": {T0: CommittedOffset(4)}})
    target = FakeGroups({"etl": {T0: CommittedOffset(9)}})
    planned, offsets = [PlannedPartition("t", 0, 0, 10, "t")], {T0: RestoredOffsets(0, 0)}
    (row,) = restore_groups(source, target, None, planned, offsets, execute=False, missing=["t"])
    assert row.note == ""
