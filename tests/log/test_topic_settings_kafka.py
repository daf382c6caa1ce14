"""A topic's configurations mean to a directory what they mean to a broker: Kafka's own log is the oracle."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.codec.encode import encode, put_checksums
from pyspark_kafkalog.codec.format import ATTRIBUTES_V2, LOG_APPEND_TIME_BIT, OFFSET
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.codec.write_kernels import put_ints
from pyspark_kafkalog.errors import InvalidRecordError, OptionError, RecordTooLargeError
from pyspark_kafkalog.log import topic_settings
from pyspark_kafkalog.log.segment.index import TIME_ENTRY
from pyspark_kafkalog.log.topic_settings import encode_settings
from pyspark_kafkalog.model import EncodeSettings
from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS, check_topic_configs
from tests.kafka import dump_log_segments, kafka_jars
from tests.kafka_process import java
from tests.log.writing import T0

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK"),
]

NOW = time.time_ns() // 1_000_000
ANY_TIME = str(2**63 - 1)
MIB = 1 << 20
WRITES = 4
LAYOUTS = {
    "segment.bytes": (600, 3000, 20_000, 1 << 30),
    "segment.ms": (1, 500, 40_000, 604_800_000),
    "index.interval.bytes": (0, 200, 4096),
    "segment.index.bytes": (24, 64, 400, 10 << 20),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": (1, 9),
    "compression.lz4.level": (1, 17),
    "compression.zstd.level": (-5, 3, 19),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "max.message.bytes": (400, 1000, 2 * MIB),
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "flush.messages": (1, 100),
    "flush.ms": (0, 100),
}
"""Values of the configurations that say how a write looks on disk."""


def run_java(*arguments: object, text: str = "") -> list[str]:
    source = Path(__file__).with_name("AppendAsLeader.java")
    command = [
        java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{kafka_jars()}/*",
        str(source),
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, input=text)
    return done.stdout.splitlines()


def put_case(
    folder: Path, configs: Mapping[str, str], data: bytes, batches: Sequence[tuple[int, int]]
) -> None:
    """A case for Kafka's log: see :file:`AppendAsLeader.java`."""
    folder.mkdir(parents=True)
    of_kafka = {
        # The default of a broker, which directories don't have.
        "message.timestamp.after.max.ms": ANY_TIME,
        **{name.replace("segment.bytes", "internal.segment.bytes"): value for name, value in configs.items()},
    }
    (folder / "configs").write_text("".join(f"{name}={value}\n" for name, value in of_kafka.items()))
    (folder / "data").write_bytes(data)
    (folder / "batches").write_text("".join(f"{size} {now}\n" for size, now in batches))


def random_configs(rng: random.Random) -> dict[str, str]:
    """Configurations of a topic that no commit compacts, as no broker does while it appends."""
    chosen = {name: str(rng.choice(LAYOUTS[name])) for name in LAYOUTS if rng.random() < 0.5}
    return {**chosen, "min.compaction.lag.ms": str(2**62)}


def random_table(rng: random.Random) -> pa.Table:
    count = rng.randrange(1, 60)
    start = NOW + rng.randrange(-100_000, 100_000)
    return pa.table(
        {
            "key": [str(rng.randrange(1000)) for _ in range(count)],
            "value": [rng.randbytes(rng.randrange(150)).hex() for _ in range(count)],
            "timestamp": pa.array(
                [start + rng.randrange(-200, 2000) for _ in range(count)], pa.timestamp("ms", "UTC")
            ),
        }
    )


def unpublish(data: np.ndarray, batches: Batches) -> None:
    """Make the batches what a producer sends: offsets from 0 on, and timestamps of their own."""
    put_ints(data, batches.position + OFFSET, np.zeros_like(batches.position), 8)
    put_ints(data, batches.position + ATTRIBUTES_V2, batches.attributes & ~LOG_APPEND_TIME_BIT, 2)
    put_checksums(data, batches.position, batches.size)


def files_of(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in suffixes}


def test_files_are_those_that_a_broker_would_write(tmp_path: Path) -> None:
    """Byte for byte: another compression, type of timestamp, segment or index entry would show."""
    rng = random.Random(4)
    written = {}
    for number in range(25):
        configs, name = random_configs(rng), f"{number:03d}"
        root = tmp_path / "ours" / name
        root.mkdir(parents=True)
        kafka = connect(str(root))
        writes = rng.randrange(1, WRITES)
        if writes > 1:
            configs.pop("segment.index.bytes", None)  # the end of each write takes an entry
        kafka.topics.create([NewTopic("t", configs=configs)])
        options = {"compression.type": rng.choice(["lz4", "none"]), "batch.size": rng.choice(["100", "900"])}
        for _ in range(writes):
            try:
                kafka.write(random_table(rng), "t", options=options)
            except RecordTooLargeError:
                continue
        logs = [np.frombuffer(data, np.uint8).copy() for data in files_of(root / "t-0", ".log").values()]
        batches = [walk(log) for log in logs]
        for log, segment in zip(logs, batches, strict=True):
            unpublish(log, segment)
        sizes = [int(size) for segment in batches for size in segment.size]
        times = [int(latest) for segment in batches for latest in segment.max_timestamp]
        by_log = configs.get("message.timestamp.type") == "LogAppendTime"
        clock = times if by_log else [NOW] * len(times)
        data = b"".join(log.tobytes() for log in logs)
        put_case(tmp_path / "theirs" / name, configs, data, list(zip(sizes, clock, strict=True)))
        written[name] = (configs, len(sizes), writes)
    for line in run_java(tmp_path / "theirs"):
        name, outcomes = line.split("\t")
        configs, count, writes = written.pop(name)
        assert outcomes.split() == ["stored"] * count, (configs, outcomes)
        ours, theirs = (
            files_of(tmp_path / side / name / "t-0", ".log", ".index", ".timeindex")
            for side in ("ours", "theirs")
        )
        assert ours.keys() == theirs.keys(), configs
        different = [file for file in ours if ours[file] != theirs[file]]
        if writes > 1:  # each of which ends with an entry, as a broker's start and stop do
            for file in [file for file in different if file.endswith(".timeindex")]:
                mine, entries = (np.frombuffer(each[file], TIME_ENTRY).tolist() for each in (ours, theirs))
                assert {*entries} < {*mine}, configs
                different.remove(file)
        assert different == [], configs
    assert not written
    logs = sorted((tmp_path / "ours").glob("*/t-0/*.log"))
    printed = dump_log_segments(*[log for log in logs if log.stat().st_size][:60])
    for compression in ("gzip", "snappy", "lz4", "zstd", "none"):
        assert f"compresscodec: {compression}" in printed
    assert "LogAppendTime" in printed
    assert len(logs) > 100


def one_record(key: str | None, size: int, timestamp: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"key": pa.array([key], pa.string()), "value": ["v" * size], "timestamp": pa.array([timestamp])}
    )


BOUNDS = (0, 1, 60_000, 3_600_000, 2**63 - 1)
REFUSALS = {
    "cleanup.policy": ("delete", "compact"),
    "max.message.bytes": (100, 150, 300),
    "message.timestamp.after.max.ms": BOUNDS,
    "message.timestamp.before.max.ms": BOUNDS,
    "message.timestamp.type": ("CreateTime", "CreateTime", "LogAppendTime"),
    "segment.bytes": (100, 150, 300),
}
"""Values of the configurations that let a write be refused."""


def test_what_is_refused_is_what_a_broker_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limits, and beside them."""
    monkeypatch.setattr(topic_settings, "time", SimpleNamespace(time_ns=lambda: NOW * 1_000_000 + 999))
    rng = random.Random(5)
    ours, written = {}, {}
    for number in range(60):
        configs = {name: str(rng.choice(REFUSALS[name])) for name in REFUSALS if rng.random() < 0.4}
        settings = encode_settings("t", EncodeSettings(), configs, {})
        outcomes, parts = [], []
        for _ in range(40):
            timestamp = max(NOW + rng.choice((-1, 1)) * rng.choice(BOUNDS) + rng.randrange(-1, 2), -1)
            row = one_record(rng.choice(("k", "k", None)), rng.randrange(80), min(timestamp, 2**63 - 1))
            parts.append(encode(row, None, EncodeSettings(), topic_partition=T0).data.tobytes())
            try:
                assert encode(row, None, settings, topic_partition=T0).data.tobytes() == parts[-1]
                outcomes.append(True)
            except (InvalidRecordError, RecordTooLargeError):
                outcomes.append(False)
        name = f"{number:03d}"
        put_case(tmp_path / name, configs, b"".join(parts), [(len(part), NOW) for part in parts])
        ours[name], written[name] = outcomes, configs
    refusals = Counter[str]()
    for line in run_java(tmp_path):
        name, theirs = line.split("\t")
        assert [outcome == "stored" for outcome in theirs.split()] == ours.pop(name), written[name]
        refusals.update(theirs.split())
    assert not ours
    print(refusals)
    assert len(refusals) >= 4
    assert min(refusals.values()) > 20


NUMBERS = ("-2", "-1", "0", "1", "3", "4", "9", "10", "13", "14", "22", "23", "1048576", "131072", "-131072")
NUMBERS += ("-131073", str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), "1.5", "0x1", "", "1e3", "5k")
WORDS = ("true", "false", "yes", "producer", "none", "uncompressed", "gzip", "snappy", "lz4", "zstd", "GZIP")
WORDS += (
    "CreateTime",
    "LogAppendTime",
    "logappendtime",
    "delete",
    "compact",
    "compact,delete",
    "both",
    "0.5",
)
OTHERWISE = {
    ("retention.bytes", "refused"): "Kafka takes any negative number for no limit, here it is -1",
    ("segment.bytes", "taken"): "Kafka 4 takes no less than 1 MiB, older brokers 14 bytes",
}
"""Where a directory takes more or less than Kafka 4, and why."""


def test_a_value_is_taken_if_kafka_takes_it() -> None:
    names = dict(line.split("\t") for line in run_java("defaults"))
    assert names.keys() - TOPIC_CONFIGS.keys() == set()
    names = names.keys() - {name for name in names if name.endswith(".replicas")}  # brokers check them
    asked = [(name, value) for name in sorted(names) for value in (*NUMBERS, *WORDS)]
    printed = run_java("values", text="".join(f"{name}\t{value}\n" for name, value in asked))
    different = set()
    for (name, value), theirs in zip(asked, printed, strict=True):
        try:
            check_topic_configs({name: value})
            ours = "taken"
        except OptionError:
            ours = "refused"
        if ours != theirs:
            different.add((name, ours))
    assert different == OTHERWISE.keys()
