"""A log directory with two topics and two groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.log.writing import values, write

if TYPE_CHECKING:
    from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 has 10 records a millisecond apart from 1,600,000,000,000 on, t-1 has 4, u-0 has 3."""
    root = tmp_path / "log"
    root.mkdir()
    write(root, {T0: values(10), T1: values(4)})
    write(root, {U0: values(3)}, num_partitions=1)
    groups = _groups(root)
    groups.commit("g", {T0: CommittedOffset(4, metadata="note"), T1: CommittedOffset(4)})
    groups.commit("other", {U0: CommittedOffset(0)})
    return root


@pytest.fixture
def groups(root: Path) -> DirectoryGroups:
    return _groups(root)


def _groups(root: Path) -> DirectoryGroups:
    # Only the tests that have groups need the extension.
    from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups

    return DirectoryGroups.open([str(root)], num_partitions=2)
