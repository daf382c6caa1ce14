"""What a query keeps beside its checkpoint comes back, however the options of its readers are spelled."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import BatchHeader, OffsetRange, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import Selection, read_options
from pyspark_kafkalog.stream.history import LastShared
from pyspark_kafkalog.stream.planner import StreamPlanner
from pyspark_kafkalog.stream.source_state import Reader, SourceState, TopicsRead
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace
from tests.stream.spark_log import QUERY, begin, complete, planned

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
HERE = Reader("cluster a", Selection(topics=("t",)))
OTHER_CLUSTER = HERE._replace(place="cluster b")
SPELLED = {
    "as before": HERE,
    "a topic more": HERE._replace(selection=Selection(topics=("t", "u"))),
    "by a pattern": HERE._replace(selection=Selection(pattern="^t$")),
    "by partitions": HERE._replace(selection=Selection(partitions=(T0,))),
    "all topics": HERE._replace(selection=Selection()),
    "in a group": HERE._replace(group="g"),
    "a folder that was moved": HERE._replace(place="directories ['/elsewhere']"),
}
T5, T9, U5 = '{"t":{"0":5}}', '{"t":{"0":9}}', '{"u":{"0":5}}'
SHARED = {T0: LastShared("A", 5, 3), TopicPartition("t", 1): LastShared("", 7, -1, BatchHeader(*range(13)))}

spelled = pytest.mark.parametrize("reader", SPELLED.values(), ids=SPELLED.keys())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return begin(tmp_path / "c")


def of(checkpoint: Path, reader: Reader = HERE) -> SourceState:
    """What a run of a reader finds."""
    return SourceState(str(checkpoint), reader)


def read_to(checkpoint: Path, *ends: str, number: int = 3) -> None:
    planned(checkpoint, *ends, number=number)
    complete(checkpoint, number)


def files(checkpoint: Path, kind: str) -> list[Path]:
    return sorted((checkpoint / f"kafkalog-{kind}").glob("*.json"))


def only_file(checkpoint: Path) -> Path:
    (file,) = checkpoint.glob("kafkalog-*/*.json")
    return file


def start(checkpoint: Path, offset: int, reader: Reader = HERE, starting: object = "latest") -> Offsets:
    return of(checkpoint, reader).start_offsets(starting, lambda: {T0: offset})


class TestStartOffsets:
    def test_of_a_new_query_are_chosen_once(self, checkpoint: Path) -> None:
        assert start(checkpoint, 5) == start(checkpoint, 7) == {T0: 5}
        assert start(checkpoint, 7, starting="earliest") == {T0: 7}, "nothing is planned yet"
        assert start(checkpoint, 8, SPELLED["a topic more"]) == {T0: 8}

    @spelled
    @pytest.mark.parametrize("starting", ["latest", "timestamp 7"])
    def test_are_fixed_once_they_are_planned(self, checkpoint: Path, reader: Reader, starting: str) -> None:
        start(checkpoint, 5)
        planned(checkpoint, T9, number=0)
        for _ in range(2):
            assert start(checkpoint, 7, reader, starting) == {T0: 5}

    def test_of_a_start_that_was_changed_before_it_was_planned(self, checkpoint: Path) -> None:
        """And is changed back after that."""
        start(checkpoint, 5, starting="timestamp 5")
        start(checkpoint, 7, starting="timestamp 7")
        start(checkpoint, 5, starting="timestamp 5")
        planned(checkpoint, T9, number=0)
        assert start(checkpoint, 7, starting="timestamp 7") == {T0: 5}

    def test_of_a_start_that_is_computed_each_time_leave_few_files(self, checkpoint: Path) -> None:
        for second in range(120):
            start(checkpoint, second, starting=f"timestamp {second}")
        assert len(files(checkpoint, "start-offsets")) < 105
        planned(checkpoint, T9, number=0)
        assert start(checkpoint, 999, starting="timestamp 999") == {T0: 119}

    def test_of_two_groups(self, checkpoint: Path) -> None:
        late, early = HERE._replace(group="late"), HERE._replace(group="early")

        def starts(*given: str) -> list[Offsets]:
            return [start(checkpoint, 9, late, *given), start(checkpoint, 1, early, *given)]

        assert starts() == [{T0: 9}, {T0: 1}]
        planned(checkpoint, '{"t":{"0":10}}', '{"t":{"0":10}}', number=0)
        assert starts() == [{T0: 9}, {T0: 1}]
        with pytest.raises(KafkaLogError, match="nothing tells which of the stored start offsets"):
            starts("timestamp 7")

    def test_of_the_same_topic_of_two_clusters(self, checkpoint: Path) -> None:
        start(checkpoint, 5)
        start(checkpoint, 8, OTHER_CLUSTER)
        planned(checkpoint, T9, T9, number=0)
        assert start(checkpoint, 1, starting="timestamp 7") == {T0: 5}
        assert start(checkpoint, 1, OTHER_CLUSTER, starting="timestamp 7") == {T0: 8}

    def test_of_two_topics(self, checkpoint: Path) -> None:
        of_u = HERE._replace(selection=Selection(topics=("u",)))
        start(checkpoint, 5)
        of(checkpoint, of_u).start_offsets("latest", lambda: {U0: 3})
        planned(checkpoint, T9, U5, number=0)
        assert start(checkpoint, 1, starting="timestamp 7") == {T0: 5}
        assert of(checkpoint, of_u).start_offsets("timestamp 7", dict) == {U0: 3}

    def test_of_a_source_that_is_added(self, checkpoint: Path) -> None:
        """Its first micro-batch is not the query's."""
        start(checkpoint, 5)
        read_to(checkpoint, T9, number=0)
        added = HERE._replace(group="added")
        state = of(checkpoint, added)
        assert state.start_offsets("latest", lambda: {T0: 20}) == {T0: 20}
        assert len(files(checkpoint, "start-offsets")) == 1, "the checkpoint may be another query's"
        planned(checkpoint, T9, '{"t":{"0":22}}', number=1)
        state.store_start_offsets()
        assert start(checkpoint, 21, added, "timestamp 7") == {T0: 20}

    def test_that_are_missing(self, checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
        planned(checkpoint, T9, number=0)
        assert start(checkpoint, 7) == {T0: 7}
        assert "they are chosen again" in caplog.text


class TestTopicIds:
    def test_are_kept_as_they_were_last(self, checkpoint: Path) -> None:
        read_to(checkpoint, '{"t":{"0":5},"u":{"0":5}}')
        assert of(checkpoint).topic_ids() == {}
        state = of(checkpoint, SPELLED["a topic more"])
        for topic_ids in ({"t": "A", "u": "B"}, {"t": "C", "u": "B"}):
            state.store_topic_ids(topic_ids)
            assert of(checkpoint, SPELLED["a topic more"]).topic_ids() == topic_ids
        only_file(checkpoint)

    @spelled
    def test_are_found_however_options_are_spelled(self, checkpoint: Path, reader: Reader) -> None:
        read_to(checkpoint, T5)
        of(checkpoint).store_topic_ids({"t": "A"})
        assert of(checkpoint, reader).topic_ids() == {"t": "A"}

    @spelled
    def test_of_an_older_day_are_not_found_again(self, checkpoint: Path, reader: Reader) -> None:
        """As options are spelled otherwise, and then as before."""
        read_to(checkpoint, T5, U5)
        of(checkpoint).store_topic_ids({"t": "A"})
        of(checkpoint, reader).store_topic_ids({"t": "B"})
        assert of(checkpoint).topic_ids() == {"t": "B"}

    def test_of_a_query_with_one_source_leave_one_file(self, checkpoint: Path) -> None:
        read_to(checkpoint, T5, "7")
        for reader in SPELLED.values():
            state = of(checkpoint, reader)
            state.store_topic_ids({"t": "A"})
            state.store_shared(SHARED)
        assert [len(files(checkpoint, kind)) for kind in ("topic-ids", "shared")] == [1, 1]

    def test_of_the_same_topic_of_two_clusters(self, checkpoint: Path) -> None:
        read_to(checkpoint, T5, T5)
        of(checkpoint).store_topic_ids({"t": "A"})
        of(checkpoint, OTHER_CLUSTER).store_topic_ids({"t": "B"})
        for changed in (HERE.selection, Selection()):
            assert of(checkpoint, HERE._replace(selection=changed)).topic_ids() == {"t": "A"}
            assert of(checkpoint, OTHER_CLUSTER._replace(selection=changed)).topic_ids() == {"t": "B"}

    def test_of_two_readers_that_have_seen_it_recreated_one_after_the_other(self, checkpoint: Path) -> None:
        early, late = HERE._replace(group="early"), HERE._replace(group="late")
        read_to(checkpoint, T5, T9)
        of(checkpoint, late).store_topic_ids({"t": "A"})
        of(checkpoint, early).store_topic_ids({"t": "B"})
        assert [of(checkpoint, reader).topic_ids()["t"] for reader in (late, early)] == ["A", "B"]
        with pytest.raises(KafkaLogError, match="read t, and nothing tells which of the stored topic ids"):
            of(checkpoint).topic_ids()

    def test_of_a_topic_that_the_query_left_out_for_a_while(self, checkpoint: Path) -> None:
        """It was recreated meanwhile, and is read from its start."""
        read_to(checkpoint, '{"t":{"0":5},"u":{"0":5}}', number=1)
        both = SPELLED["a topic more"]
        of(checkpoint, both).store_topic_ids({"t": "A", "u": "A"})
        read_to(checkpoint, U5, number=2)
        assert of(checkpoint, both).topic_ids() == {"u": "A"}

    def test_of_sources_with_names(self, checkpoint: Path) -> None:
        planned(checkpoint, f"one:{T5}", f"two:{T9}", version="v2")
        complete(checkpoint)
        of(checkpoint).store_topic_ids({"t": "A"})
        of(checkpoint, OTHER_CLUSTER).store_topic_ids({"t": "B"})
        assert of(checkpoint).topic_ids() == {"t": "A"}

    def test_another_cluster_is_compared_with_the_one_that_was_read(self, checkpoint: Path) -> None:
        read_to(checkpoint, T5)
        of(checkpoint).store_topic_ids({"t": "A"})
        assert of(checkpoint, OTHER_CLUSTER).topic_ids() == {"t": "A"}, "so its topic is found recreated"

    def test_that_are_missing(self, checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
        read_to(checkpoint, '{"t":{"0":5},"u":{"0":5}}')
        with caplog.at_level(logging.WARNING):
            of(checkpoint, SPELLED["a topic more"]).topic_ids()
            assert not caplog.text, "nothing was ever kept"
            of(checkpoint).store_topic_ids({"t": "A"})
            assert of(checkpoint, SPELLED["a topic more"]).topic_ids() == {"t": "A"}
        assert "whether u were recreated since can't be told" in caplog.text

    def test_that_are_newer_than_the_plans(self, checkpoint: Path) -> None:
        """Spark's log was set back, alone: its offsets may be those of topics that are gone."""
        for number in (2, 3):
            read_to(checkpoint, T5, number=number)
        of(checkpoint).store_topic_ids({"t": "A"})
        (checkpoint / "offsets" / "2").unlink()
        read_to(checkpoint, T5, number=4)
        assert of(checkpoint).topic_ids() == {"t": "A"}
        planned(checkpoint, T9, number=3)
        with pytest.raises(
            KafkaLogError, match="newer than Spark's log, which lacks micro-batch 3 as it was"
        ):
            of(checkpoint).topic_ids()
        for number in (3, 4):
            (checkpoint / "offsets" / str(number)).unlink()
        with pytest.raises(KafkaLogError, match="newer than Spark's log"):
            of(checkpoint).topic_ids()
        read_to(checkpoint, T5, number=100)
        assert of(checkpoint).topic_ids() == {"t": "A"}, "Spark deletes plans after a while"


class TestShared:
    @spelled
    def test_is_kept_as_it_was_last(self, checkpoint: Path, reader: Reader) -> None:
        read_to(checkpoint, T5)
        assert of(checkpoint).shared() == {}
        for shared in (SHARED, {T0: LastShared("A", 9)}, SHARED):
            of(checkpoint).store_shared(shared)
            assert of(checkpoint, reader).shared() == shared
        only_file(checkpoint)

    def test_of_two_readers(self, checkpoint: Path) -> None:
        read_to(checkpoint, T5, T9)
        shared = {T0: LastShared("A", 5)}, {T0: LastShared("A", 9)}
        readers = HERE._replace(group="early"), HERE._replace(group="late")
        for reader, each in zip(readers, shared, strict=True):
            of(checkpoint, reader).store_shared(each)
        assert [of(checkpoint, reader).shared() for reader in readers] == [*shared]
        assert of(checkpoint).shared() == shared[0], "which is true of both"

    def test_of_another_reader_alone(self, checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
        """What can't be compared is said, once of a topic, however many facts of it are missing."""
        read_to(checkpoint, T5, T9)
        of(checkpoint, OTHER_CLUSTER).store_shared(SHARED)
        state = of(checkpoint)
        assert (state.shared(), len(caplog.messages)) == ({}, 1)
        assert "The last records of topics" in caplog.text
        assert "whether t were recreated since can't be told" in caplog.text
        of(checkpoint, OTHER_CLUSTER).store_topic_ids({"t": "A"})
        assert (state.topic_ids(), len(caplog.messages)) == ({}, 1)
        of(checkpoint, HERE).store_shared(SHARED)
        caplog.clear()
        assert (of(checkpoint).shared(), caplog.messages) == (SHARED, [])

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"\0\0\0", b"{", b"[]", b'{"version":2}', b"[" * 100_000),
            *(
                b'{"version":3,"query":"%s","content":%s}' % (QUERY.encode(), content)
                for content in (
                    *(b"5", b'{"t":5}', b'{"t":{"x":["A",5,3,null]}}', b'{"t":{"0":["A",5,3]}}'),
                    *(
                        b'{"t":{"0":[1,5,3,null]}}',
                        b'{"t":{"0":["A",5,"3",null]}}',
                        b'{"t":{"0":["A",5,3,[1,2]]}}',
                    ),
                )
            ),
            b'{"version":3,"query":"another","content":{"t":{"0":["A",5,3,null]}}}',
        ],
    )
    def test_what_says_nothing_of_the_logs_of_this_query(self, checkpoint: Path, content: bytes) -> None:
        """A loss of power may leave anything, as it is not flushed."""
        read_to(checkpoint, T5)
        of(checkpoint).store_shared(SHARED)
        only_file(checkpoint).write_bytes(content)
        assert of(checkpoint).shared() == {}


@spelled
def test_where_a_micro_batch_begins_counts_for_that_one(checkpoint: Path, reader: Reader) -> None:
    planned(checkpoint, T9)
    of(checkpoint).store_begins({T0: 7})
    assert of(checkpoint, reader).begins() == {T0: 7}
    planned(checkpoint, '{"t":{"0":12}}', number=4)
    assert of(checkpoint, reader).begins() == {}


def test_where_the_micro_batch_of_another_member_begins(checkpoint: Path) -> None:
    planned(checkpoint, T9, T9)
    of(checkpoint).store_begins({T0: 7})
    assert of(checkpoint).begins() == {T0: 7}
    assert of(checkpoint, HERE._replace(group="g")).begins() == {}


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    """As where Spark looks for the path in another file system."""
    with pytest.raises(KafkaLogError, match=r"not the checkpoint of the query.*elsewhere/metadata.*URI"):
        of(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b'{"t":5}', b"[]", b"\xff", b'{"version":2}', b"[" * 100_000),
        *(
            b'{"version":2,"query":5,"plan":null,"content":{}}',
            b'{"version":2,"query":"q","plan":null,"content":5}',
            b'{"version":3,"query":"q","plan":null,"turn":"1","content":{}}',
        ),
        *(
            b'{"version":2,"query":"q","plan":%s,"content":{}}' % plan
            for plan in (b"5", b"[1]", b'["a","b"]')
        ),
    ],
)
def test_a_broken_file_is_named(checkpoint: Path, content: bytes) -> None:
    of(checkpoint).store_topic_ids({"t": "A"})
    file = only_file(checkpoint)
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*delete the file"):
        of(checkpoint).topic_ids()
    file.unlink()
    start(checkpoint, 5)
    file = only_file(checkpoint)
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*delete the file"):
        start(checkpoint, 5)


def test_a_query_that_begins_anew_takes_nothing_over(checkpoint: Path) -> None:
    start(checkpoint, 5)
    read_to(checkpoint, T5)
    of(checkpoint).store_topic_ids({"t": "A"})
    begin(checkpoint, "another")
    assert of(checkpoint).topic_ids() == {}
    assert start(checkpoint, 7) == {T0: 7}
    planned(checkpoint, T9, number=0)
    assert start(checkpoint, 8) == {T0: 7}
    complete(checkpoint, 0)
    assert of(checkpoint).topic_ids() == {}, "although it has none to store"


def test_files_of_another_query_than_the_plans(checkpoint: Path) -> None:
    start(checkpoint, 5)
    of(checkpoint).store_topic_ids({"t": "A"})
    begin(checkpoint, "another")
    read_to(checkpoint, T5)
    before = {path: path.read_bytes() for path in checkpoint.rglob("*.json")}
    with pytest.raises(KafkaLogError, match=rf"topic ids are of query {QUERY}, .* another .*delete the file"):
        of(checkpoint).topic_ids()
    with pytest.raises(KafkaLogError, match=rf"start offsets are of query {QUERY}, .* query another"):
        start(checkpoint, 7)
    assert {path: path.read_bytes() for path in checkpoint.rglob("*.json")} == before


OLD = HERE._replace(source=(("host:9092",), HERE.selection))
"""A reader with what named its files before version 3."""


def write_old(checkpoint: Path, kind: str, content: object, *named: object) -> Path:
    import hashlib

    digest = hashlib.sha256(repr((*OLD.source, *named)).encode()).hexdigest()[:32]
    file = checkpoint / f"kafkalog-{kind}" / f"{digest}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))
    return file


def version_2(content: object, **more: object) -> dict[str, object]:
    return {"version": 2, "query": QUERY, "content": content, **more}


@spelled
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("topic", ["t", "version"])
def test_files_of_older_versions_are_taken(
    checkpoint: Path, reader: Reader, version: int, topic: str
) -> None:
    contents = [{topic: "A"}, {topic: {"0": 5}}, {topic: {"0": ["A", 5, 3, None]}}]
    written: list[object] = [*contents]
    if version == 2:
        written = [version_2(each, plan=None) for each in contents[:2]] + [version_2(contents[2])]
    covering = reader._replace(selection=Selection(), source=OLD.source)
    write_old(checkpoint, "start-offsets", written[1], "latest")
    planned(checkpoint, f'{{"{topic}":{{"0":9}}}}', number=0)
    for starting in ("latest", "timestamp 7"):
        assert of(checkpoint, covering).start_offsets(starting, dict) == {TopicPartition(topic, 0): 5}
    complete(checkpoint, 0)
    write_old(checkpoint, "topic-ids", written[0])
    for _ in range(2):
        assert of(checkpoint, covering).topic_ids() == {topic: "A"}
    if version == 2:  # before that there was no history
        write_old(checkpoint, "shared", written[2])
        assert of(checkpoint, covering).shared() == {TopicPartition(topic, 0): LastShared("A", 5, 3)}
    of(checkpoint, covering).store_topic_ids({topic: "B"})
    assert of(checkpoint, covering).topic_ids() == {topic: "B"}
    assert len(files(checkpoint, "topic-ids")) == 1


def test_a_file_that_version_2_had_emptied(checkpoint: Path) -> None:
    write_old(checkpoint, "start-offsets", version_2(None, plan=None), "latest")
    write_old(checkpoint, "topic-ids", version_2(None, plan=None))
    assert start(checkpoint, 7, OLD) == {T0: 7}
    read_to(checkpoint, T9)
    assert of(checkpoint, OLD).topic_ids() == {}


def test_old_files_of_two_sources(checkpoint: Path) -> None:
    """Each reader finds its own, as long as it is spelled as before; else none is guessed."""
    read_to(checkpoint, T5, T9)
    write_old(checkpoint, "topic-ids", version_2({"t": "A"}, plan=None))
    other = write_old(checkpoint, "topic-ids", version_2({"t": "B"}, plan=None), "another source")
    assert of(checkpoint, OLD).topic_ids() == {"t": "A"}
    with pytest.raises(KafkaLogError, match="nothing tells which of the stored topic ids"):
        of(checkpoint, OTHER_CLUSTER).topic_ids()
    other.unlink()
    assert of(checkpoint, OTHER_CLUSTER).topic_ids() == {"t": "A"}


@pytest.mark.parametrize("is_replayed", [False, True])
@pytest.mark.parametrize("spell", [lambda run: HERE, lambda run: [*SPELLED.values()][run % len(SPELLED)]])
def test_a_run_that_is_killed_before_it_hears_that_a_recreated_topic_was_read(
    checkpoint: Path, is_replayed: bool, spell: Callable[[int], Reader]
) -> None:
    """What counts for the next run is whether Spark has logged the micro-batch as complete."""
    place = FakePlace({T0: (0, 5)}, ids={"t": "A"})
    settings = read_options({"path": "/log", "failOnDataLoss": "false"}, batch=False)
    runs = iter(range(100))

    def run() -> StreamPlanner:
        state = of(checkpoint, spell(next(runs)))
        return StreamPlanner(
            place,
            replace(settings),
            topic_ids=state.topic_ids(),
            store_topic_ids=state.store_topic_ids,
            groups=FakeGroups(),
        )

    def plan(stream: StreamPlanner, number: int, start: int, end: int) -> list[OffsetRange]:
        planned(checkpoint, json.dumps({"t": {"0": end}}), number=number)
        return [split.offsets for split in stream.plan({T0: start}, {T0: end})]

    first = run()
    assert first.next_offsets({T0: 0}) == {T0: 5}
    assert plan(first, 0, 0, 5) == [(0, 5)]
    complete(checkpoint, 0)
    place.ids["t"], place.bounds[T0] = "B", (0, 9)
    assert first.next_offsets({T0: 5}) == {T0: 9}
    assert plan(first, 1, 5, 9) == [(0, 9)]
    for _ in range(2):
        if is_replayed:
            assert plan(run(), 1, 5, 9) == [(0, 9)]
    complete(checkpoint, 1)
    place.bounds[T0] = 0, 12
    for _ in range(2):
        stream = run()
        assert stream.next_offsets({T0: 9}) == {T0: 12}
        assert plan(stream, 2, 9, 12) == [(9, 12)]
    for folder in "commits", "offsets":
        (checkpoint / folder / "1").unlink()
    assert run().next_offsets({T0: 12}) == {T0: 12}, "Spark deletes its logs after a while"


@pytest.mark.parametrize(
    ("topic", "place", "expected"),
    [
        ("t", HERE.place, True),
        ("elsewhere", "cluster other", True),
        pytest.param("elsewhere", HERE.place, False, id="a topic of that name in another place"),
        pytest.param("t", "cluster third", False, id="a place that is not read"),
        pytest.param("no more", HERE.place, False, id="a topic that was read before"),
    ],
)
def test_whether_a_topic_is_read(checkpoint: Path, topic: str, place: str, expected: bool) -> None:
    """A writer asks for its own. Of a source without this checkpoint nothing is stored."""
    read_to(checkpoint, '{"t":{"0":5}}', '{"elsewhere":{"0":5}}')
    of(checkpoint).store_topic_ids({"t": "A", "no more": "B"})
    of(checkpoint, HERE._replace(place="cluster other")).store_topic_ids({"elsewhere": "C"})
    read = TopicsRead(str(checkpoint), None, QUERY)
    assert read.names == {"t", "elsewhere"}
    assert (topic in read.of_place(place)) is expected


def test_whether_the_topic_of_another_query_is_read(checkpoint: Path) -> None:
    read_to(checkpoint, T5)
    with pytest.raises(KafkaLogError, match="This is not the checkpoint of the query"):
        TopicsRead(str(checkpoint), None, "another query")
