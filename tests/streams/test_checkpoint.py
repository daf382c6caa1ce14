"""What is kept beside a checkpoint comes back, for the same source only."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import BatchHeader, OffsetRange, QueryBatch, TopicPartition
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.streams.checkpoint import (
    NamedCheckpoint,
    QueryLog,
    check_same_query,
    keep_shared,
    keep_topic_ids,
    kept_shared,
    kept_start_offsets,
    kept_topic_ids,
)
from pyspark_kafkalog.streams.history import LastShared
from pyspark_kafkalog.streams.planner import StreamPlanner
from tests.faults.disk import Disk, File, recorded
from tests.faults.disk import Folder as DiskFolder
from tests.reading.fake_groups import FakeGroups
from tests.reading.fake_place import FakePlace

T0 = TopicPartition("t", 0)


QUERY = "6b8f53e2-1d0d-4f8e-8f4e-000000000000"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint as Spark begins it."""
    (tmp_path / "c" / "offsets").mkdir(parents=True)
    (tmp_path / "c" / "metadata").write_text(json.dumps({"id": QUERY}))
    return tmp_path / "c"


def only_file(checkpoint: Path) -> Path:
    (file,) = (path for path in checkpoint.rglob("*.json") if path.is_file())
    return file


def test_start_offsets_are_chosen_once(checkpoint: Path) -> None:
    location = f"file://{checkpoint}"
    assert kept_start_offsets(location, "one", lambda: {T0: 5}) == {T0: 5}
    assert kept_start_offsets(location, "one", lambda: {T0: 7}) == {T0: 5}
    assert kept_start_offsets(location, "other", lambda: {T0: 7}) == {T0: 7}
    assert kept_start_offsets(None, "one", lambda: {T0: 7}) == {T0: 7}


def test_topic_ids_are_kept_as_they_were_last(checkpoint: Path) -> None:
    location = str(checkpoint)
    assert kept_topic_ids(location, "one") == {}
    for topic_ids in ({"t": "A", "u": "B"}, {"t": "C"}):
        keep_topic_ids(location, "one", topic_ids)
        assert kept_topic_ids(location, "one") == topic_ids
    assert kept_topic_ids(location, "other") == {}
    only_file(checkpoint)


SHARED = {T0: LastShared("A", 5, 3), TopicPartition("t", 1): LastShared("", 7, -1, BatchHeader(*range(13)))}


def test_what_logs_shared_is_kept_as_it_was_last(checkpoint: Path) -> None:
    location = str(checkpoint)
    assert kept_shared(location, "one") == {}
    for shared in (SHARED, {T0: LastShared("A", 9)}, SHARED):
        keep_shared(location, "one", shared)
        assert kept_shared(location, "one") == shared
    assert kept_shared(location, "other") == {}
    only_file(checkpoint)
    keep_shared(None, "one", SHARED)
    assert kept_shared(None, "one") == {}


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\0\0\0", b"{", b"[]", b'{"version":2}', b"[" * 100_000),
        *(
            b'{"query":"%s","content":%s}' % (QUERY.encode(), content)
            for content in (
                *(b"5", b'{"t":5}', b'{"t":{"x":["A",5,3,null]}}', b'{"t":{"0":["A",5,3]}}'),
                *(
                    b'{"t":{"0":[1,5,3,null]}}',
                    b'{"t":{"0":["A",5,"3",null]}}',
                    b'{"t":{"0":["A",5,3,[1,2]]}}',
                ),
            )
        ),
        b'{"query":"another","content":{"t":{"0":["A",5,3,null]}}}',
    ],
)
def test_what_says_nothing_of_the_logs_of_this_query_is_not_used(checkpoint: Path, content: bytes) -> None:
    """A loss of power may leave anything, as it is not flushed."""
    location = str(checkpoint)
    keep_shared(location, "one", SHARED)
    only_file(checkpoint).write_bytes(content)
    assert kept_shared(location, "one") == {}


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """As where Spark looks for the path in another file system."""
    location = str(tmp_path / "elsewhere")
    with pytest.raises(KafkaLogError, match=r"not the checkpoint of the query.*elsewhere/metadata.*URI"):
        kept_start_offsets(location, "one", dict)
    with pytest.raises(KafkaLogError, match="not the checkpoint of the query"):
        kept_topic_ids(location, "one")


def test_without_a_location_nothing_is_kept(tmp_path: Path) -> None:
    keep_topic_ids(None, "one", {"t": "A"})
    assert kept_topic_ids(None, "one") == {}


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b'{"t":5}', b"[]", b"\xff", b'{"version":2}', b"[" * 100_000),
        *(
            b'{"version":2,"query":5,"plan":null,"content":{}}',
            b'{"version":2,"query":"q","plan":null,"content":5}',
        ),
        *(
            b'{"version":2,"query":"q","plan":%s,"content":{}}' % plan
            for plan in (b"5", b"[1]", b'["a","b"]')
        ),
    ],
)
def test_a_broken_file_is_named(checkpoint: Path, content: bytes) -> None:
    location = str(checkpoint)
    keep_topic_ids(location, "one", {"t": "A"})
    file = only_file(checkpoint)
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*delete the file"):
        kept_topic_ids(location, "one")
    file.unlink()
    kept_start_offsets(location, "one", lambda: {T0: 5})
    file = only_file(checkpoint)
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*delete the file"):
        kept_start_offsets(location, "one", dict)


def begin_anew(checkpoint: Path, query: str = "another") -> None:
    """As Spark does where its own files were deleted."""
    for plan in (checkpoint / "offsets").iterdir():
        plan.unlink()
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))


def test_a_query_that_begins_anew_takes_nothing_over(checkpoint: Path) -> None:
    location = str(checkpoint)
    planned(checkpoint)
    kept_start_offsets(location, "one", lambda: {T0: 5})
    keep_topic_ids(location, "one", {"t": "A"})
    begin_anew(checkpoint)
    assert kept_topic_ids(location, "one") == {}
    assert kept_start_offsets(location, "one", lambda: {T0: 7}) == {T0: 7}
    planned(checkpoint)
    assert kept_topic_ids(location, "one") == {}, "although it has none to store"
    assert kept_start_offsets(location, "one", dict) == {T0: 7}


def test_files_of_another_query_than_the_plans(checkpoint: Path) -> None:
    location = str(checkpoint)
    kept_start_offsets(location, "one", lambda: {T0: 5})
    keep_topic_ids(location, "one", {"t": "A"})
    begin_anew(checkpoint)
    planned(checkpoint)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*.json")}
    with pytest.raises(KafkaLogError, match=rf"topic ids are of query {QUERY}, .* another .*delete the file"):
        kept_topic_ids(location, "one")
    with pytest.raises(KafkaLogError, match=rf"start offsets are of query {QUERY}, .* query another"):
        kept_start_offsets(location, "one", dict)
    assert {path: path.read_bytes() for path in checkpoint.rglob("*.json")} == before


def test_topic_ids_that_are_newer_than_the_plans(checkpoint: Path) -> None:
    """Spark's log was set back, alone: its offsets may be those of topics that are gone."""
    location = str(checkpoint)
    for number in (2, 3):
        planned(checkpoint, str(number), number=number)
    keep_topic_ids(location, "one", {"t": "A"})
    (checkpoint / "offsets" / "2").unlink()
    planned(checkpoint, number=4)
    assert kept_topic_ids(location, "one") == {"t": "A"}
    planned(checkpoint, "other", number=3)
    with pytest.raises(KafkaLogError, match="newer than Spark's log, which lacks micro-batch 3 as it was"):
        kept_topic_ids(location, "one")
    for number in (3, 4):
        (checkpoint / "offsets" / str(number)).unlink()
    with pytest.raises(KafkaLogError, match="newer than Spark's log"):
        kept_topic_ids(location, "one")
    planned(checkpoint, number=100)
    assert kept_topic_ids(location, "one") == {"t": "A"}, "Spark deletes plans after a while"


@pytest.mark.parametrize("topic", ["t", "version", "query"])
def test_files_of_version_1_are_taken_once(checkpoint: Path, topic: str) -> None:
    location = str(checkpoint)
    contents = ({topic: "A"}, {topic: {"0": 5}})
    keep_topic_ids(location, "one", {})
    only_file(checkpoint).write_text(json.dumps(contents[0]))
    kept_start_offsets(location, "one", dict)
    (file,) = (checkpoint / "kafkalog-start-offsets").iterdir()
    file.write_text(json.dumps(contents[1]))
    planned(checkpoint)
    for _ in range(2):
        assert kept_topic_ids(location, "one") == contents[0]
        assert kept_start_offsets(location, "one", dict) == {TopicPartition(topic, 0): 5}
    begin_anew(checkpoint)
    assert kept_topic_ids(location, "one") == {}
    assert kept_start_offsets(location, "one", dict) == {}


def test_a_reader_with_the_checkpoint_of_another_query() -> None:
    check_same_query(QUERY, QUERY)
    with pytest.raises(KafkaLogError, match=rf"that of query {QUERY}, and it reads for query another"):
        check_same_query(QUERY, "another")


def planned(checkpoint: Path, *sources: str, number: int = 3, version: str = "v1") -> QueryLog:
    lines = [version, '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000}', *sources]
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
    return QueryLog(str(checkpoint))


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
    assert second.planned_ms == 1_700_000_000_000
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


@pytest.mark.parametrize("text", ["", "v1", "v1\n", "v1\n5", 'v1\n{"batchTimestampMs":"5"}', "v1\n["])
def test_a_plan_without_a_time(checkpoint: Path, text: str) -> None:
    log = planned(checkpoint, number=0)
    (checkpoint / "offsets" / "1").write_text(text or "v")
    assert log.plan_of(QueryBatch(QUERY, 1)).planned_ms is None


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
    (checkpoint / "commits").mkdir()
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


@pytest.mark.parametrize("is_replayed", [False, True])
def test_a_run_that_is_killed_before_it_hears_that_a_recreated_topic_was_read(
    checkpoint: Path, is_replayed: bool
) -> None:
    """What counts for the next run is whether Spark has logged the micro-batch as complete."""
    (checkpoint / "commits").mkdir()
    location = str(checkpoint)
    place = FakePlace({T0: (0, 5)}, ids={"t": "A"})
    settings = read_options({"path": "/log", "failOnDataLoss": "false"}, batch=False)

    def run() -> StreamPlanner:
        return StreamPlanner(
            place,
            settings,
            topic_ids=kept_topic_ids(location, "one"),
            keep_topic_ids=partial(keep_topic_ids, location, "one"),
            groups=FakeGroups(),
        )

    def plan(stream: StreamPlanner, number: int, start: int, end: int) -> list[OffsetRange]:
        planned(checkpoint, json.dumps({"t": {"0": end}}), number=number)
        return [split.offsets for split in stream.plan({T0: start}, {T0: end})]

    first = run()
    assert first.next_offsets({T0: 0}) == {T0: 5}
    assert plan(first, 0, 0, 5) == [(0, 5)]
    (checkpoint / "commits" / "0").write_text("v1")
    place.ids["t"], place.bounds[T0] = "B", (0, 9)
    assert first.next_offsets({T0: 5}) == {T0: 9}
    assert plan(first, 1, 5, 9) == [(0, 9)]
    for _ in range(2):
        if is_replayed:
            assert plan(run(), 1, 5, 9) == [(0, 9)]
    (checkpoint / "commits" / "1").write_text("v1")
    place.bounds[T0] = 0, 12
    for _ in range(2):
        stream = run()
        assert stream.next_offsets({T0: 9}) == {T0: 12}
        assert plan(stream, 2, 9, 12) == [(9, 12)]
    for folder in "commits", "offsets":
        (checkpoint / folder / "1").unlink()
    assert run().next_offsets({T0: 12}) == {T0: 12}, "Spark deletes its logs after a while"
