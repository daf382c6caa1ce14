"""A transaction whose marker may be in what a salvage takes out is aborted, not ended by a later marker."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.codec.format import TRANSACTIONAL_BIT
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import LogSettings
from tests.codec.raw import marker, values
from tests.tools.backup.histories import T0, make_log_of, visible
from tests.tools.care.test_repair import put_back


def of_transaction(base_offset: int, producer_id: int) -> bytes:
    return values(2, base_offset=base_offset, attributes=TRANSACTIONAL_BIT, producer_id=producer_id)


BATCHES = [
    of_transaction(0, 5),
    of_transaction(2, 6),
    values(4, base_offset=4),
    marker(5, commit=False, offset=8),
    values(2, base_offset=9),
    marker(6, commit=True, offset=11),
    of_transaction(12, 5),
    marker(5, commit=True, offset=14),
    of_transaction(15, 6),
    marker(6, commit=False, offset=17),
    values(2, base_offset=18),
]
SETTINGS = {"one segment": LogSettings(), "many segments": LogSettings(segment_bytes=300)}


def damaged(root: Path, settings: LogSettings, batches: list[int]) -> bytes:
    """A log in which a bit of each of these batches is flipped; returns its bytes."""
    make_log_of(root, BATCHES, settings=settings)
    for number in batches:
        for log in sorted((root / "t-0").glob("*.log")):
            data = bytearray(log.read_bytes())
            at = data.find(BATCHES[number][61:], 61) if BATCHES[number][:8] in data else -1
            if at >= 0:
                data[at + 3] ^= 1
                log.write_bytes(data)
                break
        else:
            raise AssertionError(number)
    return content(root)


def content(root: Path) -> bytes:
    return b"".join(log.read_bytes() for log in sorted((root / "t-0").glob("*.log")))


@pytest.mark.parametrize("segments", SETTINGS)
@pytest.mark.parametrize(
    ("lost", "shown"),
    [
        # The marker and the records before it: room for two.
        ([2, 3], [9, 10, 12, 13, 18, 19]),
        ([3, 4], [4, 5, 6, 7, 12, 13, 18, 19]),
        # Room for one: the next batch has to go, too.
        ([3], [4, 5, 6, 7, 12, 13, 18, 19]),
        ([2, 3, 4, 5], [12, 13, 18, 19]),
        # What is lost at the end may be ended yet.
        ([10], [4, 5, 6, 7, 2, 3, 9, 10, 12, 13]),
    ],
)
def test_it_is_aborted(lost: list[int], shown: list[int], segments: str, tmp_path: Path) -> None:
    before = damaged(tmp_path, SETTINGS[segments], lost)
    looked = connect(tmp_path).logs.repair(salvage=True)
    assert content(tmp_path) == before
    done = connect(tmp_path).logs.repair(execute=True, salvage=True)
    if segments == "many segments" and lost in ([3], [3, 4]):  # room for one marker, at the end of a segment
        (step,) = done.partitions[0].steps
        assert (step.action, "fewer offsets than the 2 transactions" in step.why) == ("leave", True)
        assert content(tmp_path) == before
        return
    assert done.clean_shutdown
    assert looked.partitions[0].steps == done.partitions[0].steps
    assert visible(tmp_path) == sorted(shown)
    place = LogDirectory.open(str(tmp_path))
    watermarks = place.watermarks([T0], read_committed=True)[T0]
    assert watermarks.last_stable_offset == watermarks.high_watermark
    (again,) = connect(tmp_path).logs.repair(execute=True, salvage=True).partitions
    assert not again.steps
    put_back(tmp_path / "t-0")
    assert content(tmp_path) == before
