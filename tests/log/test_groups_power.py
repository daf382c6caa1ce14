"""A loss of power during a group's commit, which has no journal, leaves the old offsets or the new ones."""

from __future__ import annotations

import os
import shutil

import pytest

from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset
from tests.faults.disk import Disk, recorded
from tests.log.writing import T0, values, write

_COMMITS = 4


def _groups(root) -> DirectoryGroups:
    return DirectoryGroups.open([str(root)], num_partitions=1)


@pytest.mark.long
@pytest.mark.slow
def test_power_loss_amid_commits(tmp_path, monkeypatch, chance, soak):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    top, begin, state = (tmp_path / name for name in ("top", "begin", "state"))
    write_to = top / "log"
    write_to.mkdir(parents=True)
    write(write_to, {T0: values(3)})
    _groups(write_to).commit("group", {T0: CommittedOffset(0)})
    shutil.copytree(top, begin)
    ends = []
    with recorded() as calls:
        for offset in range(1, _COMMITS):
            _groups(write_to).commit("group", {T0: CommittedOffset(offset)})
            ends.append(len(calls))
    disk = Disk(top)
    disk.root = Disk(begin).root
    for number, call in enumerate(calls, 1):
        disk.replay(*call)
        if call[0] == "close":
            continue
        for _ in range(60 if soak else 6):
            disk.after_power_loss(state, chance)
            done = sum(end <= number for end in ends)
            groups = _groups(state / "log")
            assert groups.committed("group")[T0].offset in (done, done + 1), (number, call[:2])
            groups.commit("group", {T0: CommittedOffset(100)})
            assert _groups(state / "log").committed("group")[T0].offset == 100
            shutil.rmtree(state)
