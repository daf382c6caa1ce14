"""Restoring a topic: against reading it, sending it, and confluent-kafka, which sends the same values.

The source is a directory that Java's producer has filled: in its default batches, which are encoded
again as they are small, and in large ones, which are sent as they are. The time to flush the map of offsets
to disk is measured, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyspark_kafkalog.broker.fetch.fetcher  # noqa: F401
from pyspark_kafkalog import RestoreSettings, connect
from pyspark_kafkalog.codec.stamp import stamp
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.tools.backup.restore_batches import ANY_SIZE, RestorableBatches
from pyspark_kafkalog.tools.backup.restore_producer import new_producer_id, open_producer
from pyspark_kafkalog.tools.backup.restore_records import SourceRecords
from pyspark_kafkalog.tools.backup.restore_state import PlannedPartition
from tests.benchmarks.apart import contest, fill, print_memory, print_rates
from tests.benchmarks.java_producer import BATCH_SIZE
from tests.benchmarks.measure import PARTITIONS, arguments, event
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker
from tests.kafka_service import running

RECORDS, VALUE_SIZE = 9_000_000, 100
"""About a gigabyte, uncompressed."""
BATCHES = {"small": BATCH_SIZE, "large": 256 << 10}
COMPRESSIONS = ("none", "lz4")
BARS = {"reading": None, "sending": None, "confluent-kafka": 1.5, "nothing flushed": 0.8}
MEMORY_BAR = 1.1
"""For the full number of records: with a tenth of them a partition is smaller than what is read at once."""
_HELD_BYTES = 16 << 20
"""Of each partition, that are sent again and again."""
_DISTINCT = 50_000
"""Values, as Java's producer had."""
TARGET = "restored"


def restored(
    bootstrap: str, source: str, topic: str, records: str, folder: str, *, execute: bool = True
) -> int:
    settings = RestoreSettings((topic,), {topic: TARGET}, groups=(), state=f"{folder}/state")
    done = connect(source).logs.restore(connect(bootstrap), settings, execute=execute)
    assert sum(row.records for row in done.partitions) == int(records)
    return sum(row.stored_bytes or 0 for row in done.partitions)


def restored_unflushed(*words: str) -> int:
    os.fsync = lambda descriptor: None
    return restored(*words)


def produced(bootstrap: str, source: str, topic: str, records: str, folder: str) -> int:
    """What a restore sends, by its producer; of a large partition its first batches again and again."""
    options = write_options({"kafka.bootstrap.servers": bootstrap})
    place = connect(source).place
    producer_id, epoch, cluster_id = new_producer_id(options)
    held: dict[PlannedPartition, list[RestorableBatches]] = {}
    bounds = place.watermarks([TopicPartition(topic, n) for n in range(PARTITIONS)], read_committed=False)
    topic_id = place.topic_ids([topic])[topic]
    for (_, number), watermarks in bounds.items():
        planned = PlannedPartition(topic, number, 0, watermarks.high_watermark, TARGET, topic_id)
        held[planned], size = [], 0
        for found in SourceRecords(place, read_committed=False).batches(planned, 0, ANY_SIZE):
            held[planned].append(found)
            size += found.data.size
            if size >= _HELD_BYTES:
                break
    sent = dict.fromkeys(held, 0)
    with open_producer(options, (producer_id, epoch, cluster_id)) as sink:
        while any(sent[planned] < planned.end for planned in held):
            for planned, batches in held.items():
                for found in batches:
                    if sent[planned] >= planned.end:
                        break
                    encoded = stamp(
                        found.data.copy(),
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        base_sequence=sent[planned],
                        transactional=False,
                    )
                    sink.append(planned.destination, encoded)
                    sink.advance()
                    sent[planned] += found.records
        sink.finish()
    return 0


def confluent(bootstrap: str, source: str, topic: str, records: str, folder: str) -> int:
    """The values, from memory, as idempotently as a restore."""
    from confluent_kafka import Producer

    values = [event(number, VALUE_SIZE) for number in range(_DISTINCT)]
    compression = topic.split("-")[0]
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": compression}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    for number in range(int(records)):
        if number % 10_000 == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(TARGET, values[number % _DISTINCT], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(120) == 0
    return 0


CONTESTANTS: dict[str, Callable[..., int]] = {
    "restore": restored,
    "reading": partial(restored, execute=False),
    "sending": produced,
    "confluent-kafka": confluent,
    "nothing flushed": restored_unflushed,
}


def main() -> None:
    args = arguments(__doc__)
    count = int(RECORDS * args.scale)
    topics = {f"{compression}-{size}": size for compression in COMPRESSIONS for size in BATCHES}
    with scratch_folder(args.folder) as folder, running(Broker(folder / "source", heap="1g")) as broker:
        for topic, size in topics.items():
            compression = topic.split("-")[0]
            fill(broker, topic, count, VALUE_SIZE, compression, folder, batch_size=BATCHES[size])
        broker.stop()
        source = broker.log_dir
        settings = {"log.segment.delete.delay.ms": 0}
        with running(Broker(folder / "target", settings, heap="1g")) as target:
            for topic, size in topics.items():
                words = target.bootstrap, str(source)
                runs = {name: (name, *words, topic, str(count)) for name in CONTESTANTS}
                runs["third"] = "restore", *words, f"{topic}-third", str(count // 3)
                found = contest(__spec__.name, runs, args.rounds, partial(_around, target, folder / "one"))
                what = f"restore, {topic.split('-')[0]} in {size} batches"
                print_rates(what, found["restore"]["bytes"], found, BARS)
                print_memory(what, found["restore"], found["third"], MEMORY_BAR)


@contextmanager
def _around(target: Broker, folder: Path) -> Iterator[str]:
    """An empty topic to write to, and a folder for a run's files."""
    folder.mkdir()
    target.make_topic(TARGET, PARTITIONS)
    yield str(folder)
    target.delete_topic(TARGET)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    main()
