"""A streaming query's checkpoint: Spark's own logs, and what Spark does not store for a Python source.

Spark writes ``offsets/N`` when it plans micro-batch N: a version, a line of metadata,
and one line of JSON for each source, its end offsets. It writes ``commits/N`` when
the micro-batch is complete.

After a crash in the first micro-batch Spark asks a Python source for its initial
offsets again (its own Kafka source writes them to ``sources/0/0`` of the checkpoint).
And offsets alone do not show that a topic was deleted and recreated. Spark does not
tell the source where the checkpoint is, so the user may give the reader the option
``checkpointLocation``, too. What is kept there notes the query, and the micro-batch
that was planned last: so it is not taken for another query's, nor for that of a log
that was set back. That the checkpoint is the query's own, only its tasks can tell for
certain. Before they can, a run writes nothing there unless its own plan is the newest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pyspark_kafkalog.errors import UNREADABLE, KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_file, sync_folder, sync_parents
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop, qualified
from pyspark_kafkalog.filesystem.locate import without_secrets
from pyspark_kafkalog.model import BatchHeader, Held, MemberOfGroup, Plan, QueryBatch, TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json
from pyspark_kafkalog.streams.history import LastShared

_Content = TypeVar("_Content")

_METADATA = "metadata"
"""Spark's file with the query's id (its StreamMetadata)."""
_VERSION = 2
"""Of the files of this package."""
_HELD, _HELD_FILE = "kafkalog-member", "held.json"
"""What the query holds as a member, for its sink: one for all of its sources, as it may have only one."""


class NotedPlan(NamedTuple):
    """Number and digest of a planned micro-batch."""

    batch: int
    digest: str


class QueryLog:
    """Spark's logs in the checkpoint of a query (its OffsetSeqLog and CommitLog).

    :param checkpoint_location: path or URI, as the query has it.
    :param default_fs: Hadoop's default file system None if Spark's configuration does not say.
    """

    def __init__(self, checkpoint_location: str, default_fs: str | None = None) -> None:
        self._checkpoint = locate_as_hadoop(checkpoint_location, default_fs)
        self._planned: Folder = self._checkpoint.child("offsets")
        self._complete: Folder = self._checkpoint.child("commits")

    def batch_to(self, end: Offsets) -> int | None:
        """The newest planned micro-batch, if it ends at ``end``; None if this is another query's log."""
        batch = self._newest()
        logged = None if batch is None else self._planned.read(str(batch))
        return batch if logged and to_json(end) in map(_parsed, _ends(logged)) else None

    def newest_plan(self) -> NotedPlan | None:
        """The newest planned micro-batch."""
        batch = self._newest()
        return None if batch is None else NotedPlan(batch, _digest(self._planned.read(str(batch)) or b""))

    def goes_on_from(self, noted: NotedPlan) -> bool:
        """Whether what was planned once still is, and as it was, if Spark still has that plan."""
        newest = self._newest()
        if newest is None or newest < noted.batch:
            return False
        logged = self._planned.read(str(noted.batch))
        return logged is None or _digest(logged) == noted.digest

    def _newest(self) -> int | None:
        try:
            return max((int(name) for name in self._planned.list() if name.isdecimal()), default=None)
        except FileNotFoundError:
            return None

    def ends_of(self, batch: int) -> Offsets:
        """Where the query's source of this package ends in a planned micro-batch.

        Spark stores that before the micro-batch runs, and never changes it.

        :raises KafkaLogError: if there is no such source, or more than one.
        """
        logged = self._planned.read(str(batch)) or b""
        found = [ends for end in _ends(logged) if (ends := _offsets(end)) is not None]
        if len(found) != 1:
            raise KafkaLogError(
                f"Expected the offsets of one source of topics, got {len(found)}",
                file=self._planned.label(str(batch)),
                hint="commitSourceOffsets=transaction is for queries with one source, of this package or"
                " Spark's own kafka source, and the query's own checkpointLocation.",
            )
        return found[0]

    def plan_of(self, batch: QueryBatch) -> Plan:
        """What tells a planned micro-batch, and the one before, from others, however often it runs.

        :raises KafkaLogError: if the checkpoint is not that query's, or has no plan of the micro-batch.
        """
        self.check_query(batch.query_id)
        number = batch.batch_id
        assert number is not None, "Spark numbers what it plans"
        logged = self._planned.read(str(number))
        if not logged:
            raise _not_the_querys(
                self._planned.label(str(number)), "Spark's plan of the micro-batch is missing"
            )
        before = self._planned.read(str(number - 1)) if number else None
        return Plan(_digest(logged), before=_digest(before) if before else "", planned_ms=_planned_ms(logged))

    def keep_held(self, held: Held, *, changes: bool = False) -> None:
        """Store what the query holds as a member while the newest planned micro-batch runs.

        Only the first is flushed: the next run holds something else, but is to know that it is not the first.

        :param changes: whether this run has stored before what it holds in this micro-batch. That is not
            stored once another run has taken over.
        """
        folder = self._checkpoint.child(_HELD)
        before = folder.read_replaced(_HELD_FILE)
        if changes:
            stored = _parsed(before or b"")
            if isinstance(stored, dict) and stored["content"]["holder"] != held.holder:
                return
        stored = {
            "version": _VERSION,
            "query": self.query_id(),
            "plan": self.newest_plan(),
            "content": {**held._asdict(), "begins": to_json(held.begins)},
        }
        folder.replace(_HELD_FILE, json.dumps(stored).encode(), flush=before is None)

    def note_holder(self, run_id: str, holder: str) -> None:
        """Note in a task whose rows a run of the query has: the run that writes them must be the same.

        :raises KafkaLogError: if Spark does not say which run it is.
        """
        if not run_id:
            raise KafkaLogError("Spark does not tell which run of the query a task works for (its job group)")
        folder = self._checkpoint.child(_HELD)
        if folder.read_replaced(run_id) is None:
            folder.replace(run_id, holder.encode())

    def has_held(self) -> bool:
        """Whether the query has been a member whose sink commits."""
        return self._checkpoint.child(_HELD).read_replaced(_HELD_FILE) is not None

    def held(self, batch: QueryBatch, plan: Plan, run_id: str) -> Held | None:
        """What the query holds as a member while a micro-batch runs; None if it has never been one whose sink
        commits. It rejoins only if it has no state: that has the rows of the micro-batch in any case.

        :param run_id: of the run of the query that writes.
        :raises KafkaLogError: if it is not known for this micro-batch, or another run has taken over.
        """
        folder = self._checkpoint.child(_HELD)
        data = folder.read_replaced(_HELD_FILE)
        if data is None:
            return None
        stored = _parsed(data)
        if isinstance(stored, dict) and stored.get("query") == batch.query_id:
            if stored.get("plan") != [batch.batch_id, plan.digest]:
                raise KafkaLogError(
                    "The query is no longer the member of its group that it was: nothing says as which one"
                    f" it reads micro-batch {batch.batch_id}",
                    file=folder.label(_HELD_FILE),
                    hint="Its source needs groupMembership=true, commitOffsets=false, and this"
                    " checkpointLocation, as before. To read without the group, begin with a new checkpoint.",
                )
            with suppress(*UNREADABLE):
                found = stored["content"]
                member = None if found["member"] is None else MemberOfGroup(*found["member"])
                rejoins = found["rejoins"] and not self._has_state()
                begins = parse_offsets(json.dumps(found["begins"]), option="what is held")
                held = Held(found["group"], found["holder"], member, begins, rejoins)
                noted = folder.read_replaced(run_id)
                if noted != held.holder.encode() and (begins or noted is not None):
                    raise KafkaLogError(
                        f"Micro-batch {batch.batch_id} was not read by the member that the query is now",
                        file=folder.label(run_id),
                        hint="Another run of the query has taken over. If there is none, the tasks that read"
                        " don't see its checkpoint: all workers must.",
                    )
                return held
        raise _not_the_querys(folder.label(_HELD_FILE), "what it holds as a member is another's, or corrupt")

    def _has_state(self) -> bool:
        try:
            return bool(self._checkpoint.child("state").list())
        except FileNotFoundError:
            return False

    def check_query(self, query_id: str) -> None:
        """See that the folder is the checkpoint of a query.

        :raises KafkaLogError: if it is not.
        """
        found = self.query_id()
        if found != query_id:
            raise _not_the_querys(
                self._checkpoint.label(_METADATA), f"expected query id {query_id}, got {found}"
            )

    def query_id(self) -> str:
        """The id of the query that has this checkpoint. Spark makes it before it asks a source anything.

        :raises KafkaLogError: if the folder isn't a checkpoint.
        """
        metadata = _parsed(self._checkpoint.read(_METADATA) or b"")
        found = metadata.get("id") if isinstance(metadata, dict) else None
        if not isinstance(found, str):
            raise _not_the_querys(
                self._checkpoint.label(_METADATA), "Spark's file with the query's id is missing"
            )
        return found

    def flush(self, batch: int) -> None:
        """Flush a plan. Spark does not, and would plan the micro-batch again after a loss of power.

        Only on file systems of this machine: others flush what is written to them.

        :raises KafkaLogError: if that fails.
        """
        if not self._checkpoint.is_local:
            return
        with disk_errors("Could not flush the query's checkpoint", self._planned.path):
            _flush(self._planned.path, str(batch))
            if batch == 0:  # else it would begin as a new query
                _flush(self._checkpoint.path, _METADATA)
                sync_parents(self._checkpoint.path)

    def is_complete(self, batch: int) -> bool:
        """Whether Spark has logged the micro-batch, and so its sink's commit, as complete."""
        return self._complete.look(str(batch)).size > 0

    def is_past(self, batch: int) -> bool:
        """Whether the micro-batch is complete, even if Spark has deleted its logs since."""
        newest = self._newest()
        return self.is_complete(batch) or (newest is not None and newest > batch)


class NamedCheckpoint:
    """The checkpoint that the user gives a reader, and what waits until it shows that it is the query's own.

    :param checkpoint_location: path or URI; with None nothing waits, as nothing is kept.
    """

    def __init__(self, checkpoint_location: str | None) -> None:
        self._log = None if checkpoint_location is None else QueryLog(checkpoint_location)
        self._waiting: dict[Callable[..., None], Callable[[], None]] = {}
        self.is_own = self._log is None

    def once_own(self, keep: Callable[..., None]) -> Callable[..., None]:
        """``keep``, whose last call waits."""

        def keep_later(*content: object) -> None:
            if self.is_own:
                keep(*content)
            else:
                self._waiting[keep] = partial(keep, *content)

        return keep_later

    def planned(self, end: Offsets) -> None:
        """Spark has planned a micro-batch to ``end``, and not run it: then so says the query's checkpoint."""
        if self._log is None or self.is_own:
            return
        batch = self._log.batch_to(end)
        self.is_own = batch is not None and not self._log.is_complete(batch)
        while self.is_own and self._waiting:
            self._waiting.popitem()[1]()

    def batch_to(self, end: Offsets) -> int | None:
        """See :meth:`QueryLog.batch_to`; None without a checkpoint."""
        return None if self._log is None else self._log.batch_to(end)


def check_untold(checkpoint_location: str, default_fs: str | None) -> None:
    """See that the checkpoint is where it is without ``default_fs``, which Spark tells only to tasks.

    :raises KafkaLogError: if it is elsewhere.
    """
    found = qualified(checkpoint_location, default_fs)
    if found != qualified(checkpoint_location):
        raise KafkaLogError(
            "Hadoop's fs.defaultFS says where the checkpoint is, and Spark tells that only to tasks",
            hint=f"Give checkpointLocation as a URI: {without_secrets(found)}",
        )


def _not_the_querys(file: str, what: str) -> KafkaLogError:
    return KafkaLogError(
        f"This is not the checkpoint of the query: {what}",
        file=file,
        hint="Give checkpointLocation as the query has it. Without a scheme Spark looks for it in Hadoop's"
        " fs.defaultFS: give a URI then, such as hdfs://host:8020/path, that Python can read, too.",
    )


def _flush(folder: str, name: str) -> None:
    """Flush a file with Hadoop's checksums of it, and its name."""
    sync_file(os.path.join(folder, name))
    with suppress(FileNotFoundError):
        sync_file(os.path.join(folder, f".{name}.crc"))
    sync_folder(folder)


def _digest(logged: bytes) -> str:
    return hashlib.sha256(logged).hexdigest()


def _planned_ms(logged: bytes) -> int | None:
    metadata = _parsed(b"".join(logged.splitlines()[1:2]))
    found = metadata.get("batchTimestampMs") if isinstance(metadata, dict) else None
    return found if isinstance(found, int) else None


def _ends(logged: bytes) -> list[bytes]:
    """The end of each source. A version and a line of metadata come first; in v2 a name before each."""
    lines = logged.splitlines()
    return [line.partition(b":")[2] if lines[0] == b"v2" else line for line in lines[2:]]


def _offsets(line: bytes) -> Offsets | None:
    try:
        return parse_offsets(line.decode(), option="offsets of the checkpoint")
    except (OptionError, UnicodeDecodeError):
        return None


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


class _Kind(NamedTuple):
    folder: str
    what: str
    without: str
    """What happens without the file."""


_START_OFFSETS = _Kind(
    "kafkalog-start-offsets",
    "start offsets",
    "If the first micro-batch is not complete, they are chosen again.",
)
_TOPIC_IDS = _Kind(
    "kafkalog-topic-ids", "topic ids", "Topics recreated since the last run then go unnoticed."
)

_SHARED = _Kind("kafkalog-shared", "history", "")
_BEGINS = _Kind("kafkalog-begins", "beginnings", "")


def kept_start_offsets(
    checkpoint_location: str | None, source: object, choose: Callable[[], Offsets]
) -> Offsets:
    """The start offsets of a query: those stored before, else ``choose()``, which are stored for a new query.

    :param checkpoint_location: path or URI; None stores nothing.
    :param source: its repr distinguishes the sources of a query.
    :raises KafkaLogError: if it isn't a checkpoint, or what is stored is corrupt or of another history.
    """
    if checkpoint_location is None:
        return choose()
    file = _File.of(checkpoint_location, _START_OFFSETS, source)
    stored = file.read(partial(parse_offsets, option="stored start offsets"))
    if stored is None:
        stored = choose()
        if file.log.newest_plan() is None:
            file.write(to_json(stored))
    return stored


def kept_topic_ids(checkpoint_location: str | None, source: object) -> dict[str, str]:
    """The ids of the topics that a query has read, as :func:`keep_topic_ids` stored them.

    :raises KafkaLogError: as :func:`kept_start_offsets`.
    """
    if checkpoint_location is None:
        return {}
    return _File.of(checkpoint_location, _TOPIC_IDS, source).read(_texts) or {}


def keep_topic_ids(
    checkpoint_location: str | None,
    source: object,
    topic_ids: Mapping[str, str],
    before: Mapping[str, str] | None = None,
) -> None:
    """Store the ids of the topics whose records a query has processed, for its next run.

    :param before: given while a micro-batch runs that changes them: those that count until it is complete.
    """
    if checkpoint_location is not None:
        _File.of(checkpoint_location, _TOPIC_IDS, source).write(topic_ids, before)


def kept_shared(checkpoint_location: str | None, source: object) -> dict[TopicPartition, LastShared]:
    """What a query and its logs shared last, as :func:`keep_shared` stored it.

    What another query stored, or a loss of power left, is not used: then nothing can be compared.

    :raises KafkaLogError: if it isn't a checkpoint.
    """
    if checkpoint_location is None:
        return {}
    file = _File.of(checkpoint_location, _SHARED, source)
    data = file.folder.read_replaced(file.name)
    stored = _parsed(data or b"")
    if not isinstance(stored, dict) or stored.get("query") != file.query_id:
        return {}
    try:
        return {
            TopicPartition(topic, int(number)): _last_shared(*last)
            for topic, partitions in stored["content"].items()
            for number, last in partitions.items()
        }
    except UNREADABLE:
        return {}


def keep_shared(
    checkpoint_location: str | None, source: object, shared: Mapping[TopicPartition, LastShared]
) -> None:
    """Store what a query and its logs share. It is not flushed, as it is often replaced."""
    if checkpoint_location is None:
        return
    file = _File.of(checkpoint_location, _SHARED, source)
    content: dict[str, dict[str, LastShared]] = {}
    for (topic, number), last in sorted(shared.items()):
        content.setdefault(topic, {})[str(number)] = last
    stored = {"version": _VERSION, "query": file.query_id, "content": content}
    file.folder.replace(file.name, json.dumps(stored).encode())


def kept_begins(checkpoint_location: str | None, source: object) -> Offsets:
    """Where partitions begin in the newest planned micro-batch, as :func:`keep_begins` stored it for that.

    :raises KafkaLogError: if it isn't a checkpoint.
    """
    if checkpoint_location is None:
        return {}
    file = _File.of(checkpoint_location, _BEGINS, source)
    stored = _parsed(file.folder.read_replaced(file.name) or b"")
    if not isinstance(stored, dict) or stored.get("query") != file.query_id:
        return {}
    plan = file.log.newest_plan()
    if plan is None or stored.get("plan") != list(plan):
        return {}
    return _offsets(json.dumps(stored.get("content")).encode()) or {}


def keep_begins(checkpoint_location: str | None, source: object, begins: Offsets) -> None:
    """Store where partitions begin in the newest planned micro-batch, before any task reads it."""
    if checkpoint_location is not None:
        _File.of(checkpoint_location, _BEGINS, source).write(to_json(begins))


def _last_shared(topic_id: object, offset: object, epoch: object, batch: Any) -> LastShared:
    header = None if batch is None else BatchHeader(*batch)
    if not isinstance(topic_id, str) or not all(isinstance(n, int) for n in (offset, epoch, *(header or ()))):
        raise ValueError("expected a text and whole numbers")
    return LastShared(topic_id, offset, epoch, header)  # type: ignore[arg-type]


def check_same_query(query_id: str, running: str) -> None:
    """See that the checkpoint that the user named to a reader, that of ``query_id``, is its query's own.

    :raises KafkaLogError: if it is not.
    """
    if query_id != running:
        raise KafkaLogError(
            f"The reader's checkpointLocation is that of query {query_id}, and it reads for query {running}",
            hint="Give the reader the checkpointLocation that its query has. If the query is new, begin with"
            " a new checkpoint: this one may have begun where the other query did.",
        )


def _texts(content: dict[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in content.values()):
        raise ValueError("expected texts")
    return content


class _File(NamedTuple):
    """A file of this package in a checkpoint: its content, the query's id, and the newest plan when it was
    written. Files of version 1 are the content alone, whose values are never whole numbers.
    """

    folder: Folder
    name: str
    kind: _Kind
    log: QueryLog
    query_id: str

    @classmethod
    def of(cls, checkpoint_location: str, kind: _Kind, source: object) -> _File:
        """The file of a source.

        :raises KafkaLogError: if the location isn't a checkpoint.
        """
        digest = hashlib.sha256(repr(source).encode()).hexdigest()
        folder = locate_as_hadoop(checkpoint_location).child(kind.folder)
        log = QueryLog(checkpoint_location)
        return cls(folder, f"{digest[:32]}.json", kind, log, log.query_id())

    def read(self, parse: Callable[[dict[str, Any]], _Content]) -> _Content | None:
        """What is stored for the query; None if nothing is.

        A file of version 1 is taken for the query's, and becomes one of this version. One that belongs to
        another query is emptied if this query has planned nothing so far, so that it is new.

        :raises KafkaLogError: if it is corrupt, or belongs to another history of the checkpoint.
        """
        data = self.folder.read_replaced(self.name)
        if data is None:
            return None
        try:
            stored = json.loads(data)
            is_first = not isinstance(stored.get("version"), int)
            query_id, plan = (self.query_id, None) if is_first else (stored["query"], stored["plan"])
            noted = None if plan is None else NotedPlan(*plan)
            content = stored if is_first else stored["content"]
            if not is_first and "before" in stored and noted and not self.log.is_past(noted.batch):
                content = stored["before"]
            parsed = None if content is None else parse(content)
            if not isinstance(query_id, str) or not (noted is None or isinstance(noted.batch, int)):
                raise ValueError("expected a query and a plan")
        except UNREADABLE as e:
            raise self._error("are corrupt") from e
        if is_first:
            self.write(content)
        elif query_id != self.query_id:
            if self.log.newest_plan() is not None:
                raise self._error(f"are of query {query_id}, the checkpoint is of query {self.query_id}")
            self.write(None)
            return None
        elif noted is not None and not self.log.goes_on_from(noted):
            raise self._error(f"are newer than Spark's log, which lacks micro-batch {noted.batch} as it was")
        return parsed

    def write(self, content: Mapping[str, object] | None, before: Mapping[str, object] | None = None) -> None:
        """Replace the file atomically.

        :param before: what counts until the newest plan, which runs now, is complete.
        """
        plan = self.log.newest_plan()
        stored = {"version": _VERSION, "query": self.query_id, "plan": plan, "content": content}
        if before is not None and plan is not None:
            stored["before"] = before
            self.log.flush(plan.batch)
        self.folder.replace(self.name, json.dumps(stored, sort_keys=True).encode(), flush=True)

    def _error(self, what: str) -> KafkaLogError:
        return KafkaLogError(
            f"The stored {self.kind.what} {what}",
            file=self.folder.label(self.name),
            hint=f"Restore the whole checkpoint from one moment, or delete the file. {self.kind.without}",
        )
