"""The driver of a streaming write is killed -9 at each step of the commit; every batch still counts once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.log.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.transfer.reading import ReadRules, read_range

HERE = Path(__file__).parent
KILLS = 30
BATCH = 100


def run_stream(folder: Path, *, tasks: int, kill_at: int) -> int:
    """Run the query in a session of its own, which the killer then kills whole; its exit code."""
    (folder / "steps").write_text("")
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE / "killer"),
        "KAFKALOG_STEPS": str(folder / "steps"),
        "KAFKALOG_KILL_AT": str(kill_at),
    }
    arguments = [str(folder / "log"), str(folder / "checkpoint"), str(tasks), "3"]
    with open(folder / "output", "wb") as output:
        return subprocess.run(
            [sys.executable, str(HERE / "number_stream.py"), *arguments],
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            timeout=300,
            check=False,
        ).returncode


def numbers(root: Path) -> list[int]:
    """What a reader that opens the directory now sees, in order."""
    place = LogDirectory.open(str(root))
    rules = ReadRules(
        schema=pa.schema([pa.field("value", pa.binary())]),
        read_committed=False,
        fail_on_data_loss=True,
        limits=DecodeLimits(),
    )
    return sorted(
        int(value)
        for number in place.topics().get("numbers", ())
        for batch in read_range(
            place, TopicPartition("numbers", number), OffsetRange(EARLIEST, LATEST), rules
        )
        for value in batch.column("value").to_pylist()
    )


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_killed_at_each_step_of_the_commit(tmp_path: Path) -> None:
    seen = 0
    for kill in range(1, KILLS + 1):
        code = run_stream(tmp_path, tasks=1 + kill % 3, kill_at=kill)
        assert code == -9, (tmp_path / "output").read_text()[-3000:]
        found = numbers(tmp_path / "log")
        assert found == list(range(len(found))), f"after kill {kill}: {len(found)} values"
        assert len(found) % BATCH == 0, f"after kill {kill}: a batch is there in part, {len(found)} values"
        assert len(found) >= seen, f"after kill {kill}: {seen - len(found)} values are gone"
        seen = len(found)
    assert run_stream(tmp_path, tasks=2, kill_at=0) == 0, (tmp_path / "output").read_text()[-3000:]
    found = numbers(tmp_path / "log")
    assert found == list(range(len(found)))
    assert len(found) >= seen + 3 * BATCH - BATCH
    ours = {path.name.split("-")[1] for path in (tmp_path / "log").glob(".kafkalog-*")}
    assert ours == {"sink"}, "staged files or a journal were left behind"
