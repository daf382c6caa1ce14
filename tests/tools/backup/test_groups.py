"""What consumer groups have committed is saved as it is, and restored for each that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.errors import AuthorizationError, GroupError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.tools.backup.groups import SavedGroups, restore_groups
from pyspark_kafkalog.tools.backup.plan import BackedUpPartition
from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition, RestoredOffsets
from tests.read.fake_groups import FakeGroups
from tests.tools.backup.histories import T0, make_log


def test_a_commit_without_a_leader_epoch_stays_so(tmp_path: Path) -> None:
    make_log(tmp_path, [(3, 20)])
    saved = DirectoryGroups.open(str(tmp_path))
    row = BackedUpPartition(*T0, log_end_offset=20, high_watermark=20)
    commits = {"old": {T0: CommittedOffset(7)}, "new": {T0: CommittedOffset(8, 3, "note")}}
    groups = SavedGroups(FakeGroups(commits), saved, None)
    groups.read()
    groups.save([row])
    found = {group: saved.committed(group)[T0] for group in commits}
    assert {group: (one.offset, one.leader_epoch, one.metadata) for group, one in found.items()} == {
        "old": (7, -1, ""),
        "new": (8, 3, "note"),
    }


def test_all_groups_are_read_at_once_and_one_that_fails_is_a_row(tmp_path: Path) -> None:
    """Else there is another wait for a coordinator that does not answer with each of its groups."""
    make_log(tmp_path, [(3, 20)])
    saved = DirectoryGroups.open(str(tmp_path))
    row = BackedUpPartition(*T0, log_end_offset=20, high_watermark=20)
    commits = {group: {T0: CommittedOffset(7)} for group in ("a", "b")}
    groups = SavedGroups(FakeGroups(commits, failures={"a": GroupError("no answer")}), saved, None)
    groups.read()
    groups.save([row])
    assert saved.group_ids() == ("b",)
    (problem,) = groups.rows()
    assert problem.problem == "The offsets of group 'a' could not be read: no answer"


def test_one_group_does_not_keep_others_from_their_offsets() -> None:
    planned = PlannedPartition(*T0, 0, 20, "new")
    commits = {group: {T0: CommittedOffset(7)} for group in ("a", "b")}
    source = FakeGroups(commits, failures={"a": GroupError("a can't be read")})
    target = FakeGroups()
    with pytest.raises(GroupError, match="a can't be read"):
        restore_groups(source, target, None, [planned], {T0: RestoredOffsets(0, 0)})
    assert target.offsets == {"b": {planned.destination: CommittedOffset(0)}}
    denied = FakeGroups(trouble=AuthorizationError("no right to it"))
    rows = restore_groups(FakeGroups(commits), denied, None, [planned], {T0: RestoredOffsets(0, 0)})
    assert [(row.group, row.note, row.refused) for row in rows] == [
        (group, "not committed: no right to it", True) for group in "ab"
    ]
