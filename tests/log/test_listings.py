"""An idle look lists no folder, however many there are, and misses nothing that came."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.log.read.listings import Listings, was_at_rest
from pyspark_kafkalog.model import TopicPartition
from tests.log.partitions import batch, write_segment

SECOND = 1_000_000_000


@pytest.mark.parametrize(("folders", "seconds"), [(1, 0.1), (100, 10), (1_000, 30)])
def test_one_budget_is_for_all_folders(folders: int, seconds: float) -> None:
    listings, now = Listings(), time.monotonic()
    for _ in range(2):
        for number in range(folders):
            listings.made(TopicPartition("t", number), 0.002)
    assert listings.is_believed(now - 0.8 * seconds)
    assert not listings.is_believed(now - 1.1 * seconds)


def test_a_folder_that_has_just_changed_is_not_at_rest() -> None:
    assert was_at_rest((1, 1, 10 * SECOND), 13 * SECOND)
    assert not was_at_rest((1, 1, 10 * SECOND), 11 * SECOND)
    assert not was_at_rest(None, 13 * SECOND)


def test_an_idle_look_lists_nothing_and_the_next_one_sees_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write_segment(tmp_path / f"t-{number}", [batch(0)])
    long_ago = time.time() - 10
    for folder in (*tmp_path.iterdir(), tmp_path):
        os.utime(folder, (long_ago, long_ago))
    place = LogDirectory.open(str(tmp_path))

    def ends() -> dict[int, int]:
        partitions = [TopicPartition("t", number) for number in place.topics().get("t", ())]
        return {p.partition: end for p, end in place.end_offsets(partitions, read_committed=False).items()}

    def at_rest() -> dict[int, int]:
        listed: list[object] = []
        scan = os.scandir
        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", lambda path: listed.append(path) or scan(path))
            patched.setattr(Listings, "is_believed", lambda self, at: True)
            found = ends()
        assert not listed
        return found

    ends()
    assert at_rest() == dict.fromkeys(range(30), 10)
    with (tmp_path / "t-3" / f"{0:020d}.log").open("ab") as active:
        active.write(batch(10, 5))
    assert at_rest()[3] == 15
    write_segment(tmp_path / "t-4", [batch(10, 5)])
    write_segment(tmp_path / "t-30", [batch(0)])
    assert ends() == {**dict.fromkeys(range(31), 10), 3: 15, 4: 15}
