"""``backup(spark, ...)``: a backup by Spark's tasks, one for each partition, into a folder that all share."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pyspark_kafkalog.errors import DataLossError, KafkaLogError, LogDirectoryLockedError, OptionError
from pyspark_kafkalog.model import LogSettings, TopicPartition
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_place
from pyspark_kafkalog.tools.backup import backup as by_executor
from pyspark_kafkalog.tools.backup.compacted import Tombstones
from pyspark_kafkalog.tools.backup.copies.directory import BackupDirectory
from pyspark_kafkalog.tools.backup.copies.opening import task_log
from pyspark_kafkalog.tools.backup.copying import Copied, GapError, Hooks, RateLimit, bring_up_to_date
from pyspark_kafkalog.tools.backup.history import DivergedError
from pyspark_kafkalog.tools.backup.plan import (
    BackedUpPartition,
    BackupPlan,
    BackupRules,
    CopyBounds,
    changed_topic,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_DEFAULT_RULES = BackupRules()


class _Task(NamedTuple):
    """The share of one task."""

    partition: TopicPartition
    bounds: CopyBounds
    start: int
    """The log start offset of the copy."""
    topic_id: str
    settings: LogSettings


class _Found(NamedTuple):
    """The result of a task."""

    partition: TopicPartition
    log_end_offset: int
    copied_bytes: int
    closed: bool
    """Whether the log was closed cleanly."""
    problem: str | None


class _Tasks:
    """Spark's tasks as an :class:`.Executor`. They don't know of ``stop``."""

    def __init__(
        self, spark: SparkSession, place: PlaceOptions, rate: float | None, target: BackupDirectory
    ) -> None:
        self._spark, self._place, self._rate, self._target = spark, place, rate, target

    def __call__(
        self,
        planned: BackupPlan,
        partitions: Collection[TopicPartition],
        stop: threading.Event,
        done: Callable[[Copied], None],
    ) -> None:
        target, here = self._target, self._target.partitions()
        source, tombstones = open_place(self._place), Tombstones(target)
        tasks = []
        for partition in sorted(partitions):
            bounds, topic = planned.bounds[partition], partition.topic
            try:
                with target.disk_errors(partition):
                    if target.is_empty(partition):
                        target.set_log_start_offset(partition, bounds.first)
            except KafkaLogError as e:
                done(Copied(partition, error=e))
                continue
            start = target.log_start_offset(partition)
            tasks.append(_Task(partition, bounds, start, planned.topic_ids[topic], planned.settings[topic]))
        for partition, end, size, closed, problem in self._run(tasks):
            if closed:
                target.closed(partition, end)
            else:
                target.discard(partition)
            if problem and partition not in here and target.is_empty(partition):
                target.remove_empty(partition)
            try:
                problem = problem or tombstones.problem(source, partition)
            except KafkaLogError as e:
                problem = str(e)
            done(Copied(partition, size, problem=problem))

    def _run(self, tasks: list[_Task]) -> list[_Found]:
        if not tasks:
            return []
        target = self._target
        copy = partial(
            _copy, place=self._place, directory=target.root, rate=self._rate, was_clean=target.was_clean
        )
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(partial(_copy_all, tasks=tasks, copy=copy), "found binary").collect()
        return [pickle.loads(row.found) for row in rows]


def backup(
    spark: SparkSession,
    options: Mapping[str, object],
    directory: str,
    rules: BackupRules = _DEFAULT_RULES,
) -> list[BackedUpPartition]:
    """Back up a cluster's topics into a log directory, with one task for each partition.

    ::

        from pyspark_kafkalog import backup

        backup(spark, {"kafka.bootstrap.servers": "host:9092"}, "/backup")

    For many machines and large clusters; ``connect(options).logs.backup`` does the same in one process.
    Meanwhile the driver holds the directory's lock, and saves configs and groups. A killed job goes on where
    it stopped when it is run again.

    :param options: those of a reader, for brokers.
    :param directory: a folder that driver and workers see under the same path.
    :param rules: what to copy. Only the command ``kafkalog backup`` cuts off ends of logs and goes on after
        gaps; the rate is that of each task.
    :return: the result of each partition, sorted; look for ``problem``: that of one partition does not stop
        the others.
    :raises OptionError: for invalid options.
    :raises GroupError: if a group of ``rules`` is known nowhere.
    """
    if rules.truncate or rules.allow_gaps or rules.renew_compacted or not rules.is_whole:
        raise OptionError(
            "Tasks only copy what follows",
            hint="Run kafkalog backup for --truncate, --allow-gaps and --renew-compacted, kafkalog copy for a"
            " range of time.",
        )
    given = {name: str(value) for name, value in options.items()}
    UserOptions(given, Use.ADMIN).check_names()
    place = place_options(given)
    if place.brokers is None:
        raise OptionError("A backup is made of brokers", hint="Directories are copied by kafkalog copy.")
    return by_executor.backup(place, directory, rules, executor=partial(_Tasks, spark, place, rules.rate))


def _copy_all(
    numbers: Iterator[pa.RecordBatch], *, tasks: list[_Task], copy: Callable[[_Task], _Found]
) -> Iterator[pa.RecordBatch]:
    """Copy the partitions of the tasks with these numbers."""
    import pyarrow as pa

    for batch in numbers:
        found = [pickle.dumps(copy(tasks[number])) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"found": pa.array(found, pa.binary())})


def _copy(task: _Task, *, place: PlaceOptions, directory: str, rate: float | None, was_clean: bool) -> _Found:
    """Copy one partition; what came of it."""
    partition, bounds, start, topic_id, settings = task
    copied: list[int] = []
    log, problem, closed = None, None, False
    try:
        with task_log(
            directory, partition, settings, start=start, topic_id=topic_id, was_clean=was_clean
        ) as log:
            hooks = Hooks(RateLimit(rate).wait, copied.append, max_record_bytes=place.max_record_bytes)
            source = open_place(place, reached=True)
            try:
                bring_up_to_date(source, log, bounds, topic_id, hooks)
            except (GapError, DivergedError, DataLossError) as e:
                problem = changed_topic(source, partition.topic, topic_id) or str(e)
        closed = True
    except LogDirectoryLockedError:  # Spark would take a result in place of that of the attempt at work
        raise
    except KafkaLogError as e:
        problem = str(e)
    return _Found(partition, start if log is None else log.next_offset, sum(copied), closed, problem)
