"""A cluster with every kind of topic, backed up while producers run and the backup is killed, and adopted."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from pyspark_kafkalog import BackedUpPartition, BackupRules, connect
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.log.layout import parse_partition_folder
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.tools.care.verify import verify
from tests.broker.producing import connected, consume, numbered, produce
from tests.kafka import Broker, dump_log_segments, run_kafka_class
from tests.tools.backup.kinds import BROKER_SETTINGS, GROUPS, fill, make_topics, producers
from tests.tools.cli.running import command

pytestmark = [pytest.mark.broker, pytest.mark.soak]


RENEWED = BackupRules(renew_compacted=True)
"""Tombstones of the compacted topic go within a second, and so between any two runs."""


def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap}


def batches(folder: Path, start: int, end: int) -> bytes:
    """The bytes of all batches of a partition that have offsets from ``start`` to before ``end``."""
    found = []
    for file in sorted(folder.glob("*.log")):
        data = np.fromfile(file, np.uint8)
        headers = walk(data)
        chosen = np.flatnonzero((headers.last_offset >= start) & (headers.base_offset < end))
        if chosen.size:
            first, last = chosen[[0, -1]]
            found.append(
                data[headers.position[first] : headers.position[last] + headers.size[last]].tobytes()
            )
    return b"".join(found)


Dumped = dict[str, list[tuple[int, int, list[str]]]]
"""By folder, for each batch its first and last offset, and what is said of it and of its records."""


def dump(folders: Iterable[Path]) -> Dumped:
    """What Kafka's DumpLogSegments says of every batch and record, except where in a file they are."""
    files = [file for folder in folders for file in sorted(folder.glob("*.log"))]
    arguments = "--deep-iteration", "--files", ",".join(map(str, files))
    found: Dumped = {}
    for line in run_kafka_class("org.apache.kafka.tools.DumpLogSegments", *arguments).stdout.splitlines():
        if line.startswith("Dumping "):
            batches = found.setdefault(str(Path(line.removeprefix("Dumping ")).parent), [])
        elif batch := re.match(r"baseOffset: (\d+) lastOffset: (\d+) ", line):
            assert "isvalid: true" in line, line
            batches.append((int(batch[1]), int(batch[2]), [re.sub(r" position: \d+", "", line)]))
        elif line.startswith("|"):
            batches[-1][2].append(line)
    return found


def kill_while_it_copies(broker: Broker, directory: Path, seconds: float) -> None:
    with subprocess.Popen(
        command("backup", broker.bootstrap, directory, "--follow"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        before, began = newest(directory), time.monotonic()
        while newest(directory) == before and time.monotonic() - began < 30:
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)


def newest(directory: Path) -> int:
    return max((file.stat().st_mtime_ns for file in directory.glob("*/*.log")), default=0)


def check(rows: Iterable[BackedUpPartition], broker: Broker, directory: Path) -> None:
    """The backup of a partition is what the broker has in its range, and ends where it ends."""
    rows = list(rows)
    roots = directory, broker.log_dir
    dumped = dump(root / f"{row.topic}-{row.partition}" for row in rows for root in roots)
    for row in rows:
        assert (row.problem, row.log_end_offset) == (None, row.high_watermark)
        name, start, end = f"{row.topic}-{row.partition}", row.log_start_offset, row.log_end_offset
        ours, theirs = (
            [batch for batch in dumped.get(str(root / name), []) if batch[1] >= start and batch[0] < end]
            for root in roots
        )
        assert ours == theirs, name
        ours_raw, theirs_raw = (batches(root / name, start, end) for root in roots)
        assert ours_raw == theirs_raw, name
        ids = [(root / name / "partition.metadata").read_bytes() for root in roots]
        assert ids[0] == ids[1]


def test_backup_and_adoption(
    new_broker: Callable[..., Broker], tmp_path: Path, chance: random.Random
) -> None:
    broker, directory = new_broker(BROKER_SETTINGS), tmp_path / "backup"
    broker.start()
    topics = make_topics(broker)
    fill(broker, chance)
    with producers(broker):
        for _ in range(30):
            kill_while_it_copies(broker, directory, chance.random())
        rows = connect(options(broker)).logs.backup(str(directory), RENEWED)
        assert not [row.problem for row in rows if row.problem]
        assert (directory / ".kafka_cleanshutdown").exists()
    broker.stop_cleaning("compacted")
    rows = connect(options(broker)).logs.backup(str(directory), RENEWED)
    fresh = tmp_path / "fresh"
    check(connect(options(broker)).logs.backup(str(fresh), BackupRules(topics=("compacted",))), broker, fresh)
    assert {row.topic for row in rows} == set(topics)
    assert len(rows) > 200
    # Of the compacted topic, the backup has what has been cleaned since.
    check([row for row in rows if row.topic != "compacted"], broker, directory)
    dump_log_segments(*directory.glob("*/*.index"), *directory.glob("*/*.timeindex"), sanity=True)
    saved = connect(directory).groups
    for group in GROUPS:
        theirs = connect(options(broker)).groups.committed(group)
        ours = saved.committed(group)
        assert {p: (c.offset, c.leader_epoch, c.metadata) for p, c in ours.items()} == {
            p: (c.offset, c.leader_epoch, c.metadata) for p, c in theirs.items()
        }
    assert connect(directory).place.topic_config("large") == {"max.message.bytes": str(4 << 20)}
    place = connect(directory).place
    held = [TopicPartition(topic, n) for topic, numbers in place.topics().items() for n in numbers]
    assert not [damage for found in verify(place, held) for damage in found.damages]
    adopted = adopt_into(new_broker(BROKER_SETTINGS), directory, topics)
    for topic in topics[:-1]:
        assert consume(adopted.bootstrap, topic) == consume(broker.bootstrap, topic) or topic == "compacted"
    check_groups_go_on(adopted, rows)
    end = next(row.log_end_offset for row in rows if (row.topic, row.partition) == ("none", 0))
    produce(connected(adopted.bootstrap), "none", [numbered(40)])
    assert [r.offset for r in consume(adopted.bootstrap, "none") if r.partition == 0 and r.offset >= end][
        :1
    ] == [end]


def adopt_into(broker: Broker, directory: Path, topics: list[str]) -> Broker:
    """Start a fresh broker on the backup, as its user would."""
    broker.start()
    place = connect(directory).place
    for topic, numbers in place.topics(topics).items():
        broker.create_topic(topic, len(numbers), place.topic_config(topic))
    connect(options(broker)).groups.commit("first", {TopicPartition("none", 0): CommittedOffset(0)})
    broker.stop()
    assert not [
        row for row in connect(directory).logs.adopt(str(broker.log_dir), execute=False) if row.problem
    ]
    found = connect(directory).logs.adopt(str(broker.log_dir), execute=True)
    assert not [row.problem for row in found if row.problem]
    again = connect(directory).logs.adopt(str(broker.log_dir), execute=True, groups=False)
    assert {
        (row.problem, row.adopted_before) for row in again if row.log_end_offset > row.log_start_offset
    } == {(None, True)}
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    for folder in broker.log_dir.iterdir():
        assert not folder.name.endswith("-delete")
        if parse_partition_folder(folder.name) is not None and any(
            f.stat().st_size for f in folder.glob("*.log")
        ):
            assert "Recovering" not in folder.name
    before = broker.output.stat().st_size
    broker.start()
    started = broker.output.read_bytes()[before:].decode(errors="replace")
    assert "Skipping recovery" in started
    assert "recovering segment" not in started.lower()
    return broker


def check_groups_go_on(broker: Broker, rows: list[BackedUpPartition]) -> None:
    """Kafka's own consumer begins where the group has committed."""
    (offset,) = (offset for topic, offset in GROUPS["readers"].items() if topic == "none")
    printed = run_kafka_class(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", "none", "--group", "readers"),
        *("--max-messages", 3000, "--timeout-ms", 20_000),
        *(
            word
            for name in ("partition", "offset")
            for word in ("--formatter-property", f"print.{name}=true")
        ),
        check=False,
    ).stdout
    offsets = [int(o) for o in re.findall(r"Partition:0\tOffset:(\d+)", printed)]
    assert min(offsets) == offset
