"""Backing up a topic: against fetching it and dropping all, and against confluent-kafka consuming to a file.

What the disk takes is measured too: as many bytes written to files of their own, and flushed as often.

Each run is a process of its own, which tells its time, without that of its imports, and its peak memory.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark_kafkalog.admin import BackupRules, backup, place_of
from pyspark_kafkalog.backups.copying import FLUSH_BYTES
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from tests.benchmarks.java_producer import produce_with_java
from tests.benchmarks.measure import PARTITIONS, arguments, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker

TOPIC = "events"
RECORDS, VALUE_SIZE = 6_000_000, 100
BARS = {"fetching alone": 0.8, "writing alone": None, "confluent-kafka": 5.0}
MEMORY_BAR = 1.1
COMPRESSIONS = ("none", "lz4")


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def backed_up(bootstrap: str, topic: str, folder: Path) -> int:
    rules = BackupRules(topics=(topic,), groups=())
    rows = backup({"kafka.bootstrap.servers": bootstrap}, str(folder / "backup"), rules)
    assert not [row.problem for row in rows if row.problem]
    return sum(row.copied_bytes for row in rows)


def fetched(bootstrap: str, topic: str, folder: Path) -> int:
    """By as many threads, each a partition at a time."""
    options = {"kafka.bootstrap.servers": bootstrap}
    ends = place_of(options).end_offsets(partitions_of(topic), read_committed=False)

    def fetch(partition: TopicPartition) -> int:
        offsets = OffsetRange(0, ends[partition])
        return sum(s.buffer.size for s in place_of(options).fetch(partition, offsets, read_committed=False))

    with ThreadPoolExecutor(BackupRules().threads) as threads:
        return sum(threads.map(fetch, ends))


def written(bootstrap: str, topic: str, folder: Path) -> int:
    """As many bytes, by as many threads, each into a file, without a broker."""
    place = place_of({"kafka.bootstrap.servers": bootstrap})
    bounds = place.watermarks(partitions_of(topic), read_committed=False)
    sizes = {partition: size.stored_bytes for partition, size in place.stored_sizes(bounds).items()}
    chunk = bytes(1 << 20)

    def write(partition: TopicPartition) -> int:
        with (folder / str(partition)).open("wb", buffering=0) as file:
            for position in range(0, sizes[partition], len(chunk)):
                file.write(chunk[: sizes[partition] - position])
                if (position + len(chunk)) % FLUSH_BYTES == 0:
                    os.fsync(file.fileno())
            os.fsync(file.fileno())
        return sizes[partition]

    with ThreadPoolExecutor(BackupRules().threads) as threads:
        return sum(threads.map(write, sizes))


def consumed(bootstrap: str, topic: str, folder: Path) -> int:
    """Values only, one after the other, as people do it."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer
    from confluent_kafka import TopicPartition as TheirPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "b", "enable.partition.eof": False}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    partitions = [TheirPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    with (folder / "values").open("wb") as file:
        while left:
            for message in consumer.consume(min(left, 10_000), timeout=30):
                file.write(message.value())
                left -= 1
    consumer.close()
    return 0


CONTESTANTS: dict[str, Callable[[str, str, Path], int]] = {
    "backup": backed_up,
    "fetching alone": fetched,
    "writing alone": written,
    "confluent-kafka": consumed,
}


def run_one(name: str, bootstrap: str, topic: str, folder: str) -> None:
    """In its own process: the contestant's seconds, CPU seconds, bytes and peak memory, as JSON."""
    import pyspark_kafkalog.broker.fetch.fetcher
    import pyspark_kafkalog.log.write.follower_directory  # noqa: F401

    began, used = time.perf_counter(), time.process_time()
    size = CONTESTANTS[name](bootstrap, topic, Path(folder))
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": seconds, "cpu": cpu, "bytes": size, "peak": peak}))


def main() -> None:
    args = arguments(__doc__)
    count = int(RECORDS * args.scale)
    with scratch_folder(args.folder) as folder:
        broker = Broker(folder / "broker", heap="1g")
        broker.start()
        try:
            for compression in COMPRESSIONS:
                for topic, records in ((compression, count), (f"{compression}-third", count // 3)):
                    broker.create_topic(topic, PARTITIONS)
                    produce_with_java(broker, topic, records, VALUE_SIZE, compression, folder)
                _compare(broker.bootstrap, compression, folder, args.rounds)
        finally:
            broker.stop()


def _compare(bootstrap: str, topic: str, folder: Path, rounds: int) -> None:
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in [*CONTESTANTS, "third"]}
    order = list(CONTESTANTS)
    for _ in range(rounds + (rounds > 1)):
        for name in order:
            taken[name].append(_measured(name, bootstrap, topic, folder))
        taken["third"].append(_measured("backup", bootstrap, f"{topic}-third", folder))
        order = [*order[1:], order[0]]
    median = {
        name: {figure: statistics.median(run[figure] for run in runs[rounds > 1 :]) for figure in runs[0]}
        for name, runs in taken.items()
    }
    size = median["backup"]["bytes"]
    for figure, unit in (("seconds", ""), ("cpu", " of CPU")):
        rates = {name: size / found[figure] / 1e6 for name, found in median.items()}
        for peer, bar in BARS.items():
            print_ratio(
                f"backup, {topic}, {size / 1e6:.0f} MB: {rates['backup']:.0f} MB/s{unit}, {peer}"
                f" {rates[peer]:.0f}",
                rates["backup"] / rates[peer],
                at_least=bar,
            )
    large, small = (median[name]["peak"] for name in ("backup", "third"))
    print_ratio(
        f"backup, {topic}: peak memory {large / 1e6:.0f} MB, of a third {small / 1e6:.0f}",
        large / small,
        at_most=MEMORY_BAR,
    )


def _measured(name: str, bootstrap: str, topic: str, folder: Path) -> dict[str, float]:
    own = folder / "one"
    own.mkdir()
    arguments = name, bootstrap, topic, str(own)
    call = f"from tests.benchmarks.backup import run_one; run_one(*{arguments!r})"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=False)
    shutil.rmtree(own)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
