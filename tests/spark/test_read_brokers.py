"""spark.read and spark.readStream of a live cluster: all that differs from reading a directory."""

import datetime
import json
import shutil
import time
import uuid
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import StructType

from pyspark_kafkalog import LagListener
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.spark.source import KafkaLogDataSource
from tests.spark.conftest import in_order, needs_read_limits

pytestmark = pytest.mark.broker

UTC = datetime.timezone.utc


class Topic:
    """A topic of the shared broker, of a name of its own."""

    def __init__(self, broker, partitions=1, name=None):
        self.broker = broker
        self.name = name or f"read-{uuid.uuid4().hex[:12]}"
        broker.create_topic(self.name, partitions)

    def recreate(self):
        self.broker.delete_topic(self.name)
        self.broker.create_topic(self.name)

    def write(self, values, *, partition=0, producer=None, **options):
        """Values as text, one record each; ``timestamp`` in ms is that of the first, a second between two."""
        timestamp = options.pop("timestamp", None)
        headers = options.pop("headers", [])
        sender = producer or KafkaProducer(bootstrap_servers=self.broker.bootstrap, **options)
        for n, value in enumerate(values):
            at = None if timestamp is None else timestamp + 1000 * n
            sender.send(self.name, str(value).encode(), partition=partition, timestamp_ms=at, headers=headers)
        sender.flush()
        if producer is None:
            sender.close()

    def add_partitions(self, total):
        with self.broker.admin() as admin:
            admin.create_partitions({self.name: total})
        self.broker.wait_until(
            lambda: self.broker.partition_folder(self.name, total - 1).exists(), "no new partition"
        )


@pytest.fixture
def topic(broker):
    return Topic(broker)


def options_for(topic, **options):
    """Options of a reader; dots in names as double underscores, None for one to be left out."""
    every = {
        "kafka.bootstrap.servers": topic.broker.bootstrap,
        "subscribe": topic.name,
        "kafka.metadata.max.age.ms": "100",
        "fetchOffset.retryIntervalMs": "100",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    return {name: str(value) for name, value in every.items() if value is not None}


@pytest.fixture
def read(spark):
    def read(topic, **options):
        return spark.read.format("kafkalog").options(**options_for(topic, **options)).load()

    return read


@pytest.fixture
def stream(spark):
    def stream(topic, **options):
        options = {"startingOffsets": "earliest", **options}
        return spark.readStream.format("kafkalog").options(**options_for(topic, **options)).load()

    return stream


def values(frame):
    return [int(row.value) for row in in_order(frame)]


def run(frame, checkpoint):
    """Read all that is available; the values of each micro-batch that has any."""
    batches = {}

    def keep(batch, number):
        batches[number] = sorted(int(row.value) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return [batches[number] for number in sorted(batches) if batches[number]]


LOGS = ("offsets", "commits")


class Running:
    """A query that goes on, and the values that it has read."""

    def __init__(self, frame, checkpoint):
        self.checkpoint = Path(checkpoint)
        self.values = []
        self.query = (
            frame.writeStream.foreachBatch(
                lambda batch, _: self.values.extend(sorted(int(row.value) for row in batch.collect()))
            )
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.query.stop()

    def wait_for(self, values):
        """Wait until these values were read, and their batches are done."""
        deadline = time.monotonic() + 60
        while sorted(self.values) != sorted(values) or self.in_batch():
            assert self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, self.values
            time.sleep(0.05)

    def in_batch(self):
        offsets, commits = (
            sorted(path.name for path in (self.checkpoint / log).glob("[0-9]*")) for log in LOGS
        )
        return offsets != commits


def logged_offsets(checkpoint):
    """The offsets that the last batch noted, in Spark's form except for the spaces that PySpark puts in."""
    numbers = [int(path.name) for path in (Path(checkpoint) / "offsets").iterdir() if path.name.isdigit()]
    return json.loads((Path(checkpoint) / "offsets" / str(max(numbers))).read_text().splitlines()[-1])


# Batches


def test_rows_have_all_columns(broker, topic, read):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type="gzip")
    headers = [("a", b"1"), ("a", b"2"), ("", b"")]
    producer.send(topic.name, b"v", key=b"k", timestamp_ms=1_767_323_045_678, headers=headers)
    producer.send(topic.name, None, key=b"", timestamp_ms=0)
    producer.close()
    first, second = in_order(read(topic, includeHeaders="true"))
    assert (bytes(first.key), bytes(first.value)) == (b"k", b"v")
    assert (first.topic, first.partition, first.offset, first.timestampType) == (topic.name, 0, 0, 0)
    assert first.timestamp == datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000)
    assert [(h.key, h.value) for h in first.headers] == [("a", b"1"), ("a", b"2"), ("", b"")]
    assert (second.key, second.value, second.headers) == (b"", None, None)


@pytest.mark.long
def test_a_topic_made_anew_after_planning(broker, topic, read):
    topic.write(range(5))
    strict, lax = read(topic), read(topic, failOnDataLoss="false")
    assert values(strict) == values(lax) == list(range(5))
    topic.recreate()
    topic.write([7])
    with pytest.raises(PySparkException, match="TOPIC_RECREATED"):
        strict.collect()
    assert values(lax) == []
    assert values(read(topic)) == [7]


@pytest.mark.soak
def test_a_topic_deleted_after_planning(broker, topic, read):
    topic.write(range(5))
    strict, lax = read(topic), read(topic, failOnDataLoss="false")
    assert values(strict) == values(lax) == list(range(5))
    broker.delete_topic(topic.name)
    with pytest.raises(PySparkException, match="The partition no longer exists"):
        strict.collect()
    assert values(lax) == []


@pytest.fixture
def transactions(broker):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=uuid.uuid4().hex)
    producer.init_transactions()
    yield producer
    producer.close()


def test_transactions_aborted_and_open(broker, topic, read, stream, transactions, tmp_path):
    for numbers, end in ((range(3), "commit"), (range(3, 6), "abort"), (range(6, 8), "commit")):
        transactions.begin_transaction()
        topic.write(numbers, producer=transactions)
        getattr(transactions, f"{end}_transaction")()
    topic.write([8])
    transactions.begin_transaction()
    topic.write([9], producer=transactions)
    topic.write([10])
    committed = {"kafka__isolation__level": "read_committed"}
    assert values(read(topic)) == list(range(11))
    assert values(read(topic, **committed)) == [0, 1, 2, 6, 7, 8]
    assert values(read(topic, maxRecordsPerPartition=2, **committed)) == [0, 1, 2, 6, 7, 8]
    limited = stream(topic, maxOffsetsPerTrigger=2, **committed)
    # Offsets count markers and aborted records, too.
    assert run(limited, tmp_path / "c") == [[0, 1], [2], [6, 7], [8]]
    transactions.commit_transaction()
    broker.wait_until(lambda: values(read(topic, **committed))[-1] == 10, "no marker")
    assert run(limited, tmp_path / "c") == [[9, 10]]


# Filters


@pytest.mark.parametrize("push_down", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_filters(spark, broker, read, push_down):
    topic = Topic(broker, 2)
    topic.write(range(10), timestamp=1_000_000)
    topic.write(range(10, 20), partition=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(push_down).lower())
    try:
        for condition, rows, scanned in (
            ("partition = 1 AND offset > 7", [18, 19], 2),
            (f"topic = '{topic.name}' AND offset IN (2, 4)", [2, 4, 12, 14], 6),
            ("topic = 'other'", [], 0),
            ("timestamp >= timestamp_millis(1007000)", [7, 8, 9, *range(10, 20)], 13),
            ("timestamp > timestamp_millis(1007000) AND partition = 0", [8, 9], 2),
            ("timestamp > timestamp_millis(1009000) AND partition = 0", [], 0),
            ("timestamp < timestamp_millis(1002000)", [0, 1], 20),
        ):
            frame = read(topic).filter(condition)
            assert values(frame) == rows
            scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
            assert scan.metrics().get("numOutputRows").get().value() == (scanned if push_down else 20)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# Streams


@needs_read_limits
def test_limits_and_a_restart(broker, stream, tmp_path):
    topic = Topic(broker, 2)
    topic.write(range(12))
    topic.write(range(12, 15), partition=1)
    frame = stream(topic, maxOffsetsPerTrigger=5)
    batches = run(frame, tmp_path / "c")
    assert batches[0] == [0, 1, 2, 3, 12]
    assert sorted(value for batch in batches for value in batch) == list(range(15))
    assert logged_offsets(tmp_path / "c") == {topic.name: {"0": 12, "1": 3}}
    topic.write([15])
    assert run(frame, tmp_path / "c") == [[15]]
    assert run(frame, tmp_path / "c") == []


@pytest.mark.long
@needs_read_limits
def test_bytes_a_trigger(topic, stream, tmp_path):
    topic.write([f"{n:01000}" for n in range(200)], linger_ms=5, batch_size=4_000)
    batches = run(stream(topic, maxBytesPerTrigger="40k"), tmp_path / "c")
    assert [value for batch in batches for value in batch] == list(range(200))
    assert 4 <= len(batches) <= 8


def test_new_partitions_and_topics_of_a_running_query(broker, stream, tmp_path):
    topic = Topic(broker)
    topic.write(range(3))
    options = {"subscribe": None, "subscribePattern": f"{topic.name}.*", "topics.exclude": ".*-not,x"}
    frame = stream(topic, startingOffsets="latest", **options)
    with Running(frame, tmp_path / "c") as running:
        running.wait_for([])
        running.query.processAllAvailable()
        topic.write([3])
        running.wait_for([3])
        topic.add_partitions(2)
        topic.write([4], partition=1)
        running.wait_for([3, 4])
        Topic(broker, name=f"{topic.name}-not").write([6])
        second = Topic(broker, name=f"{topic.name}-b")
        second.write([5])
        running.wait_for([3, 4, 5])
    assert logged_offsets(tmp_path / "c") == {topic.name: {"0": 4, "1": 1}, second.name: {"0": 1}}


@pytest.mark.long
@pytest.mark.parametrize(
    "count", [pytest.param(2, id="shorter"), pytest.param(6, id="longer", marks=pytest.mark.soak)]
)
def test_a_topic_made_anew_under_a_running_query(topic, stream, tmp_path, count):
    topic.write(range(4))
    strict, lax = tmp_path / "strict", tmp_path / "lax"
    for checkpoint in (strict, lax):
        run(stream(topic), checkpoint)
    with (
        Running(stream(topic), strict) as failing,
        Running(stream(topic, failOnDataLoss="false"), lax) as going_on,
    ):
        # A query that goes on: it has noted the topic's id.
        topic.write([4])
        failing.wait_for([4])
        going_on.wait_for([4])
        topic.recreate()
        topic.write(range(10, 10 + count))
        with pytest.raises(StreamingQueryException, match=r"TOPIC_RECREATED|PARTITIONS_DELETED"):
            failing.query.awaitTermination(60)
        going_on.wait_for([4, *range(10, 10 + count)])
        topic.write([99])
        going_on.wait_for([4, *range(10, 10 + count), 99])
    assert logged_offsets(lax) == {topic.name: {"0": count + 1}}


@pytest.mark.soak
def test_a_topic_made_anew_between_two_runs(topic, stream, tmp_path):
    """Noticed if the reader knows where the checkpoint is."""
    checkpoint = str(tmp_path / "c")
    topic.write(range(3))
    run(stream(topic, checkpointLocation=checkpoint), checkpoint)
    topic.recreate()
    topic.write(range(10, 20))
    with pytest.raises(StreamingQueryException, match=f"TOPIC_RECREATED: topic {topic.name}"):
        run(stream(topic, checkpointLocation=checkpoint), checkpoint)
    lax = stream(topic, checkpointLocation=checkpoint, failOnDataLoss="false")
    assert run(lax, checkpoint) == [list(range(10, 20))]
    topic.write([20])
    later = stream(topic, checkpointLocation=checkpoint, startingOffsets="latest")
    assert run(later, checkpoint) == [[20]], "other starting offsets do not make it another source"


@pytest.mark.long
def test_records_that_retention_took(broker, topic, stream, tmp_path):
    topic.write(range(5))
    run(stream(topic), tmp_path / "c")
    topic.write(range(5, 10))
    broker.delete_records(topic.name, 7)
    shutil.copytree(tmp_path / "c", tmp_path / "c2")
    with pytest.raises(StreamingQueryException, match="COULD_NOT_READ_OFFSET_RANGE"):
        run(stream(topic), tmp_path / "c")
    assert run(stream(topic, failOnDataLoss="false"), tmp_path / "c2") == [[7, 8, 9]]


def test_lag_in_bytes(spark, topic, stream, tmp_path):
    topic.write([f"{n:01000}" for n in range(100)])
    listener = LagListener({"kafka.bootstrap.servers": topic.broker.bootstrap})
    spark.streams.addListener(listener)
    try:
        with Running(stream(topic, maxOffsetsPerTrigger=50), tmp_path / "c") as running:
            running.wait_for(range(100))
            deadline = time.monotonic() + 30
            while len(listener.history(running.query.id)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            first, second = listener.history(running.query.id)[:2]
    finally:
        spark.streams.removeListener(listener)
    assert 50_000 < first.sources[0].bytes_behind < 60_000
    assert 50_000 < second.sources[0].bytes_read < 60_000
    assert second.sources[0].bytes_behind == 0


# Quiet when idle


@pytest.mark.long
@needs_read_limits
def test_an_idle_stream_asks_seldom_and_sees_new_records_at_once(broker, monkeypatch):
    topic = Topic(broker)
    topic.write([1])
    sent = []
    send = Connection.send
    monkeypatch.setattr(
        Connection,
        "send",
        lambda self, request, *args, **how: sent.append(request) or send(self, request, *args, **how),
    )
    options = {**options_for(topic), "kafka.metadata.max.age.ms": "300000", "startingOffsets": "earliest"}
    reader = KafkaLogDataSource(options).streamReader(StructType().add("offset", "long"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic.name: {"0": 1}}

    def idle(seconds):
        """As Spark does it, for so long; how many requests that made in a second."""
        sent.clear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
            time.sleep(0.01)
        return len(sent) / seconds

    # A look-up takes three requests at most, and there are 50 a second at first, then 10.
    assert idle(1) < 150
    idle(2)
    assert idle(3) < 35
    topic.write([2])
    began = time.monotonic()
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == {topic.name: {"0": 2}}
    assert time.monotonic() - began < 0.9  # it is never silent for a second
    assert reader.reportLatestOffset() == {topic.name: {"0": 2}}
