"""A stream notices that a log went back and has grown again, and takes nothing else for that."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import BatchHeader, Seen, TopicPartition
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.stream import history
from pyspark_kafkalog.stream.history import LastShared, Shared
from pyspark_kafkalog.stream.planner import StreamPlanner
from tests.log.writing import T0, T1, values, write
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace
from tests.stream.test_planner import A0, A1, Clock

OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
LAST = BatchHeader(2, 90, 99, -1, -1, -1, 3, 1234, 5000, 5009, 400, 0, 10)
"""The last batch before offset 100."""
OTHER = LAST._replace(crc=4321)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_LOOK_PAUSE", 0.0)


@dataclass
class Query:
    """The runs of a query, and what is stored between them."""

    place: FakePlace | LogDirectory
    topic_ids: dict[str, str] = field(default_factory=dict)
    shared: Shared = field(default_factory=dict)
    stored: int = 0
    clock: Clock = field(default_factory=Clock)
    note_takes: float = 0
    """Seconds."""
    note_fails: bool = False

    def run(self, **options: str) -> StreamPlanner:
        return StreamPlanner(
            self.place,
            read_options({"path": "/log", **options}, batch=False),
            topic_ids=self.topic_ids,
            store_topic_ids=lambda ids, before: self.topic_ids.update(ids if before is None else before),
            shared=self.shared,
            store_shared=self._keep,
            groups=FakeGroups(),
            clock=self.clock,
        )

    def _keep(self, shared: Shared) -> None:
        self.clock.now += self.note_takes
        if self.note_fails:
            raise OSError("disk full")
        self.shared, self.stored = shared, self.stored + 1


def go_on(stream: StreamPlanner, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Plan one micro-batch, if there is something to read, and see it processed."""
    end = stream.next_offsets(dict(start))
    if end == start:
        return dict(end)
    stream.plan(dict(start), end)
    stream.next_offsets(end)
    return dict(end)


def has_read(place: FakePlace, offset: int = 100) -> Query:
    """A query of which a run has read ``offset`` records of each partition."""
    query = Query(place)
    assert set(go_on(query.run(), dict.fromkeys(place.bounds, 0)).values()) == {offset}
    assert query.stored == 1
    return query


def led(end: int = 100, epoch: int = 3) -> FakePlace:
    return FakePlace({A0: (0, end)}, ids={"a": OLD}, epochs={A0: epoch})


def next_leader(query: Query, ended: dict[TopicPartition, tuple[int, int]], end: int = 120) -> None:
    assert isinstance(query.place, FakePlace)
    query.place.epochs[A0], query.place.ended, query.place.bounds = 4, ended, {A0: (0, end)}


@pytest.mark.parametrize("end", [100, 120])
@pytest.mark.parametrize("ended", [(3, 60), (2, 99)])
def test_an_epoch_that_ends_below_what_was_read_is_data_loss(ended: tuple[int, int], end: int) -> None:
    query = has_read(led())
    next_leader(query, {A0: ended}, end)
    for ask in (lambda: query.run().next_offsets({A0: 100}), lambda: query.run().plan({A0: 100}, {A0: 120})):
        with pytest.raises(
            DataLossError,
            match=rf"LOG_WENT_BACK.*below offset 100 .*up to 100 in leader epoch 3.*ends at {ended[1]};.*a-0",
        ):
            ask()
    assert query.stored == 1


@pytest.mark.parametrize("end", [100, 120])
def test_a_leader_epoch_before_the_last_is_data_loss(end: int) -> None:
    """The metadata went back, too, so the leader knows nothing of the last epoch."""
    query = has_read(led(epoch=3))
    query.place = led(end, epoch=2)
    with pytest.raises(
        DataLossError,
        match=r"LOG_WENT_BACK.*was read in leader epoch 3, and the cluster is back at 2;.*a-0",
    ):
        query.run().next_offsets({A0: 100})
    assert query.place.expected[A0] == Seen(OLD, 3), "so the place wants it proven"
    assert go_on(query.run(failOnDataLoss="false"), {A0: 100}) == {A0: end}
    assert go_on(query.run(), {A0: end}) == {A0: end}, "it is told once"


def test_an_older_leader_epoch_of_another_topic_is_none() -> None:
    query = has_read(led(epoch=3))
    query.place = FakePlace({A0: (0, 120)}, ids={"a": NEW}, epochs={A0: 0})
    assert go_on(query.run(failOnDataLoss="false"), {A0: 100}) == {A0: 120}
    assert query.shared == {A0: LastShared(NEW, 120, 0)}


def test_without_fail_on_data_loss_it_is_told_once_and_read_on(caplog: pytest.LogCaptureFixture) -> None:
    query = has_read(led())
    next_leader(query, {A0: (3, 60)})
    assert go_on(query.run(failOnDataLoss="false"), {A0: 100}) == {A0: 120}
    assert caplog.text.count("LOG_WENT_BACK") == 1
    assert query.run().next_offsets({A0: 120}) == {A0: 120}


@pytest.mark.parametrize("is_broker", [True, False])
def test_a_loss_that_was_accepted_is_told_no_more_although_nothing_was_read(is_broker: bool) -> None:
    query = has_read(led() if is_broker else batched())
    if is_broker:
        next_leader(query, {A0: (3, 60)}, end=100)
    else:
        query.place = batched(OTHER)
    with pytest.raises(DataLossError, match="LOG_WENT_BACK"):
        query.run().next_offsets({A0: 100})
    for fail_on_data_loss in ("false", "true"):
        assert query.run(failOnDataLoss=fail_on_data_loss).next_offsets({A0: 100}) == {A0: 100}


def test_a_running_stream_asks_when_the_leader_has_changed() -> None:
    query = Query(led())
    stream = query.run()
    assert go_on(stream, {A0: 0}) == {A0: 100}
    next_leader(query, {A0: (3, 99)})
    with pytest.raises(DataLossError, match="LOG_WENT_BACK"):
        stream.next_offsets({A0: 100})


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_ends_that_are_frozen_notice_a_cluster_that_went_back(
    fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They ask no broker; the plan does."""

    class Asked(FakePlace):
        known: Mapping[TopicPartition, int]

        def end_offsets(
            self, partitions: Collection[TopicPartition], *, read_committed: bool
        ) -> dict[TopicPartition, int]:
            self.known = dict(self.epochs)
            return super().end_offsets(partitions, read_committed=read_committed)

        def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
            return dict(self.known)

    place = Asked({A0: (0, 100)}, ids={"a": OLD}, epochs={A0: 3})
    stream = Query(place).run(maxOffsetsPerTrigger="50", failOnDataLoss=fail_on_data_loss)
    stream.prepare_for_available_now()
    assert go_on(stream, {A0: 0}) == {A0: 50}
    place.epochs[A0], place.bounds = 2, {A0: (0, 120)}
    assert stream.next_offsets({A0: 50}) == {A0: 100}
    if fail_on_data_loss == "true":
        with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*leader epoch 3.*back at 2.*a-0"):
            stream.plan({A0: 50}, {A0: 100})
    else:
        stream.plan({A0: 50}, {A0: 100})
        assert stream.next_offsets({A0: 100}) == {A0: 100}
        assert caplog.text.count("LOG_WENT_BACK") == 1


def test_it_knows_the_epoch_of_what_it_has_planned_last() -> None:
    """Cut behind what it had read a moment before, which is not stored yet."""
    query = Query(led())
    stream = query.run()
    go_on(stream, {A0: 0})
    assert isinstance(query.place, FakePlace)
    query.place.bounds = {A0: (0, 110)}
    stream.plan({A0: 100}, stream.next_offsets({A0: 100}))
    next_leader(query, {A0: (3, 105)})
    with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*up to 110 in leader epoch 3.*ends at 105"):
        stream.next_offsets({A0: 110})


@pytest.mark.parametrize(
    "ended",
    [
        {A0: (3, 100)},  # as it should be
        {A0: (2, 100)},  # nothing was written in epoch 3, and the new leader never knew it
        {A0: (3, 110)},  # the old leader had more than was read
        {A0: (3, 5000)},  # the log start is above
        {A0: (-1, -1)},  # message formats v0 and v1, or the metadata went back, too
        {},  # before Kafka 2.3
    ],
)
def test_what_fits_an_epoch_is_believed(ended: dict[TopicPartition, tuple[int, int]]) -> None:
    query = has_read(led())
    next_leader(query, ended)
    stream = query.run()
    assert go_on(stream, {A0: 100}) == {A0: 120}
    assert query.shared == {A0: LastShared(OLD, 120, 4)}


def test_a_checkpoint_that_was_set_back_is_compared_with_nothing_newer() -> None:
    query = has_read(led())
    next_leader(query, {A0: (3, 60)})
    assert go_on(query.run(), {A0: 50}) == {A0: 120}


def test_an_older_note_is_compared_as_far_as_it_goes() -> None:
    """Loss of power took the newer one, and records from 100 on are of a later epoch."""
    query = has_read(led())
    next_leader(query, {A0: (3, 100)}, end=200)
    assert go_on(query.run(), {A0: 150}) == {A0: 200}


@pytest.mark.parametrize("ids", [(OLD, NEW), ("", NEW), (OLD, "")])
def test_notes_of_another_topic_are_not_compared(ids: tuple[str, str]) -> None:
    place = FakePlace({A0: (0, 100)}, ids={"a": ids[0]}, epochs={A0: 3}, batches={A0: LAST})
    query = has_read(place)
    query.topic_ids.clear()
    place.ids["a"], place.batches[A0] = ids[1], OTHER
    next_leader(query, {A0: (3, 60)})
    assert go_on(query.run(), {A0: 100}) == {A0: 120}


def test_brokers_are_asked_only_if_a_leader_has_changed() -> None:
    class Counted(FakePlace):
        asked = 0

        def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
            self.asked += 1
            assert set(epochs) == {A0}
            return {A0: (3, 1000)}

    place = Counted({A0: (0, 100), A1: (0, 100)}, ids={"a": OLD}, epochs={A0: 3, A1: 8})
    query = has_read(place)
    stream, offsets = query.run(), {A0: 100, A1: 100}
    for number in range(3):
        place.bounds = {A0: (0, 110 + number), A1: (0, 100)}
        offsets = go_on(stream, offsets)
    assert not place.asked
    place.epochs[A0], place.bounds = 4, {A0: (0, 120), A1: (0, 101)}
    for number in range(3):
        place.bounds[A0] = (0, 120 + number)
        offsets = go_on(stream, offsets)
    assert place.asked == 1


def test_history_is_stored_when_something_was_read_and_at_most_every_few_seconds() -> None:
    query = has_read(led())
    assert isinstance(query.place, FakePlace)
    stream = query.run()
    assert stream.next_offsets({A0: 100}) == {A0: 100}
    query.clock.now += 10
    assert stream.next_offsets({A0: 100}) == {A0: 100}
    assert query.stored == 1, "nothing was read"
    offsets = {A0: 100}
    for number in range(5):
        query.place.bounds[A0] = (0, 101 + number)
        offsets = go_on(stream, offsets)
    assert query.stored == 2
    query.clock.now += 10
    assert stream.next_offsets(offsets) == offsets
    assert query.stored == 3, "also while nothing comes"
    assert query.shared[A0].offset == 105


def test_a_run_that_reads_what_there_is_keeps_where_it_ends() -> None:
    query = Query(led())
    stream = query.run(maxOffsetsPerTrigger="30")
    stream.prepare_for_available_now()
    offsets = {A0: 0}
    while (end := stream.next_offsets(offsets)) != offsets:
        stream.plan(offsets, end)
        offsets = dict(end)
    assert query.shared[A0].offset == 100


def batched(batch: BatchHeader = LAST) -> FakePlace:
    return FakePlace({A0: (0, 100)}, ids={"a": OLD}, batches={A0: batch})


@pytest.mark.parametrize(
    "found",
    [
        OTHER,
        LAST._replace(max_timestamp=6000, crc=4321),
        LAST._replace(base_offset=98, records=2),
        LAST._replace(leader_epoch=4),
        LAST._replace(producer_id=7, records=3),
    ],
)
def test_another_batch_where_the_last_was_is_data_loss(found: BatchHeader) -> None:
    query = has_read(batched())
    query.place = FakePlace({A0: (0, 120)}, ids={"a": OLD}, batches={A0: found})
    for ask in (lambda: query.run().next_offsets({A0: 100}), lambda: query.run().plan({A0: 100}, {A0: 120})):
        with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*batch at offset 99 is not the one.*a-0"):
            ask()


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        (LAST, LAST),
        (LAST, LAST._replace(crc=1, records=4, size=200, max_timestamp=5004)),  # some are compacted away
        (LAST, LAST._replace(crc=1, attributes=0x40)),  # a tombstone will go
        (LAST._replace(attributes=2), LAST._replace(crc=1, records=0, size=61)),  # a header, not compressed
        (LAST._replace(records=4), OTHER._replace(records=7)),  # another replica, less compacted
        (LAST._replace(magic=1, base_offset=-1), OTHER._replace(magic=1, base_offset=-1)),
        (LAST, LAST._replace(base_offset=100, last_offset=119)),  # compaction or retention took all of it
    ],
)
def test_what_a_cleaner_may_have_left_is_believed(noted: BatchHeader, found: BatchHeader) -> None:
    query = has_read(batched(noted))
    query.place = FakePlace({A0: (0, 120)}, ids={"a": OLD}, batches={A0: found})
    assert go_on(query.run(), {A0: 100}) == {A0: 120}


def test_a_batch_behind_a_checkpoint_that_was_set_back_is_not_compared() -> None:
    query = has_read(batched())
    query.place = FakePlace({A0: (0, 120)}, ids={"a": OLD}, batches={A0: OTHER})
    assert go_on(query.run(), {A0: 90}) == {A0: 120}


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_running_stream_compares_before_it_notes_another(
    fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = batched()
    query = Query(place)
    stream = query.run(failOnDataLoss=fail_on_data_loss)
    go_on(stream, {A0: 0})
    place.batches[A0], place.bounds[A0] = OTHER, (0, 120)
    assert go_on(stream, {A0: 100}) == {A0: 120}
    assert query.shared[A0].batch == LAST
    query.clock.now += 10
    if fail_on_data_loss == "true":
        with pytest.raises(DataLossError, match="LOG_WENT_BACK"):
            stream.next_offsets({A0: 120})
        assert query.shared[A0].batch == LAST
    else:
        assert stream.next_offsets({A0: 120}) == {A0: 120}
        assert caplog.text.count("LOG_WENT_BACK") == 1
        assert query.shared[A0].batch is None, "nothing is at 119"


B0 = TopicPartition("b", 0)


def cluster_of_two(**batches: BatchHeader) -> FakePlace:
    """Two partitions, each with a record batch before offset 100."""
    found = {A0: batches.get("a", LAST), B0: batches.get("b", LAST)}
    return FakePlace(
        {A0: (0, 100), B0: (0, 100)}, ids={"a": OLD, "b": NEW}, epochs={A0: 3, B0: 3}, batches=found
    )


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_leader_epoch_that_changes_has_batches_compared(epoch: int) -> None:
    """Of all partitions if it went back: others may have come to the same epoch again."""
    query = Query(cluster_of_two())
    stream = query.run(failOnDataLoss="false")
    assert go_on(stream, {A0: 0, B0: 0}) == {A0: 100, B0: 100}
    told: list[TopicPartition] = []
    stream._lost = lambda partition, offset, why: told.append(partition)  # type: ignore[method-assign]
    place = query.place
    assert isinstance(place, FakePlace)
    place.epochs[A0], place.bounds = epoch, {A0: (0, 120), B0: (0, 120)}
    place.batches = {A0: OTHER, B0: OTHER}
    stream.next_offsets({A0: 100, B0: 100})
    assert told == ([A0, B0] if epoch == 2 else [A0])


def test_an_end_below_what_was_read_has_all_batches_compared(caplog: pytest.LogCaptureFixture) -> None:
    query = Query(cluster_of_two())
    stream = query.run(failOnDataLoss="false")
    assert go_on(stream, {A0: 0, B0: 0}) == {A0: 100, B0: 100}
    place = query.place
    assert isinstance(place, FakePlace)
    place.bounds, place.batches[B0] = {A0: (0, 60), B0: (0, 120)}, OTHER
    stream.next_offsets({A0: 100, B0: 100})
    assert "batch at offset 99 is not the one that was read there; the log was cut" in caplog.text


def test_one_look_is_no_evidence() -> None:
    """A mount may show for a moment what was there before."""

    class Lagging(FakePlace):
        looks = 0

        def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
            self.looks += bool(offsets)
            return {A0: OTHER if self.looks < 3 else LAST} if offsets else {}

    query = has_read(batched())
    query.place = Lagging({A0: (0, 120)}, ids={"a": OLD})
    assert query.run().next_offsets({A0: 100}) == {A0: 120}


class TestDirectories:
    def set_back(self, root: Path, older: Path, count: int) -> None:
        """Bring back an older copy of a directory, which others go on with."""
        shutil.rmtree(root)
        shutil.copytree(older, root)
        write(root, {T0: values(count, start=500)}, num_partitions=2)

    def after_a_run(self, tmp_path: Path, **options: str) -> Query:
        """A query that has read 30 records of each partition, of which 10 are in an older copy."""
        root, older = tmp_path / "log", tmp_path / "older"
        write(root, {T0: values(10), T1: values(10)}, num_partitions=2)
        shutil.copytree(root, older)
        write(root, {T0: values(20), T1: values(20)}, num_partitions=2)
        query = Query(LogDirectory.open(str(root)))
        assert go_on(query.run(**options), {T0: 0, T1: 0}) == {T0: 30, T1: 30}
        return query

    @pytest.mark.parametrize("count", [20, 21, 50])
    def test_one_that_went_back_and_has_grown_again(self, tmp_path: Path, count: int) -> None:
        query = self.after_a_run(tmp_path)
        self.set_back(tmp_path / "log", tmp_path / "older", count)
        write(tmp_path / "log", {T1: values(20)}, num_partitions=2)  # the very same again
        query.place = LogDirectory.open(str(tmp_path / "log"))
        with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*below offset 30 .*at offset 29.*t-0"):
            query.run().next_offsets({T0: 30, T1: 30})

    def test_under_a_running_stream(self, tmp_path: Path) -> None:
        query = self.after_a_run(tmp_path)
        stream = query.run()
        write(tmp_path / "log", {T0: values(3)}, num_partitions=2)
        assert go_on(stream, {T0: 30, T1: 30}) == {T0: 33, T1: 30}
        self.set_back(tmp_path / "log", tmp_path / "older", 50)
        write(tmp_path / "log", {T1: values(20)}, num_partitions=2)
        assert stream.next_offsets({T0: 33, T1: 30}) == {T0: 60, T1: 30}
        stream.plan({T0: 33, T1: 30}, {T0: 60, T1: 30})
        query.clock.now += 10
        with pytest.raises(DataLossError, match=r"LOG_WENT_BACK.*below offset 60 .*at offset 32 .*t-0"):
            stream.next_offsets({T0: 60, T1: 30})

    def test_what_only_grows_is_read_on(self, tmp_path: Path) -> None:
        query = self.after_a_run(tmp_path)
        offsets = {T0: 30, T1: 30}
        for number in range(4):
            write(tmp_path / "log", {T0: values(5), T1: values(2)}, num_partitions=2, segment_bytes=300)
            query.clock.now += 3
            query.place = LogDirectory.open(str(tmp_path / "log"))
            stream = query.run(maxOffsetsPerTrigger=str(3 + number))
            while (end := go_on(stream, offsets)) != offsets:
                offsets = end
        assert offsets == {T0: 50, T1: 38}
        assert query.shared[T0].batch is not None

    def test_a_log_that_begins_later_now(self, tmp_path: Path) -> None:
        query = self.after_a_run(tmp_path)
        write(tmp_path / "log", {T0: values(5)}, num_partitions=2, segment_bytes=200)
        for file in (tmp_path / "log" / "t-0").glob("00000000000000000000.*"):
            file.unlink()
        query.place = LogDirectory.open(str(tmp_path / "log"))
        stream = query.run()
        assert stream.next_offsets({T0: 30, T1: 30}) == {T0: 35, T1: 30}


def test_many_partitions_are_stored_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_AT_ONCE", 10)
    partitions = [TopicPartition("a", number) for number in range(25)]
    place = FakePlace(dict.fromkeys(partitions, (0, 100)), batches=dict.fromkeys(partitions, LAST))
    query = Query(place)
    stream = query.run()
    offsets = go_on(stream, dict.fromkeys(partitions, 0))
    counts = []
    for _ in range(5):
        counts.append(sum(shared.batch is not None for shared in query.shared.values()))
        query.clock.now += 10
        assert stream.next_offsets(offsets) == offsets
    assert counts == [10, 20, 25, 25, 25], "however fast the first ones were"


def test_a_slow_checkpoint_leaves_no_partition_for_later() -> None:
    partitions = [TopicPartition("a", number) for number in range(50)]
    place = FakePlace(dict.fromkeys(partitions, (0, 100)), batches=dict.fromkeys(partitions, LAST))
    query = Query(place, note_takes=0.2)
    stream = query.run()
    offsets = go_on(stream, dict.fromkeys(partitions, 0))
    query.clock.now += 11
    assert stream.next_offsets(offsets) == offsets
    assert all(shared.batch is not None for shared in query.shared.values())


def test_a_note_that_fails_ends_no_query_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    query = Query(batched(), note_fails=True)
    stream = query.run()
    assert go_on(stream, {A0: 0}) == {A0: 100}
    assert "trying again: disk full" in caplog.text
    query.note_fails = False
    assert stream.next_offsets({A0: 100}) == {A0: 100}
    assert query.stored == 0, "not at once"
    query.clock.now += 10
    assert stream.next_offsets({A0: 100}) == {A0: 100}
    assert query.shared == {A0: LastShared(OLD, 100, -1, LAST)}
