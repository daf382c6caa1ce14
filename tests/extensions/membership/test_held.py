"""What a planner keeps for its sink about the member that it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import Held, MemberOfGroup, QueryBatch, TopicPartition
from pyspark_kafkalog.stream.checkpoint import QueryLog

ME = MemberOfGroup("member", 3, "name")
BEGINS = {TopicPartition("t", 1): 5}
HELD = Held("group", "holder", ME, BEGINS, rejoins=True)


@pytest.fixture
def log(tmp_path: Path) -> QueryLog:
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    plan(tmp_path, 0)
    return QueryLog(str(tmp_path))


def plan(folder: Path, batch: int) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"t":{{"1":{10 * batch + 10}}}}}\n')


def look(log: QueryLog, batch: int = 0, run: str = "run") -> Held | None:
    of = QueryBatch("query", batch)
    return log.held(of, log.plan_of(of), run)


def test_it_is_told_to_the_sink_of_the_same_run(log: QueryLog) -> None:
    assert not log.has_held()
    assert look(log) is None
    log.keep_held(HELD)
    log.note_holder("run", "holder")
    assert log.has_held()
    assert look(log) == HELD
    log.keep_held(HELD._replace(member=None))
    assert look(log) == HELD._replace(member=None)


def test_rows_of_another_run_are_refused(log: QueryLog) -> None:
    log.note_holder("run", "holder")
    for other in (HELD._replace(holder="other"), HELD._replace(holder="other", begins={})):
        log.keep_held(other)
        with pytest.raises(KafkaLogError, match="was not read by the member that the query is now"):
            look(log)
    log.keep_held(HELD)
    with pytest.raises(KafkaLogError, match="all workers must"):
        look(log, run="no task of it has read")
    log.keep_held(HELD._replace(begins={}))
    assert look(log, run="no task of it has read") == HELD._replace(begins={})


def test_a_run_that_is_over_says_nothing_of_the_next(log: QueryLog) -> None:
    log.note_holder("run", "holder")
    log.keep_held(HELD)
    before = HELD._replace(holder="the one before")
    for changed in (before, before._replace(member=None), before._replace(member=None, begins={})):
        log.keep_held(changed, changes=True)
        assert look(log) == HELD
    log.keep_held(HELD._replace(member=None), changes=True)
    assert look(log) == HELD._replace(member=None)


def test_it_counts_for_its_micro_batch_alone(log: QueryLog, tmp_path: Path) -> None:
    log.keep_held(HELD)
    plan(tmp_path, 1)
    with pytest.raises(KafkaLogError, match="nothing says as which one it reads micro-batch 1"):
        look(log, 1)


def test_with_state_it_does_not_rejoin(log: QueryLog, tmp_path: Path) -> None:
    log.note_holder("run", "holder")
    log.keep_held(HELD)
    (tmp_path / "state" / "0").mkdir(parents=True)
    assert look(log) == HELD._replace(rejoins=False)


def test_notes_of_old_runs_go(log: QueryLog, tmp_path: Path) -> None:
    """The newest stay: a run that was paused looks for its own, and is to be refused."""
    for run in range(30):
        log.keep_held(HELD._replace(holder=f"holder {run}"))
        log.note_holder(f"run {run}", f"holder {run}")
        assert look(log, run=f"run {run}") is not None
    assert len([*(tmp_path / "kafkalog-member").iterdir()]) < 15
    for run in range(22, 29):
        with pytest.raises(KafkaLogError, match="was not read by the member that the query is now"):
            look(log, run=f"run {run}")


def test_one_that_is_corrupt(log: QueryLog, tmp_path: Path) -> None:
    log.keep_held(HELD)
    (tmp_path / "kafkalog-member" / "held.json").write_text("{")
    with pytest.raises(KafkaLogError, match="another's, or corrupt"):
        look(log)
