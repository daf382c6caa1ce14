"""``kafkalog backup``, ``copy`` and ``adopt``: a real broker, as users meet them."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.broker.producing import connected, numbered, produce, unused_topic
from tests.kafka import Broker
from tests.tools.backup.consuming import consume
from tests.tools.backup.histories import make_log
from tests.tools.cli.running import command, run

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with 1000 records of 100 bytes."""
    topic = unused_topic()
    broker.create_topic(topic, 1, {"retention.ms": 1234567890})
    produce(connected(broker.bootstrap), topic, [numbered(1000, size=100)])
    return topic


def test_it_goes_on_where_it_stopped(broker: Broker, topic: str, tmp_path: Path) -> None:
    group, partition = f"of-{topic}", TopicPartition(topic, 0)
    groups = connect(broker.bootstrap).groups
    groups.commit(group, {partition: CommittedOffset(7, metadata="here")})
    words = ("backup", broker.bootstrap, tmp_path / "b", topic, "--group", group, "--json")
    (row,) = run(*words).json["partitions"]
    assert (row["logStartOffset"], row["logEndOffset"], row["problem"]) == (0, 1000, None)
    assert row["copiedBytes"] > 100_000
    produce(connected(broker.bootstrap), topic, [numbered(10)])
    (row,) = run(*words).json["partitions"]
    assert (row["logEndOffset"], row["highWatermark"]) == (1010, 1010)
    assert row["copiedBytes"] < 1000
    saved = {"path": str(tmp_path / "b")}
    assert connect(saved).place.topic_config(topic) == {"retention.ms": "1234567890"}
    committed = connect(saved).groups.committed(group)[partition]
    assert (committed.offset, committed.metadata) == (7, "here")
    done = run(*words[:-1])
    assert done.code == 0
    assert done.lines[1] == [topic, "0", "0", "1010", "1010", "0", "B", "-"]


@pytest.mark.long
def test_a_topic_made_anew_ends_with_1(broker: Broker, topic: str, tmp_path: Path) -> None:
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups")
    assert run(*words).code == 0
    broker.delete_topic(topic)
    broker.create_topic(topic)
    done = run(*words)
    assert done.code == 1
    assert f"{topic}-0: The topic was deleted and recreated" in done.err


def test_records_deleted_before_they_were_copied(broker: Broker, topic: str, tmp_path: Path) -> None:
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups")
    assert run(*words).code == 0
    for count in (200, 300):  # a batch each
        produce(connected(broker.bootstrap), topic, [numbered(count)])
    broker.delete_records(topic, 1200)
    done = run(*words)
    assert done.code == 1
    assert "Offsets 1000 to 1199 are gone from the source, and were never copied" in done.err
    done = run(*words, "--allow-gaps")
    assert (done.code, done.lines[1][3:]) == (0, ["1500", "1500", *done.lines[1][5:7], "1000-1199"])


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_records_deleted_within_a_batch_never_come_back(
    broker: Broker, topic: str, compression: str, tmp_path: Path
) -> None:
    """Who deletes them erases them: neither the backup nor what is restored from it has them."""
    words = ("backup", broker.bootstrap, tmp_path / "b", topic, "--no-groups")
    assert run(*words).code == 0
    produce(connected(broker.bootstrap), topic, [numbered(300)], compression=compression)
    broker.delete_records(topic, 1200)
    done = run(*words)
    assert (done.code, "Offsets 1000 to 1199 are gone from the source" in done.err) == (1, True)
    for more in ["--allow-gaps"], []:
        done = run(*words, *more)
        assert (done.code, done.lines[1][3], done.lines[1][-1]) == (0, "1300", "1000-1199")
    assert run("verify", tmp_path / "b").code == 0
    kept = {*range(1000), *range(1200, 1300)}
    offsets = connect(tmp_path / "b").read(topic, columns=["offset"]).read_all()["offset"].to_pylist()
    assert (len(offsets), set(offsets)) == (len(kept), kept)
    held = (tmp_path / "b" / f"{topic}-0" / f"{0:020d}.log").read_bytes()
    assert compression != "none" or b"\x140000000199\0" not in held
    again = f"{topic}-again"
    restore = ("restore", tmp_path / "b", broker.bootstrap, topic, "--rename", f"{topic}={again}")
    assert run(*restore, "--state", tmp_path / "state", "--execute").code == 0
    source = consume(broker.bootstrap, topic, [0])[0]
    restored = consume(broker.bootstrap, again, [0])[0]
    assert [r.value for at, r in source.items()] == [r.value for r in restored.values()][-100:]
    assert len(restored) == len(kept)


def test_gaps_are_told_where_a_backup_is_verified_and_restored(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Who restores it is not always who allowed them."""
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups")
    assert run(*words).code == 0
    produce(connected(broker.bootstrap), topic, [numbered(200)])
    produce(connected(broker.bootstrap), topic, [numbered(300)])
    broker.delete_records(topic, 1200)
    assert run(*words, "--allow-gaps").code == 0
    told = f"{topic}-0: Offsets 1000 to 1199 are not in this backup: its source had deleted them"
    done = run("verify", tmp_path)
    assert (done.code, told in done.out) == (0, True)
    restore = ("restore", tmp_path, broker.bootstrap, topic, "--rename", f"{topic}={topic}-again")
    done = run(*restore, "--state", tmp_path / "state")
    assert (done.code, told in done.err) == (0, True)


def test_a_log_directory_of_somebody_else_is_refused(broker: Broker, topic: str, tmp_path: Path) -> None:
    make_log(tmp_path, [(0, 10)])
    done = run("backup", broker.bootstrap, tmp_path, topic, "--no-groups")
    assert done.code == 3
    assert "Expected a backup or an empty folder, got a log directory with partition t-0" in done.err
    assert not (tmp_path / ".kafkalog-backup").exists()


def test_a_source_that_is_not_there_leaves_no_folder(broker: Broker, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert run("backup", broker.bootstrap, new, unused_topic()).code != 0
    assert run("copy", tmp_path / "nowhere", new).code != 0
    assert not new.exists()


def test_another_clusters_backup_is_refused(broker: Broker, topic: str, tmp_path: Path) -> None:
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups")
    assert run(*words).code == 0
    file = tmp_path / ".kafkalog-backup"
    content = json.loads(file.read_text())
    assert content["cluster_id"] == broker.cluster_id
    file.write_text(json.dumps({**content, "cluster_id": "another"}))
    done = run(*words)
    assert done.code == 3
    assert f"is a backup of cluster another, but this is cluster {broker.cluster_id}" in done.err


def test_a_brokers_own_directory_is_refused(broker: Broker, new_broker: Callable[[], Broker]) -> None:
    done = run("backup", broker.bootstrap, new_broker().log_dir)
    assert done.code == 3
    assert "belongs to a broker" in done.err


def test_a_rate_is_kept(broker: Broker, topic: str, tmp_path: Path) -> None:
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups", "--json")
    began = time.monotonic()
    done = run(*words, "--rate", "64K")
    assert time.monotonic() - began > done.json["partitions"][0]["copiedBytes"] / (64 << 10) * 0.9
    assert run(*words, "--rate", "fast").code == 2


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM] * 2, [signal.SIGINT] * 2],
    ids=lambda signals: "-".join(one.name for one in signals),
)
def test_it_follows_until_it_is_ended(
    broker: Broker, topic: str, tmp_path: Path, signals: list[signal.Signals]
) -> None:
    """timeout, and a shell with its whole group, send a signal twice: that is one wish to end."""
    words = ("backup", broker.bootstrap, tmp_path, topic, "--no-groups", "--follow", "--json")
    with subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True) as process:
        log = tmp_path / f"{topic}-0" / "00000000000000000000.log"
        for _ in range(3):
            size = log.stat().st_size if log.exists() else 0
            produce(connected(broker.bootstrap), topic, [numbered(10)])
            deadline = time.monotonic() + 30
            while not log.exists() or log.stat().st_size == size:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        for one in signals:
            process.send_signal(one)
            time.sleep(0.05)
        assert process.wait(30) == 0
        assert process.stdout is not None
        (row,) = json.loads(process.stdout.read())["partitions"]
    assert row["logEndOffset"] >= 1010
    assert (tmp_path / ".kafka_cleanshutdown").exists()
