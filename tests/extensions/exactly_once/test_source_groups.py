"""The source's group, whose offsets are a part of the transaction: never ahead of the rows, or behind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import CommittedOffset, TopicPartition, connect
from pyspark_kafkalog.codec.offsets_topic import offsets_partition
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.exactly_once import committing
from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
from pyspark_kafkalog.model import Plan
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.places import open_groups
from tests.broker.producing import unused_topic
from tests.extensions.exactly_once.dying import dies_at
from tests.extensions.exactly_once.forgetting import complete_without_markers, write_markers
from tests.extensions.exactly_once.writing import Query, shown, values
from tests.kafka import Broker

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]


@dataclass
class Pipeline:
    """A query of ten rows a batch, whose source's group is in another partition than its marker's."""

    broker: Broker
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    topic: str
    source: TopicPartition
    group: str

    @property
    def transactional_id(self) -> str:
        return transactional_id(self.topic)

    @property
    def of_marker(self) -> tuple[str, int]:
        return OFFSETS_TOPIC, offsets_partition(self.transactional_id, OFFSETS_PARTITIONS)

    @property
    def of_group(self) -> tuple[str, int]:
        return OFFSETS_TOPIC, offsets_partition(self.group, OFFSETS_PARTITIONS)

    def write(self, batch: int, partitions: Collection[int] = (0, 1)) -> None:
        numbers = pa.array([[*partitions][row % len(partitions)] for row in range(10)], pa.int32())
        rows = values(10, 10 * batch).append_column("partition", numbers)
        query = Query(self.broker.bootstrap, self.topic, self.folder, query_id=self.topic)
        before = {self.source: CommittedOffset(10 * batch)} if batch else {}
        plan = Plan(
            f"plan {batch}",
            self.group,
            {self.source: CommittedOffset(10 * batch + 10)},
            f"plan {batch - 1}" if batch else "",
            offsets_before=before,
        )
        query.commit(query.stage([rows], batch), batch, plan)

    def forget(
        self, batch: int, partitions: Collection[int], marked: Collection[tuple[str, int]], *, commit: bool
    ) -> None:
        """The driver dies with a batch, which the coordinator ends with markers for these partitions only."""
        running: list[committing.Committing] = []
        init = committing.Committing.__init__

        def noted(self: committing.Committing, *args: Any, **more: Any) -> None:
            init(self, *args, **more)
            running[:] = [self]

        def mark() -> None:
            producer = running[0]._current()
            with self.broker.admin() as admin:
                (states,) = admin.describe_topics([TRANSACTIONS_TOPIC])
            number = offsets_partition(self.transactional_id, len(states["partitions"]))
            led = next(each for each in states["partitions"] if each["partition_index"] == number)
            write_markers(
                self.broker.bootstrap,
                producer.id,
                producer.epoch,
                marked,
                coordinator_epoch=led["leader_epoch"],
                commit=commit,
            )

        with dies_at(self.monkeypatch, "marked", last=mark) as dying:
            dying.setattr(committing.Committing, "__init__", noted)
            dying.setattr(committing, "all_of", lambda *_: [])  # partitions without a leader don't tell
            self.write(batch, partitions)
        self.broker.stop()
        complete_without_markers(self.broker.log_dir, self.transactional_id, commit=commit)
        self.broker.start()

    def committed(self) -> CommittedOffset | None:
        """What the group has committed, after all transactions; None if one stays open."""
        options = place_options({"kafka.bootstrap.servers": self.broker.bootstrap})
        try:
            return open_groups(options, timeout=3).committed(self.group, [self.source], require_stable=True)[
                self.source
            ]
        except KafkaLogError:
            return None

    def offset(self) -> int | None:
        """The offset of :meth:`committed`."""
        found = self.committed()
        return None if found is None else found.offset


OFFSETS_PARTITIONS = 2


@pytest.fixture
def pipeline(stoppable_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    broker = stoppable_broker
    topic, source = unused_topic(), unused_topic()
    broker.create_topic(topic, 2)
    broker.create_topic(source)
    connect(broker.bootstrap).write([values(100)], source)
    own = offsets_partition(transactional_id(topic), OFFSETS_PARTITIONS)
    names = (f"etl-{topic}-{number}" for number in range(99))
    group = next(name for name in names if offsets_partition(name, OFFSETS_PARTITIONS) != own)
    made = Pipeline(broker, tmp_path / "cp", monkeypatch, topic, TopicPartition(source, 0), group)
    made.write(0)
    return made


def test_its_offsets_have_leader_epochs(pipeline: Pipeline) -> None:
    """By which a start from the group finds out that the source went back."""
    found = pipeline.committed()
    assert found is not None
    assert (found.offset, found.leader_epoch) == (10, 0)


@pytest.mark.long
@pytest.mark.parametrize("then", ["again", "the next one", "the next one, which dies"])
def test_a_commit_whose_marker_was_left_out(pipeline: Pipeline, then: str) -> None:
    """Of the group alone: the rows are there. What comes next carries the commit out."""
    rows = [(pipeline.topic, 0), (pipeline.topic, 1)]
    pipeline.forget(1, (0, 1), [*rows, pipeline.of_marker], commit=True)
    assert pipeline.offset() is None
    assert len(shown(pipeline.broker.bootstrap, pipeline.topic, 2)) == 20
    if then == "again":
        pipeline.write(1)
    elif then == "the next one":
        pipeline.write(2)
    else:
        with dies_at(pipeline.monkeypatch, "begun"):
            pipeline.write(2)
    expected = 30 if then == "the next one" else 20
    assert pipeline.offset() == expected
    pipeline.write(2)
    assert pipeline.offset() == 30
    assert len(shown(pipeline.broker.bootstrap, pipeline.topic, 2)) == 30


@pytest.mark.long
def test_what_an_aborted_attempt_left_pending_is_not_committed(pipeline: Pipeline) -> None:
    """Rows of batch 1 are carried out, while an aborted attempt at batch 2 is pending in the group."""
    topic = pipeline.topic
    pipeline.forget(1, (0, 1), [(topic, 1), pipeline.of_marker, pipeline.of_group], commit=True)
    pipeline.forget(2, (1,), [(topic, 1), pipeline.of_marker], commit=False)
    with dies_at(pipeline.monkeypatch, "fenced", time=2):
        pipeline.write(2, (1,))
    assert pipeline.offset() == 20
    assert len(shown(pipeline.broker.bootstrap, topic, 2)) == 20
    pipeline.write(2, (1,))
    assert pipeline.offset() == 30
    assert len(shown(pipeline.broker.bootstrap, topic, 2)) == 30
