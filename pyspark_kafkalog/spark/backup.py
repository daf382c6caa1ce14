"""``backup(spark, ...)``: a backup by Spark's tasks, one for each partition, into a folder that all share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_kafkalog.backups.compacted import Tombstones, now_ms
from pyspark_kafkalog.backups.copying import GapError, Hooks, bring_up_to_date
from pyspark_kafkalog.backups.groups import SavedGroups, delete_earlier, offsets_partitions
from pyspark_kafkalog.backups.history import DivergedError
from pyspark_kafkalog.backups.plan import (
    BackedUpPartition,
    BackupRules,
    Bounds,
    changed_topic,
    check_source,
    close,
    plan,
)
from pyspark_kafkalog.backups.rate import RateLimit
from pyspark_kafkalog.errors import DataLossError, KafkaLogError, LogDirectoryLockedError, OptionError
from pyspark_kafkalog.log.backup.directory import open_backup
from pyspark_kafkalog.log.backup.opening import task_log
from pyspark_kafkalog.model import LogSettings, TopicPartition
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import backup_groups, open_groups, open_place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_DEFAULT_RULES = BackupRules()


class _Task(NamedTuple):
    """What one task copies."""

    partition: TopicPartition
    bounds: Bounds
    start: int
    """The log start offset of the copy."""
    topic_id: str
    settings: LogSettings


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

    For many machines and large clusters; it does what ``connect(options).logs.backup`` does in one
    process. The driver holds the directory for all this time, and saves configs and groups. A killed job goes
    on where it stopped when it is run again.

    :param options: those of a reader, for brokers.
    :param directory: a folder that driver and workers see under the same path.
    :param rules: what to copy. Ends of logs that have to be cut off, and gaps, are left to the command
        ``kafkalog backup``; the rate is that of each task.
    :return: what came of each partition, sorted; look for ``problem``: what is wrong with one partition
        hinders none of the others.
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
    with open_backup(directory) as target:
        source = open_place(place)
        check_source(source, target)
        wants_groups = rules.groups is None or bool(rules.groups)
        saved = backup_groups(directory, offsets_partitions(source) if wants_groups else 0)
        groups = SavedGroups(open_groups(place), saved, rules.groups) if wants_groups else None
        if groups is not None:
            groups.check_names()
            groups.read()
        tombstones, looked_at = Tombstones(target), now_ms()
        planned = plan(source, target, rules)
        tombstones.begin(planned, looked_at)
        here = target.partitions()
        delete_earlier(saved, planned, here)
        tasks, failures = [], dict(planned.failures)
        for partition, bounds in sorted(planned.bounds.items()):
            try:
                with target.disk_errors(partition):
                    if target.is_empty(partition):
                        target.set_log_start_offset(partition, bounds.first)
            except KafkaLogError as e:
                failures[partition] = e
                continue
            topic = partition.topic
            tasks.append(
                _Task(
                    partition,
                    bounds,
                    target.log_start_offset(partition),
                    planned.topic_ids[topic],
                    planned.settings[topic],
                )
            )
        rows = [BackedUpPartition(topic, -1, problem=problem) for topic, problem in planned.problems.items()]
        rows += [BackedUpPartition(*p, problem=str(error)) for p, error in failures.items()]
        complete: dict[TopicPartition, tuple[int, int]] = {}
        for found in _run(spark, tasks, place, directory, rules.rate, was_clean=target.was_clean):
            partition = TopicPartition(found["topic"], found["partition"])
            if found.pop("closed"):
                target.closed(partition, found["log_end_offset"])
            else:
                target.discard(partition)
            if found["problem"] and partition not in here and target.is_empty(partition):
                target.remove_empty(partition)
            try:
                found["problem"] = found["problem"] or tombstones.problem(source, partition)
            except KafkaLogError as e:
                found["problem"] = str(e)
            if found["problem"] is None:
                complete[partition] = looked_at, found["log_end_offset"]
            rows.append(BackedUpPartition(**found))
        target.checkpoint()
        target.set_complete(complete)
        if groups is not None:
            groups.save(rows)
        by_partition = {TopicPartition(row.topic, row.partition): row for row in rows}
        close(target, by_partition)
        about_groups = [] if groups is None else groups.rows()
    return about_groups + [by_partition[partition] for partition in sorted(by_partition)]


def _run(
    spark: SparkSession,
    tasks: list[_Task],
    place: PlaceOptions,
    directory: str,
    rate: float | None,
    *,
    was_clean: bool,
) -> list[dict[str, Any]]:
    if not tasks:
        return []
    copy = partial(_copy, place=place, directory=directory, rate=rate, was_clean=was_clean)
    task = partial(_copy_all, tasks=tasks, copy=copy)
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return [json.loads(row.found) for row in numbers.mapInArrow(task, "found string").collect()]


def _copy_all(
    numbers: Iterator[pa.RecordBatch], *, tasks: list[_Task], copy: Callable[[_Task], dict[str, Any]]
) -> Iterator[pa.RecordBatch]:
    """Copy the partitions of the tasks with these numbers."""
    import pyarrow as pa

    for batch in numbers:
        found = [json.dumps(copy(tasks[number])) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pydict({"found": pa.array(found, pa.string())})


def _copy(
    task: _Task, *, place: PlaceOptions, directory: str, rate: float | None, was_clean: bool
) -> dict[str, Any]:
    """Copy one partition; what came of it."""
    partition, bounds, start, topic_id, settings = task
    copied: list[int] = []
    log, problem, closed = None, None, False
    try:
        with task_log(
            directory, partition, settings, start=start, topic_id=topic_id, was_clean=was_clean
        ) as log:
            hooks = Hooks(RateLimit(rate).wait, lambda _, size: copied.append(size))
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
    return {
        **partition._asdict(),
        "log_start_offset": start,
        "log_end_offset": start if log is None else log.next_offset,
        "high_watermark": bounds.high_watermark,
        "copied_bytes": sum(copied),
        "problem": problem,
        "closed": closed,
    }
