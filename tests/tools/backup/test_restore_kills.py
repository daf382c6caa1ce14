"""A restore that is killed at any moment, and run again, writes each record once and in order."""

from __future__ import annotations

import random
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import CommittedOffset, QueryBatch, TopicPartition
from tests.kafka import Broker
from tests.log.writing import T0, T1, Values, publish_staged, stage, values
from tests.tools.backup.consuming import consume, next_of_group
from tests.tools.cli.running import command, run

U0, U1 = T0._replace(topic="u"), T1._replace(topic="u")
RECORDS, SOAK_RECORDS = 15_000, 150_000
KILLS, SOAK_KILLS = 4, 30


def publish_new(root: Path, records: Values, encode: dict[str, Any], log: dict[str, Any]) -> None:
    batch = QueryBatch(uuid.uuid4().hex)
    publish_staged(root, stage(root, batch.job, records, **encode), batch, **log)


def make(root: Path, records: int) -> None:
    """t is restored as it is, and u, which has LogAppendTime, is encoded again."""
    root.mkdir()
    for turn in range(5):
        part = values(records // 5, 100, turn * records // 5)
        lz4 = {T0: part, T1: part[: len(part) // 2]}
        publish_new(root, lz4, {"batch_size": 3000, "compression": "lz4"}, {})
        publish_new(root, {U0: part, U1: part[:10]}, {"batch_size": 5000}, {"log_append_time": True})
    groups = connect(root).groups
    groups.commit("g", {T0: CommittedOffset(records // 3), U0: CommittedOffset(records - 1)})


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_kills_at_any_moment(broker: Broker, tmp_path: Path, chance: random.Random, soak: bool) -> None:
    root, state = tmp_path / "log", tmp_path / "state"
    records = SOAK_RECORDS if soak else RECORDS
    make(root, records)
    names = {topic: f"{topic}-{tmp_path.name[-20:]}-{chance.randrange(10**9)}" for topic in "tu"}
    renames = [word for pair in names.items() for word in ("--rename", "=".join(pair))]
    restore = command("restore", root, broker.bootstrap, "t", "u", *renames, "--execute")
    restore += ["--state", str(state), "--rate", "1m" if soak else "256k"]
    place = connect(broker.bootstrap).place
    partitions = [TopicPartition(names[p.topic], p.partition) for p in (T0, T1, U0, U1)]

    def end() -> int:
        return sum(place.end_offsets(partitions, read_committed=False).values())

    ends = [0]
    for _ in range(SOAK_KILLS if soak else KILLS):
        with subprocess.Popen(restore, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            deadline, patience = time.monotonic() + 60, chance.random() < 0.8
            while patience and process.poll() is None and end() == ends[-1] and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.4 if patience else 3))
            process.kill()
            _, errors = process.communicate()
        assert process.returncode in (-9, 0), errors
        ends.append(end())
        if chance.random() < 0.3 and state.exists():  # as a kill in the middle of a line leaves it
            with state.open("ab") as file:
                file.write(b'{"topic": "t", "partition": 0, "start": 123'[: chance.randrange(44)])
    done = subprocess.run(restore[:-2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ends == sorted(ends)
    assert len(set(ends)) > 2, ends
    expected = values(records, 100)
    halves = [v for n in range(5) for v in expected[n * records // 5 :][: records // 10]]
    tens = [v for n in range(5) for v in expected[n * records // 5 :][:10]]
    for partition, wanted_values in ((T0, expected), (T1, halves), (U0, expected), (U1, tens)):
        found = consume(broker.bootstrap, names[partition.topic], [partition.partition])
        own = found[partition.partition]
        assert list(own) == list(range(len(wanted_values)))
        assert [record.value for record in own.values()] == wanted_values
    first = next_of_group(broker.bootstrap, "g", names["t"], 0)
    assert first is not None
    assert first.value == expected[records // 3]
    print(f"\nrecords after each kill: {ends}")


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.slow
def test_one_restore_at_a_time(broker: Broker, tmp_path: Path) -> None:
    """The second with a file is refused before it sends anything; the lock of a killed one is gone."""
    root, state, name = tmp_path / "log", tmp_path / "state", f"alone-{uuid.uuid4().hex[:8]}"
    records = 30_000
    make(root, records)
    words = "restore", root, broker.bootstrap, "t", "--rename", f"t={name}", "--state", state
    restore = command(*words, "--execute")
    place = connect(broker.bootstrap).place

    def end() -> int:
        return place.end_offsets([TopicPartition(name, 0)], read_committed=False)[TopicPartition(name, 0)]

    def second() -> subprocess.CompletedProcess[str]:
        return subprocess.run(restore, capture_output=True, text=True, check=False)

    with subprocess.Popen(
        [*restore, "--rate", "20k"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as first:
        try:
            while not state.exists():
                assert first.poll() is None
                time.sleep(0.01)
            done = second()
            assert done.returncode == 3
            assert f"The file of the restore is in use by process {first.pid} on" in done.stderr
            assert f"(file {state}). Wait for it, or end it" in done.stderr
            assert first.poll() is None
            assert end() < records
            assert run(*words).code == 0  # which only reads
        finally:
            first.kill()
    done = second()
    assert done.returncode == 0, done.stderr
    found = consume(broker.bootstrap, name, [0])[0]
    assert [record.value for record in found.values()] == values(records, 100)
