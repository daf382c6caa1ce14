"""Reports of a cluster in which one broker is down, and one hangs: each part says for itself what is wrong.

``half`` has a partition on each broker, and so has ``__consumer_offsets``, without replicas. Broker 1 is
down, and known to be so; broker 3 is paused, and still the leader, as there is no quorum of controllers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition as KafkaTopicPartition

from pyspark_kafkalog import connect
from pyspark_kafkalog.codec.offsets_topic import offsets_partition
from pyspark_kafkalog.extensions.views.options import ViewOptions, view_options
from pyspark_kafkalog.extensions.views.views import view_table
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from pyspark_kafkalog.options.settings import place_options
from tests.conftest import running
from tests.kafka_cluster import Cluster
from tests.tools.cli.running import Done
from tests.tools.cli.running import run as run_command

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FINE, DOWN, HUNG = 2, 1, 3
NODES = (FINE, DOWN, HUNG)
GROUPS = {
    node: next(name for name in map("g{}".format, range(100)) if offsets_partition(name, 3) == number)
    for number, node in enumerate(NODES)
}
"""A group that each broker coordinates."""
NO_LEADER = "LEADER_NOT_AVAILABLE (no leader)"
SILENT = "did not"
UNLISTED = f"The groups in 1 of 3 partitions of {OFFSETS_TOPIC} are not listed: no leader"


def run(*words: object) -> Done:
    """A command that waits less than by default."""
    return run_command(*words, "-o", "request.timeout.ms=2500")


@pytest.fixture(scope="module")
def outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 3}
    with running(Cluster(tmp_path_factory.mktemp("outage"), settings)) as cluster:
        cluster.make_topic("half", 3)
        cluster.make_topic("whole")
        commits = {TopicPartition("half", number): CommittedOffset(0) for number in range(3)}
        with connect(cluster.bootstrap) as kafka:
            kafka.write(_rows(), "half")
            kafka.write(_rows(), "whole")
            kafka.groups.commit("made", commits)
        wanted = {
            KafkaTopicPartition(topic, number): [node]
            for topic in ("half", OFFSETS_TOPIC)
            for number, node in enumerate(NODES)
        }
        with cluster.admin() as admin:
            admin.alter_partition_reassignments({**wanted, KafkaTopicPartition("whole", 0): [FINE]})
        for partition, (node,) in wanted.items():
            cluster.wait_until(
                lambda p=partition, n=node: cluster.leader(p.topic, p.partition) == n, "It does not move"
            )
        with connect(cluster.bootstrap) as kafka:
            for group in GROUPS.values():
                kafka.groups.commit(group, {**commits, TopicPartition("whole", 0): CommittedOffset(1)})
        cluster.kill(DOWN)
        at = cluster.brokers[FINE].bootstrap
        cluster.wait_until(lambda: "no leader" in run("topics", "describe", at).out, "It is not missed")
        cluster.pause(HUNG)
        yield cluster
        cluster.resume(HUNG)


def _rows() -> object:
    import pyarrow as pa

    return pa.table({"value": [b"x"] * 30, "partition": pa.array([0] * 30, pa.int32())})


def _view(name: str) -> ViewOptions:
    found = view_options({"kafka.bootstrap.servers": "host:9092", "view": name})
    assert found is not None
    return found


@pytest.fixture
def at(outage: Cluster) -> str:
    return outage.brokers[FINE].bootstrap


@pytest.mark.long
def test_topics(at: str) -> None:
    done = run_command("topics", at, "--json")
    assert "Retrying" not in done.err
    fine, down, hung, whole = done.rows
    assert (fine["logStartOffset"], fine["highWatermark"], fine["note"]) == (0, 30, "")
    assert (whole["highWatermark"], whole["note"]) == (30, "")
    assert down["highWatermark"] is hung["highWatermark"] is None
    assert NO_LEADER in down["note"]
    assert SILENT in hung["note"]
    assert done.code == 1
    assert run("topics", at, "whole").code == 0


@pytest.mark.long
def test_lag_and_offsets(at: str) -> None:
    name = GROUPS[FINE]
    named = run("offsets", at, "--group", name, "--json")
    assert named.code == 0
    rows = {(row["topic"], row["partition"]): row for row in named.rows}
    assert [rows["half", number]["state"] for number in range(3)] == ["ok", "unknown", "unknown"]
    assert NO_LEADER in rows["half", 1]["note"]
    assert SILENT in rows["half", 2]["note"]
    assert rows["half", 1]["offset"] == 0, "the commit is known"
    assert (rows["whole", 0]["lag"], rows["half", 0]["lag"]) == (29, 30)

    done = run("lag", at, "--max-lag", "1000000", "--json")
    assert done.code == 1
    found = {row["group"]: row for row in done.json["groups"]}
    assert found[name]["state"] == "unknown"
    assert found[name]["lag"] == 59, "of those that tell"
    assert found[name]["note"].startswith("half-1 and 1 more: ")
    assert found[""]["state"] == "failed"
    assert done.json["lag"] is None
    assert GROUPS[DOWN] not in found

    done = run("lag", at)
    assert UNLISTED in done.out
    assert f"The groups of broker {HUNG} are not listed" in done.out
    assert done.lines[-1] == ["Total", "lag:", "unknown"]
    assert run("lag", at, "--group", name, "whole", "--max-lag", 29).code == 0
    assert run("lag", at, "--group", name, "half", "--max-lag", 1000).code == 1


@pytest.mark.long
def test_prometheus(at: str) -> None:
    done = run("lag", at, "--prometheus")
    assert done.code == 0, "an alarm needs the metrics"
    lines = done.out.splitlines()
    name = GROUPS[FINE]
    assert f'kafka_consumergroup_lag{{consumergroup="{name}",topic="whole",partition="0"}} 29' in lines
    trouble = "kafkalog_consumergroup_trouble{consumergroup="
    for number in (1, 2):
        assert f'{trouble}"{name}",topic="half",partition="{number}",state="unknown"}} 1' in lines
    assert f'{trouble}"",state="failed"}} 1' in lines


def test_groups(at: str) -> None:
    done = run("groups", at, "--json")
    found = {row["group"]: row for row in done.rows}
    assert found[GROUPS[FINE]]["state"] == "Empty"
    assert not {GROUPS[DOWN], GROUPS[HUNG]} & found.keys()
    assert done.code == 1
    assert UNLISTED in done.err
    assert f"The groups of broker {HUNG} are not listed" in done.err
    done = run("offsets", "export", at)
    assert {row["group"] for row in json.loads(done.out)} >= {GROUPS[FINE]}
    assert done.code == 1
    assert UNLISTED in done.err


@pytest.mark.long
@pytest.mark.parametrize("node", [DOWN, HUNG])
def test_a_named_group_whose_coordinator_is_missing(at: str, node: int) -> None:
    done = run("lag", at, "--group", GROUPS[node], "--group", GROUPS[FINE], "--max-lag", 1000)
    assert done.code == 1
    assert {line[0] for line in done.lines} >= set(map(GROUPS.__getitem__, (node, FINE)))
    done = run("groups", at, "--group", GROUPS[node], "--group", GROUPS[FINE])
    assert done.code == 1
    assert f"Group {GROUPS[node]!r} can't be read" in done.err


@pytest.mark.long
def test_other_commands(at: str) -> None:
    described = run("topics", "describe", at)
    assert described.code == 0
    assert "no leader" in described.out
    brokers = {row["id"]: row for row in run("brokers", at, "--json").rows}
    assert [brokers[node]["answers"] for node in sorted(brokers)] == [False, True, False]
    (deletion,) = run("topics", "delete", at, "half", "--json").rows
    assert (deletion["partitions"], deletion["records"]) == (3, None)
    assert deletion["note"].startswith("half-1 and 1 more: ")
    reset = run("offsets", "reset", at, "--group", GROUPS[FINE], "half", "--to-latest")
    assert reset.code == 3
    assert "Or name only partitions that kafkalog topics shows" in reset.err
    assert "Nor can be used half-2: " in reset.err
    assert run("offsets", "reset", at, "--group", GROUPS[FINE], "half:0", "--to-latest").code == 0


def test_the_doctor_names_internal_partitions_without_a_leader(at: str) -> None:
    found = {row["what"]: row for row in run("doctor", at, "--json").json["findings"]}
    assert found[OFFSETS_TOPIC]["found"] == "partitions without a leader: 1"
    assert "neither commit nor be listed" in found[OFFSETS_TOPIC]["remedy"]


@pytest.mark.long
def test_verify(at: str) -> None:
    done = run("verify", at, "half", "whole", "--json")
    fine, down, hung, whole = done.json["partitions"]
    assert (fine["records"], fine["problem"]) == (whole["records"], whole["problem"]) == (30, "")
    assert NO_LEADER in down["problem"]
    assert SILENT in hung["problem"]
    assert (done.code, done.json["damages"]) == (1, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["cat", "half"],
        ["export", "half", "rows.parquet"],
        ["redrive", "half", "--group", GROUPS[FINE]],
        ["delete-records", "half", "--until", "1h"],
        ["restore", "{at}", "--state", "restore.json"],
    ],
    ids=lambda words: words[0],
)
def test_all_partitions_in_the_way_are_named_at_once(at: str, tmp_path: Path, words: list[str]) -> None:
    command, *others = [str(tmp_path / word) if "." in word else word.format(at=at) for word in words]
    done = run(command, at, *others)
    assert (done.code, "partition half-1" in done.err) == (3, True), done.err
    assert NO_LEADER in done.err
    assert "Nor can be used half-2: " in done.err
    assert "Retrying" not in done.err


def test_deleted_records(at: str) -> None:
    done = run("delete-records", at, "half=0", "--execute", "--json")
    fine, down, hung = done.rows
    assert (fine["newLogStartOffset"], fine["note"]) == (0, "")
    assert NO_LEADER in down["note"]
    assert SILENT in hung["note"]
    assert done.code == 1


@pytest.mark.long
def test_views(at: str) -> None:
    place = place_options({"kafka.bootstrap.servers": at, "kafka.request.timeout.ms": "2500"})
    shown = view_table(place, _view("topics"))
    assert [note != "" for note in shown.column("note").to_pylist()] == [False, True, True, False]
    shown = view_table(place, _view("groups"))
    assert UNLISTED in shown.column("note").to_pylist()[0]
    shown = view_table(place, _view("group-offsets"))
    assert {"ok", "unknown", "failed"} == set(shown.column("state").to_pylist())


@pytest.mark.long
def test_a_backup(at: str, tmp_path: Path) -> None:
    done = run("backup", at, tmp_path / "backup")
    assert done.code == 1
    assert f"{OFFSETS_TOPIC}: {UNLISTED}" in done.err
    assert "half-1: " in done.err
    assert "half-2: " in done.err
    assert [line[:2] for line in done.lines[1:]] == [
        ["half", "0"],
        ["half", "1"],
        ["half", "2"],
        ["whole", "0"],
    ]
    saved = run_command("offsets", tmp_path / "backup", "--json").rows
    assert {row["group"] for row in saved} >= {GROUPS[FINE]}


def test_time_that_the_user_gives_is_obeyed(at: str) -> None:
    with connect({"kafka.bootstrap.servers": at, "kafka.request.timeout.ms": "700"}) as kafka:
        notes = [row.note for row in kafka.topics.partitions()]
    assert "did not answer within 700 ms" in notes[2]
