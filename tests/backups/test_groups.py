"""What consumer groups have committed is saved as it is."""

from __future__ import annotations

from pathlib import Path

from pyspark_kafkalog import admin
from pyspark_kafkalog.backups.groups import save_commits
from pyspark_kafkalog.backups.plan import BackedUpPartition
from pyspark_kafkalog.model import CommittedOffset
from tests.backups.histories import T0, make_log


def test_a_commit_without_a_leader_epoch_stays_so(tmp_path: Path) -> None:
    make_log(tmp_path, [(3, 20)])
    saved = admin.groups_of({"path": str(tmp_path)})
    row = BackedUpPartition(*T0, log_end_offset=20, high_watermark=20)
    commits = {"old": {T0: CommittedOffset(7)}, "new": {T0: CommittedOffset(8, 3, "note")}}
    save_commits(saved, commits, [row])
    found = {group: saved.committed(group)[T0] for group in commits}
    assert {group: (one.offset, one.leader_epoch, one.metadata) for group, one in found.items()} == {
        "old": (7, -1, ""),
        "new": (8, 3, "note"),
    }
