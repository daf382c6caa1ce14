"""A driver that still runs commits nothing after its checkpoint was changed with its sink."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog import KafkaLogError, RewindTo, TopicPartition, connect
from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once import committing
from pyspark_kafkalog.extensions.exactly_once.marker import Marker, transactional_id
from pyspark_kafkalog.extensions.exactly_once.replanning import Replanning
from pyspark_kafkalog.model import Plan
from pyspark_kafkalog.places import open_groups
from pyspark_kafkalog.stream.checkpoint import plan_digest
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.writing import Query, shown, transaction_state, values
from tests.kafka import Broker
from tests.tools.checkpoint.checkpoints import at, checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.broker]


@pytest.fixture
def topic(broker: Broker) -> str:
    name = unused_topic()
    broker.create_topic(name, 1)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The checkpoint of a query of its own, which has planned its third micro-batch."""
    made = checkpoint(tmp_path / "c", [[at(read={0: end})] for end in (3, 6, 9)], done=2)
    (made / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    return made


def query_of(folder: Path) -> str:
    return str(json.loads((folder / "metadata").read_text())["id"])


def driver(broker: Broker, topic: str, folder: Path) -> Query:
    return Query(broker.bootstrap, topic, folder, query_id=query_of(folder))


def planned(folder: Path, batch: int) -> Plan:
    digests = [plan_digest((folder / "offsets" / str(each)).read_bytes()) for each in range(batch + 1)]
    return Plan(digests[batch], before=digests[batch - 1] if batch else "")


def write(query: Query, folder: Path, batch: int) -> None:
    query.commit(query.stage([values(3, 3 * batch)], batch), batch, planned(folder, batch))


def staged_third(broker: Broker, topic: str, folder: Path) -> tuple[Callable[[], object], Plan]:
    """The commit of a driver that has staged its third micro-batch, and the plan that it has of it."""
    zombie = driver(broker, topic, folder)
    for batch in range(2):
        write(zombie, folder, batch)
    staged, plan = zombie.stage([values(3, 6)], 2), planned(folder, 2)
    return lambda: zombie.commit(staged, 2, plan), plan


def rewind(broker: Broker, folder: Path, to: int) -> None:
    with connect(broker.bootstrap) as kafka:
        change = kafka.checkpoints.plan_rewind(
            folder, RewindTo.OFFSETS, {TopicPartition("read", 0): to}, with_sink=kafka
        )
        kafka.checkpoints.execute(change, stopped=True)


def marker(broker: Broker, folder: Path) -> Marker:
    group = transactional_id(query_of(folder))
    with connect(broker.bootstrap) as kafka:
        groups = open_groups(kafka.place_options)
    (found,) = groups.committed(group, require_stable=True).values()
    return Marker.of(found, group)


@pytest.fixture(autouse=True)
def read(broker: Broker) -> None:
    """The topic that the query reads, with ten records, for all tests."""
    with connect(broker.bootstrap) as kafka:
        if "read" not in kafka.place.topics(None):
            broker.create_topic("read", 1)
            kafka.write([values(10)], "read")


@pytest.mark.parametrize("step", ["fenced", "looked", "begun", "producing", "produced", "marked"])
def test_a_driver_amid_its_commit(
    broker: Broker, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Even if all is done but the end of its transaction: it is fenced, and then finds another history."""
    commit, _ = staged_third(broker, topic, folder)

    def change(reached: str) -> None:
        if reached == step:
            monkeypatch.setattr(committing, "stop_at", lambda _: None)
            rewind(broker, folder, 1)

    monkeypatch.setattr(committing, "stop_at", change)
    with pytest.raises(TransactionError, match="with other offsets of its sources than the checkpoint has"):
        commit()
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(6)]
    told = marker(broker, folder)
    assert (told.batch_id, told.plan) == (1, planned(folder, 1).digest)
    # The next driver goes on from the change.
    write(driver(broker, topic, folder), folder, 2)
    assert marker(broker, folder).batch_id == 2
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(9)]


def test_a_driver_that_was_killed_amid_its_commit(broker: Broker, topic: str, folder: Path) -> None:
    """Its open transaction does not keep the command waiting until the coordinator aborts it."""
    query = driver(broker, topic, folder)
    for batch in range(2):
        write(query, folder, batch)
    staged = query.stage([values(3, 6)], 2)

    class KilledError(BaseException):
        pass

    def kill(reached: str) -> None:
        if reached == "marked":
            raise KilledError

    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(committing, "stop_at", kill)
        dying.setattr(committing.Committing, "give_up", lambda _: None)
        with pytest.raises(KilledError):
            query.commit(staged, 2, planned(folder, 2))
    assert transaction_state(broker, transactional_id(query_of(folder))) == "Ongoing"
    rewind(broker, folder, 1)
    assert transaction_state(broker, transactional_id(query_of(folder))) == "CompleteCommit"
    told = marker(broker, folder)
    assert (told.batch_id, told.plan, told.records) == (1, planned(folder, 1).digest, 3)
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(6)]
    rewind(broker, folder, 2)  # again and again
    rewind(broker, folder, 2)
    write(driver(broker, topic, folder), folder, 2)
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(9)]


def test_a_driver_that_commits_between_the_fence_and_the_marker(
    broker: Broker, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the micro-batch then, and is told how that is planned now: the next one follows it."""
    from pyspark_kafkalog.tools.checkpoint import change

    commit, _ = staged_third(broker, topic, folder)
    keep = change._keep

    def meanwhile(*given: object) -> None:
        keep(*given)  # type: ignore[arg-type]
        commit()

    with monkeypatch.context() as amid:
        amid.setattr(change, "_keep", meanwhile)
        rewind(broker, folder, 1)
    assert marker(broker, folder).batch_id == 2
    assert marker(broker, folder).plan == planned(folder, 2).digest
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(9)]


def test_a_driver_that_commits_before_the_marker(
    broker: Broker, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that it runs, and what is left; once it is stopped, the same command ends the change."""
    commit, plan = staged_third(broker, topic, folder)
    store = Replanning.store

    def late(self: Replanning, known: Marker, digest: str) -> None:
        commit()
        store(self, known, digest)

    with monkeypatch.context() as amid:
        amid.setattr(Replanning, "store", late)
        with pytest.raises(TransactionError, match="has committed while its marker was changed") as error:
            rewind(broker, folder, 1)
    assert "Stop the query. The checkpoint is changed" in str(error.value)
    assert marker(broker, folder).plan == plan.digest
    rewind(broker, folder, 1)
    assert marker(broker, folder).plan == planned(folder, 2).digest != plan.digest
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(9)]


def test_a_plan_looks_at_the_marker_and_fences_nothing(
    broker: Broker, topic: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _ = staged_third(broker, topic, folder)
    notes: list[list[str]] = []

    def plan() -> None:
        with connect(broker.bootstrap) as kafka:
            to = {TopicPartition("read", 0): 1}
            change = kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, to, with_sink=kafka)
            notes.append(change.notes)

    def amid(reached: str) -> None:
        if reached == "marked":
            plan()

    monkeypatch.setattr(committing, "stop_at", amid)
    plan()
    commit()
    plan()
    group = transactional_id(query_of(folder))
    last = "The sink has micro-batch {} of the query last, and is told its new plan (group {})."
    looked = [said[-1] for said in notes]
    assert looked[0] == last.format(1, group)
    assert looked[1] == f"A transaction of the query is open in the sink: it is ended first (group {group})."
    assert looked[2] == last.format(2, group)
    assert shown(broker.bootstrap, topic, 1) == [b"%010d" % number for number in range(9)]


def test_a_query_that_the_sink_does_not_know(broker: Broker, topic: str, folder: Path) -> None:
    to = {TopicPartition("read", 0): 1}
    with (
        connect(broker.bootstrap) as kafka,
        pytest.raises(KafkaLogError, match=f"The sink knows nothing of query {query_of(folder)}"),
    ):
        kafka.checkpoints.plan_rewind(folder, RewindTo.OFFSETS, to, with_sink=kafka)
    assert not (folder / "kafkalog-kept").exists()
