"""Idle streams of topics with many partitions: the share of a core that asking for new records takes."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_kafkalog import DefaultSource
from pyspark_kafkalog.broker.wire.connection import Connection
from tests.benchmarks.measure import arguments, print_ratio
from tests.benchmarks.session import scratch_folder
from tests.kafka import Broker
from tests.log.partitions import batch, write_segment

BARS = {8: 0.03, 2_000: 0.03, 10_000: 0.10}
DIRECTORY_BARS = {1_000: 0.03, 5_000: 0.10}
"""Shares of a core, by partitions."""
_UNTIL_AT_REST = {"brokers": 3, "directory": 20}
"""Seconds until the pauses between looks have grown."""
_MOST_AT_ONCE = 2_000
"""Partitions that a controller makes in one request."""
_SPARKS_PAUSE = 0.01
"""Seconds after which Spark asks an idle source again."""


def main() -> None:
    args = arguments(__doc__)
    with scratch_folder(args.folder) as folder:
        for partitions, bar in DIRECTORY_BARS.items():
            _measure_directory(folder / "logs", max(int(partitions * args.scale), 2), bar, 4 * args.rounds)
        broker = Broker(folder / "broker", {"log.segment.index.size.max.bytes": 4096})
        broker.start()
        try:
            for partitions, bar in BARS.items():
                _measure_brokers(broker, max(int(partitions * args.scale), 2), bar, 4 * args.rounds)
        finally:
            broker.stop()


def _measure_directory(root: Path, partitions: int, bar: float, seconds: float) -> None:
    for number in range(partitions):
        write_segment(root / f"wide-{number}", [batch(0)])
    _measure({"path": str(root)}, "directory", partitions, bar, seconds)
    shutil.rmtree(root)


def _measure_brokers(broker: Broker, partitions: int, bar: float, seconds: float) -> None:
    topics = [f"wide-{partitions}-{number}" for number in range(-(-partitions // _MOST_AT_ONCE))]
    for topic in topics:
        broker.create_topic(topic, partitions // len(topics))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(topics)}
    _measure(options, "brokers", partitions, bar, seconds)


def _measure(options: dict[str, str], place: str, partitions: int, bar: float, seconds: float) -> None:
    source = DefaultSource({**options, "startingOffsets": "latest"})
    reader = source.streamReader(StructType([StructField("value", BinaryType())]))
    offset = json.dumps(reader.initialOffset())
    limit = reader.getDefaultReadLimit()
    requests = _count_requests()
    at_rest = _UNTIL_AT_REST[place]
    begun, looks = time.monotonic(), 0
    while True:
        idle_for = time.monotonic() - begun
        if idle_for > at_rest and not looks:
            cpu, counted_from = time.process_time(), time.monotonic()
            requests.clear()
        if idle_for > at_rest:
            looks += 1
        if idle_for > at_rest + seconds:
            break
        # As PySpark's runner of a stream's reader does it.
        assert json.loads(json.dumps(reader.latestOffset(json.loads(offset), limit))) == json.loads(offset)
        time.sleep(_SPARKS_PAUSE)
    taken, elapsed = time.process_time() - cpu, time.monotonic() - counted_from
    by_kind = {name: requests.count(name) / elapsed for name in sorted(set(requests))}
    rates = "".join(f", {rate:.1f} {name}/s" for name, rate in by_kind.items())
    print_ratio(
        f"idle, {partitions:,} partitions of {place}: {1000 * taken / looks:.1f} ms a look{rates}; "
        "share of a core",
        taken / elapsed,
        at_most=bar,
    )


def _count_requests() -> list[str]:
    """The names of the requests that are sent from now on."""
    sent: list[str] = []
    names = {api.API_KEY: api.name for api in (ListOffsetsRequest, MetadataRequest)}
    write = Connection._write

    def counting(connection: Connection, pieces: list) -> None:
        key = int.from_bytes(bytes(pieces[0][4:6]), "big")
        sent.append(names.get(key, str(key)))
        write(connection, pieces)

    Connection._write = counting  # type: ignore[method-assign]
    return sent


if __name__ == "__main__":
    main()
