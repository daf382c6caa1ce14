"""What Spark's logs in a checkpoint tell, and whose it is."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import QueryBatch, TopicPartition
from pyspark_kafkalog.stream.checkpoint import NamedCheckpoint, QueryLog, check_same_query
from tests.faults.disk import Disk, File, recorded
from tests.faults.disk import Folder as DiskFolder
from tests.stream.spark_log import QUERY, begin, planned

T0 = TopicPartition("t", 0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return begin(tmp_path / "c")


def test_a_reader_with_the_checkpoint_of_another_query() -> None:
    check_same_query(QUERY, QUERY)
    with pytest.raises(KafkaLogError, match=rf"that of query {QUERY}, and it reads for query another"):
        check_same_query(QUERY, "another")


ENDS = {T0: 5, TopicPartition("t", 1): 7}


@pytest.mark.parametrize(
    ("version", "sources"),
    [
        ("v1", ("5", '{"t":{"0":5,"1":7}}', '{"logOffset":1}', "-")),
        ("v2", ("rate:5", 'orders:{"t":{"0":5,"1":7}}', "2:-", 'file:{"logOffset":1}')),
    ],
)
def test_the_ends_of_a_planned_batch(checkpoint: Path, version: str, sources: tuple[str, ...]) -> None:
    log = planned(checkpoint, *sources, version=version)
    assert log.ends_of(3) == ENDS
    assert log.batch_to(ENDS) == 3
    assert log.batch_to({T0: 5}) is None


def test_what_tells_a_plan_from_others(checkpoint: Path) -> None:
    planned(checkpoint, '{"t":{"0":4}}', number=2)
    log = planned(checkpoint, '{"t":{"0":5}}')
    first, second = log.plan_of(QueryBatch(QUERY, 2)), log.plan_of(QueryBatch(QUERY, 3))
    assert (first.before, second.before) == ("", first.digest)
    assert len(second.digest or "") == 64
    assert planned(checkpoint, '{"t":{"0":5}}').plan_of(QueryBatch(QUERY, 3)) == second
    assert planned(checkpoint, '{"t":{"0":6}}').plan_of(QueryBatch(QUERY, 3)).digest != second.digest


def test_a_plan_that_is_not_there(checkpoint: Path) -> None:
    for content in (None, b""):
        if content is not None:
            (checkpoint / "offsets" / "4").write_bytes(content)
        with pytest.raises(
            KafkaLogError, match=r"not the checkpoint .*plan .*is missing.*offsets/4.*checkpoin"
        ):
            planned(checkpoint).plan_of(QueryBatch(QUERY, 4))


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"5", b'{"id":"another"}', b"[" * 100_000])
def test_the_checkpoint_of_another_query(checkpoint: Path, content: bytes) -> None:
    log = planned(checkpoint)
    (checkpoint / "metadata").write_bytes(content)
    with pytest.raises(KafkaLogError, match=r"not the checkpoint of the query.*/metadata"):
        log.plan_of(QueryBatch(QUERY, 3))


@pytest.mark.parametrize("number", [0, 1])
def test_a_flushed_plan_outlasts_a_loss_of_power(tmp_path: Path, chance: random.Random, number: int) -> None:
    """Spark flushes none of these files."""
    top = tmp_path / "top"
    names = ["metadata", ".metadata.crc", f"offsets/{number}", f"offsets/.{number}.crc"]
    (top / "checkpoint" / "offsets").mkdir(parents=True)
    disk, offsets, root = Disk(top), DiskFolder(), DiskFolder()
    disk.root = DiskFolder(entries={"checkpoint": root})
    root.entries["offsets"] = offsets
    for name in names:
        (top / "checkpoint" / name).write_text(name)
        folder = offsets if "/" in name else root
        folder.entries[name.rpartition("/")[2]] = File(changes=[(0, name.encode())])
    if number:  # the first micro-batch has flushed them
        disk.root.flushed, root.flushed = dict(disk.root.entries), dict(root.entries)
        names = names[2:]
    with recorded() as calls:
        QueryLog(str(top / "checkpoint")).flush(number)
    for call in calls:
        disk.replay(*call)
    for lost in range(20):
        disk.after_power_loss(tmp_path / str(lost), chance)
        for name in names:
            assert (tmp_path / str(lost) / "checkpoint" / name).read_text() == name


@pytest.mark.parametrize(
    "sources", [(), ("7",), ('{"t":{"0":5}}', '{"u":{"0":5}}')], ids=["none", "other", "two"]
)
def test_the_ends_of_a_batch_without_one_source(checkpoint: Path, sources: tuple[str, ...]) -> None:
    with pytest.raises(KafkaLogError, match=r"one source of topics, got [02] "):
        planned(checkpoint, *sources).ends_of(3)
    with pytest.raises(KafkaLogError, match="got 0"):
        planned(checkpoint, *sources).ends_of(4)


def test_what_is_kept_waits_until_the_checkpoint_is_known_to_be_the_querys(checkpoint: Path) -> None:
    """The last of what waits is kept, and each kind by itself."""
    named, kept = NamedCheckpoint(str(checkpoint)), []
    first, second = (
        named.once_own(partial(lambda kind, what: kept.append((kind, what)), kind)) for kind in "ab"
    )
    first(1), first(2), second(3)
    named.planned({T0: 5})
    planned(checkpoint, json.dumps({"t": {"0": 4}}), number=0)
    named.planned({T0: 5})
    planned(checkpoint, json.dumps({"t": {"0": 5}}), number=1)
    (checkpoint / "commits" / "1").write_text("v1")
    named.planned({T0: 5})
    assert (kept, named.is_own) == ([], False)
    planned(checkpoint, json.dumps({"t": {"0": 5}}), number=2)
    named.planned({T0: 5})
    assert (sorted(kept), named.is_own) == ([("a", 2), ("b", 3)], True)
    first(4)
    assert kept[2:] == [("a", 4)]
    named.planned({T0: 6})
    assert named.is_own


def test_what_the_source_reads_is_that_of_the_same_run(tmp_path: Path) -> None:
    log = QueryLog(str(begin(tmp_path)))
    log.store_cluster("first", "a")
    log.store_cluster("second", "b")
    assert (log.source_cluster("first"), log.source_cluster("second")) == ("a", "b")
    log.store_cluster("second", "c")
    assert log.source_cluster("second") == "c"
    for run_id in ("third", ""):
        with pytest.raises(
            KafkaLogError, match=r"Nothing tells which cluster .* in this run.*Give the reader"
        ):
            log.source_cluster(run_id)


def test_a_place_without_an_id_has_no_offsets_for_the_sink(tmp_path: Path) -> None:
    log = QueryLog(str(begin(tmp_path)))
    log.store_cluster("run", "")
    with pytest.raises(KafkaLogError, match=r"log directory, or a cluster without an id.*kafka\.group\.id"):
        log.source_cluster("run")


def test_only_the_newest_runs_are_stored(tmp_path: Path) -> None:
    log = QueryLog(str(begin(tmp_path)))
    for number in range(30):
        log.store_cluster(f"run {number}", "a")
    assert log.source_cluster("run 29") == "a"
    assert len([*(tmp_path / "kafkalog-clusters").iterdir()]) < 15
