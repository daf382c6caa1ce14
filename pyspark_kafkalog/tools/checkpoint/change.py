"""A change of a checkpoint: Spark's newest plan gets other end offsets, under the number that it has.

A query goes on from the end of the newest plan if that is complete. So a change of this one file sets where
it goes on; numbers of micro-batches never go back, by which sinks tell what they have, and the version of its
state is there. If the newest micro-batch is not complete, the plan before gets the new position. Spark
repeats the micro-batch, up to its end if that is known at the new position. Else it does so without rows, and
goes on behind it. So its number is not used twice.

Each file is replaced by a rename. Hadoop's checksums of it are removed before, and written again after:
without them Spark reads it, too. If several files change, the newest plan first becomes a note that Spark
can't read, which names the folder with the files as they were: until the new plan replaces it, they count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from pyspark_kafkalog.errors import (
    UNREADABLE,
    CorruptRecordError,
    KafkaLogError,
    OptionError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_folder
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop
from pyspark_kafkalog.log.lock import file_lock
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import time_text
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.stream.checkpoint import plan_digest
from pyspark_kafkalog.tools.checkpoint.files import (
    KEPT,
    KEPT_NAME,
    CheckpointFiles,
    begun_note,
    checksums,
    crc_name,
)
from pyspark_kafkalog.tools.checkpoint.goals import OTHER_TOPIC, CheckpointStep
from pyspark_kafkalog.tools.checkpoint.sink_history import SinkHistory

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
    to write, the newest one last. ``topic_ids`` are those of the topics after the change, and ``names`` maps
    their old names to the new ones. ``kept`` is the folder in which all files are kept as they were.
    """

    location: str = field(repr=False)
    """The location as it was given: a URI may hold a secret."""
    steps: list[CheckpointStep]
    notes: list[str]
    plans: tuple[NewPlan, ...]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    place: str = ""
    """The place that has these topic ids."""
    kept: str = ""
    target: str = ""
    """The place of a move."""
    sink: SinkHistory | None = None
    is_stored: bool = True
    """Whether the topic ids and the move are stored already, and no change is unfinished."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to change."""
        is_same = all(plan.old == plan.new for plan in self.plans)
        return is_same and self.is_stored and self.sink is None


def plan_change(
    files: CheckpointFiles,
    steps: list[CheckpointStep],
    *,
    repeated: Mapping[str, Offsets] | None = None,
    with_state: bool = False,
    sink: SinkHistory | None = None,
    topic_ids: Mapping[str, str] | None = None,
    place: str = "",
    names: Mapping[TopicPartition, TopicPartition] | None = None,
    notes: Collection[str] = (),
    target: str = "",
) -> CheckpointChange:
    """The change that makes the sources go on from these offsets.

    :param place: the place that the topics are in, as :func:`.places.identity` gives it.
    :param repeated: the ends, by source, to which a micro-batch is repeated that is not complete; without it
        that has no rows.
    :param names: partitions of the steps by those that the checkpoint has; without it they are the same.
    :param notes: come first.
    :param target: the place of a move: offsets there can't be compared with the current ones.
    :raises KafkaLogError: if the sink does not know the query as the checkpoint has it.
    :raises OptionError: if the checkpoint can't be changed so.
    :raises UnknownTopicOrPartitionError: if a source keeps no partition.
    """
    batches = batches_to_change(files)
    if files.operators and not with_state:
        raise OptionError(
            "The query has state, such as counts or keys that it has seen. It would not fit: records"
            " that are read again would count twice, and those that are left out would be missing in it",
            file=files.folder.child("state").label(),
            hint="Begin with a new checkpoint, or keep the state as it is by with_state=True.",
        )
    assert files.newest is not None
    position = {name: source.offsets or {} for name, source in files.position().items()}
    renamed = names or {}
    moved = {step.source: _renamed(position[step.source], renamed) for step in steps}
    for step in steps:
        partition = TopicPartition(step.topic, step.partition)
        if step.offset is None:
            moved[step.source].pop(partition, None)
        else:
            moved[step.source][partition] = step.offset
    if gone := [name for name, offsets in moved.items() if not offsets]:
        raise UnknownTopicOrPartitionError(
            f"No partition that source {gone[0]} has read exists",
            hint="Create the topic, or begin with a new checkpoint.",
        )
    ends = {**moved, **(repeated or {})}, moved
    plans: list[NewPlan] = []
    for batch, to in zip(batches, ends, strict=False):
        new = files.plan(batch).at(to)
        if batch != files.newest and files.lacks_partitions:
            new = new.with_partitions_of(files.plan(files.newest))
        plans.insert(0, NewPlan(batch, files.data(batch), new.data()))
    if not (files.folder.is_local or files.folder.is_store):
        raise OptionError(
            "This file system has no way to replace a file at once, so a kill could lose the checkpoint",
            file=files.folder.label(),
            hint="Copy the checkpoint to a disk, change it there, and copy it back.",
        )
    is_changed = any(plan.old != plan.new for plan in plans)
    told = () if sink is None else (sink.look(_digests(files, plans)),)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    topic_ids = topic_ids or {}
    topics = {old.topic: new.topic for old, new in renamed.items()} or {topic: topic for topic in topic_ids}
    return CheckpointChange(
        files.location,
        steps,
        [
            *notes,
            *_meaning(files, () if target else steps, moved, repeated),
            *(_untold_sinks(files) if is_changed and sink is None else told),
        ],
        tuple(plans),
        topic_ids,
        topics,
        place,
        files.kept.child(stamp).label(),
        target,
        sink,
        files.begun is None
        and files.state.has_topic_ids(topic_ids, topics, place)
        and (not target or was_moved(files, target)),
    )


def was_moved(files: CheckpointFiles, target: str) -> bool:
    """Whether the checkpoint is as a move to this place has left it: a kill may have come before its end.

    :raises OptionError: if it was moved there, and the query has run since.
    """
    moved = _last_move(files)
    if moved is None or moved.target != target:
        return False
    now = {batch: plan_digest(files.data(batch)) for batch in moved.plans if files.has_plan(batch)}
    if now == {batch: new for batch, (_, new) in moved.plans.items()} and files.newest == max(moved.plans):
        return True
    raise OptionError(
        f"The checkpoint was moved to {target} before: its offsets are those of that place already",
        file=moved.kept.label(),
        hint="If that was undone, remove this folder.",
    )


def check_of_place(files: CheckpointFiles, batch: int) -> None:
    """See that the plan of a micro-batch has offsets of the place that the query reads now.

    :raises OptionError: if it was made before the checkpoint was moved.
    """
    moved = _last_move(files)
    if moved is not None and batch < min(moved.plans):
        raise OptionError(
            f"The offsets of micro-batch {batch} are of another place: after micro-batch {max(moved.plans)}"
            f" the checkpoint was moved to {moved.target}",
            file=moved.kept.label(),
            hint="Give a later micro-batch, or a time. If the move was undone, remove this folder.",
        )


def changed_by(files: CheckpointFiles, batch: int) -> str:
    """The folder of the change that has given the plan of a micro-batch its ends; empty if Spark has."""
    if not files.has_plan(batch):
        return ""
    now = plan_digest(files.data(batch))
    for made in _changes(files):
        old, new = made.plans.get(batch, ("", ""))
        if now == new != old:
            return made.kept.label()
    return ""


class _Made(NamedTuple):
    """A change that was made: ``plans`` are the digests of each plan before and after it.

    ``target`` is the place of a move, and ``told`` the micro-batch whose new digest a sink was told.
    """

    kept: Folder
    target: str
    plans: Mapping[int, tuple[str, str]]
    told: int | None


def _last_move(files: CheckpointFiles) -> _Made | None:
    """The last move that was not undone: its plans are not as they were before it.

    A move that kept all offsets has left the plans as they were, so it counts even if it was undone.
    """
    for made in _changes(files):
        now = {batch: plan_digest(files.data(batch)) for batch in made.plans if files.has_plan(batch)}
        is_same = all(old == new for old, new in made.plans.values())
        if made.target and (is_same or now != {batch: old for batch, (old, _) in made.plans.items()}):
            return made
    return None


def _changes(files: CheckpointFiles) -> Iterator[_Made]:
    """The changes that were made, the last one first.

    :raises CorruptRecordError: if the file of one can't be read.
    """
    for name in reversed(_names(files.kept)):
        kept = files.kept.child(name)
        data = kept.read_replaced(_CHANGE)
        if data is None:
            continue
        try:
            found = json.loads(data)
            plans = {int(batch): (str(old), str(new)) for batch, (old, new) in found["plans"].items()}
            told = found.get("told")
            if told not in (None, *plans) or not plans:
                raise ValueError(told)
            made = _Made(kept, str(found["target"]), plans, told)
        except UNREADABLE:
            raise CorruptRecordError(
                "Nothing tells whether the checkpoint was moved before: the file is damaged",
                file=kept.label(_CHANGE),
                hint="If it was not, or that was undone, remove this folder.",
            ) from None
        yield made


def execute(change: CheckpointChange, *, stopped: bool = False) -> None:
    """Carry out a change.

    :param stopped: that the query does not run, even if Spark has just written to its checkpoint.
    :raises KafkaLogError: if another change is being carried out, or the checkpoint is not as it was planned,
        or can't be written.
    """
    with _locked(locate_as_hadoop(change.location)):
        _execute(change, stopped=stopped)


@contextmanager
def _locked(checkpoint: Folder) -> Iterator[None]:
    """Keep other changes out, where the file system has locks."""
    with ExitStack() as locks:
        if checkpoint.is_local and checkpoint.exists():
            with disk_errors("Could not lock the checkpoint", checkpoint.label(), "It is as it was."):
                locks.enter_context(file_lock(os.path.join(checkpoint.path, KEPT), "The checkpoint"))
        yield


def _execute(change: CheckpointChange, *, stopped: bool) -> None:
    files = CheckpointFiles.open(change.location)
    if not stopped:
        _check_stopped(files)
    for plan in change.plans:
        if files.newest != max(each.batch for each in change.plans) or files.data(plan.batch) != plan.old:
            raise KafkaLogError(
                "The checkpoint is not as it was planned: the query runs, or something else changed it",
                file=files.offsets.label(str(plan.batch)),
                hint="Stop the query, and plan it again.",
            )
    told = None if change.sink is None else change.sink.check(_digests(files, change.plans))
    with _saying_what_is_left(change):
        with disk_errors("Could not change the checkpoint", files.folder.label()):
            _write(files, change, told)
        if change.sink is not None:
            with disk_errors("Could not tell the sink", files.folder.label()):
                change.sink.store(_digests(files, change.plans))


def _write(files: CheckpointFiles, change: CheckpointChange, told: int | None) -> None:
    if files.begun is not None:
        _bring_back(files, files.begun)
    state = files.state_in(files.folder)
    kept = files.kept.child(change.kept.rpartition("/")[2])
    _keep(files, kept, change, told)
    changed = [plan for plan in change.plans if plan.old != plan.new]
    is_stored = state.has_topic_ids(change.topic_ids, change.names, change.place)
    if len(changed) > 1 or not is_stored or (changed and state.paths()):
        _replace(files.offsets, str(change.plans[-1].batch), begun_note(kept.name))
        state.follow({plan.batch: plan_digest(plan.new) for plan in change.plans})
        state.store_topic_ids(change.topic_ids, change.names, change.place)
        changed = list(change.plans)
    for plan in changed:
        had_sums = kept.child(files.offsets.name).read(crc_name(str(plan.batch))) is not None
        _replace(files.offsets, str(plan.batch), plan.new, with_sums=had_sums)


@contextmanager
def _saying_what_is_left(change: CheckpointChange) -> Iterator[None]:
    """Let an error say in which state the checkpoint is, and how to go on."""
    try:
        yield
    except KafkaLogError as e:
        remedy = f"{e.hint} " if e.hint else ""
        raise e.with_hint(remedy + _left(change)) from e.__cause__


def _left(change: CheckpointChange) -> str:
    try:
        files = CheckpointFiles.open(change.location)
        is_begun = files.begun is not None
        found = [files.data(plan.batch) for plan in change.plans]
    except (KafkaLogError, OSError):
        return "Run kafkalog checkpoint show, which says whether the change was begun."
    if is_begun:
        return (
            "The change was begun, and the query does not start until it ends: run it again. To leave it,"
            " rewind to where the query was (--to-current)."
        )
    if found != [plan.new for plan in change.plans]:
        if found == [plan.old for plan in change.plans]:
            return "The checkpoint is as it was: run it again."
        return "Something else has changed the checkpoint since: plan it again."
    if change.sink is None:
        return "The checkpoint is changed, and the query can start."
    return "The checkpoint is changed, and its sink may not know it, and then refuses it: run it again."


def _check_stopped(files: CheckpointFiles) -> None:
    """:raises KafkaLogError: if the query may be running."""
    age, looks = files.age(), ""
    if files.newest is not None and not files.is_complete:
        looks = (
            f"Micro-batch {files.newest} is planned and not complete: it runs, or the query has ended in it"
        )
    elif age is not None and age < _QUIET_SECONDS:
        looks = f"Spark wrote to the checkpoint {age:.0f} s ago: the query may be running"
    if looks:
        raise KafkaLogError(
            looks,
            file=files.folder.label(),
            hint="Stop the query. If it is stopped, say so by stopped=True.",
        )


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


def _renamed(offsets: Offsets, names: Mapping[TopicPartition, TopicPartition]) -> Offsets:
    return {names.get(partition, partition): offset for partition, offset in offsets.items()}


def _meaning(
    files: CheckpointFiles,
    steps: Collection[CheckpointStep],
    moved: Mapping[str, Offsets],
    repeated: Mapping[str, Offsets] | None,
) -> Iterator[str]:
    assert files.newest is not None
    if not files.is_complete and repeated is None:
        yield from _meaning_of_empty(files, moved)
    # Offsets of another topic are those of other records.
    same = [(s.current, s.offset) for s in steps if s.note != OTHER_TOPIC]
    moves = [offset - current for current, offset in same if current is not None and offset is not None]
    back, ahead = (sum(max(0, sign * move) for move in moves) for sign in (-1, 1))
    for topic in sorted({step.topic for step in steps if step.note == OTHER_TOPIC}):
        yield (
            f"{topic} is another topic than was read: it was deleted and created again, or this is not the"
            " place that the query reads."
        )
    if back:
        yield (
            f"{back} offsets are read again, from micro-batch {files.newest + 1} on: a sink that appends has"
            " their rows twice."
        )
    if ahead:
        yield f"{ahead} offsets are left out."
    if files.operators and (back or ahead):
        yield (
            "The state stays as it is: what is read again counts again, or is dropped as a duplicate; what is"
            " left out is missing."
        )
        watermark = files.plan(files.newest).watermark_ms
        if back and watermark:
            yield f"Records older than the watermark, {time_text(watermark)}, are late, and may be dropped."
    if back and files.state.paths():
        yield (
            "If its reader has groupMembership=true, the query goes on at its group's commits where those are"
            " ahead: reset the group, too."
        )


def _untold_sinks(files: CheckpointFiles) -> Iterator[str]:
    """Say what a sink of this package makes of plans that have changed, if it is not told."""
    if files.folder.child(_TRANSACTIONS).exists():
        yield (
            "The query writes to brokers exactly once: they know the plan as it was, and refuse the next"
            " micro-batch unless you give them by --with-sink."
        )
    else:
        yield "If the query writes to a log directory by kafkalog, name that by --with-sink."


def _meaning_of_empty(files: CheckpointFiles, moved: Mapping[str, Offsets]) -> Iterator[str]:
    """Say what a micro-batch that is not complete means, if it is repeated without rows."""
    assert files.newest is not None
    again = 0
    for source in files.plan(files.newest).sources:
        at, before = moved.get(source.name, {}), files.position().get(source.name)
        begins = {} if before is None else before.offsets or {}
        for partition, end in (source.offsets or {}).items() if source.name in moved else ():
            again += max(0, end - max(at.get(partition, 0), begins.get(partition, 0)))
    if again:
        yield (
            f"Micro-batch {files.newest} is not complete, and is repeated without rows. From micro-batch"
            f" {files.newest + 1} on, the query reads {again} of its offsets: a sink that has already written"
            " some of these gets their rows twice."
        )


def _keep(files: CheckpointFiles, kept: Folder, change: CheckpointChange, told: int | None) -> None:
    """Keep all files that change as they are, on disk before any does.

    :param told: the micro-batch whose new digest the sink is told.
    """
    for plan in change.plans:
        offsets = kept.child(files.offsets.name)
        offsets.replace(str(plan.batch), plan.old, flush=True)
        if files.folder.is_local and (sums := files.offsets.read(crc_name(str(plan.batch)))) is not None:
            offsets.replace(crc_name(str(plan.batch)), sums, flush=True)
    for path in files.state_in(files.folder).paths():
        folder, _, name = path.rpartition("/")
        data = files.folder.child(folder).read_replaced(name)
        if data is not None:
            kept.child(folder).replace(name, data, flush=True)
    digests = {plan.batch: [plan_digest(plan.old), plan_digest(plan.new)] for plan in change.plans}
    made = {"target": change.target, "plans": digests, "told": told}
    kept.replace(_CHANGE, json.dumps(made).encode(), flush=True)
    if change.sink is not None and (text := change.sink.text()) is not None:
        kept.replace("sink.json", text.encode(), flush=True)


def _bring_back(files: CheckpointFiles, kept: Folder) -> None:
    """Undo a change that was begun and not ended: the newest plan is the last to come back."""
    for path in files.state_in(kept).paths():
        folder, _, name = path.rpartition("/")
        files.folder.child(folder).replace(name, kept.child(folder).read_replaced(name) or b"", flush=True)
    offsets = kept.child(files.offsets.name)
    for batch in sorted(batch for batch in files.plans if offsets.look(str(batch)).size):
        had_sums = offsets.read(crc_name(str(batch))) is not None
        _replace(files.offsets, str(batch), offsets.read(str(batch)) or b"", with_sums=had_sums)


def _replace(folder: Folder, name: str, data: bytes, *, with_sums: bool = False) -> None:
    """Put a file of Spark's in place of another, with Hadoop's checksums if asked for.

    It keeps its time, which tells when Spark wrote to the checkpoint.
    """
    written_ns = folder.look(name).mtime_ns
    if folder.is_local and folder.read(crc_name(name)) is not None:
        folder.filesystem.delete_file(f"{folder.path}/{crc_name(name)}")
        sync_folder(folder.path)
    folder.replace(name, data, flush=True)
    if folder.is_local:
        os.utime(os.path.join(folder.path, name), ns=(written_ns, written_ns))
    if with_sums:
        folder.replace(crc_name(name), checksums(data), flush=True)


def _digests(files: CheckpointFiles, plans: Collection[NewPlan]) -> dict[int, tuple[set[str], str]]:
    """The digests that the plan of each micro-batch has had, and the new one."""
    found = {
        plan.batch: ({plan_digest(plan.old), plan_digest(plan.new)}, plan_digest(plan.new)) for plan in plans
    }
    kept = files.kept
    for name in _names(kept):
        for batch, (known, _) in found.items():
            data = kept.child(name).child(files.offsets.name).read(str(batch))
            if data is not None:
                known.add(plan_digest(data))
    for made in _changes(files):  # it may have been undone since, without a word to the sink
        if made.told in found:
            found[made.told][0].add(made.plans[made.told][1])
    return found


def _names(folder: Folder) -> list[str]:
    try:
        return sorted(filter(KEPT_NAME.fullmatch, folder.names()))
    except FileNotFoundError:
        return []
