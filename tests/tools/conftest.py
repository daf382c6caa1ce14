"""A log directory with two topics and two groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.log.writing import values, write

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """t-0 has 10 records a millisecond apart from 1,600,000,000,000 on, t-1 has 4, u-0 has 3."""
    root = tmp_path / "log"
    root.mkdir()
    write(root, {T0: values(10), T1: values(4)})
    write(root, {U0: values(3)}, num_partitions=1)
    groups = DirectoryGroups.open([str(root)], num_partitions=2)
    groups.commit("g", {T0: CommittedOffset(4, metadata="note"), T1: CommittedOffset(4)})
    groups.commit("other", {U0: CommittedOffset(0)})
    return root


@pytest.fixture
def groups(root: Path) -> DirectoryGroups:
    return DirectoryGroups.open([str(root)], num_partitions=2)
