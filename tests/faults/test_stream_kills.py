"""The driver of a streaming write is killed -9 at every step of the commit; each batch still counts once."""

import collections
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark_kafkalog.codec.decode import decode
from pyspark_kafkalog.log.directory import LogDirectory

from pyspark_kafkalog.model import OffsetRange, TopicPartition

HERE = Path(__file__).parent
KILLS = 30
BATCH = 100
ROWS = 4_000


def run_copy(tmp_path: Path, source: Path, kill_at: int, splits: int) -> int:
    env = dict(os.environ)
    env.pop("PYSPARK_PYTHON", None)
    env["PYTHONPATH"] = str(HERE / "killer")
    env["KAFKALOG_STEPS"] = str(tmp_path / "steps")
    env["KAFKALOG_KILL_AT"] = str(kill_at)
    arguments = [str(source), str(tmp_path / "sink"), str(tmp_path / "checkpoint"), str(splits)]
    with open(tmp_path / "app.log", "ab") as log:
        return subprocess.run(
            [sys.executable, str(HERE / "copy_stream.py"), *arguments],
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=120,
            check=False,
        ).returncode


def sink_values(root: Path) -> list[int]:
    """What a reader that opens the directory now sees of topic ``copy``."""
    if not root.exists():
        return []
    place = LogDirectory.open(str(root))
    values: list[int] = []
    for number in place.topics().get("copy", ()):
        partition = TopicPartition("copy", number)
        bounds = place.watermarks([partition], read_committed=False)[partition]
        offsets = OffsetRange(bounds.log_start_offset, bounds.high_watermark)
        for piece in place.fetch(partition, offsets, read_committed=False):
            for decoded in decode(
                piece.buffer,
                topic_partition=partition,
                offsets=offsets,
                visible=None,
                schema=pa.schema([pa.field("value", pa.binary())]),
                origin=piece.origin,
            ):
                values.extend(int(v) for v in decoded.arrow_batch.column("value").to_pylist())
    return values


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_at_every_step_of_the_commit(spark, tmp_path):
    source = tmp_path / "source"
    numbers = spark.range(ROWS, numPartitions=1).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("kafkalog").option("topic", "numbers").mode("append").save(str(source))

    kills = 0
    while kills < KILLS:
        code = run_copy(tmp_path, source, kill_at=kills + 1, splits=1 + kills % 3)
        assert code == -9, (tmp_path / "app.log").read_text()[-3000:]
        kills += 1
        values = sink_values(tmp_path / "sink")
        twice = [value for value, count in collections.Counter(values).items() if count > 1]
        assert not twice, f"after kill {kills}: values appended twice: {twice[:10]}"
        assert len(values) % BATCH == 0, f"after kill {kills}: a batch is there in part: {len(values)} values"
        assert sorted(values) == list(range(len(values)))

    assert run_copy(tmp_path, source, kill_at=0, splits=2) == 0, (tmp_path / "app.log").read_text()[-3000:]
    assert sorted(sink_values(tmp_path / "sink")) == list(range(ROWS))
    leftovers = [p.name for p in (tmp_path / "sink").iterdir() if p.name.startswith(".kafkalog-")]
    assert [name for name in leftovers if not name.startswith(".kafkalog-sink-")] == []
    print(f"\n{kills} kills, steps: {(tmp_path / 'steps').read_text().count(chr(10))}")
