"""A query goes on in a cluster to which MirrorMaker 2 copies: no record is lost, and few come again."""

from __future__ import annotations

import itertools
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import (
    CorruptRecordError,
    Kafka,
    KafkaLogError,
    OptionError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    connect,
    register,
)
from pyspark_kafkalog.tools.checkpoint.mirror_maker import MirrorMaker, NearSyncs, decode_key
from pyspark_kafkalog.tools.checkpoint.translation import EARLIER, EXACT, UNKNOWN, Translated
from pyspark_kafkalog.tools.try_out.local_broker import write_properties
from tests.kafka import Broker
from tests.kafka_jars import mirror_maker_jars
from tests.kafka_process import JavaServer, java_server
from tests.tools.checkpoint.checkpoints import at, checkpoint
from tests.tools.checkpoint.test_restart import Job
from tests.tools.cli.running import run

SYNCS = "mm2-offset-syncs.b.internal"
COPY = TopicPartition("a.t", 0)


def near(offset: int, *syncs: tuple[int, int], at_once: int = 100) -> NearSyncs:
    found = NearSyncs(offset)
    rows = np.array(syncs, np.int64).reshape(-1, 2)
    for start in range(0, len(rows), at_once):
        found.add(rows[start : start + at_once])
    return found


@pytest.mark.parametrize("at_once", [1, 2, 100])
@pytest.mark.parametrize(
    ("offset", "syncs", "expected"),
    [
        (10, [(10, 7)], (7, EXACT, 0)),
        (11, [(10, 7)], (8, EXACT, 0)),
        (12, [(10, 7)], (8, EARLIER, 1)),
        (90, [(10, 7)], (8, EARLIER, 79)),
        (19, [(10, 7), (20, 17), (30, 27)], (8, EARLIER, 8)),
        (20, [(10, 7), (20, 17), (30, 27)], (17, EXACT, 0)),
        (31, [(10, 7), (20, 17), (30, 27)], (28, EXACT, 0)),
        # Compaction has left few records in the source, and so in the target.
        (19, [(10, 7), (20, 8)], (8, EARLIER, 8)),
        # The target has transactions.
        (19, [(10, 7), (20, 21)], (8, EARLIER, 8)),
        # MirrorMaker says the same again.
        (19, [(10, 7), (10, 7), (20, 17), (20, 17)], (8, EARLIER, 8)),
        # It copies again from 10 on, after a crash: 20 is only before that.
        (19, [(10, 7), (20, 17), (10, 18), (15, 23)], (8, EARLIER, None)),
        (15, [(15, 12), (20, 17), (15, 18)], (12, EARLIER, None)),
        (12, [(10, 7), (20, 17), (15, 18)], (8, EARLIER, 1)),
        (20, [(10, 7), (20, 17), (10, 18), (15, 23)], (17, EARLIER, None)),
        (21, [(10, 7), (20, 17), (10, 18), (15, 23)], (24, EARLIER, 5)),
        # It has come as far as before.
        (19, [(10, 7), (20, 17), (10, 18), (15, 23), (20, 28)], (24, EARLIER, 3)),
        (20, [(10, 7), (20, 17), (20, 18)], (18, EXACT, 0)),
        # What it copies again begins behind the last sync before the crash, which was at 30 or so.
        (25, [(20, 17), (22, 28)], (18, EARLIER, None)),
        (25, [(20, 17), (22, 28), (30, 36)], (29, EARLIER, 2)),
        (31, [(20, 17), (22, 28)], (29, EARLIER, 8)),
        # The target was created again.
        (25, [(10, 7), (20, 17), (25, 0)], (0, EXACT, 0)),
        (25, [(10, 70), (20, 80), (24, 80)], (81, EXACT, 0)),
        (0, [(10, 7)], (0, EXACT, 0)),
        (0, [], (0, EXACT, 0)),
    ],
)
def test_the_sync_before_counts(
    offset: int, syncs: Sequence[tuple[int, int]], expected: tuple[int, str, int | None], at_once: int
) -> None:
    assert near(offset, *syncs, at_once=at_once).translated(COPY)[:4] == (COPY, *expected)


@pytest.mark.parametrize(
    ("offset", "syncs", "note"),
    [
        (9, [(10, 7)], "before the first sync that is left, at 10"),
        (9, [(10, 7), (20, 17), (15, 18)], "before the first sync that is left, at 10"),
        (22, [(10, 7), (20, 17), (25, 3)], "before the first sync that is left, at 25"),
        (9, [], "no offset sync"),
    ],
)
def test_nothing_tells_what_is_before_the_first_sync(
    offset: int, syncs: Sequence[tuple[int, int]], note: str
) -> None:
    found = near(offset, *syncs).translated(COPY)
    assert found[:4] == (COPY, None, UNKNOWN, None)
    assert note in found.note


def copy_at_random(chance: random.Random, *, crashes: bool) -> tuple[list[int], list[tuple[int, int]]]:
    """What MirrorMaker leaves: the source's offset of each record in the target, and the syncs."""
    source = list(itertools.accumulate(chance.choices([1, 2, 7], [6, 1, 1], k=120)))
    target: list[int] = [-1] * chance.randrange(4)  # records of others
    syncs: list[tuple[int, int]] = []
    at, max_lag = chance.randrange(3), chance.choice([0, 1, 4, 20])
    for _ in range(1 + crashes * chance.randrange(4)):
        before = last = None
        for offset in source[at : at + chance.randrange(1, 30)]:
            if last is None or offset - 1 != before or len(target) - (last + 1) >= max_lag:
                syncs.append((offset, len(target)))
                last = len(target)
            before = offset
            target.append(offset)
            at += 1
        if crashes and chance.random() < 0.2:
            target = []  # created again
            at = max(0, at - 1)
        elif crashes:
            at = max(0, at - chance.randrange(10))
    if not target:
        syncs = []
    # Compaction leaves no sync that a crash has left behind for as long as that.
    whole = [n for n, sync in enumerate(syncs) if max(target[: sync[1]], default=-1) < sync[0]]
    return target, syncs[chance.choice([0, *whole]) :]


@pytest.mark.parametrize("crashes", [False, True])
def test_no_record_is_lost_and_no_more_come_again_than_said(chance: random.Random, crashes: bool) -> None:
    exactnesses = set()
    for _ in range(150):
        target, syncs = copy_at_random(chance, crashes=crashes)
        for offset in range(max([*target, 0]) + 3):
            found = near(offset, *syncs, at_once=chance.choice([1, 3, 100])).translated(COPY)
            exactnesses.add(found.exactness)
            if found.offset is None:
                continue
            to_read = {source for source in target if source >= offset}
            assert to_read <= {*target[found.offset :]}, (offset, syncs, target)
            again = [source for source in target[found.offset :] if source < offset]
            assert crashes or found.repeated is not None
            if found.repeated is not None and offset:
                assert len(again) <= found.repeated, (offset, syncs, target)
    assert exactnesses == {EXACT, EARLIER, UNKNOWN}


def a_key(topic: str = "t", partition: int = 0) -> bytes:
    return struct.pack(f">h{len(topic)}si", len(topic), topic.encode(), partition)


def a_value(upstream: int, downstream: int) -> bytes:
    return struct.pack(">qq", upstream, downstream)


@pytest.mark.parametrize(
    "key",
    [
        *(a_key()[:size] for size in range(len(a_key()))),
        a_key() + b"\0",
        a_key(partition=-1),
        b"\xff\xff\0\0\0\0",
        b"\x7f\xff" + a_key()[2:],
        b"\x80\0" + a_key()[2:],
        b'{"topic":"t","partition":0}',
    ],
)
def test_keys_of_anything_else_are_refused(key: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_key(key)


def test_the_key_of_a_sync() -> None:
    assert decode_key(a_key("orders", 7)) == TopicPartition("orders", 7)


@pytest.fixture
def clusters(tmp_path: Path) -> tuple[Kafka, Kafka]:
    """Log directories that stand for them: ``t`` of the first is ``a.t`` of the second, from offset 3 on."""
    source, target = (connect(tmp_path / name) for name in ("source", "target"))
    write(source, "t", [b"%d" % number for number in range(43)])
    write(target, "a.t", [b"%d" % number for number in range(3, 43)])
    return source, target


def write(
    kafka: Kafka, topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()
) -> None:
    rows = {
        "key": pa.array(keys or [None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array([1_796_033_623_458_000] * len(values), pa.timestamp("us", "UTC")),
    }
    kafka.write(pa.table(rows), topic)


def write_syncs(kafka: Kafka, *syncs: tuple[int, int], topic: str = SYNCS) -> None:
    write(kafka, topic, [a_value(*sync) for sync in syncs], [a_key()] * len(syncs))


@pytest.mark.parametrize("location", ["source", "target"])
def test_a_move_of_a_checkpoint(clusters: tuple[Kafka, Kafka], tmp_path: Path, location: str) -> None:
    source, target = clusters
    topic = SYNCS if location == "source" else "mm2-offset-syncs.a.internal"
    kafka = source if location == "source" else target
    write(kafka, topic, [a_value(5, 2), a_value(9, 9)], [a_key("t", 0), a_key("u", 0)])
    write_syncs(kafka, (10, 7), (20, 17), topic=topic)
    folder = checkpoint(tmp_path / "c", [[at(t={0: 15})]])
    words = ("checkpoint", "move", folder, target.name, "--mm2", source.name, "--stopped")
    done = run(*words)
    assert done.code == 3
    assert "No such partition: t-0" in done.err
    done = run(*words, "--mm2-prefix", "a.", "--execute", "--json")
    assert done.code == 0, done.err
    (row,) = done.json["offsets"]
    note = "was t-0; earlier, at most 4 again: the sync before is at 10"
    assert (row["topic"], row["current"], row["offset"], row["note"]) == ("a.t", 15, 8, note)
    assert (folder / "offsets" / "0").read_text().endswith(at(**{"a.t": {0: 8}}))


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "map").touch()
    words = ("checkpoint", "move", tmp_path, tmp_path)
    for more in (
        (),
        ("--map", tmp_path / "map", "--mm2", tmp_path),
        ("--map", tmp_path / "map", "--mm2-unproven"),
        ("--map", tmp_path / "map", "--mm2-prefix", "a."),
    ):
        assert run(*words, *more).code == 2


def translated(clusters: tuple[Kafka, Kafka], offset: int, **settings: object) -> Translated:
    maker = MirrorMaker(*clusters, **{"prefix": "a.", **settings})  # type: ignore[arg-type]
    (found,) = maker.translate({TopicPartition("t", 0): offset}).values()
    return found


def test_syncs_of_other_records_are_refused(clusters: tuple[Kafka, Kafka]) -> None:
    write_syncs(clusters[0], (10, 7), (20, 18))
    assert translated(clusters, 12).offset == 8
    with pytest.raises(KafkaLogError, match=r"at offset 20 of the source is not that at offset 18 of a.t-0"):
        translated(clusters, 22, unproven=True)


def test_equal_records_of_another_time_are_others(clusters: tuple[Kafka, Kafka], tmp_path: Path) -> None:
    source, _ = clusters
    target = connect(tmp_path / "other")
    target.write(pa.table({"value": [b"%d" % number for number in range(3, 43)]}), "a.t")
    write_syncs(source, (10, 7))
    with pytest.raises(KafkaLogError, match="is not that"):
        translated((source, target), 12)


def test_records_that_are_gone_prove_nothing(clusters: tuple[Kafka, Kafka]) -> None:
    source, target = clusters
    write_syncs(source, (10, 7), (1000, 997))
    assert translated(clusters, 11).offset == 8
    write_syncs(source, (2000, 1997))
    with pytest.raises(KafkaLogError, match=r"No record is left in both clusters .*: t-0\. .*unproven=True"):
        translated(clusters, 1002)
    assert translated(clusters, 1002, unproven=True).offset == 998
    write_syncs(target, (20, 17), topic="mm2-offset-syncs.a.internal")
    with pytest.raises(KafkaLogError, match="No record is left"):
        translated((target, target), 21)
    assert translated((target, connect(target.name)), 21, unproven=True).offset == 18


def test_the_topic_of_the_syncs_is_one(clusters: tuple[Kafka, Kafka]) -> None:
    source, target = clusters
    with pytest.raises(OptionError, match=r"There is no topic mm2-offset-syncs.<alias>.internal in .* and "):
        translated(clusters, 11)
    write_syncs(source, (10, 7))
    other = "mm2-offset-syncs.a.internal"
    write(target, other, [a_value(10, 6)], [a_key("u")])  # of the way back
    assert translated(clusters, 11).offset == 8
    write_syncs(target, (10, 6), topic=other)
    with pytest.raises(OptionError, match=r"There are 2 topics with offset syncs: .*b.internal in .*, mm2"):
        translated(clusters, 11)
    assert translated(clusters, 11, syncs=SYNCS).offset == 8
    with pytest.raises(OptionError, match="There is no other in"):
        translated(clusters, 11, syncs="other")


def test_topics_that_were_created_again_are_refused(clusters: tuple[Kafka, Kafka]) -> None:
    ids = clusters[0].place.topic_ids({"t"})
    maker = MirrorMaker(*clusters)
    assert {*maker.check_source(ids)} == {"t"}
    assert not MirrorMaker(clusters[1], clusters[1]).check_source(ids)
    assert ids["t"]
    with pytest.raises(KafkaLogError, match="other topics than the query has read: t"):
        maker.check_source({"t": "M" * 22})


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (a_key(), a_value(1, 2)[:15], "expected 16 bytes as the value, got 15"),
        (a_key(), a_value(1, 2) + b"\0", "expected 16 bytes as the value, got 17"),
        (a_key(), b"", "expected 16 bytes as the value, got 0"),
        (a_key(), a_value(-1, 2), "an offset is out of bounds"),
        (a_key(), a_value(1, -(2**63)), "an offset is out of bounds"),
        (a_key(), a_value(2**63 - 1, 2), "an offset is out of bounds"),
        (a_key()[:4], a_value(1, 2), "Expected 4 bytes, got 1"),
        (None, a_value(1, 2), "the key is null"),
        (a_key() + b"x", a_value(1, 2), "other fields than"),
    ],
)
def test_what_is_no_sync_is_refused(
    clusters: tuple[Kafka, Kafka], key: bytes | None, value: bytes, what: str
) -> None:
    write(clusters[0], SYNCS, [a_value(10, 7), a_value(20, 17), value], [a_key(), a_key(), key])
    with pytest.raises(CorruptRecordError, match=rf"{what}.* \(partition {SYNCS}-0, offset 2\)"):
        translated(clusters, 30)


def test_a_tombstone_deletes_the_syncs_before_it(clusters: tuple[Kafka, Kafka]) -> None:
    write(clusters[0], SYNCS, [a_value(10, 7), None], [a_key(), a_key()])
    assert translated(clusters, 11).exactness == UNKNOWN
    write_syncs(clusters[0], (20, 17))
    assert translated(clusters, 11).exactness == UNKNOWN
    assert translated(clusters, 21).offset == 18


def test_a_missing_copy_names_the_way_out(clusters: tuple[Kafka, Kafka]) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"No such partition: t-0. Say by prefix"):
        translated(clusters, 11, prefix="")


@contextmanager
def mirror_maker(
    source: Broker, target: Broker, folder: Path, settings: Mapping[str, object]
) -> Iterator[JavaServer]:
    """A running MirrorMaker 2 that copies from one to the other."""
    internal = (
        *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
        *("offset.storage", "status.storage", "config.storage"),
    )
    properties = {
        "clusters": "src,dst",
        "src.bootstrap.servers": source.bootstrap,
        "dst.bootstrap.servers": target.bootstrap,
        "src->dst.enabled": "true",
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "replication.factor": 1,
        **{f"{topic}.replication.factor": 1 for topic in internal},
        **settings,
    }
    folder.mkdir()
    file = write_properties(folder / "mm2.properties", properties)
    main_class = "org.apache.kafka.connect.mirror.MirrorMaker"
    server = java_server(mirror_maker_jars(), main_class, file, folder / "log", ["-Xmx192m"])
    server.launch()
    try:
        yield server
    finally:
        server.stop(kill=True)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("location", ["source", "target"])
def test_a_query_that_is_moved(
    spark: SparkSession,
    broker: Broker,
    new_broker: Callable[..., Broker],
    tmp_path: Path,
    location: str,
) -> None:
    session = spark.newSession()
    register(session)
    target = new_broker()
    target.start()
    topic = f"mirrored-{location}"
    prefix = "src." if location == "source" else ""
    policy = "DefaultReplicationPolicy" if prefix else "IdentityReplicationPolicy"
    settings = {
        "src->dst.topics": topic,
        "offset-syncs.topic.location": location,
        "replication.policy.class": f"org.apache.kafka.connect.mirror.{policy}",
        "offset.lag.max": 8,
        # Else a sync follows of all that was copied.
        "offset.flush.interval.ms": 3_600_000,
    }

    def jobs(kafka: Broker, topic: str) -> list[Job]:
        place = {"kafka.bootstrap.servers": kafka.bootstrap}
        return [Job(session, name, place, topic, tmp_path / name) for name in ("kafka", "kafkalog")]

    def copied() -> int:
        ends = {TopicPartition(prefix + topic, number) for number in range(2)}
        found = connect(target.bootstrap).place.end_offsets(ends, read_committed=False)
        return sum(found.values())

    broker.create_topic(topic, 2)
    writer, *_ = old = jobs(broker, topic)
    writer.write(10)
    broker.delete_records(topic, 2)  # so that offsets differ
    writer.write(90)
    for job in old:
        assert job.run() == [number for number in range(100) if number not in (0, 2)]
    with mirror_maker(broker, target, tmp_path / "mm2", settings) as server:
        server.wait_until(lambda: copied() >= 98)
        writer.write(53)
        server.wait_until(lambda: copied() >= 98 + 53)
        assert old[0].run() == list(range(100, 153))
        read = {"kafka": 153, "kafkalog": 100}
        writer.write(10)
        server.wait_until(lambda: copied() >= 98 + 63)
    for job in jobs(target, prefix + topic):
        words = ("checkpoint", "move", job.checkpoint, target.bootstrap, "--mm2", broker.bootstrap)
        done = run(*words, "--mm2-prefix", prefix, "--stopped", "--execute", "--json")
        assert done.code == 0, done.err
        notes = [row["note"] for row in done.json["offsets"]]
        again = sum(int(found) for note in notes for found in re.findall("at most ([0-9]+) again", note))
        came = job.run()
        assert [number for number in came if number >= read[job.format]] == [*range(read[job.format], 163)]
        assert 0 < len(came) - (163 - read[job.format]) <= again < 2 * 8
    if location == "source":
        broker.delete_topic("mm2-offset-syncs.dst.internal")
