"""Backing up a topic: against fetching it and dropping all, and against confluent-kafka consuming to a file.

What the disk takes is measured too: as many bytes written to files of their own, and flushed as often, with a
broker to fetch them from and without.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark_kafkalog.broker.fetch.fetcher
import pyspark_kafkalog.tools.backup.copies.directory  # noqa: F401
from pyspark_kafkalog import BackupRules, connect
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition
from pyspark_kafkalog.tools.backup.copying import FLUSH_BYTES
from tests.benchmarks.apart import contest, fill, print_memory, print_rates
from tests.benchmarks.measure import PARTITIONS, arguments
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker
from tests.kafka_service import running

TOPIC = "events"
RECORDS, VALUE_SIZE = 6_000_000, 100
BARS = {"fetching alone": 0.8, "writing alone": None, "fetching and writing": None, "confluent-kafka": 5.0}
MEMORY_BAR = 1.1
COMPRESSIONS = ("none", "lz4")


def partitions_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def backed_up(bootstrap: str, topic: str, folder: str) -> int:
    rules = BackupRules(topics=(topic,), groups=())
    rows = connect(bootstrap).logs.backup(f"{folder}/backup", rules)
    assert not [row.problem for row in rows if row.problem]
    return sum(row.copied_bytes for row in rows)


def fetched(bootstrap: str, topic: str, folder: str) -> int:
    """By as many threads, each a partition at a time."""
    ends = connect(bootstrap).place.end_offsets(partitions_of(topic), read_committed=False)

    def fetch(partition: TopicPartition) -> int:
        offsets = OffsetRange(0, ends[partition])
        found = connect(bootstrap).place.fetch(Fetch(partition, offsets))
        return sum(piece.buffer.size for piece in found)

    with ThreadPoolExecutor(BackupRules().threads) as threads:
        return sum(threads.map(fetch, ends))


def kept(bootstrap: str, topic: str, folder: str) -> int:
    """Fetched, and written to a file as it comes: nothing is checked, and no log is made."""
    ends = connect(bootstrap).place.end_offsets(partitions_of(topic), read_committed=False)

    def keep(partition: TopicPartition) -> int:
        written = flushed = 0
        offsets = OffsetRange(0, ends[partition])
        with Path(folder, str(partition)).open("wb", buffering=0) as file:
            for piece in connect(bootstrap).place.fetch(Fetch(partition, offsets)):
                file.write(piece.buffer)
                written += piece.buffer.size
                if written - flushed >= FLUSH_BYTES:
                    os.fsync(file.fileno())
                    flushed = written
            os.fsync(file.fileno())
        return written

    with ThreadPoolExecutor(BackupRules().threads) as threads:
        return sum(threads.map(keep, ends))


def written(bootstrap: str, topic: str, folder: str) -> int:
    """As many bytes, by as many threads, each into a file, without a broker."""
    place = connect(bootstrap).place
    bounds = place.watermarks(partitions_of(topic), read_committed=False)
    sizes = {partition: size.stored_bytes for partition, size in place.stored_sizes(bounds).items()}
    chunk = bytes(1 << 20)

    def write(partition: TopicPartition) -> int:
        with Path(folder, str(partition)).open("wb", buffering=0) as file:
            for position in range(0, sizes[partition], len(chunk)):
                file.write(chunk[: sizes[partition] - position])
                if (position + len(chunk)) % FLUSH_BYTES == 0:
                    os.fsync(file.fileno())
            os.fsync(file.fileno())
        return sizes[partition]

    with ThreadPoolExecutor(BackupRules().threads) as threads:
        return sum(threads.map(write, sizes))


def consumed(bootstrap: str, topic: str, folder: str) -> int:
    """Values only, one after the other, as people do it."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer
    from confluent_kafka import TopicPartition as TheirPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "b", "enable.partition.eof": False}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    partitions = [TheirPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(partition)[1] for partition in partitions)
    consumer.assign(partitions)
    with Path(folder, "values").open("wb") as file:
        while left:
            for message in consumer.consume(min(left, 10_000), timeout=30):
                file.write(message.value())
                left -= 1
    consumer.close()
    return 0


CONTESTANTS: dict[str, Callable[[str, str, str], int]] = {
    "backup": backed_up,
    "fetching alone": fetched,
    "writing alone": written,
    "fetching and writing": kept,
    "confluent-kafka": consumed,
}


def main() -> None:
    args = arguments(__doc__)
    count = int(RECORDS * args.scale)
    with scratch_folder(args.folder) as folder, running(Broker(folder / "broker", heap="1g")) as broker:
        for compression in COMPRESSIONS:
            fill(broker, compression, count, VALUE_SIZE, compression, folder)
            _compare(broker.bootstrap, compression, folder, args.rounds)


def _compare(bootstrap: str, topic: str, folder: Path, rounds: int) -> None:
    runs = {name: (name, bootstrap, topic) for name in CONTESTANTS}
    runs["third"] = "backup", bootstrap, f"{topic}-third"
    found = contest(__spec__.name, runs, rounds, lambda: _own(folder / "one"))
    what = f"backup, {topic}"
    print_rates(what, found["backup"]["bytes"], found, BARS)
    print_memory(what, found["backup"], found["third"], MEMORY_BAR)


@contextmanager
def _own(folder: Path) -> Iterator[str]:
    folder.mkdir()
    yield str(folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
