"""Group offsets in a log directory: commits of brokers are read, and ours are there for all."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.codec.offsets_topic import (
    decode_key,
    decode_offset,
    encode_group_key,
    encode_offset,
    encode_offset_key,
    offsets_partition,
)
from pyspark_kafkalog.errors import (
    CorruptRecordError,
    GroupError,
    LogDirectoryError,
    LogDirectoryLockedError,
)
from pyspark_kafkalog.extensions.log_groups import groups as groups_module
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.filesystem.folder import InputFile
from pyspark_kafkalog.log.layout import CLEAN_SHUTDOWN_FILE
from pyspark_kafkalog.log.publish import publish
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import CommittedOffset, Group, OffsetRange, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from tests.codec import raw
from tests.fixtures_dir import Case, case
from tests.log.partitions import copy, rows
from tests.log.writing import T0, T1, files_beside_partitions, values, write

NOW = 1_800_000_000_000
DAY = 24 * 3600 * 1000
O0 = TopicPartition(OFFSETS_TOPIC, 0)


def groups_of(root: Path, **options: Any) -> DirectoryGroups:
    """The groups of a directory whose offsets topic has, or gets, one partition."""
    return DirectoryGroups.open([str(root)], **{"num_partitions": 1, **options})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ms, which a test may change."""
    now = [NOW]
    monkeypatch.setattr(groups_module, "_now_ms", lambda: now[0])
    return now


def offsets(groups: DirectoryGroups, group: str) -> dict[TopicPartition, int]:
    return {partition: commit.offset for partition, commit in groups.committed(group).items()}


# What brokers wrote

FIXTURES = ("consumer-offsets", "consumer-offsets-010")


def expected_groups(fixture: Case) -> dict[str, dict[str, Any]]:
    """The last answers of the broker's admin API."""
    path = fixture.logs / fixture.entry["expected"]["groups"]
    with path.open(encoding="utf-8") as lines:
        return {line["group"]: line for line in map(json.loads, lines)}


def check_groups(groups: DirectoryGroups, expected: dict[str, dict[str, Any]]) -> None:
    assert groups.group_ids() == tuple(sorted(expected))
    described = groups.describe(expected)
    for name, group in expected.items():
        if "state" in group:
            assert described[name] == Group(name, group["state"], group["protocol"])
        found = {
            (partition.topic, partition.partition): (
                commit.offset,
                commit.metadata,
                commit.leader_epoch if commit.leader_epoch >= 0 else None,
            )
            for partition, commit in groups.committed(name).items()
        }
        assert found == {
            (offset["topic"], offset["partition"]): (
                offset["offset"],
                offset["metadata"],
                offset.get("leaderEpoch"),
            )
            for offset in group["offsets"]
        }


@pytest.mark.parametrize("name", FIXTURES)
def test_groups_of_a_broker_are_those_that_it_listed(name: str) -> None:
    fixture = case(name)
    groups = DirectoryGroups.open([str(fixture.directory)], retention_minutes=None)
    check_groups(groups, expected_groups(fixture))
    expected_skips: dict[int, int] = {}
    with (fixture.logs / fixture.entry["expected"]["decoded"]).open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            kind = int(line["key"]["type"]) if "key" in line else 0
            if kind > 2:
                expected_skips[kind] = expected_skips.get(kind, 0) + 1
    assert groups.skipped == expected_skips
    assert groups.committed("unknown") == {}
    assert groups.describe(["unknown"]) == {}


def test_what_counts_is_what_a_read_committed_consumer_sees_and_what_is_in_no_transaction() -> None:
    """The last value of each key: an open transaction holds back only its own records."""
    fixture = case("consumer-offsets")
    open_and_aborted = {
        (f"{OFFSETS_TOPIC}-{0 if batch['file'].startswith(str(O0)) else 1}", offset)
        for batch in fixture.batches
        if batch["file"].startswith(OFFSETS_TOPIC) and batch["isTransactional"]
        for offset in range(batch["baseOffset"], batch["lastOffset"] + 1)
    }
    seen = [(f"{r['topic']}-{r['partition']}", r["offset"]) for r in fixture.committed]
    last: dict[tuple[str, TopicPartition], CommittedOffset | None] = {}
    for record in fixture.records:
        place = f"{record['topic']}-{record['partition']}", record["offset"]
        if record["topic"] != OFFSETS_TOPIC or (place in open_and_aborted and place not in seen):
            continue
        key = decode_key(bytes.fromhex(record["key"]))
        if key.partition is not None:
            value = record["value"]
            last[key.group, key.partition] = value and decode_offset(bytes.fromhex(value))
    groups = DirectoryGroups.open([str(fixture.directory)], retention_minutes=None)
    found = {
        (group, partition): commit
        for group in groups.group_ids()
        for partition, commit in groups.committed(group).items()
    }
    assert found == {key: commit for key, commit in last.items() if commit is not None}


def test_offsets_with_an_expire_timestamp_go_at_their_time(clock: list[int]) -> None:
    fixture = case("consumer-offsets-010")
    expected = expected_groups(fixture)
    groups = DirectoryGroups.open([str(fixture.directory)])
    clock[0] = 1795253154175
    check_groups(groups, expected)
    clock[0] = 1795253155689 - 1
    check_groups(groups, expected)
    clock[0] += 1
    assert groups.group_ids() == ("billing",)
    clock[0] = 1795253157243
    assert groups.group_ids() == ()


def test_offsets_of_an_empty_group_go_a_week_after_its_last_member(clock: list[int]) -> None:
    fixture = case("consumer-offsets")
    groups = DirectoryGroups.open([str(fixture.directory)])
    classic_range_empty, simple_admin_last = 1795253391078, 1795253394605
    clock[0] = classic_range_empty + 7 * DAY - 1
    assert "classic-range" in groups.group_ids()
    clock[0] += 1
    assert "classic-range" not in groups.group_ids()
    assert groups.describe(["classic-range"]) == {}
    assert groups.committed("classic-range") == {}
    clock[0] = simple_admin_last + 7 * DAY - 1
    assert list(offsets(groups, "simple-admin").values()) == [42]
    clock[0] += 10 * DAY
    # These have an open transaction, or no commits at all.
    assert groups.group_ids() == ("eos-group-open",)


# Transactions

Keyed = Iterable[tuple[bytes, bytes | None]]


def batch(base_offset: int, records: Keyed, producer_id: int = -1) -> bytes:
    batch_records = [raw.record(value, key=key, delta=i) for i, (key, value) in enumerate(records)]
    attributes = 0 if producer_id < 0 else 0x10
    return raw.batch(batch_records, base_offset=base_offset, attributes=attributes, producer_id=producer_id)


def offset_record(offset: int, partition: TopicPartition = T0) -> tuple[bytes, bytes]:
    return encode_offset_key("g", partition), encode_offset(CommittedOffset(offset, commit_timestamp=NOW))


def tombstone(partition: TopicPartition = T0) -> tuple[bytes, None]:
    return encode_offset_key("g", partition), None


def log_of(root: Path, *batches: bytes) -> Path:
    """Append to the only partition of the offsets topic."""
    folder = root / str(O0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{0:020d}.log").open("ab") as log:
        log.writelines(batches)
    return root


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return raw.marker(producer_id, commit=commit, offset=offset)


def test_a_transaction_counts_from_its_marker_on(tmp_path: Path, clock: list[int]) -> None:
    log_of(tmp_path, batch(0, [offset_record(1)]), batch(1, [offset_record(2), offset_record(5, T1)], 7))
    groups = groups_of(tmp_path)
    assert offsets(groups, "g") == {T0: 1}
    log_of(tmp_path, marker(3, 7, commit=True))
    assert offsets(groups, "g") == offsets(groups_of(tmp_path), "g") == {T0: 2, T1: 5}
    log_of(tmp_path, batch(4, [offset_record(9)], 7), marker(5, 7, commit=False))
    assert offsets(groups, "g") == {T0: 2, T1: 5}


def test_the_record_with_the_highest_offset_wins_wherever_the_marker_is(
    tmp_path: Path, clock: list[int]
) -> None:
    log_of(
        tmp_path,
        batch(0, [offset_record(10), offset_record(10, T1)], 7),
        batch(2, [offset_record(20)]),
        batch(3, [offset_record(30, T1)], 8),
        marker(4, 8, commit=True),
        marker(5, 7, commit=True),
    )
    assert offsets(groups_of(tmp_path), "g") == {T0: 20, T1: 30}


def test_a_tombstone_in_a_transaction_takes_back_what_is_pending_only(
    tmp_path: Path, clock: list[int]
) -> None:
    log_of(
        tmp_path,
        batch(0, [offset_record(1), offset_record(1, T1)]),
        batch(2, [offset_record(2), tombstone()], 7),
        batch(4, [tombstone(T1)]),
        marker(5, 7, commit=True),
    )
    assert offsets(groups_of(tmp_path), "g") == {T0: 1}


GROUP_TOMBSTONE = encode_group_key("g"), None


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([batch(0, [offset_record(50)], 7), batch(1, [offset_record(60)]), marker(2, 7, commit=True)], 60),
        ([batch(0, [offset_record(60)]), batch(1, [offset_record(50)], 7), marker(2, 7, commit=True)], 50),
        ([batch(0, [offset_record(60)]), batch(1, [offset_record(50)], 7), marker(2, 7, commit=False)], 60),
        (
            [
                batch(0, [offset_record(60)]),
                batch(1, [offset_record(50)], 7),
                batch(2, [tombstone()]),
                marker(3, 7, commit=True),
            ],
            None,
        ),
        (
            [
                batch(0, [offset_record(50)], 7),
                batch(1, [tombstone(), GROUP_TOMBSTONE]),
                marker(3, 7, commit=True),
            ],
            None,
        ),
        (
            [
                batch(0, [offset_record(50)], 7),
                batch(1, [tombstone()]),
                batch(2, [offset_record(55)], 7),
                marker(3, 7, commit=True),
            ],
            55,
        ),
        (
            [
                batch(0, [offset_record(60)], 7),
                batch(1, [offset_record(70)], 8),
                marker(2, 8, commit=True),
                marker(3, 7, commit=True),
            ],
            70,
        ),
        ([batch(0, [offset_record(60)]), batch(1, [offset_record(50)], 7)], 60),
        ([batch(0, [offset_record(50)], 7), batch(1, [tombstone()]), marker(2, 7, commit=False)], None),
        (
            [
                batch(0, [offset_record(60)]),
                batch(1, [offset_record(50)], 7),
                batch(2, [tombstone(), GROUP_TOMBSTONE]),
                marker(4, 7, commit=True),
            ],
            None,
        ),
        (
            [
                batch(0, [offset_record(50)], 7),
                batch(1, [offset_record(51)], 8),
                batch(2, [tombstone()]),
                marker(3, 8, commit=True),
                marker(4, 7, commit=True),
            ],
            None,
        ),
    ],
    ids=[
        "staged, then plain",
        "plain, then staged",
        "aborted",
        "offset deleted",
        "group deleted",
        "staged again after the deletion",
        "two transactions, ended in the other order",
        "still open",
        "deleted and aborted",
        "plain and staged, group deleted",
        "staged by two, deleted",
    ],
)
def test_a_deletion_takes_back_what_transactions_hold(
    batches: list[bytes], expected: int | None, tmp_path: Path, clock: list[int]
) -> None:
    """The answers are those of Kafka 4.3, before and after a restart."""
    log_of(tmp_path, *batches)
    groups = groups_of(tmp_path)
    assert offsets(groups, "g") == ({} if expected is None else {T0: expected})
    assert groups.group_ids() == (() if expected is None else ("g",))


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    "delete",
    [
        lambda groups: groups.delete_offsets("g", [T0]),
        lambda groups: groups.delete_group("g"),
        lambda groups: [
            groups_module.append_batch(groups._roots[0].folder.path, holder, deleted, 1)
            for holder, deleted in groups.tombstones([T0]).items()
        ],
    ],
    ids=["offsets", "group", "of a topic"],
)
def test_what_transactions_hold_is_deleted_as_well(
    committed: bool, delete: Any, tmp_path: Path, clock: list[int]
) -> None:
    log_of(tmp_path, batch(0, [offset_record(60 if committed else 50)], -1 if committed else 7))
    log_of(tmp_path, batch(1, [offset_record(50)], 7))
    groups = groups_of(tmp_path)
    delete(groups)
    assert groups.group_ids() == ()
    end = groups._directory.watermarks([O0], read_committed=False)[O0].high_watermark
    with max((tmp_path / str(O0)).glob("*.log")).open("ab") as log:
        log.write(marker(end, 7, commit=True))
    assert groups.group_ids() == groups_of(tmp_path).group_ids() == ()


def test_a_group_of_which_all_is_pending_exists(tmp_path: Path, clock: list[int]) -> None:
    log_of(tmp_path, batch(0, [offset_record(1)], 7))
    groups = groups_of(tmp_path)
    assert groups.group_ids() == ("g",)
    assert groups.committed("g") == {}
    log_of(tmp_path, marker(1, 7, commit=False))
    assert groups.group_ids() == ()


def test_what_fails_after_a_commit_is_visible_fails_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = groups_of(tmp_path)
    groups.commit("g", {T0: CommittedOffset(1)})

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(publish, "store_flushed", fail)
    groups.commit("g", {T0: CommittedOffset(2)})
    assert offsets(groups_of(tmp_path), "g") == {T0: 2}
    assert "Appended, but could not put the files" in caplog.text


# Hostile logs


def test_records_that_mean_nothing_are_left_out_and_counted(
    tmp_path: Path, clock: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    key = encode_offset_key("g", T1)
    strange = [(b"", b"x"), (b"\0\2\0\x63g", b"x"), (b"\0\x18\0\1g", b"x"), (b"\0\x18\0\1h", b"x")]
    log_of(
        tmp_path, batch(0, [*strange, offset_record(1), (key[:-1], b"x"), (key, b"\0\x63"), (key[:5], b"x")])
    )
    with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
        groups = groups_of(tmp_path)
        assert offsets(groups, "g") == {T0: 1}
    assert groups.skipped == {-1: 2, 24: 2}
    assert groups.group_ids() == ("g",)
    log_of(tmp_path, batch(8, [offset_record(2)]), batch(9, [offset_record(3)]))
    compacted(tmp_path)
    kept = [row["offset"] for row in rows(groups._directory, O0, OffsetRange(0, 10))]
    assert kept == [0, 1, 2, 3, 5, 6, 7, 9]
    assert len([r for r in caplog.records if "the type 24" in r.message]) == 1


@pytest.mark.parametrize(
    "strange",
    [(encode_group_key("g"), b"\0\x63 a version to come"), (b"\0\x11\0\1g", b"of a streams group")],
    ids=["unreadable", "of another kind"],
)
def test_what_a_group_is_may_be_unknown(
    tmp_path: Path, clock: list[int], strange: tuple[bytes, bytes]
) -> None:
    log_of(tmp_path, batch(0, [strange, offset_record(1)]))
    groups = groups_of(tmp_path)
    assert groups.describe(["g"]) == {"g": Group("g", "", members=None)}, "not empty"
    assert offsets(groups, "g") == {T0: 1}


def test_damage_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    whole = batch(0, [offset_record(1)])
    log_of(tmp_path, whole, whole[:8][:-1] + b"\1" + whole[8:-3] + b"bad", batch(2, [offset_record(2)]))
    with pytest.raises(CorruptRecordError, match=rf"{OFFSETS_TOPIC}-0.*byte {len(whole)}"):
        groups_of(tmp_path).committed("g")


# Commits


def test_a_commit_is_there_for_everyone(tmp_path: Path, clock: list[int]) -> None:
    groups, others = (DirectoryGroups.open([str(tmp_path)]) for _ in range(2))
    assert groups.group_ids() == ()
    groups.commit("query", {T0: CommittedOffset(5, 2, "über"), T1: CommittedOffset(7)})
    assert others.committed("query") == {
        T0: CommittedOffset(5, 2, "über", NOW),
        T1: CommittedOffset(7, -1, "", NOW),
    }
    groups.commit("query", {T1: CommittedOffset(8)})
    assert offsets(others, "query") == {T0: 5, T1: 8}
    assert others.committed("query", [T1, TopicPartition("t", 9)]).keys() == {T1}
    assert others.describe(["query"]) == {"query": Group("query", "Empty")}
    assert others.group_ids() == ("query",)
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {f"{OFFSETS_TOPIC}-{number}" for number in range(50)}
    assert files_beside_partitions(tmp_path) == set()
    written = [path for path in tmp_path.glob("*/*.log") if path.stat().st_size]
    assert [path.parent.name for path in written] == [f"{OFFSETS_TOPIC}-{offsets_partition('query', 50)}"]


def test_one_commit_is_one_record_batch(tmp_path: Path) -> None:
    groups = groups_of(tmp_path)
    many = {
        TopicPartition("t", number): CommittedOffset(number, metadata="x" * 100) for number in range(3000)
    }
    groups.commit("g", many)
    groups.commit("g", {})
    log = (tmp_path / str(O0) / f"{0:020d}.log").read_bytes()
    assert struct.unpack_from(">i", log, 8)[0] + 12 == len(log)
    assert offsets(groups, "g") == {partition: commit.offset for partition, commit in many.items()}


def test_the_epoch_of_the_record_before_is_filled_in(tmp_path: Path) -> None:
    write(tmp_path, {T0: values(3)})
    (tmp_path / str(T0) / "leader-epoch-checkpoint").write_text("0\n3\n0 0\n4 10\n6 20\n")
    (tmp_path / str(T1) / "leader-epoch-checkpoint").write_text("nonsense")
    groups = groups_of(tmp_path)
    for offset, epoch in {0: 0, 10: 0, 11: 4, 20: 4, 500: 6}.items():
        commits = {
            T0: CommittedOffset(offset),
            T1: CommittedOffset(1),
            TopicPartition("../t", 0): CommittedOffset(1),
        }
        groups.commit("g", commits)
        assert [commit.leader_epoch for commit in groups.committed("g").values()] == [-1, epoch, -1]
    groups.commit("h", {T0: CommittedOffset(11)}, as_they_are=True)
    assert groups.committed("h")[T0].leader_epoch == -1


def test_commits_and_those_of_an_old_kind_expire(tmp_path: Path, clock: list[int]) -> None:
    groups = groups_of(tmp_path, retention_minutes=10)
    groups.commit("g", {T0: CommittedOffset(1), T1: CommittedOffset(2, expire_timestamp=NOW + 5)})
    clock[0] += 5
    assert offsets(groups, "g") == {T0: 1}
    clock[0] = NOW + 10 * 60_000
    assert groups.committed("g") == {}
    assert groups.group_ids() == ()
    assert offsets(groups_of(tmp_path, retention_minutes=None), "g") == {T0: 1, T1: 2}
    groups.commit("g", {T1: CommittedOffset(3)})
    assert offsets(groups, "g") == {T1: 3}


def test_delete_offsets_and_groups(tmp_path: Path, clock: list[int]) -> None:
    groups = groups_of(tmp_path)
    groups.delete_offsets("g", [T0])
    groups.commit("g", {T0: CommittedOffset(1), T1: CommittedOffset(2)})
    groups.commit("other", {T0: CommittedOffset(3)})
    groups.delete_offsets("g", [T0, TopicPartition("t", 9)])
    assert offsets(groups, "g") == offsets(groups_of(tmp_path), "g") == {T1: 2}
    groups.delete_group("g")
    assert groups.group_ids() == groups_of(tmp_path).group_ids() == ("other",)
    with pytest.raises(GroupError, match="No such consumer group: 'g'"):
        groups.delete_group("g")
    groups.commit("g", {T0: CommittedOffset(9)})
    assert offsets(groups, "g") == {T0: 9}


def test_delete_a_brokers_groups(tmp_path: Path) -> None:
    root = copy(case("consumer-offsets"), tmp_path / "root")
    groups = DirectoryGroups.open([str(root)], retention_minutes=None)
    for group in groups.group_ids():
        if group != "eos-group-open":
            groups.delete_group(group)
    assert DirectoryGroups.open([str(root)], retention_minutes=None).group_ids() == ("eos-group-open",)


def member_log(root: Path, topic: str = "t") -> Path:
    """A classic group whose only member has subscribed to a topic, as when its broker died."""

    def text(content: bytes) -> bytes:
        return struct.pack(">h", len(content)) + content

    subscription = struct.pack(">hi", 0, 1) + text(topic.encode()) + struct.pack(">i", -1)
    member = text(b"m-1") + text(b"client") + text(b"/127.0.0.1") + struct.pack(">ii", 1, 1)
    member += struct.pack(">i", len(subscription)) + subscription
    assignment = struct.pack(">hi", 0, 1) + text(topic.encode()) + struct.pack(">iii", 1, 0, -1)
    member += struct.pack(">i", len(assignment)) + assignment
    group = struct.pack(">h", 1) + text(b"consumer") + struct.pack(">i", 3) + text(b"range") + text(b"m-1")
    record = b"\0\2" + text(b"g"), group + struct.pack(">i", 1) + member
    return log_of(root, batch(0, [record, offset_record(1), offset_record(1, TopicPartition("other", 0))]))


def test_a_group_with_live_members_is_left_alone(tmp_path: Path, clock: list[int]) -> None:
    groups = groups_of(member_log(tmp_path))
    described = groups.describe(["g"])["g"]
    assert (described.state, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    assert [(m.member_id, m.client_id, m.host, m.partitions) for m in described.members] == [
        ("m-1", "client", "/127.0.0.1", (T0,))
    ]
    for refused in (
        lambda: groups.commit("g", {T0: CommittedOffset(2)}),
        lambda: groups.delete_group("g"),
        lambda: groups.delete_offsets("g", [TopicPartition("other", 0), T0]),
        lambda: groups.tombstones([TopicPartition("other", 0), T0]),
    ):
        with pytest.raises(GroupError, match=r"'g' has 1 live members.*Stop its consumers"):
            refused()
    groups.delete_offsets("g", [TopicPartition("other", 0)])
    clock[0] += 100 * DAY
    assert offsets(groups, "g") == {T0: 1}


def test_a_group_of_the_new_protocol_with_members_is_left_alone(tmp_path: Path) -> None:
    fixture = case("consumer-offsets")
    root = copy(fixture, tmp_path / "root")
    file = f"{O0}/{0:020d}.log"
    left = next(b["position"] for b in fixture.batches if b["file"] == file and b["lastOffset"] >= 34)
    os.truncate(root / file, left)
    groups = DirectoryGroups.open([str(root)], retention_minutes=None)
    described = groups.describe(["kip848"])["kip848"]
    assert (described.state, described.protocol_type) == ("Stable", "consumer")
    assert [(m.member_id, m.client_id, m.host) for m in described.members] == [
        ("foT0wWosSaSRXSoL0r9ZcA", "consumer-kip848-2", "/127.0.0.1")
    ]
    partition = TopicPartition("grp-src", 0)
    assert offsets(groups, "kip848")[partition] == 44
    for refused in (
        lambda: groups.commit("kip848", {partition: CommittedOffset(2)}),
        lambda: groups.delete_offsets("kip848", [partition]),
        lambda: groups.delete_group("kip848"),
    ):
        with pytest.raises(GroupError, match="1 live members"):
            refused()


@pytest.mark.long
def test_a_commit_reads_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_CLEAN_BYTES", 1 << 30)
    groups = groups_of(tmp_path)
    many = {TopicPartition("t", number): CommittedOffset(1) for number in range(1000)}
    for _ in range(40):
        groups.commit("g", many)
    read: list[int] = []
    original = InputFile.read

    def counted(file: InputFile, position: int, size: int, *room: Any) -> Any:
        data = original(file, position, size, *room)
        read.append(data.size)
        return data

    monkeypatch.setattr(InputFile, "read", counted)
    for number in range(10):
        groups.commit("g", {T0: CommittedOffset(number)})
        assert offsets(groups, "g")[T0] == number
    assert sum(read) < log_size(tmp_path)


def test_what_a_broker_would_refuse(tmp_path: Path) -> None:
    groups = groups_of(tmp_path)
    for group, commit, message in (
        ("", CommittedOffset(1), "not empty"),
        ("\ud800", CommittedOffset(1), "valid Unicode"),
        ("g", CommittedOffset(-1), "offset -1.*t-0"),
        ("g", CommittedOffset(1, metadata="x" * 4097), "more than 4096.*t-0"),
    ):
        with pytest.raises(GroupError, match=message):
            groups.commit(group, {T0: commit})
    assert not list(tmp_path.iterdir())
    groups.commit("g", {T0: CommittedOffset(1, metadata="é" * 4096)})


def test_a_running_brokers_directory_is_refused(tmp_path: Path) -> None:
    groups = groups_of(tmp_path, lock_timeout=0.05)
    groups.commit("g", {T0: CommittedOffset(1)})
    script = f"import fcntl, sys; f = open({str(tmp_path / '.lock')!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX)"
    holder = subprocess.Popen(
        [sys.executable, "-c", script + "; print(1, flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LogDirectoryLockedError):
            groups.commit("g", {T0: CommittedOffset(2)})
        holder.kill()
    assert offsets(groups, "g") == {T0: 1}


def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(LogDirectoryError, match=r"Could not write group offsets.*\.lock"):
        groups_of(tmp_path).commit("g", {T0: CommittedOffset(1)})
    refused = PermissionError(errno.EACCES, "Permission denied", "file")
    with (
        mock.patch.object(groups_module, "directory_lock", side_effect=refused),
        pytest.raises(LogDirectoryError, match=r"Permission denied \(file file\)\. Let the user"),
    ):
        groups_of(tmp_path).commit("g", {T0: CommittedOffset(1)})
    remote = DirectoryGroups.open([f"local://{tmp_path}"])
    with pytest.raises(LogDirectoryError, match="only be written to a local or mounted folder"):
        remote.commit("g", {T0: CommittedOffset(1)})


def test_a_part_of_the_partitions_cannot_be_written_to(tmp_path: Path) -> None:
    fixture = case("consumer-offsets")
    root = copy(fixture, tmp_path / "root")
    (root / f"{OFFSETS_TOPIC}-0").rename(tmp_path / f"{OFFSETS_TOPIC}-0")
    groups = DirectoryGroups.open([str(root)], retention_minutes=None)
    assert groups.group_ids() == ("eos-group", "kip848-b", "partial-delete")
    with pytest.raises(LogDirectoryError, match="Expected all partitions"):
        groups.commit("g", {T0: CommittedOffset(1)})


def test_several_roots_and_a_partitions_folder(tmp_path: Path) -> None:
    first, second = copy(case("consumer-offsets"), tmp_path / "one"), tmp_path / "two"
    second.mkdir()
    (first / f"{OFFSETS_TOPIC}-0").rename(second / f"{OFFSETS_TOPIC}-0")
    groups = DirectoryGroups.open([str(first), str(second)], retention_minutes=None)
    assert len(groups.group_ids()) == 8
    for group in ("group", "other"):
        groups.commit(group, {T0: CommittedOffset(1)})
    assert {offsets_partition(group, 2) for group in ("group", "other")} == {0, 1}
    assert {path.name for path in second.iterdir()} == {f"{OFFSETS_TOPIC}-0", ".lock", ".kafkalog-lock"}
    by_partition = DirectoryGroups.open([str(first / "grp-src-0"), str(second)], retention_minutes=None)
    assert offsets(by_partition, "group") == offsets(by_partition, "other") == {T0: 1}


def test_a_clean_shutdown_stays_one(tmp_path: Path) -> None:
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text("0")
    groups = groups_of(tmp_path)
    for offset in range(2):
        groups.commit("g", {T0: CommittedOffset(offset)})
        assert (tmp_path / CLEAN_SHUTDOWN_FILE).read_text() == "0"


def test_a_recreated_topic_is_read_from_its_start(tmp_path: Path) -> None:
    groups = groups_of(tmp_path)
    groups.commit("g", {T0: CommittedOffset(1)})
    assert offsets(groups, "g") == {T0: 1}
    for path in (tmp_path / str(O0)).iterdir():
        path.unlink()
    (tmp_path / str(O0)).rmdir()
    assert groups.group_ids() == ()
    groups_of(tmp_path).commit("h", {T0: CommittedOffset(2)})
    assert groups.group_ids() == ("h",)


# Compaction


@pytest.fixture
def compact_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact logs from 4 kB on, and flush nothing to disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(groups_module, "_CLEAN_BYTES", 4096)


def end_of(root: Path) -> OffsetRange:
    partition = DirectoryGroups.open([str(root)])._directory.watermarks([O0], read_committed=False)[O0]
    return OffsetRange(partition.log_start_offset, partition.high_watermark)


def log_size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob(f"{OFFSETS_TOPIC}-*/*.log"))


@pytest.mark.long
@pytest.mark.parametrize("segment_bytes", [1 << 30, 1500])
def test_a_stale_log_is_compacted(tmp_path: Path, compact_early: None, segment_bytes: int) -> None:
    write_topic_configs(str(tmp_path), {OFFSETS_TOPIC: {"segment.bytes": str(segment_bytes)}})
    writer, reader = groups_of(tmp_path), groups_of(tmp_path)
    writer.commit("deleted", {T0: CommittedOffset(1)})
    writer.delete_group("deleted")
    expected: dict[str, dict[TopicPartition, int]] = {}
    sizes = []
    for number in range(200):
        group = f"g{number % 3}" if number % 10 else f"once-{number}"
        partition = TopicPartition("t", number % 4)
        expected.setdefault(group, {})[partition] = number
        writer.commit(group, {partition: CommittedOffset(number, metadata="m" * 20)})
        sizes.append(log_size(tmp_path))
        if number % 37 == 0:
            assert {group: offsets(reader, group) for group in expected} == expected
    assert sum(a > b for a, b in itertools.pairwise(sizes)) > 2
    assert max(sizes) < 16_000
    for groups in (writer, reader, groups_of(tmp_path)):
        assert {group: offsets(groups, group) for group in groups.group_ids()} == expected
    assert end_of(tmp_path).end == 203
    assert not list(tmp_path.glob("*/*.cleaned"))
    found = rows(reader._directory, O0, end_of(tmp_path))
    assert len(found) < 100
    assert [row["offset"] for row in found] == sorted(row["offset"] for row in found)
    groups = {decode_key(row["key"]).group for row in found}
    assert groups == {*expected, "deleted"}


def compacted(root: Path, group: str = "g", **options: Any) -> None:
    """Compact the partition that the group is in."""
    groups = DirectoryGroups.open([str(root)], num_partitions=1, **options)
    with groups._writing(group) as home:
        assert home.table is not None
        groups._clean(str(root / str(home.partition)), home.table, 4096)


def test_tombstones_stay_for_a_day(tmp_path: Path, clock: list[int]) -> None:
    groups = groups_of(tmp_path)
    groups.commit("g", {T0: CommittedOffset(1), T1: CommittedOffset(2)})
    groups.delete_offsets("g", [T0])
    groups.commit("h", {T0: CommittedOffset(1)})
    clock[0] += DAY
    compacted(tmp_path)
    assert [row["offset"] for row in rows(groups._directory, O0, OffsetRange(0, 4))] == [1, 2, 3]
    clock[0] += 1
    compacted(tmp_path)
    assert [row["offset"] for row in rows(groups._directory, O0, OffsetRange(0, 4))] == [1, 3]
    assert offsets(groups_of(tmp_path), "g") == {T1: 2}


def test_what_has_expired_is_compacted_away_except_at_the_end_of_the_log(
    tmp_path: Path, clock: list[int]
) -> None:
    groups = groups_of(tmp_path)
    groups.commit("old", {T0: CommittedOffset(1)})
    clock[0] += 8 * DAY
    groups.commit("new", {T0: CommittedOffset(1)})
    clock[0] += 8 * DAY
    compacted(tmp_path)
    assert [row["offset"] for row in rows(groups._directory, O0, OffsetRange(1, 2))] == [1]
    assert end_of(tmp_path).end == 2
    assert groups_of(tmp_path).group_ids() == ()
    assert groups_of(tmp_path, retention_minutes=None).group_ids() == ("new",)


def test_transactions_outlive_compaction(tmp_path: Path, clock: list[int]) -> None:
    log_of(
        tmp_path,
        batch(0, [offset_record(1), offset_record(1, T1)], 7),
        marker(2, 7, commit=True),
        batch(3, [tombstone(T1)]),
        batch(4, [offset_record(2)], 8),
        batch(5, [offset_record(3, T1), offset_record(4, T1)]),
        batch(7, [tombstone(T1)]),
        batch(8, [offset_record(3, TopicPartition("x", 0))]),
    )
    expected = {T0: 1, TopicPartition("x", 0): 3}
    assert offsets(groups_of(tmp_path), "g") == expected
    clock[0] += 2 * DAY
    compacted(tmp_path)
    kept = [row["offset"] for row in rows(groups_of(tmp_path)._directory, O0, OffsetRange(0, 9))]
    assert kept == [0, 1, 4, 7, 8]
    assert offsets(groups_of(tmp_path), "g") == expected
    log_of(tmp_path, marker(9, 8, commit=True))
    assert offsets(groups_of(tmp_path), "g") == expected | {T0: 2}


@pytest.mark.parametrize("name", FIXTURES)
def test_a_brokers_log_says_the_same_after_compaction(name: str, tmp_path: Path) -> None:
    fixture = case(name)
    root = copy(fixture, tmp_path / "root")
    before = log_size(root)
    for group in ("group", "other"):
        compacted(root, group, retention_minutes=None)
    check_groups(DirectoryGroups.open([str(root)], retention_minutes=None), expected_groups(fixture))
    assert log_size(root) < 0.9 * before


@pytest.mark.slow
def test_readers_notice_nothing_of_a_compaction(tmp_path: Path, compact_early: None) -> None:
    """One reader continues and one starts afresh while other processes commit and compact."""
    write_topic_configs(str(tmp_path), {OFFSETS_TOPIC: {"segment.bytes": "2000"}})
    groups_of(tmp_path).commit("fixed", {T1: CommittedOffset(7)})
    script = """
import os, sys
from pyspark_kafkalog.extensions.log_groups import groups
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
groups._CLEAN_BYTES = 4096
os.fsync = lambda descriptor: None
its = DirectoryGroups.open([sys.argv[1]])
for number in range(60):
    its.commit(sys.argv[2], {TopicPartition("t", 0): CommittedOffset(number)})
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), group]) for group in ("one", "two")
    ]
    reader = groups_of(tmp_path)
    before = {"one": -1, "two": -1}
    looks = 0
    while any(writer.poll() is None for writer in writers):
        for groups in (reader, groups_of(tmp_path)):
            assert offsets(groups, "fixed") == {T1: 7}
            now = {group: offsets(groups, group).get(T0, -1) for group in before}
            assert all(now[group] >= before[group] for group in before)
            before = now
            looks += 1
    assert [writer.returncode for writer in writers] == [0, 0]
    assert offsets(reader, "one") == offsets(reader, "two") == {T0: 59}
    assert end_of(tmp_path).end == 121
    assert log_size(tmp_path) < 10_000
    assert looks > 10


def test_a_failed_compaction_does_not_unsay_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "planted")

    monkeypatch.setattr(groups_module, "_CLEAN_BYTES", 0)
    monkeypatch.setattr(groups_module, "clean", fail)
    groups = groups_of(tmp_path)
    for offset in range(5):
        groups.commit("g", {T0: CommittedOffset(offset)})
    assert "Could not compact" in caplog.text
    assert offsets(groups, "g") == {T0: 4}


@pytest.mark.parametrize("is_made", [True, False], ids=["by topics create", "by a write"])
def test_a_group_has_no_commits_for_a_topic_that_is_made_again(tmp_path: Path, is_made: bool) -> None:
    """A folder that was removed by hand leaves them: the group would skip records."""
    kafka, u0 = connect(tmp_path), TopicPartition("u", 0)
    write(tmp_path, {T0: values(80), u0: values(80)}, num_partitions=1)
    kafka.groups.commit("g", {T0: CommittedOffset(50), u0: CommittedOffset(7)})
    shutil.rmtree(tmp_path / "t-0")
    if is_made:
        kafka.topics.create([NewTopic("t")])
    kafka.write(pa.table({"value": [b"v"] * 80}), "t")
    found = DirectoryGroups.open(str(tmp_path)).committed("g")
    assert {partition: commit.offset for partition, commit in found.items()} == {u0: 7}
