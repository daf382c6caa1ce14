"""Everything that a real cluster holds is restored into another one, from its files and from itself."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from pyspark_kafkalog import Restored, RestoreSettings, connect
from pyspark_kafkalog.broker.topics.topics import BrokerTopics
from pyspark_kafkalog.errors import BrokerError, DataLossError, OptionError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.records.dump import dump
from tests.kafka import Broker
from tests.kafka_service import running
from tests.log.test_object_store import large_log
from tests.object_store import IDENTITY, SECRET, HttpProxy, ObjectStore, object_store
from tests.tools.backup.consuming import Record, consume, next_of_group
from tests.tools.backup.filling import EVERY_KIND, PARTITIONS, commit, fill
from tests.tools.backup.histories import TOPIC_ID, make_log
from tests.tools.cli.running import Done, command, run

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Records = dict[str, dict[int, dict[int, Record]]]


class Source(NamedTuple):
    """A broker, a copy of its log directory after it was stopped, and what a consumer has read from it.

    ``groups`` are the offsets that each group has committed, in topic and partition.
    """

    broker: Broker
    directory: Path
    records: Records
    groups: dict[str, tuple[str, dict[int, int]]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    settings = {"log.cleaner.backoff.ms": 200, "log.segment.delete.delay.ms": 0}
    broker = Broker(tmp_path_factory.mktemp("source"), settings)
    with running(broker):
        fill(broker, random.Random(7))
        records = {topic: consume(broker.bootstrap, topic, range(PARTITIONS)) for topic in EVERY_KIND}
        groups = {}
        for topic in EVERY_KIND:
            for share in (0, 3, 7, 10):
                offsets = {n: at(list(found), share) for n, found in records[topic].items()}
                groups[f"{topic}-{share}"] = topic, offsets
                commit(broker, f"{topic}-{share}", topic, offsets)
        broker.stop()
        directory = tmp_path_factory.mktemp("backup") / "logs"
        shutil.copytree(broker.log_dir, directory)
        broker.start()
        yield Source(broker, directory, records, groups)


def at(offsets: list[int], share: int) -> int:
    """The offset after so many tenths of the records; also one that has none, as a marker has."""
    if not offsets:
        return 0
    before = len(offsets) * share // 10
    return offsets[before - 1] + 1 if before else offsets[0]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(Broker(tmp_path_factory.mktemp("target"))) as broker:
        yield broker


def restore(
    source: str | Path, target: Broker, state: Path, *, execute: bool = True, **settings: Any
) -> Restored:
    topics = settings.pop("topics", EVERY_KIND)
    chosen = RestoreSettings(tuple(topics), settings.pop("rename", {}), state=str(state), **settings)
    return connect(source).logs.restore(connect(target.bootstrap), chosen, execute=execute)


def check_equal(expected: Records, target: Broker, restored: Restored) -> None:
    """A consumer reads the same records in the same order, at offsets from 0 on."""
    for topic, partitions in expected.items():
        rows = {row.partition: row for row in restored.partitions if row.topic == topic}
        found = consume(target.bootstrap, rows[0].target_topic, partitions, committed=False)
        for number, records in partitions.items():
            assert list(found[number].values()) == list(records.values()), (topic, number)
            assert list(found[number]) == list(range(len(records)))
            assert rows[number].records == len(records)
            assert rows[number].keeps_offsets == (list(found[number]) == list(records))


@pytest.mark.long
def test_a_directory_is_restored_with_groups(source: Source, target: Broker, tmp_path: Path) -> None:
    state = tmp_path / "state"
    topics = [topic for topic in EVERY_KIND if topic != "transactions"]
    restored = restore(source.directory, target, state, topics=topics)
    expected = {topic: source.records[topic] for topic in topics}
    check_equal(expected, target, restored)
    kept = {row.topic for row in restored.partitions if row.keeps_offsets}
    assert {"plain", "compressed", "appended", "large", "empty"} <= kept
    assert not any(row.keeps_offsets for row in restored.partitions if row.topic == "compacted")
    check_groups(source, target, {topic: topic for topic in topics})
    own = connect(target.bootstrap).topics.configs(topics)
    assert own["appended"] == {} or own["appended"]["message.timestamp.type"] == "LogAppendTime"
    # Nothing is done a second time.
    again = restore(source.directory, target, state, topics=topics)
    assert again.partitions == restored.partitions
    assert (restored.was_complete, again.was_complete) == (False, True)
    assert {row.note for row in again.groups} == {"committed before"}
    check_equal(expected, target, again)


def check_groups(source: Source, target: Broker, topics: Mapping[str, str]) -> None:
    """Each group goes on with the record with which it would have gone on in the source."""
    for group, (topic, offsets) in source.groups.items():
        for number, offset in offsets.items() if topic in topics else ():
            later = [record for at, record in source.records[topic][number].items() if at >= offset]
            found = next_of_group(target.bootstrap, group, topics[topic], number)
            if later or topic != "transactions":  # there are others behind the open one
                assert found == (later[0] if later else None), (group, number)


def test_a_cluster_is_restored(source: Source, target: Broker, tmp_path: Path) -> None:
    """What is behind an open transaction is not decided yet, and left out."""
    names = {topic: f"from-cluster-{topic}" for topic in EVERY_KIND}
    restored = restore(source.broker.bootstrap, target, tmp_path / "state", rename=names, groups=())
    check_equal(source.records, target, restored)
    own = connect(target.bootstrap).topics.configs(list(names.values()))
    assert own[names["appended"]] == {"message.timestamp.type": "LogAppendTime"}
    assert own[names["plain"]] == {"retention.ms": "-1", "segment.bytes": str(1 << 20)}
    assert own[names["compacted"]]["cleanup.policy"] == "compact"


def test_a_transaction_of_which_only_the_marker_is_behind_the_end_is_restored(
    source: Source, target: Broker, tmp_path: Path
) -> None:
    """It is behind the last stable offset, too, where another transaction began before the marker came."""
    source.broker.make_topic("marked")
    producer = Producer({"bootstrap.servers": source.broker.bootstrap, "transactional.id": "marked"})
    producer.init_transactions()
    producer.begin_transaction()
    for value in b"a", b"b":
        producer.produce("marked", value)
    producer.commit_transaction()
    for end, values in (1, []), (2, [b"a", b"b"]):
        names, ends = {"marked": f"marked-{end}"}, {TopicPartition("marked", 0): end}
        state = tmp_path / str(end)
        restore(source.broker.bootstrap, target, state, topics=names, rename=names, ends=ends, groups=())
        found = consume(target.bootstrap, f"marked-{end}", [0], committed=False)[0]
        assert [record.value for record in found.values()] == values


def test_transactions_that_are_open_in_a_directory_are_aborted(
    source: Source, target: Broker, tmp_path: Path
) -> None:
    """As a broker would abort them, for their producers are gone."""
    names = {"transactions": "decided"}
    restored = restore(source.directory, target, tmp_path / "state", topics=names, rename=names)
    found = consume(target.bootstrap, "decided", range(PARTITIONS))
    check_groups(source, target, names)
    kept = {number: list(records.values()) for number, records in source.records["transactions"].items()}
    assert all(list(found[number].values())[: len(kept[number])] == kept[number] for number in kept)
    assert sum(map(len, found.values())) > sum(map(len, kept.values()))
    everything = consume(source.broker.bootstrap, "transactions", range(PARTITIONS), committed=False)
    opened = _open_records(source)
    for number, records in found.items():
        rest = [r for r in everything[number].values() if r not in opened[number]]
        assert [r for r in records.values() if r in rest] == list(records.values())
    names = {"transactions": "undecided"}
    restore(
        source.directory,
        target,
        tmp_path / "all",
        topics=names,
        rename=names,
        groups=(),
        read_committed=False,
    )
    found = consume(target.bootstrap, "undecided", range(PARTITIONS), committed=False)
    for number, records in everything.items():
        assert list(found[number].values()) == list(records.values())
    assert restored.partitions


def _open_records(source: Source) -> dict[int, list[Record]]:
    """The records of the transaction that was never ended, by the broker's own account of it."""
    directory = connect(source.directory).place
    everything = consume(source.broker.bootstrap, "transactions", range(PARTITIONS), committed=False)
    bounds = directory.watermarks(
        [TopicPartition("transactions", n) for n in range(PARTITIONS)], read_committed=True
    )
    firsts = {}
    for partition, watermarks in bounds.items():
        (batch,) = (
            batch
            for batch in dump(directory, partition)
            if batch.base_offset == watermarks.last_stable_offset
        )
        firsts[partition.partition] = batch.producer_id
    return {
        number: [
            everything[number][offset]
            for batch in dump(directory, TopicPartition("transactions", number))
            if batch.producer_id == producer and not batch.is_control
            for offset in range(batch.base_offset, batch.last_offset + 1)
        ]
        for number, producer in firsts.items()
    }


def test_ends(source: Source, target: Broker, tmp_path: Path) -> None:
    names = {"plain": "ended"}
    ends = {TopicPartition("plain", 0): 10, TopicPartition("plain", 1): 0}
    restored = restore(source.directory, target, tmp_path / "state", topics=names, rename=names, ends=ends)
    assert [row.records for row in restored.partitions][:2] == [10, 0]
    names = {"plain": "until"}
    restored = restore(
        source.directory, target, tmp_path / "until", topics=names, rename=names, until=1_600_000_500_000
    )
    for row in restored.partitions:
        times = [record.timestamp for record in source.records["plain"][row.partition].values()]
        assert row.records == next(i for i, time in enumerate(times) if time >= 1_600_000_500_000)


@pytest.mark.long
def test_what_is_refused(source: Source, target: Broker, tmp_path: Path) -> None:
    names = {"plain": "refused"}
    restore(source.directory, target, tmp_path / "state", topics=names, rename=names)
    with pytest.raises(OptionError, match="has records already"):
        restore(source.directory, target, tmp_path / "other", topics=names, rename=names)
    with pytest.raises(OptionError, match="other topics, names or ends"):
        restore(source.directory, target, tmp_path / "state", topics=names, rename=names, until=5)
    (tmp_path / "junk").write_text("no state\n")
    with pytest.raises(OptionError, match="is not that of a restore"):
        restore(source.directory, target, tmp_path / "junk", topics=names, rename=names)
    with pytest.raises(OptionError, match="same name"):
        restore(
            source.directory, target, tmp_path / "x", topics=("plain", "empty"), rename={"empty": "plain"}
        )
    target.delete_topic("refused")
    with pytest.raises(OptionError, match="is not the one"):
        restore(source.directory, target, tmp_path / "state", topics=names, rename=names)


def test_brokers_that_name_no_configurations(
    target: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan is made by which a topic would stay at LogAppendTime."""
    monkeypatch.setattr(BrokerTopics, "leader_configs", lambda _, expected: {name: {} for name in expected})
    make_log(tmp_path / "old", [(0, 20)])
    names = {"t": "nameless"}
    with pytest.raises(BrokerError, match="name no configurations of topic nameless"):
        restore(tmp_path / "old", target, tmp_path / "state", topics=names, rename=names)
    assert not (tmp_path / "state").exists()


def test_another_source_is_refused(target: Broker, tmp_path: Path) -> None:
    """A topic is known by its id, and without one by where it is."""
    for topic_id, name in ((TOPIC_ID, "by-id"), ("", "by-place")):
        names, state, old = {"t": name}, tmp_path / f"state-{name}", tmp_path / name
        make_log(old, [(0, 100)], topic_id=topic_id)
        restore(old, target, state, topics=names, rename=names)
        moved = old.rename(tmp_path / f"moved-{name}")
        make_log(old, [(0, 100)], topic_id="AAAAAAAAAAAAAAAAAAAAAg")
        with pytest.raises(DataLossError, match="not the one from which this restore began"):
            restore(old, target, state, topics=names, rename=names)
        if topic_id:
            assert restore(moved, target, state, topics=names, rename=names).partitions[0].records == 100
        else:
            with pytest.raises(OptionError, match="begun from another source"):
                restore(moved, target, state, topics=names, rename=names)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_dry_run_goes_on_where_a_run_ended(target: Broker, tmp_path: Path, is_done: bool) -> None:
    """It shows what that has written, though the source has lost some of it since."""
    old, state, name = tmp_path / "old", tmp_path / "state", f"dry-{is_done}"
    settings: dict[str, Any] = {"topics": ["t"], "rename": {"t": name}, "groups": ()}
    make_log(old, [(0, 400)])
    (done,) = restore(old, target, state, **settings).partitions
    if not is_done:
        state.write_text("".join(state.read_text().splitlines(keepends=True)[:-1]))
    shutil.rmtree(old)
    make_log(old, [(0, 400)], start=300)
    (planned,) = restore(old, target, state, execute=False, **settings).partitions
    assert replace(planned, stored_bytes=None) == replace(done, stored_bytes=None)


def test_records_without_a_key_in_a_compacted_topic(target: Broker, tmp_path: Path) -> None:
    """A topic may have them from before it was compacted, and brokers refuse new ones."""
    make_log(tmp_path / "old", [(0, 20)])
    configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
    names = {"t": "without-keys"}
    restore(tmp_path / "old", target, tmp_path / "state", topics=names, rename=names, configs=configs)
    assert len(consume(target.bootstrap, "without-keys", [0])[0]) == 20
    own = connect(target.bootstrap).topics.configs(["without-keys"])
    assert own == {"without-keys": configs}


def test_records_of_others_are_noticed(source: Source, target: Broker, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    state, names = tmp_path / "state", {"plain": "shared"}
    restore(source.directory, target, state, topics=names, rename=names)
    lines = [line for line in state.read_text().splitlines() if not json.loads(line).get("done")]
    state.write_text("".join(f"{line}\n" for line in lines))
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce("shared", b"not ours", partition=1)
    producer.flush()
    with pytest.raises(BrokerError, match="not one of this restore") as e:
        restore(source.directory, target, state, topics=names, rename=names)
    assert f"delete the topics that this restore has made, and its file {state}" in (e.value.hint or "")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, source: Source) -> Iterator[ObjectStore]:
    """With the source's directory as ``logs``."""
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        store.put(source.directory, "logs")
        yield store


def check_hidden(done: Done) -> Done:
    assert not [word for word in (IDENTITY, SECRET, "wrong") if word in done.out + done.err], done
    return done


@contextmanager
def begun(*words: object, state: Path) -> Iterator[subprocess.Popen[str]]:
    """A restore in a process of its own, which has sent some records, or is about to."""
    slowly = command(*words, "--state", state, "--execute", "--json")
    with subprocess.Popen(slowly, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not state.exists() or len(state.read_text().splitlines()) < 2:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.soak  # the server is compiled first
def test_a_bucket_is_restored(source: Source, target: Broker, store: ObjectStore, tmp_path: Path) -> None:
    """Killed in the middle, it goes on from the same bucket at another address, or from a copy of it."""
    state = tmp_path / "state"
    names = {topic: f"from-bucket-{topic}" for topic in EVERY_KIND if topic != "transactions"}
    named = [word for pair in names.items() for word in (pair[0], "--rename", "=".join(pair))]

    def words(source: object) -> tuple[object, ...]:
        return "restore", source, target.bootstrap, *named

    def records() -> int:
        place = connect(target.bootstrap).place
        partitions = [TopicPartition(topic, n) for topic in names.values() for n in range(PARTITIONS)]
        return sum(place.end_offsets(partitions, read_committed=False).values())

    planned = check_hidden(run(*words(store.uri("logs")), "--state", state, "--json"))
    assert planned.json == run(*words(source.directory), "--state", state, "--json").json
    with begun(*words(store.uri("logs")), "--rate", "500k", state=state) as process:
        while not records():
            time.sleep(0.01)
        process.kill()
        check_hidden(Done(0, *process.communicate()))
    before = records()
    with HttpProxy(store.address) as proxy:
        at_another = store.uri("logs", proxy.address)
        done = check_hidden(run(*words(at_another), "--state", state, "--execute", "--json"))
        assert done.code == 0, done.err
        assert proxy.total
    assert done.json["partitions"] == planned.json["partitions"]
    assert 0 < before < records()
    check_hidden(Done(0, state.read_text(), ""))
    again = restore(source.directory, target, state, topics=names, rename=names)
    check_equal({topic: source.records[topic] for topic in names}, target, again)
    check_groups(source, target, names)


@pytest.mark.soak
def test_what_is_refused_of_a_bucket(target: Broker, store: ObjectStore, tmp_path: Path) -> None:
    """Credentials are in no error."""
    uri, state = store.uri("logs"), tmp_path / "state"

    def refused(source: str, *words: object) -> str:
        done = check_hidden(run("restore", source, target.bootstrap, *words, "--execute"))
        assert done.code in (2, 3), done
        return done.err

    assert "Name a new file by --state" in refused(uri)
    assert "Expected a local file" in refused(uri, "--state", store.uri("state"))
    assert "does not exist (file s3://bucket/missing)" in refused(store.uri("missing"), "--state", state)
    assert "(file s3://bucket/logs)" in refused(uri.replace(SECRET, "wrong"), "--state", state)
    assert "in two log roots" in refused(f"{uri},{store.uri('logs')}", "--state", state)
    assert not state.exists()
    large_log(tmp_path / "large", 80)
    store.put(tmp_path / "large", "large")
    with HttpProxy(store.address) as proxy:
        words = "restore", store.uri("large", proxy.address), target.bootstrap, "--rename", "t=from-nowhere"
        with begun(*words, "--rate", "20m", state=state) as process:
            proxy.latency = 3600
            proxy.__exit__()
            output, errors = process.communicate()
            check_hidden(Done(0, output, errors))
    assert process.returncode == 3
    assert "(file s3://bucket/large/t-0/" in errors


@pytest.mark.parametrize("is_done", [False, True])
def test_what_comes_after_the_first_run_is_told_and_not_restored(
    target: Broker, tmp_path: Path, is_done: bool
) -> None:
    old, state, name = tmp_path / "old", tmp_path / "state", f"grown-{is_done}"
    settings: dict[str, Any] = {"topics": ["t"], "rename": {"t": name}, "groups": ()}
    make_log(old, [(0, 100)])
    for _ in range(2):
        assert not restore(old, target, state, **settings).unplanned
    if not is_done:
        state.write_text("".join(state.read_text().splitlines(keepends=True)[:-1]))
    shutil.rmtree(old)
    make_log(old, [(0, 130)])
    make_log(old, [(0, 5)], partition=TopicPartition("t", 1))
    words = ("restore", old, target.bootstrap, "t", "--rename", f"t={name}", "--no-groups")
    for execute in [], ["--execute"]:
        done = run(*words, "--state", state, *execute)
        assert done.code == 1
        for offsets in "t-0: offsets 100 to 129 ", "t-1: offsets 0 to 4 ":
            assert f"{offsets}were added to BACKUP after the first run" in done.err
        assert "(--rename), and another --state.\n" in done.err
    found = restore(old, target, state, **settings)
    assert [(left.partition, left.start, left.end) for left in found.unplanned] == [(0, 100, 130), (1, 0, 5)]
    assert [row.records for row in found.partitions] == [100]
    until = {**settings, "rename": {"t": f"{name}-until"}, "ends": {TopicPartition("t", 0): 50}}
    for _ in range(2):
        assert not restore(old, target, tmp_path / "2", **until).unplanned
