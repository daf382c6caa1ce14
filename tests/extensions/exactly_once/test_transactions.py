"""A real broker shows batches whole and once, whichever run writes them, however often.

``ci/mutants`` seeds faults that these tests have to find; ``ci/mutants "no fence"`` switches on one of them.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.broker.cluster.cluster import cluster_of
from pyspark_kafkalog.broker.groups.groups import BrokerGroups
from pyspark_kafkalog.broker.produce.ids import ProducerId
from pyspark_kafkalog.broker.produce.producer import Producer
from pyspark_kafkalog.broker.produce.protocol import refusal
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode
from pyspark_kafkalog.errors import FencedError, OptionError, TransactionError, UnknownTopicOrPartitionError
from pyspark_kafkalog.extensions.exactly_once import committing, query_marker
from pyspark_kafkalog.extensions.exactly_once.group_marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.extensions.exactly_once.intent import Intent
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.extensions.exactly_once.requests import Requests
from pyspark_kafkalog.extensions.exactly_once.work import Work
from pyspark_kafkalog.filesystem.machine import Mark
from pyspark_kafkalog.filesystem.private import NewFile
from pyspark_kafkalog.model import CommittedOffset, Plan, QueryBatch, TaskAttempt, TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.staging import StagedSection
from pyspark_kafkalog.write.routing import Router
from pyspark_kafkalog.write.rows import write_rows
from pyspark_kafkalog.write.splitting import splitting_of
from tests.broker.producing import consume, digits, unused_topic
from tests.extensions.exactly_once.writing import Query, is_stable, shown, stored, transaction_state, values
from tests.kafka import Broker

pytestmark = pytest.mark.broker

Drivers = Callable[..., Query]


def groups(broker: Broker) -> BrokerGroups:
    return BrokerGroups(ConnectionOptions((broker.bootstrap,)))


def intent_file(tmp_path: Path, topic: str) -> Path:
    return tmp_path / "checkpoint" / "kafkalog-transactions" / transactional_id(topic) / "intent.json"


def test_a_batch_is_shown_once_however_it_is_replayed(broker: Broker, topic: str, driver: Drivers) -> None:
    driver().write([values(50), values(50, 50)], 0)
    # The same rows in another number of tasks, in another order, and other rows: the first run counts.
    driver().write([values(100)], 0)
    driver().write([values(10, 90 - 10 * n) for n in range(10)], 0)
    driver().write([values(7, 500)], 0)
    driver().write([values(20, 100)], 1)
    assert sorted(shown(broker.bootstrap, topic)) == digits(120)
    assert is_stable(broker.bootstrap, topic)
    assert transaction_state(broker, transactional_id(topic)) == "CompleteCommit"


@pytest.mark.parametrize("code", [ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE])
def test_a_transaction_that_can_only_be_aborted_is_run_again(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """As leaders answer that can't verify it, since its coordinator is paused."""
    finish, refused = Producer.finish, [refusal(code, None, 7, 100, TopicPartition(topic, 0))]

    def refuse_once(self: Producer) -> object:
        found = finish(self)
        if refused:
            raise refused.pop()
        return found

    monkeypatch.setattr(Producer, "finish", refuse_once)
    driver().write([values(50), values(50, 50)], 0)
    assert not refused
    assert sorted(shown(broker.bootstrap, topic)) == digits(100)
    refused += [refusal(code, None, 7, 100, TopicPartition(topic, 0)) for _ in range(2)]
    with pytest.raises(TransactionError, match=code.name):
        driver().write([values(7, 100)], 1)
    driver().write([values(7, 100)], 1)
    assert sorted(shown(broker.bootstrap, topic)) == digits(107)


def test_rows_of_a_partition_keep_the_order_of_tasks_and_batches(
    broker: Broker, topic: str, driver: Drivers
) -> None:
    def to_partition_1(count: int, start: int) -> pa.RecordBatch:
        rows = values(count, start)
        return rows.append_column("partition", pa.array([1] * count, pa.int32()))

    query = driver(kafka__batch__size=500)
    query.write([to_partition_1(3000, 0), to_partition_1(3000, 3000)], 0)
    query.write([to_partition_1(100, 6000)], 1)
    assert shown(broker.bootstrap, topic) == digits(6100)


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_staged_files_and_compression(
    broker: Broker, topic: str, driver: Drivers, compression: str, tmp_path: Path
) -> None:
    query = driver(kafka__compression__type=compression, stagingLocation=str(tmp_path / "staging"))
    rows = pa.RecordBatch.from_pydict({"value": [os.urandom(500) for _ in range(1000)]})
    staged = query.stage([rows, values(10)], 0)
    assert [bool(each.name) for each in staged] == [True, False]
    (file,) = (tmp_path / "staging" / "kafkalog-transactions").glob("*/0/*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in [file.parent, file.parent.parent]} == {0o700}
    query.commit(staged, 0)
    assert sorted(shown(broker.bootstrap, topic)) == sorted([*rows["value"].to_pylist(), *digits(10)])
    assert not file.parent.exists()


def test_staging_in_a_store(broker: Broker, topic: str, driver: Drivers) -> None:
    query = driver(stagingLocation=f"memory://{topic}")
    query.write([values(3000, size=100)], 0)
    assert len(shown(broker.bootstrap, topic)) == 3000


def test_a_batch_without_rows_is_marked(broker: Broker, topic: str, driver: Drivers) -> None:
    query = driver()
    query.write([values(5)], 0)
    query.write([values(0), values(0)], 1)
    (marker,) = groups(broker).committed(transactional_id(topic), require_stable=True).values()
    assert marker.offset == 2
    assert json.loads(marker.metadata)["records"] == 0
    query.write([values(5, 5)], 2)
    assert sorted(shown(broker.bootstrap, topic)) == digits(10)


def test_a_query_may_begin_without_rows(broker: Broker, topic: str, tmp_path: Path) -> None:
    def query() -> Query:
        made = Query(broker.bootstrap, topic, tmp_path, query_id=topic)
        made.options = replace(made.options, topic=None)
        return made

    def rows(count: int) -> pa.RecordBatch:
        return values(count).append_column("topic", pa.array([topic] * count, pa.string()))

    query().write([rows(0)], 0)
    assert groups(broker).committed(transactional_id(topic)) == {}
    query().write([rows(5)], 1)
    query().write([rows(5)], 1)
    query().write([rows(0)], 2)
    assert sorted(shown(broker.bootstrap, topic)) == digits(5)


def test_several_topics_are_one_transaction(broker: Broker, topic: str, driver: Drivers) -> None:
    other = unused_topic()
    broker.create_topic(other, 1)
    query = driver()
    query.options = replace(query.options, topic=None)
    names = pa.array([topic, other] * 10, pa.string())
    staged = query.stage([values(20).append_column("topic", names)], 0)
    query.commit(staged, 0)
    query.commit(staged, 0)
    assert len(shown(broker.bootstrap, topic)) == len(shown(broker.bootstrap, other, 1)) == 10


class TestTwoDrivers:
    """Two drivers of one query, of which one does not know that the other has taken over."""

    def test_the_later_one_fences_the_earlier_one_at_every_step(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        batch = 0
        # At "fenced" the earlier one finds the later one's marker, at "ended" it is the other way round.
        for step in ("fenced", "looked", "begun", "producing", "produced", "marked", "ended"):
            zombie, successor = driver(), driver()
            staged = zombie.stage([values(10, 10 * batch)], batch)

            def take_over(reached: str, step: str = step, batch: int = batch, by: Query = successor) -> None:
                if reached == step:
                    monkeypatch.setattr(committing, "stop_at", lambda _: None)
                    by.write([values(4, 10 * batch), values(6, 10 * batch + 4)], batch)

            monkeypatch.setattr(committing, "stop_at", take_over)
            # Once it is fenced it looks again, and finds that the batch is written.
            zombie.commit(staged, batch)
            monkeypatch.setattr(committing, "stop_at", lambda _: None)
            batch += 1
            assert sorted(shown(broker.bootstrap, topic)) == digits(10 * batch), step
        successor.write([values(1, 10 * batch)], batch)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10 * batch + 1)
        assert is_stable(broker.bootstrap, topic)

    def test_one_that_is_behind_does_not_write(self, broker: Broker, topic: str, driver: Drivers) -> None:
        driver().write([values(5)], 0)
        staged = driver().stage([values(5, 5)], 1)
        driver().write([values(5, 5)], 1)
        driver().write([values(5, 10)], 2)
        with pytest.raises(TransactionError, match="batch 2 of this query already, but batch 1"):
            driver().commit(staged, 1)
        driver().write([values(5, 15)], 3)
        assert sorted(shown(broker.bootstrap, topic)) == digits(20)

    def test_a_loser_leaves_the_open_transaction_of_the_winner_alone(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loser, winner = driver(), driver()
        staged, its = loser.stage([values(5)], 0), winner.stage([values(5)], 0)
        outcome: list[BaseException] = []

        def lose(reached: str) -> None:
            if reached == "produced" and not outcome:
                outcome.append(RuntimeError("under way"))
                with pytest.raises(FencedError):
                    old.produce()
                old.give_up()

        work = Work(QueryBatch(topic, 0), staged, loser.sink.folders, Plan())
        cluster = cluster_of(loser.sink.connection)
        requests = Requests(cluster, work.transactional_id)
        old = committing.Committing(
            cluster, requests, loser.sink.produce, work, timeout_ms=60_000, marker=None
        )
        old.fence()
        monkeypatch.setattr(committing, "stop_at", lose)
        winner.commit(its, 0)
        assert outcome
        assert sorted(shown(broker.bootstrap, topic)) == digits(5)


def test_what_is_under_way_is_fenced_once_a_run_gives_up(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abort alone would let it in: before KIP-890, rows that come then belong to the next transaction."""
    known: list[ProducerId] = []

    def die(step: str) -> None:
        if step == "produced":
            raise RuntimeError("failed")

    monkeypatch.setattr(committing, "stop_at", die)
    monkeypatch.setattr(committing, "ProducerId", lambda *args: known.append(ProducerId(*args)) or known[-1])
    query = driver()
    with pytest.raises(RuntimeError):
        query.write([values(5)], 0)
    requests = Requests(cluster_of(query.sink.connection), transactional_id(topic))
    broker.wait_until(lambda: is_stable(broker.bootstrap, topic), "the transaction stays open")
    with pytest.raises(FencedError):
        requests.add_offsets(known[0], transactional_id(topic), deadline=Deadline.after(10))


OF_ANOTHER = marker_metadata(MarkerDetails("other", None, "", 1, 7, 0, (0, 0, 0), ()))


class TestMarker:
    """A marker that is missing or another's stops the query, before anything is written."""

    @pytest.mark.long
    def test_it_is_gone(self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path) -> None:
        driver().write([values(5)], 0)
        groups(broker).delete_group(transactional_id(topic))
        before = stored(broker.bootstrap, topic)
        for batch in (0, 1):
            with pytest.raises(
                TransactionError, match=r"marker of this query is missing.*failOnMissingMarker"
            ):
                driver().write([values(5, 5)], batch)
        assert stored(broker.bootstrap, topic) == before
        driver(failOnMissingMarker=False).write([values(5, 5)], 1)
        driver().write([values(5, 10)], 2)
        assert sorted(shown(broker.bootstrap, topic)) == digits(15)

    @pytest.mark.long
    def test_a_first_batch_may_have_none(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def die(step: str) -> None:
            if step == "marked":
                raise RuntimeError("killed")

        monkeypatch.setattr(committing, "stop_at", die)
        with pytest.raises(RuntimeError):
            driver().write([values(5)], 0)
        monkeypatch.undo()
        intent = json.loads(intent_file(tmp_path, topic).read_text())
        assert (intent["batch"], intent["confirmed"]) == (0, False)
        with pytest.raises(TransactionError, match="marker of this query is missing"):
            driver().write([values(5)], 1)
        driver().write([values(5)], 0)
        assert json.loads(intent_file(tmp_path, topic).read_text())["confirmed"] is True
        assert sorted(shown(broker.bootstrap, topic)) == digits(5)

    def test_the_first_batch_was_tried_long_ago(
        self, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def die(step: str) -> None:
            if step == "begun":
                raise RuntimeError("killed")

        monkeypatch.setattr(committing, "stop_at", die)
        with pytest.raises(RuntimeError):
            driver().write([values(5)], 0)
        monkeypatch.undo()
        file = intent_file(tmp_path, topic)
        intent = json.loads(file.read_text())
        file.write_text(json.dumps({**intent, "since_ms": intent["since_ms"] - 25 * 3_600_000}))
        with pytest.raises(TransactionError, match=r"tried 25 hours ago.*failOnMissingMarker"):
            driver().write([values(5)], 0)

    def test_the_intent_is_gone(self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path) -> None:
        driver().write([values(5)], 0)
        intent_file(tmp_path, topic).unlink()
        driver().write([values(5)], 0)
        intent_file(tmp_path, topic).unlink()
        driver().write([values(5, 5)], 1)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)
        intent_file(tmp_path, topic).write_text("{}")
        with pytest.raises(TransactionError, match=r"corrupt.*intent.json"):
            driver().write([values(5)], 2)

    @pytest.mark.parametrize(
        ("offset", "match"),
        [
            (CommittedOffset(1, metadata="x"), "is not a marker of this package"),
            (CommittedOffset(1, metadata="[" * 4000), "is not a marker of this package"),
            (
                CommittedOffset(1, metadata=OF_ANOTHER.replace('"records": 1,', '"records": 1e999,')),
                "is not a marker of this package",
            ),
            (CommittedOffset(1, metadata=OF_ANOTHER), "Another query has committed"),
        ],
    )
    def test_it_is_anothers(
        self, broker: Broker, topic: str, driver: Drivers, offset: CommittedOffset, match: str
    ) -> None:
        driver().write([values(5)], 0)
        groups(broker).commit(transactional_id(topic), {TopicPartition(topic, 0): offset})
        with pytest.raises(TransactionError, match=match):
            driver().write([values(5, 5)], 1)
        assert sorted(shown(broker.bootstrap, topic)) == digits(5)

    def test_the_intent_is_gone_and_rows_go_elsewhere(
        self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path
    ) -> None:
        """The marker is found where it is, not where this batch would put it."""
        other = f"a-{topic}"
        broker.create_topic(other, 1)
        driver().write([values(5)], 0)
        intent_file(tmp_path, topic).unlink()
        Query(broker.bootstrap, other, tmp_path / "checkpoint", query_id=topic).write([values(5)], 0)
        assert stored(broker.bootstrap, other) == 0

    def test_both_are_gone(self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path) -> None:
        driver().write([values(5)], 0)
        driver().write([values(5, 5)], 1)
        groups(broker).delete_group(transactional_id(topic))
        intent_file(tmp_path, topic).unlink()
        with pytest.raises(TransactionError, match=r"neither the cluster nor the checkpoint knows.*Missing"):
            driver().write([values(5, 5)], 1)
        driver(failOnMissingMarker=False).write([values(5, 10)], 2)
        assert sorted(shown(broker.bootstrap, topic)) == digits(15)

    @pytest.mark.long
    def test_its_topic_is_gone(self, broker: Broker, topic: str, driver: Drivers) -> None:
        other = unused_topic()
        broker.create_topic(other, 1)

        def rows(count: int, start: int, to: str) -> pa.RecordBatch:
            return values(count, start).append_column("topic", pa.array([to] * count, pa.string()))

        def query(**options: object) -> Query:
            made = driver(**options)
            made.options = replace(made.options, topic=None)
            return made

        query().write([rows(5, 0, topic)], 0)
        query().write([rows(5, 0, other)], 1)
        broker.delete_topic(topic)
        with pytest.raises(TransactionError, match=f"[Tt]opic {topic}.*failOnMissingMarker"):
            query().write([rows(5, 5, other)], 2)
        query(failOnMissingMarker=False).write([rows(5, 5, other)], 2)
        query().write([rows(5, 5, other)], 2)
        query().write([rows(5, 10, other)], 3)
        assert sorted(shown(broker.bootstrap, other, 1)) == digits(15)

    @pytest.mark.long
    def test_a_deposed_coordinator_gives_an_old_one(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver().write([values(5)], 0)
        driver().write([values(5, 5)], 1)
        committed = Requests.committed

        def deposed(requests: Requests, *args: Any, require_stable: bool = True, **more: Any) -> Any:
            found = committed(requests, *args, require_stable=require_stable, **more)
            if not require_stable:
                return found
            return {cell: replace(offset, offset=offset.offset - 1) for cell, offset in found.items()}

        monkeypatch.setattr(Requests, "committed", deposed)
        with pytest.raises(TransactionError, match=r"A coordinator that was deposed .* group was deleted"):
            driver().write([values(5, 5)], 1)
        monkeypatch.undo()
        driver().write([values(5, 5)], 1)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)

    def test_the_batch_was_planned_anew(self, broker: Broker, topic: str, driver: Drivers) -> None:
        """The checkpoint was set back by one batch: rows of the new plan would be lost."""
        query = driver()
        query.commit(query.stage([values(5)], 0), 0, Plan("one", None, {}))
        query.commit(query.stage([values(5)], 0), 0, Plan("one", None, {}))
        with pytest.raises(TransactionError, match="other offsets of its sources than the checkpoint has"):
            query.commit(query.stage([values(9)], 0), 0, Plan("other", None, {}))
        query.commit(query.stage([values(5, 5)], 1), 1, Plan("two", None, {}, before="one"))
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)

    def test_that_it_exists_cannot_be_stored(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rows are visible by then: nothing may fail."""

        def store(folder: object, intent: Intent) -> None:
            if intent.confirmed:
                raise RuntimeError("a store's own error")
            store_intent(folder, intent)

        store_intent: Any = query_marker.store_intent
        monkeypatch.setattr(query_marker, "store_intent", store)
        driver().write([values(5)], 0)
        monkeypatch.undo()
        driver().write([values(5, 5)], 1)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)

    def test_it_is_of_another_cluster(
        self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path
    ) -> None:
        driver().write([values(5)], 0)
        file = intent_file(tmp_path, topic)
        file.write_text(json.dumps({**json.loads(file.read_text()), "cluster_id": "other"}))
        with pytest.raises(TransactionError, match="written to another cluster: expected cluster id other"):
            driver().write([values(5, 5)], 1)

    def test_a_commit_of_it_stays_pending(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver().write([values(5)], 0)
        # Another transactional id holds it, which taking over ours does not end.
        group, cell = transactional_id(topic), TopicPartition(topic, 0)
        cluster = cluster_of(driver().sink.connection)
        stray = Requests(cluster, f"stray-{topic}")
        producer = ProducerId(*stray.init_producer_id(60_000, deadline=Deadline.after(30)), None)
        stray.add_offsets(producer, group, deadline=Deadline.after(30))
        stray.commit_offsets(producer, group, {cell: CommittedOffset(9)}, deadline=Deadline.after(30))
        short = driver(kafka__delivery__timeout__ms=2000, kafka__request__timeout__ms=2000)
        with pytest.raises(TransactionError, match=r"stays pending.*find-hanging"):
            short.write([values(5, 5)], 1)
        stray.end(producer, commit=False, deadline=Deadline.after(30))
        driver().write([values(5, 5)], 1)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)


def test_an_abort_takes_its_own_staged_rows_alone(
    broker: Broker, topic: str, driver: Drivers, tmp_path: Path
) -> None:
    """So staged rows do not pile up while a query fails, and another driver keeps its own."""
    batch = QueryBatch(topic, 0)
    staged, others = (driver().stage([values(2000, size=100)]) for _ in range(2))
    driver().sink.abort(batch, staged)
    rows = tmp_path / "checkpoint" / "kafkalog-transactions" / transactional_id(topic) / "0"
    assert [path.name for path in rows.iterdir()] == [others[0].name]
    driver().commit(others)
    assert not rows.exists()
    assert len(shown(broker.bootstrap, topic)) == 2000


class TestBatchJobs:
    """``df.write``: one transaction, which ``txnAppId`` and ``txnVersion`` make idempotent."""

    def test_a_job_is_atomic(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        query = driver()

        def die(step: str) -> None:
            if step == "produced":
                raise RuntimeError("killed")

        staged = query.stage([values(3000, size=100)], None)
        monkeypatch.setattr(committing, "stop_at", die)
        with pytest.raises(RuntimeError):
            query.commit(staged, None)
        monkeypatch.undo()
        query.sink.abort(QueryBatch(topic, None), [])
        assert not [*(tmp_path / "checkpoint").glob("*/*/*")]
        assert is_stable(broker.bootstrap, topic)
        assert shown(broker.bootstrap, topic) == []
        query.write([values(10)], None)
        assert sorted(shown(broker.bootstrap, topic)) == digits(10)
        assert groups(broker).committed(transactional_id(topic)) == {}

    def test_a_task_that_is_too_late_leaves_nothing(
        self, broker: Broker, topic: str, driver: Drivers, tmp_path: Path
    ) -> None:
        """As one that speculation took for a slow one, and that wakes up when the job is over."""
        job = QueryBatch(topic, None)
        query, large = driver(job=job), values(2000, size=100)
        with query.sink.open(job, TaskAttempt(0, 0, 0)) as late:
            query.write([large], None)
            router = Router.to_sink(late, query.options)
            with pytest.raises(TransactionError, match=r"is gone.*kafkalog-\w{26}/job.*came too late"):
                write_rows([large], router, late, splitter=splitting_of(query.options).splitter())
        assert not [*(tmp_path / "checkpoint").glob("*/*/*")]
        assert len(shown(broker.bootstrap, topic)) == 2000

    def test_a_job_without_rows(self, broker: Broker, topic: str, driver: Drivers) -> None:
        driver().write([values(0)], None)
        assert stored(broker.bootstrap, topic) == 0

    def test_a_named_job_is_written_once(
        self, broker: Broker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def write(version: int, count: int) -> None:
            query = Query(broker.bootstrap, topic, tmp_path, txnAppId="my job", txnVersion=version)
            assert query.options.batch is not None
            query.query_id = query.options.batch.query_id + topic
            query.write([values(count)], query.options.batch.batch_id)

        write(3, 5)
        assert "is there already" not in caplog.text
        write(3, 7)
        assert "txnVersion 3 of this txnAppId is there already, so nothing more is written." in caplog.text
        write(9, 1)
        with pytest.raises(TransactionError, match="Expected txnVersion 9 or later of this txnAppId, got 3"):
            write(3, 5)
        assert len(shown(broker.bootstrap, topic)) == 6

    def test_a_version_goes_to_each_topic_once(self, broker: Broker, topic: str, tmp_path: Path) -> None:
        """As in foreachBatch, which writes a batch to several places."""
        other = unused_topic()
        broker.create_topic(other, 1)
        for _ in range(2):
            for name in (topic, other):
                query = Query(broker.bootstrap, name, tmp_path, txnAppId=topic, txnVersion=7)
                assert query.options.batch is not None
                query.query_id = query.options.batch.query_id
                query.write([values(5)], 7)
        assert len(shown(broker.bootstrap, topic)) == len(shown(broker.bootstrap, other, 1)) == 5

    def test_a_version_that_failed_does_not_block_later_ones(
        self, broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(step: str) -> None:
            if step == "begun":
                raise RuntimeError("killed")

        def write(version: int) -> None:
            query = Query(broker.bootstrap, topic, tmp_path, query_id=topic, txnAppId="a", txnVersion=version)
            query.write([values(5)], version)

        monkeypatch.setattr(committing, "stop_at", die)
        with pytest.raises(RuntimeError):
            write(1000)
        monkeypatch.undo()
        write(2000)
        assert len(shown(broker.bootstrap, topic)) == 5


def test_offsets_of_the_sources_are_part_of_the_transaction(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, group = unused_topic(), f"group-{topic}"
    broker.create_topic(source, 2)
    read = {TopicPartition(source, 0): CommittedOffset(7), TopicPartition(source, 1): CommittedOffset(9)}

    def die(step: str) -> None:
        if step == "marked":
            raise RuntimeError("killed")

    monkeypatch.setattr(committing, "stop_at", die)
    query = driver()
    staged = query.stage([values(5)], 0)
    with pytest.raises(RuntimeError):
        query.commit(staged, 0, Plan("", group, read))
    monkeypatch.undo()
    assert groups(broker).committed(group) == {}
    staged = driver().stage([values(5)], 0)
    driver().commit(staged, 0, Plan("", group, read))
    committed = groups(broker).committed(group, read, require_stable=True)
    assert {partition: offset.offset for partition, offset in committed.items()} == {
        partition: offset.offset for partition, offset in read.items()
    }
    assert sorted(shown(broker.bootstrap, topic)) == digits(5)


def test_a_large_message_is_whole_or_absent(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = driver(large__message__enabled=True, max__message__segment__bytes=1000, kafka__batch__size=2000)
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 20_000, b"y" * 10]})

    def die(step: str) -> None:
        if step == "producing":
            raise RuntimeError("killed")

    monkeypatch.setattr(committing, "stop_at", die)
    with pytest.raises(RuntimeError):
        query.write([rows], 0)
    monkeypatch.undo()
    assert shown(broker.bootstrap, topic) == []
    query.write([rows], 0)
    assert len(shown(broker.bootstrap, topic)) == 21


class TestRefusals:
    """Bad input is refused before anything is written."""

    def test_a_longer_transaction_than_brokers_allow(
        self, broker: Broker, topic: str, driver: Drivers
    ) -> None:
        with pytest.raises(
            TransactionError, match=r"INVALID_TRANSACTION_TIMEOUT.*transaction.max.timeout.ms"
        ):
            driver(kafka__transaction__timeout__ms=10**9).write([values(5)], 0)
        assert stored(broker.bootstrap, topic) == 0

    def test_a_batch_that_no_transaction_holds(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(committing, "_FASTEST", 1000)
        with pytest.raises(TransactionError, match=r"kafka.transaction.timeout.ms = 1000 allows.*Raise it"):
            driver(kafka__transaction__timeout__ms=1000).write([values(500)], 0)
        assert stored(broker.bootstrap, topic) == 0

    def test_a_batch_that_takes_longer_than_the_transaction(
        self, broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(committing, "stop_at", lambda step: time.sleep(0.6 * (step == "producing")))
        with pytest.raises(TransactionError, match=r"took [12] s, which is more than .* = 1000 allows"):
            driver(kafka__transaction__timeout__ms=1000).write([values(10, 10 * n) for n in range(5)], 0)
        monkeypatch.undo()
        assert shown(broker.bootstrap, topic) == []

    @pytest.mark.long
    def test_a_partition_that_does_not_exist(self, broker: Broker, topic: str, driver: Drivers) -> None:
        query = driver()
        (staged,) = query.stage([values(5)], 0)
        beyond = replace(staged, sections=(*staged.sections, StagedSection(topic, 99, staged.size, 0, 0, 0)))
        with pytest.raises(UnknownTopicOrPartitionError, match=f"Adding .*{topic}-99"):
            query.commit([beyond], 0)
        query.commit([staged], 0)
        assert sorted(shown(broker.bootstrap, topic)) == digits(5)

    def test_tasks_that_do_not_share_a_folder_with_the_driver(self, topic: str, driver: Drivers) -> None:
        sink = replace(driver().sink, driver=Mark("another host", 0))
        with pytest.raises(OptionError, match=r"does not share the folder.*Set stagingLocation"):
            sink.open(QueryBatch(topic, 0), TaskAttempt(0, 0, 0))


def test_staged_rows_that_changed_are_not_shown(
    broker: Broker, topic: str, driver: Drivers, tmp_path: Path
) -> None:
    query = driver()
    staged = query.stage([values(3000, size=100)], 0)
    (file,) = (tmp_path / "checkpoint").glob("*/*/0/*")
    whole = bytearray(file.read_bytes())
    for changed in (
        whole[:-1],
        whole + b"x",
        whole[:-5] + b"xxxxx",
        whole[:100] + b"\xff" * 20 + whole[120:],
        b"",
    ):
        file.write_bytes(changed)
        with pytest.raises(TransactionError, match="Staged rows"):
            query.commit(staged, 0)
    file.unlink()
    with pytest.raises(TransactionError, match=r"gone, or have changed.*Run it again"):
        query.commit(staged, 0)
    query.write([values(5)], 0)
    assert sorted(shown(broker.bootstrap, topic)) == digits(5)


def test_a_full_disk_fails_the_task_with_nothing_produced(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(file: object, data: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(NewFile, "write", full)
    with pytest.raises(TransactionError, match=r"No space left .*Free space there, or set stagingLocation"):
        driver().stage([values(3000, size=100)], 0)
    monkeypatch.undo()
    assert not [*(tmp_path / "checkpoint").glob("*/*/0/*")]
    assert stored(broker.bootstrap, topic) == 0


def test_progress_is_logged(
    topic: str, driver: Drivers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "_PROGRESS_SECONDS", 0)
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        driver().write([values(5), values(5)], 0)
    assert any("produced" in message and "bytes" in message for message in caplog.messages)
    assert "Micro-batch 0 committed 10 records" in caplog.text


def test_other_readers_see_uncommitted_rows_and_ours_do_not(
    broker: Broker, topic: str, driver: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def look(step: str) -> None:
        if step == "marked":
            seen["all"] = len(consume(broker.bootstrap, topic))
            seen["stable"] = is_stable(broker.bootstrap, topic)

    monkeypatch.setattr(committing, "stop_at", look)
    driver().write([values(5)], 0)
    assert seen == {"all": 5, "stable": False}
