"""Fetched records equal those of kafka-python's consumer: compressions, transactions, gaps, sizes, ends."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer

from pyspark_kafkalog.broker.fetch import fetcher as fetch_module
from pyspark_kafkalog.broker.place import Brokers
from pyspark_kafkalog.codec.format import DELETE_HORIZON_BIT
from pyspark_kafkalog.codec.walk import walk
from pyspark_kafkalog.errors import CorruptRecordError, DataLossError, KafkaLogError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import Fetch, OffsetRange, TopicPartition, Watermarks
from tests.broker.reading import batches, offsets_of, place, rows, rows_of_kafka_python
from tests.codec.strategies import COMPRESSIONS
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_old import OldBroker
from tests.kafka_proxy import FETCH
from tests.kafka_service import KafkaService, running

pytestmark = pytest.mark.broker


@pytest.fixture
def brokers(broker: Broker) -> Brokers:
    return place(broker.bootstrap)


def new_topic(broker: Broker, **configs: object) -> TopicPartition:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    broker.create_topic(
        partition.topic, 1, {name.replace("_", "."): value for name, value in configs.items()}
    )
    return partition


def write(
    service: KafkaService,
    partition: TopicPartition,
    values: list[bytes],
    *,
    key: Callable[[int], bytes | None] = lambda i: None,
    headers: bool = True,
    start_ms: int = 1_000,
    **options: Any,
) -> None:
    producer = KafkaProducer(bootstrap_servers=service.bootstrap, **options)
    for i, value in enumerate(values):
        producer.send(
            partition.topic,
            value,
            key=key(i),
            partition=partition.partition,
            timestamp_ms=start_ms + i,
            headers=[("h", b"%d" % i), ("", b"")] if headers and i % 3 == 0 else [],
        )
    producer.flush()
    producer.close()


def numbers(count: int, size: int = 100) -> list[bytes]:
    return [b"%0*d" % (size, i) for i in range(count)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression(broker: Broker, brokers: Brokers, compression: str) -> None:
    partition = new_topic(broker)
    option = None if compression == "none" else compression
    write(broker, partition, numbers(600), compression_type=option, key=lambda i: b"k" * (i % 5))
    for read_committed in (False, True):
        expected = rows_of_kafka_python(broker.bootstrap, partition, read_committed=read_committed)
        assert len(expected) == 600
        assert rows(brokers, partition, read_committed=read_committed) == expected
    assert rows(brokers, partition, OffsetRange(200, 400)) == expected[200:400]


def transactions(broker: Broker, partition: TopicPartition, plan: str) -> None:
    """Write as ``plan`` says, three records each time, by the transactional producers a, b and c.

    A letter writes, and begins if need be; behind ``+`` it commits, behind ``-``
    it aborts; ``.`` writes without.
    """
    names = sorted(set(plan) - set("+-."))
    producers = {
        name: KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=uuid.uuid4().hex)
        for name in names
    }
    open_ones: set[str] = set()
    for producer in producers.values():
        producer.init_transactions()
    plain = KafkaProducer(bootstrap_servers=broker.bootstrap)
    steps = iter(plan)
    for step in steps:
        if step in "+-":
            name = next(steps)
            producer = producers[name]
            producer.commit_transaction() if step == "+" else producer.abort_transaction()
            open_ones.remove(name)
            continue
        producer = plain if step == "." else producers[step]
        if step != "." and step not in open_ones:
            producer.begin_transaction()
            open_ones.add(step)
        for _ in range(3):
            producer.send(partition.topic, step.encode(), partition=0, timestamp_ms=5)
        producer.flush()
    for producer in (plain, *producers.values()):
        producer.close()


@pytest.mark.parametrize(
    "plan",
    [
        "aba-ab-b.a-a.",
        "a+ab.-b.c",
        *(
            pytest.param(plan, marks=pytest.mark.soak)
            for plan in (".a+a.", ".a-a.", "ab-a.+b", "a-aa+a.b-b", ".ab.+a.")
        ),
    ],
)
def test_transactions_committed_aborted_interleaved_and_open(broker: Broker, plan: str) -> None:
    partition = new_topic(broker)
    transactions(broker, partition, plan)
    for max_bytes in (1, 8 << 20):
        brokers = place(broker.bootstrap, max_partition_fetch_bytes=max_bytes)
        for read_committed in (False, True):
            expected = rows_of_kafka_python(broker.bootstrap, partition, read_committed=read_committed)
            assert rows(brokers, partition, read_committed=read_committed) == expected


@pytest.mark.long
def test_small_fetches_of_large_batches_and_the_other_way_round(broker: Broker) -> None:
    partition = new_topic(broker, max_message_bytes=5 << 20)
    write(broker, partition, numbers(30, size=300_000), max_request_size=6 << 20, batch_size=4 << 20)
    write(broker, partition, numbers(600), batch_size=0, linger_ms=0)
    everything = list(range(630))
    for max_bytes in (1, 1_000, 500_000, 8 << 20):
        brokers = place(broker.bootstrap, {"client_id": f"c{max_bytes}"}, max_partition_fetch_bytes=max_bytes)
        assert offsets_of(brokers, partition) == everything
    brokers = place(broker.bootstrap, fetch_max_bytes=1)
    assert offsets_of(brokers, partition, OffsetRange(5, 40)) == everything[5:40]


@pytest.fixture(scope="module")
def cleaning_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker whose cleaner comes at once."""
    with running(Broker(tmp_path_factory.mktemp("cleaning"), {"log.cleaner.backoff.ms": 100})) as broker:
        yield broker


@pytest.mark.long
def test_what_is_left_of_a_compacted_log(cleaning_broker: Broker) -> None:
    broker = cleaning_broker
    partition = new_topic(
        broker,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.01,
        delete_retention_ms=0,
    )
    for round_ in range(4):
        keyed = [b"%d-%d" % (round_, i) for i in range(1_000)]
        start_ms = int(time.time() * 1000) - 10_000 * (5 - round_)
        write(
            broker,
            partition,
            keyed,
            key=lambda i: b"%d" % (i % 50),
            compression_type="lz4",
            batch_size=2_000,
            start_ms=start_ms,
        )
    write(broker, partition, [b"end"], key=lambda i: b"end", start_ms=int(time.time() * 1000))
    deadline = time.monotonic() + 60
    while len(rows_of_kafka_python(broker.bootstrap, partition, read_committed=False)) > 1_000:
        assert time.monotonic() < deadline, "the cleaner did not come"
        time.sleep(1)
    broker.stop_cleaning(partition.topic)
    expected = rows_of_kafka_python(broker.bootstrap, partition, read_committed=False)
    brokers = place(broker.bootstrap)
    found = rows(brokers, partition)
    assert found == expected
    assert found[-1][0] == 4_000
    assert rows(brokers, partition, OffsetRange(100, 3_900)) == [r for r in found if 100 <= r[0] < 3_900]


def test_tombstones_that_a_cleaner_has_seen(cleaning_broker: Broker) -> None:
    """They stay until a time that their batch then has in the place of its base timestamp (KIP-534)."""
    broker = cleaning_broker
    partition = new_topic(broker, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    start_ms = int(time.time() * 1000) - 60_000
    for i, value in enumerate([*numbers(100), *[None] * 50]):
        producer.send(partition.topic, value, b"%d" % (i % 100), timestamp_ms=start_ms + 100 * i)
    producer.flush()
    producer.send(partition.topic, b"end", b"end")
    producer.close()
    folder = broker.partition_folder(*partition)

    def are_marked() -> bool:
        try:
            attributes = [walk(np.fromfile(path, np.uint8)).attributes for path in folder.glob("*.log")]
        except FileNotFoundError:  # the cleaner is at work
            return False
        return bool(np.any(np.concatenate(attributes) & DELETE_HORIZON_BIT))

    broker.wait_until(are_marked, "the cleaner did not come", 60)
    broker.stop_cleaning(partition.topic)
    expected = rows_of_kafka_python(broker.bootstrap, partition, read_committed=False)
    assert [row[2:4] for row in expected[:50]] == [(b"%d" % i, numbers(100)[i]) for i in range(50, 100)]
    assert [row[2:4] for row in expected[50:-1]] == [(b"%d" % i, None) for i in range(50)]
    assert rows(place(broker.bootstrap), partition) == expected
    assert rows(LogDirectory.open(str(broker.log_dir)), partition) == expected


def test_a_range_that_compaction_emptied_to_its_end(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's log seems to end at offset 20, with records up to 9: only compaction makes such a gap."""
    partition = new_topic(broker, cleanup_policy="compact")
    write(broker, partition, numbers(10), key=lambda i: b"%d" % i)
    brokers = place(broker.bootstrap, fetch_max_wait_ms=50)
    real = fetch_module.Fetcher._check_empty
    monkeypatch.setattr(fetch_module.Fetcher, "_check_empty", lambda self, end: real(self, 20))
    monkeypatch.setattr(brokers, "watermarks", lambda partitions, **_: {partition: Watermarks(0, 20, 20)})
    assert offsets_of(brokers, partition) == list(range(10))
    other = new_topic(broker)
    write(broker, other, numbers(10))
    brokers = place(broker.bootstrap, fetch_max_wait_ms=50, poll_timeout_ms=2_000)
    with pytest.raises(KafkaLogError, match=r"pollTimeoutMs = 2000.*no records there"):
        list(brokers.fetch(Fetch(other, OffsetRange(0, 20))))


def test_ranges_outside_of_the_log_are_data_loss(broker: Broker) -> None:
    brokers = place(broker.bootstrap, poll_timeout_ms=1_000)  # how long a read waits for an end
    partition = new_topic(broker)
    write(broker, partition, numbers(100))
    broker.delete_records(partition.topic, 40)
    for offsets, why in (
        (OffsetRange(10, 90), "Offsets 10 to 39 are gone: the log now starts at offset 40"),
        (OffsetRange(101, 120), "Offsets 101 to 119 are gone: the log ends at offset 100"),
    ):
        with pytest.raises(DataLossError, match=why) as caught:
            list(brokers.fetch(Fetch(partition, offsets)))
        assert caught.value.topic_partition == str(partition)
        assert caught.value.broker == broker.bootstrap
    assert offsets_of(brokers, partition, OffsetRange(10, 90), fail_on_data_loss=False) == list(range(40, 90))
    assert list(brokers.fetch(Fetch(partition, OffsetRange(50, 50)))) == []


def test_retention_that_overtakes_the_reader(broker: Broker) -> None:
    brokers = place(broker.bootstrap, max_partition_fetch_bytes=10_000)
    for fail_on_data_loss in (True, False):
        partition = new_topic(broker)
        write(broker, partition, numbers(5_000), batch_size=5_000)
        reading = batches(brokers, partition, OffsetRange(0, 5_000), fail_on_data_loss=fail_on_data_loss)
        seen = next(reading).column("offset").to_pylist()
        broker.delete_records(partition.topic, 4_000)
        if fail_on_data_loss:
            with pytest.raises(DataLossError, match="the log now starts at offset 4000"):
                list(reading)
            continue
        seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
        assert seen[-1_000:] == list(range(4_000, 5_000))
        assert seen[:-1_000] == list(range(len(seen) - 1_000))
        assert len(seen) < 5_000


@pytest.mark.parametrize("is_made_anew", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_topic_that_goes_while_it_is_read(broker: Broker, is_made_anew: bool) -> None:
    partition = new_topic(broker)
    write(broker, partition, numbers(5_000), batch_size=5_000)
    brokers = place(broker.bootstrap, max_partition_fetch_bytes=10_000)
    reading = batches(brokers, partition, OffsetRange(0, 5_000))
    next(reading)
    broker.delete_topic(partition.topic)
    if is_made_anew:
        broker.create_topic(partition.topic, 1)
        write(broker, partition, numbers(6_000))
    why = "deleted and recreated" if is_made_anew else "the partition no longer exists"
    with pytest.raises(DataLossError, match=why):
        list(reading)


def test_nothing_comes_in_time(broker: Broker) -> None:
    partition = new_topic(broker)
    write(broker, partition, numbers(10))
    brokers = place(broker.bootstrap, poll_timeout_ms=1_500, fetch_max_wait_ms=100)
    began = time.monotonic()
    with pytest.raises(
        KafkaLogError, match=r"within kafkaConsumer.pollTimeoutMs = 1500\. .*ends at offset 10"
    ) as e:
        list(brokers.fetch(Fetch(partition, OffsetRange(0, 11))))
    assert e.value.offset == 10
    # Three pauses of 0.1, 0.2 and 0.4 s, each less a fifth at most, and four fetches of 0.1 s.
    assert 0.9 < time.monotonic() - began < 30


def test_records_that_come_late_are_waited_for(broker: Broker) -> None:
    partition = new_topic(broker)
    write(broker, partition, numbers(10))
    brokers = place(broker.bootstrap)
    fetching = brokers.fetch(Fetch(partition, OffsetRange(0, 20)))
    next(fetching)
    write(broker, partition, numbers(10))
    assert sum(len(walk(piece.buffer)) for piece in fetching) >= 1


def test_a_patient_consumer_loses_no_time_for_its_own_pauses(broker: Broker) -> None:
    partition = new_topic(broker)
    write(broker, partition, numbers(2_000), batch_size=5_000)
    brokers = place(broker.bootstrap, poll_timeout_ms=500, max_partition_fetch_bytes=100_000)
    found = []
    for piece in brokers.fetch(Fetch(partition, OffsetRange(0, 2_000))):
        found.append(len(piece.buffer))
        time.sleep(0.7)
    assert len(found) > 1


def test_damage_in_the_log(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A record changed on disk fails its checksum; a corrupt header hides those behind it."""
    for at, count in ((300, 1), (16, 1)):  # in the records of the first batch; its magic byte
        caplog.clear()
        partition = new_topic(broker)
        write(broker, partition, numbers(3_000), batch_size=2_000)
        (log,) = broker.partition_folder(partition.topic, 0).glob("*.log")
        data = bytearray(log.read_bytes())
        first_size = 12 + int.from_bytes(data[8:12], "big")
        hit = 5 * first_size  # a batch in the middle, all have about this size
        position = 0
        while position < hit:
            position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        data[position + at] ^= 0x55
        with log.open("r+b") as file:
            file.write(data)
        brokers = place(broker.bootstrap, poll_timeout_ms=10_000)
        with pytest.raises(CorruptRecordError) as caught:
            offsets_of(brokers, partition)
        assert caught.value.topic_partition == str(partition)
        with caplog.at_level(logging.WARNING):
            left = offsets_of(brokers, partition, fail_on_data_loss=False)
        assert left == sorted(set(left))
        assert 0 not in set(range(3_000)) - set(left)
        assert left[-1] == 2_999
        assert len(left) >= 2_000
        assert caplog.text.count("Skipped, because failOnDataLoss=false") == count
        broker.delete_topic(partition.topic)


@pytest.mark.long
def test_a_reader_goes_where_the_leader_goes(cluster: Cluster) -> None:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    cluster.create_topic(partition.topic)
    write(cluster, partition, numbers(5_000), batch_size=5_000)
    brokers = place(cluster.proxied_bootstrap, max_partition_fetch_bytes=20_000)
    reading = batches(brokers, partition)
    seen = next(reading).column("offset").to_pylist()
    cluster.move_leader(partition.topic)
    seen += next(reading).column("offset").to_pylist()
    cluster.kill(cluster.leader(partition.topic))
    seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    assert seen == list(range(5_000))


@pytest.mark.long
def test_records_come_from_the_rack_of_the_reader(cluster: Cluster) -> None:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    cluster.create_topic(partition.topic)
    write(cluster, partition, numbers(5_000), batch_size=5_000)
    leader = cluster.leader(partition.topic)
    near = next(node for node in cluster.brokers if node != leader)
    brokers = place(
        cluster.proxied_bootstrap,
        {"client_id": partition.topic},
        client_rack=f"rack-{near}",
        max_partition_fetch_bytes=20_000,
    )
    for proxy in cluster.proxies.values():
        proxy.sent.clear()
    reading = batches(brokers, partition)
    seen = next(reading).column("offset").to_pylist()
    sent = {node: proxy.sent[FETCH] for node, proxy in cluster.proxies.items()}
    assert max(sent, key=lambda node: sent[node]) == near
    assert sent[leader] < 1_000
    cluster.kill(near)
    seen += [offset for batch in reading for offset in batch.column("offset").to_pylist()]
    assert seen == list(range(5_000))


def test_a_fetch_that_is_given_up_leaves_the_connection_to_nobody(broker: Broker) -> None:
    partition = new_topic(broker)
    write(broker, partition, numbers(5_000), batch_size=5_000)
    brokers = place(broker.bootstrap, {"client_id": partition.topic}, max_partition_fetch_bytes=20_000)
    for _ in range(3):
        reading = batches(brokers, partition)
        assert next(reading).column("offset")[0].as_py() == 0
        del reading
    assert offsets_of(brokers, partition) == list(range(5_000))


def test_fetches_of_one_thread_do_not_meet(broker: Broker) -> None:
    brokers = place(broker.bootstrap, max_partition_fetch_bytes=20_000)
    partitions = [new_topic(broker) for _ in range(3)]
    for partition in partitions:
        write(broker, partition, numbers(3_000), batch_size=5_000)
    seen: dict[TopicPartition, list[int]] = {partition: [] for partition in partitions}
    readings = {partition: batches(brokers, partition) for partition in partitions}
    while readings:
        for partition, reading in list(readings.items()):
            batch = next(reading, None)
            if batch is None:
                del readings[partition]
            else:
                seen[partition] += batch.column("offset").to_pylist()
            assert brokers.watermarks([partition], read_committed=False)
    assert set(map(tuple, seen.values())) == {tuple(range(3_000))}


@pytest.mark.long
def test_the_end_of_a_range_is_not_overshot_by_far(cluster: Cluster) -> None:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    cluster.create_topic(partition.topic)
    write(cluster, partition, numbers(20_000, size=200), batch_size=5_000)
    brokers = place(cluster.proxied_bootstrap, {"client_id": partition.topic})
    offsets_of(brokers, partition, OffsetRange(0, 100))
    for proxy in cluster.proxies.values():
        proxy.sent.clear()
    assert offsets_of(brokers, partition, OffsetRange(1_000, 2_000)) == list(range(1_000, 2_000))
    assert sum(proxy.sent[FETCH] for proxy in cluster.proxies.values()) < 400_000


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_broker_of_old(old_broker: OldBroker, compression: str) -> None:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    old_broker.make_topic(partition.topic)
    option = None if compression == "none" else compression
    write(old_broker, partition, numbers(600), compression_type=option)
    expected = rows_of_kafka_python(old_broker.bootstrap, partition, read_committed=True)
    assert rows(place(old_broker.bootstrap), partition, read_committed=True) == expected
    brokers = place(old_broker.bootstrap, max_partition_fetch_bytes=2_000)
    assert offsets_of(brokers, partition) == list(range(600))


@pytest.mark.long
@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_message_sets_of_old(old_broker: OldBroker, version: str) -> None:
    partition = TopicPartition(f"fetch-{uuid.uuid4().hex[:12]}", 0)
    old_broker.make_topic(partition.topic, 1, {"message.format.version": version})
    for compression in (None, "gzip", "snappy", "lz4"):
        write(
            old_broker,
            partition,
            numbers(500),
            compression_type=compression,
            headers=False,
            enable_idempotence=False,
        )
    expected = rows_of_kafka_python(old_broker.bootstrap, partition, read_committed=False)
    assert len(expected) == 2_000
    for max_bytes in (1, 8 << 20):
        brokers = place(old_broker.bootstrap, max_partition_fetch_bytes=max_bytes)
        found = offsets_of(brokers, partition)
        assert found == [row[0] for row in expected]
        assert offsets_of(brokers, partition, OffsetRange(123, 1_777)) == found[123:1_777]
