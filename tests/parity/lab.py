"""What a case of parity works with: topics, producers, and queries of one of the two formats."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.protocol.consumer.offsets import IsolationLevel
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.kafka import Broker

PEER = "kafka"
OURS = "kafkalog"
FORMATS = (PEER, OURS)

FIRST = 1_700_000_000_000
"""A time for records, in milliseconds. SECOND, THIRD and AFTER follow by a second each."""
SECOND, THIRD, AFTER = FIRST + 1000, FIRST + 2000, FIRST + 3000

_topic_numbers = itertools.count(100)
Options = Mapping[str, object]
Take = Callable[[DataFrame], list[Any]]


class Bench:
    """What one case after another uses: a session, the broker, a producer."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        self._producer: KafkaProducer | None = None

    @property
    def producer(self) -> KafkaProducer:
        if self._producer is None:
            # What is sent together lies in one record batch: no query sees a part of it. Flush ends the wait.
            self._producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap, linger_ms=60_000)
        return self._producer

    def forget_metadata(self) -> None:
        """After partitions came or went: a producer would learn of it minutes later."""
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None


class Lab:
    """One case's view of the :class:`Bench`, with ``format`` as the format that is tried."""

    def __init__(self, bench: Bench, format: str) -> None:
        self.format = format
        self.spark = bench.spark
        self.broker = bench.broker
        self._bench = bench
        self._queries: list[Query] = []

    # Topics

    def new_name(self) -> str:
        """A name that no topic of another case contains."""
        return f"t{next(_topic_numbers)}x"

    def topic(self, partitions: int = 1, *, name: str | None = None, configs: Options | None = None) -> str:
        """Make a topic, and return its name."""
        name = name or self.new_name()
        self.broker.create_topic(name, partitions, configs)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        with self.broker.admin() as admin:
            admin.create_partitions({topic: total})
        folder = self.broker.partition_folder(topic, total - 1)
        wait_until(lambda: (folder / "partition.metadata").exists(), f"partition {total - 1} of {topic}")
        self._bench.forget_metadata()

    def delete(self, topic: str) -> None:
        with self.broker.admin() as admin:
            admin.delete_topics([topic])
            wait_until(lambda: topic not in admin.list_topics(), f"{topic} deleted")
        # A broker renames folders before it removes them.
        wait_until(lambda: not any(self._folders(topic)), f"folders of {topic} away")
        self._bench.forget_metadata()

    def recreate(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic, and make another one of the same name."""
        self.delete(topic)
        self.topic(partitions, name=topic)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Move the log start offset, as retention would in its own time."""
        with self.broker.admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): before})

    def groups(self) -> list[str]:
        """The ids of all groups that the broker knows."""
        with self.broker.admin() as admin:
            return sorted(group["group_id"] for group in admin.list_groups())

    def _folders(self, topic: str) -> Iterator[Path]:
        return (
            path for path in self.broker.log_dir.glob(f"{topic}-*") if path.name[len(topic) + 1 :].isdigit()
        )

    # Records

    def send(
        self, topic: str, values: Iterable[object], partition: int | None = None, **record: object
    ) -> None:
        """Write one record for each value, all of a partition at once, to the partitions in turn by default.

        :param record: ``key``, ``headers``, ``timestamp_ms``.
        """
        count = len(list(self._folders(topic)))
        futures = [
            self._bench.producer.send(
                topic,
                value=None if value is None else str(value).encode(),
                partition=number % count if partition is None else partition,
                **record,
            )
            for number, value in enumerate(values)
        ]
        self._bench.producer.flush()
        for future in futures:
            future.get(0)

    @contextlib.contextmanager
    def transactions(self) -> Iterator[Transactions]:
        """A transactional producer, for the time of a ``with`` block."""
        producer = KafkaProducer(
            bootstrap_servers=self.broker.bootstrap, transactional_id=f"{self.new_name()}-transactions"
        )
        try:
            producer.init_transactions()
            yield Transactions(self, producer)
        finally:
            producer.close()

    def wait_for_stable_end(self, topic: str, offset: int) -> None:
        """Wait for a transaction's marker, which comes after the producer's call, to be at ``offset`` - 1."""
        place = TopicPartition(topic, 0)
        with self.broker.admin() as admin:

            def end() -> int:
                found = admin.list_partition_offsets({place: -1}, IsolationLevel.READ_COMMITTED)
                return int(found[place].offset)

            wait_until(lambda: end() >= offset, f"{topic} stable up to {offset}")

    # Reading and writing

    def settings(self, options: Options) -> dict[str, str]:
        """``options`` with those that find the broker, and keep tests short, before them."""
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.metadata.max.age.ms": "1",
            "kafka.request.timeout.ms": "3000",
            "kafka.default.api.timeout.ms": "3000",
            # Else the peer's tasks wait half a second each.
            "kafka.fetch.max.wait.ms": "10",
            "kafkaConsumer.pollTimeoutMs": "3000",
            "fetchOffset.retryIntervalMs": "100",
            **{name: str(value) for name, value in options.items()},
        }

    def read(self, options: Options, *, format: str | None = None) -> DataFrame:
        """A batch DataFrame."""
        return self.spark.read.format(format or self.format).options(**self.settings(options)).load()

    def read_stream(self, options: Options, *, format: str | None = None) -> DataFrame:
        """A streaming DataFrame."""
        settings = self.settings(options)
        return self.spark.readStream.format(format or self.format).options(**settings).load()

    def start(
        self,
        source: Options | DataFrame,
        *,
        checkpoint: Path | None = None,
        take: Take | None = None,
        mode: str = "append",
        **trigger: Any,
    ) -> Query:
        """Start a query that keeps the values of each micro-batch.

        :param take: gives what is kept of a micro-batch, its values by default.
        """
        frame = source if isinstance(source, DataFrame) else self.read_stream(source)
        query = Query(frame, checkpoint or self.folder(), take or values, mode, trigger)
        self._queries.append(query)
        return query

    def available_now(self, source: Options | DataFrame, **given: Any) -> list[list[Any]]:
        """Run a query to its end; the values of each of its micro-batches."""
        query = self.start(source, availableNow=True, **given)
        query.wait()
        return query.batches

    def write(self, frame: DataFrame, options: Options, *, format: str | None = None) -> None:
        """Append a batch."""
        settings = {"kafka.bootstrap.servers": self.broker.bootstrap}
        settings.update((name, str(value)) for name, value in options.items())
        frame.write.format(format or self.format).mode("append").options(**settings).save()

    def read_back(self, topic: str, *columns: str) -> list[tuple[Any, ...]]:
        """All rows of a topic, as the peer reads them, in their order."""
        frame = self.read({"subscribe": topic, "includeHeaders": "true"}, format=PEER)
        rows = frame.orderBy("partition", "offset").collect()
        return [tuple(_plain(row[column]) for column in columns) for row in rows]

    def folder(self) -> Path:
        """A path that nothing else uses."""
        return self._bench.folder / self.new_name()

    def close(self) -> None:
        for query in self._queries:
            query.stop()


class Transactions:
    """Transactions of one record batch a record, whose values are their offsets' numbers."""

    def __init__(self, lab: Lab, producer: KafkaProducer) -> None:
        self._lab = lab
        self._producer = producer

    def begin(self, topic: str, values: Iterable[object]) -> None:
        self._producer.begin_transaction()
        for value in values:
            self._producer.send(topic, value=str(value).encode(), partition=0).get(10)

    def commit(self, topic: str, end: int) -> None:
        self._producer.commit_transaction()
        self._lab.wait_for_stable_end(topic, end)

    def abort(self, topic: str, end: int) -> None:
        self._producer.abort_transaction()
        self._lab.wait_for_stable_end(topic, end)


class Query:
    """A running query, and the values of its micro-batches."""

    def __init__(
        self, frame: DataFrame, checkpoint: Path, take: Take, mode: str, trigger: dict[str, Any]
    ) -> None:
        self.batches: list[list[Any]] = []
        """What was taken of each micro-batch that this run has finished."""
        self.checkpoint = checkpoint
        self._seen = 0
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint))
        writer = writer.foreachBatch(lambda batch, _: self.batches.append(take(batch)))
        self.query: StreamingQuery = (writer.trigger(**trigger) if trigger else writer).start()

    def process_batches(self) -> list[list[Any]]:
        """Process all that is there; the micro-batches since the last call."""
        self.query.processAllAvailable()
        batches, self._seen = self.batches[self._seen :], len(self.batches)
        return batches

    def process(self) -> list[Any]:
        """Process all that is there; the values that came since the last call, sorted."""
        return sorted(itertools.chain(*self.process_batches()))

    def wait(self, timeout: int = 60) -> None:
        """Wait for the end of a query that has one."""
        if not self.query.awaitTermination(timeout):
            raise TimeoutError(f"The query did not end in {timeout} s: {self.query.status}")

    def stop(self) -> None:
        self.query.stop()

    def input_rows(self) -> int:
        """The rows that Spark has counted in this run."""
        return sum(progress.numInputRows for progress in self.query.recentProgress)

    def logged_offsets(self, number: int) -> list[Any]:
        """The offsets that the checkpoint has of a micro-batch, one for each source."""
        lines = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
        return [json.loads(line) for line in lines[2:]]


def values(frame: DataFrame) -> list[Any]:
    """The values of a frame, sorted; numbers as such."""
    return sorted(_number(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def cells(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame, in an order of their own."""
    return sorted((tuple(_plain(cell) for cell in row) for row in frame.collect()), key=repr)


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _plain(cell: Any) -> Any:
    """A cell as plain Python: text for bytes, pairs for headers."""
    if isinstance(cell, (bytes, bytearray)):
        return cell.decode()
    if isinstance(cell, list):
        return [tuple(_plain(part) for part in item) for item in cell]
    return cell


def error_of(action: Callable[[], object], **kinds: str) -> str:
    """The kind of the error that ``action`` ends with, as :func:`attempt` has it, or "none"."""
    return str(attempt(lambda: (action(), "none")[1], **kinds))


def attempt(action: Callable[[], object], **kinds: str) -> object:
    """What ``action`` gives, or the kind of the error that it ends with.

    :param kinds: for each a pattern of the error's text. A text that fits none
        is given as it is, so that a failing test shows it.
    """
    try:
        return action()
    except (PySparkException, Py4JJavaError) as error:
        text = f"{type(error).__name__}: {error}"
        fitting = (kind for kind, pattern in kinds.items() if re.search(pattern, text, re.I | re.S))
        return next(fitting, text)


def with_both_flags(action: Callable[[str], object]) -> dict[str, object]:
    """What ``action`` gives with failOnDataLoss true and false."""
    return {flag: action(flag) for flag in ("true", "false")}


def both(true: Any, false: Any) -> Any:
    """What a case gives with failOnDataLoss true and false: one value where they agree."""
    return true if true == false else {"true": true, "false": false}


def assigned(topic: str, partitions: Sequence[int]) -> dict[str, object]:
    return {"assign": json.dumps({topic: list(partitions)})}


def offsets(topic: str, by_partition: Mapping[int, int] | Sequence[int]) -> str:
    """Spark's JSON of one topic's offsets or timestamps."""
    pairs = by_partition.items() if isinstance(by_partition, Mapping) else enumerate(by_partition)
    return json.dumps({topic: {str(partition): offset for partition, offset in pairs}})


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 30) -> None:
    """Wait for ``condition`` to hold, and fail with ``what`` if it does not."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Not in {timeout} s: {what}")
        time.sleep(0.02)
