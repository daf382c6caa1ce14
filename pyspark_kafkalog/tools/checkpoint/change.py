"""A change of a checkpoint: Spark's newest plan gets other end offsets, under the number that it has.

A query goes on from the end of the newest plan if that is complete. So a change of this one file sets where
it goes on; numbers of micro-batches never go back, by which sinks tell what they have, and the version of its
state is there. If the newest micro-batch is not complete, the plan before gets the same end offsets: Spark
repeats the micro-batch, now without rows, and goes on behind it. So its number is not used twice.

Each file is replaced by a rename. Hadoop's checksums of it are removed before, and written again after:
without them Spark reads it, too. Of two plans the first one to be written is such that the query, if a kill
comes between, reads all from the lower of both positions on; a change that is run again completes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_folder
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import time_text
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.stream.checkpoint import plan_digest
from pyspark_kafkalog.stream.source_state import StoredState
from pyspark_kafkalog.tools.checkpoint.files import CheckpointFiles, checksums, crc_name
from pyspark_kafkalog.tools.checkpoint.goals import CREATED_AGAIN, CheckpointStep
from pyspark_kafkalog.tools.checkpoint.sink_history import SinkHistory

_KEPT = "kafkalog-kept"
_CHANGE = "change.json"
_TRANSACTIONS = "kafkalog-transactions"
_QUIET_SECONDS = 120
"""A checkpoint that Spark has written to more recently may be that of a query that runs."""


@dataclass(frozen=True, slots=True)
class NewPlan:
    """A plan before and after a change."""

    batch: int
    old: bytes = field(repr=False)
    new: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """A change that :meth:`.room.CheckpointAdmin.execute` carries out; nothing is changed before.

    ``steps`` are the new positions, and ``notes`` what they mean for state and sinks. ``plans`` are the files
    to write, in order. ``topic_ids`` are those of the topics after it, and ``names`` their names by those
    that they had. ``kept`` is the folder in which all files are kept as they were.
    """

    location: str = field(repr=False)
    """The location as it was given: a URI may hold a secret."""
    steps: list[CheckpointStep]
    notes: list[str]
    plans: tuple[NewPlan, ...]
    is_complete: bool
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    kept: str = ""
    target: str = ""
    """The place of a move."""
    sink: SinkHistory | None = None
    is_stored: bool = True
    """Whether the topic ids are stored already."""

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it should be already."""
        is_same = all(plan.old == plan.new for plan in self.plans)
        return is_same and self.is_stored and self.sink is None


def plan_change(
    files: CheckpointFiles,
    steps: list[CheckpointStep],
    *,
    with_state: bool = False,
    sink: SinkHistory | None = None,
    topic_ids: Mapping[str, str] | None = None,
    names: Mapping[TopicPartition, TopicPartition] | None = None,
    notes: Collection[str] = (),
    target: str = "",
) -> CheckpointChange:
    """The change that makes the sources go on from these offsets.

    :param names: partitions of the steps by those that the checkpoint has; without it they are the same.
    :param notes: come first.
    :param target: the place of a move: offsets there can't be compared with the current ones.
    :raises OptionError: if the checkpoint can't be changed so.
    """
    batches = batches_to_change(files)
    if files.operators and not with_state:
        raise OptionError(
            f"The query has state, of {len(files.operators)} operators: what they have counted would be"
            " counted again, or records left out would be missing there",
            file=files.folder.child("state").label(),
            hint="Begin with a new checkpoint, or keep the state as it is by with_state=True.",
        )
    moved: dict[str, Offsets] = {}
    position, renamed = files.position(), names or {}
    for step in steps:
        if step.source not in moved:
            current = position[step.source].offsets or {}
            moved[step.source] = {renamed.get(partition, partition): at for partition, at in current.items()}
        partition = TopicPartition(step.topic, step.partition)
        if step.offset is None:
            moved[step.source].pop(partition, None)
        else:
            moved[step.source][partition] = step.offset
    plans = [NewPlan(batch, files.data(batch), files.plan(batch).at(moved).data()) for batch in batches]
    if len(plans) == 2 and not _is_beyond(files, moved):
        plans.reverse()
    if not (files.folder.is_local or files.folder.is_store):
        raise OptionError(
            "This file system has no way to replace a file at once, so a kill could lose the checkpoint",
            file=files.folder.label(),
            hint="Copy the checkpoint to a disk, change it there, and copy it back.",
        )
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    topic_ids = topic_ids or {}
    topics = {old.topic: new.topic for old, new in renamed.items()} or {topic: topic for topic in topic_ids}
    return CheckpointChange(
        files.location,
        steps,
        [*notes, *_meaning(files, () if target else steps, has_sink=sink is not None)],
        tuple(plans),
        files.is_complete,
        topic_ids,
        topics,
        files.folder.child(_KEPT).child(stamp).label(),
        target,
        sink,
        StoredState(files.folder).has_topic_ids(topic_ids, topics),
    )


def was_moved(files: CheckpointFiles, target: str) -> bool:
    """Whether the checkpoint is as a move to this place has left it: a kill may have come before its end.

    :raises OptionError: if it was moved there, and the query has run since.
    """
    kept = files.folder.child(_KEPT)
    for name in sorted(_names(kept), reverse=True):
        data = kept.child(name).read_replaced(_CHANGE)
        found = {} if data is None else json.loads(data)
        if not found.get("target"):
            continue
        if found["target"] != target:
            return False
        digests = {int(batch): pair for batch, pair in found["plans"].items()}
        now = {batch: plan_digest(files.data(batch)) for batch in digests if files.has_plan(batch)}
        if now == {batch: old for batch, (old, _) in digests.items()}:
            return False
        if now == {batch: new for batch, (_, new) in digests.items()} and files.newest == max(digests):
            return True
        raise OptionError(
            f"The checkpoint was moved to {target} before: its offsets are those of that place already",
            file=kept.child(name).label(),
            hint="If that was undone, remove this folder.",
        )
    return False


def execute(change: CheckpointChange, *, stopped: bool = False) -> None:
    """Carry out a change.

    :param stopped: that the query does not run, even if Spark has just written to its checkpoint.
    :raises KafkaLogError: if the checkpoint is not as it was planned, or can't be written.
    """
    files = CheckpointFiles.open(change.location)
    age = files.age()
    if not stopped and age is not None and age < _QUIET_SECONDS:
        raise KafkaLogError(
            f"Spark wrote to the checkpoint {age:.0f} s ago: the query may be running",
            file=files.folder.label(),
            hint="Stop the query. If it is stopped, say so by stopped=True.",
        )
    for plan in change.plans:
        if files.newest != max(each.batch for each in change.plans) or files.data(plan.batch) != plan.old:
            raise KafkaLogError(
                "The checkpoint is not as it was planned: the query runs, or something else changed it",
                file=files.offsets.label(str(plan.batch)),
                hint="Stop the query, and plan it again.",
            )
    if change.sink is not None:
        change.sink.check(_digests(files, change.plans))
    with disk_errors("Could not change the checkpoint", files.folder.label()):
        state = StoredState(files.folder)
        _keep(files, change, state)
        state.detach([plan.batch for plan in change.plans], is_complete=change.is_complete)
        for plan in change.plans:
            if plan.old != plan.new:
                _replace(files.offsets, str(plan.batch), plan.new)
        state.store_topic_ids(change.topic_ids, change.names)
    if change.sink is not None:
        change.sink.store(_digests(files, change.plans))


def batches_to_change(files: CheckpointFiles) -> tuple[int, ...]:
    """The micro-batches whose plans get other ends, the newest one first.

    :raises OptionError: if the query has no position to be changed.
    """
    newest, complete = files.newest, files.newest_complete
    if newest is None:
        raise OptionError(
            "The query has planned nothing yet, so there is nothing to change",
            file=files.folder.label(),
            hint="The options of its readers say where it begins, such as startingOffsets.",
        )
    if complete is not None and complete > newest:
        raise OptionError(
            f"Micro-batch {complete} is complete, and the newest plan is that of {newest}",
            file=files.offsets.label(),
            hint="Bring back the whole checkpoint from one moment.",
        )
    if files.is_complete:
        files.check_commit(newest)
        return (newest,)
    before = files.before(newest)
    if before is None:
        raise OptionError(
            "The query has completed no micro-batch, so its position is that of the options of its readers",
            file=files.offsets.label(str(newest)),
            hint="Begin with a new checkpoint, and startingOffsets.",
        )
    return newest, before


def _is_beyond(files: CheckpointFiles, moved: Mapping[str, Offsets]) -> bool:
    """Whether a new position is beyond the end of the micro-batch that is not complete.

    If not, that micro-batch can read from the new position: then the plan before is written first.
    """
    assert files.newest is not None
    planned = files.plan(files.newest)
    for name, offsets in moved.items():
        source = planned.source(name)
        ends = {} if source is None or source.offsets is None else source.offsets
        if any(offset > ends.get(partition, -1) for partition, offset in offsets.items()):
            return True
    return False


def _meaning(files: CheckpointFiles, steps: Collection[CheckpointStep], *, has_sink: bool) -> Iterator[str]:
    assert files.newest is not None
    # Offsets of a topic that was created again are those of other records.
    same = [(s.current, s.offset) for s in steps if s.note != CREATED_AGAIN]
    moves = [offset - current for current, offset in same if current is not None and offset is not None]
    back, ahead = (sum(max(0, sign * move) for move in moves) for sign in (-1, 1))
    for topic in sorted({step.topic for step in steps if step.note == CREATED_AGAIN}):
        yield f"All records of {topic} are read, as the topic was created again."
    if back:
        yield (
            f"{back} offsets are read again, from micro-batch {files.newest + 1} on: a sink that appends has"
            " their rows twice."
        )
    if ahead:
        yield f"{ahead} offsets are left out."
    if files.operators and (back or ahead):
        yield "The state stays as it is: what is read again counts again, what is left out is missing."
        watermark = files.plan(files.newest).watermark_ms
        if back and watermark:
            yield f"Records older than the watermark, {time_text(watermark)}, are late, and may be dropped."
    if not has_sink:
        if files.folder.child(_TRANSACTIONS).exists():
            yield (
                "The query writes to brokers exactly once: they know the plan as it was, and refuse the next"
                " micro-batch unless you give them by --with-sink."
            )
        else:
            yield "If the query writes to a log directory by kafkalog, name that by --with-sink."


def _keep(files: CheckpointFiles, change: CheckpointChange, state: StoredState) -> None:
    """Keep all files that change as they are, on disk before any does."""
    kept = files.folder.child(_KEPT).child(change.kept.rpartition("/")[2])
    for plan in change.plans:
        offsets = kept.child(files.offsets.name)
        offsets.replace(str(plan.batch), plan.old, flush=True)
        if files.folder.is_local and (sums := files.offsets.read(crc_name(str(plan.batch)))) is not None:
            offsets.replace(crc_name(str(plan.batch)), sums, flush=True)
    for path in state.paths():
        folder, _, name = path.rpartition("/")
        data = files.folder.child(folder).read_replaced(name)
        if data is not None:
            kept.child(folder).replace(name, data, flush=True)
    digests = {plan.batch: [plan_digest(plan.old), plan_digest(plan.new)] for plan in change.plans}
    kept.replace(_CHANGE, json.dumps({"target": change.target, "plans": digests}).encode(), flush=True)
    if change.sink is not None and (text := change.sink.text()) is not None:
        kept.replace("sink.json", text.encode(), flush=True)


def _replace(folder: Folder, name: str, data: bytes) -> None:
    """Put a file of Spark's in place of another, with Hadoop's checksums if it had some.

    It keeps its time, which tells when Spark wrote to the checkpoint.
    """
    written_ns = folder.look(name).mtime_ns
    had_sums = folder.is_local and folder.read(crc_name(name)) is not None
    if had_sums:
        folder.filesystem.delete_file(f"{folder.path}/{crc_name(name)}")
        sync_folder(folder.path)
    folder.replace(name, data, flush=True)
    if folder.is_local:
        os.utime(os.path.join(folder.path, name), ns=(written_ns, written_ns))
    if had_sums:
        folder.replace(crc_name(name), checksums(data), flush=True)


def _digests(files: CheckpointFiles, plans: Collection[NewPlan]) -> dict[int, tuple[set[str], str]]:
    """The digests that the plan of each micro-batch has had, and the new one."""
    found = {
        plan.batch: ({plan_digest(plan.old), plan_digest(plan.new)}, plan_digest(plan.new)) for plan in plans
    }
    kept = files.folder.child(_KEPT)
    for name in _names(kept):
        for batch, (known, _) in found.items():
            data = kept.child(name).child(files.offsets.name).read(str(batch))
            if data is not None:
                known.add(plan_digest(data))
    return found


def _names(folder: Folder) -> list[str]:
    try:
        return sorted(folder.names())
    except FileNotFoundError:
        return []
