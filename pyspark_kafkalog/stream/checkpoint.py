"""A streaming query's checkpoint: Spark's own logs, and which cluster the query reads.

Spark writes ``offsets/N`` when it plans micro-batch N: a version, a line of metadata,
and one line of JSON for each source, its end offsets. It writes ``commits/N`` when
the micro-batch is complete.

Spark does not tell a Python source where the checkpoint is, so the user may give the
reader the option ``checkpointLocation``, too. What is stored there is in :mod:`.source_state`. That
the checkpoint is the query's own, only its tasks can tell for certain. Before they can, a
run writes nothing there unless its own plan is the newest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.durable import disk_errors, sync_file, sync_folder, sync_parents
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.hadoop import check_outside, locate_as_hadoop, qualified
from pyspark_kafkalog.filesystem.locate import without_secrets
from pyspark_kafkalog.filesystem.private import remove_file
from pyspark_kafkalog.model import Plan, QueryBatch
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json

_METADATA = "metadata"
"""Spark's file with the query's id (its StreamMetadata)."""
_CLUSTERS = "kafkalog-clusters"
"""The file with the cluster that each run of the query reads, for its sink."""

_STORED_RUNS = 10
"""The cluster of so many runs, the newest ones, stays stored."""

BY_READER = (
    "Let the reader commit instead: leave commitSourceOffsets out, and give the reader kafka.group.id,"
    " without commitOffsets=false."
)
"""The hint where the sink can't commit."""


class PlanDigest(NamedTuple):
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

    def newest_plan(self) -> PlanDigest | None:
        """The newest planned micro-batch."""
        batch = self._newest()
        return (
            None if batch is None else PlanDigest(batch, plan_digest(self._planned.read(str(batch)) or b""))
        )

    def plan_before(self, batch: int) -> PlanDigest | None:
        """The newest plan before a micro-batch."""
        before = max((number for number in self._numbers() if number < batch), default=None)
        return (
            None
            if before is None
            else PlanDigest(before, plan_digest(self._planned.read(str(before)) or b""))
        )

    def goes_on_from(self, stored: PlanDigest) -> bool:
        """Whether what was planned once still is, and as it was, if Spark still has that plan."""
        newest = self._newest()
        if newest is None or newest < stored.batch:
            return False
        logged = self._planned.read(str(stored.batch))
        return logged is None or plan_digest(logged) == stored.digest

    def planned_ends(self) -> list[Offsets]:
        """The end offsets of each source of topics in the newest planned micro-batch."""
        newest = self._newest()
        return [] if newest is None else self._all_ends_of(newest)

    def read_so_far(self) -> list[Offsets]:
        """The positions of each source of topics: its end in the newest complete micro-batch, if any."""
        newest = self._newest()
        if newest is None or self.is_complete(newest):
            return self.planned_ends()
        before = self.plan_before(newest)
        return [] if before is None else self._all_ends_of(before.batch)

    def _all_ends_of(self, batch: int) -> list[Offsets]:
        logged = self._planned.read(str(batch)) or b""
        return [ends for end in _ends(logged) if (ends := _offsets(end)) is not None]

    def _newest(self) -> int | None:
        return max(self._numbers(), default=None)

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in self._planned.list() if name.isdecimal()]
        except FileNotFoundError:
            return []

    def ends_of(self, batch: int) -> Offsets:
        """The end offsets of the query's source of this package in a planned micro-batch.

        Spark stores that before the micro-batch runs, and never changes it.

        :raises KafkaLogError: if there is no such source, or more than one.
        """
        found = self._all_ends_of(batch)
        if len(found) != 1:
            raise KafkaLogError(
                f"Expected the offsets of one source of topics, got {len(found)}",
                file=self._planned.label(str(batch)),
                hint="commitSourceOffsets=transaction is for queries with one source, of this package,"
                " and the query's own checkpointLocation.",
            )
        return found[0]

    def plan_of(self, batch: QueryBatch) -> Plan:
        """The digests of a planned micro-batch and of the one before: the same however often it runs.

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
        return Plan(plan_digest(logged), before=plan_digest(before) if before else "")

    @staticmethod
    def _forget_runs(folder: Folder) -> None:
        """Remove the clusters of all runs but the newest: one that was paused may still look for its own."""
        with suppress(FileNotFoundError):
            runs = sorted((entry.mtime_ns, name) for name, entry in folder.list().items())
            for _, name in runs[:-_STORED_RUNS]:
                remove_file(folder, name)

    def store_cluster(self, run_id: str, cluster_id: str) -> None:
        """Store in a task which cluster a run of the query reads, for its sink.

        :param cluster_id: empty for a place that has none.
        """
        folder = self._checkpoint.child(_CLUSTERS)
        if folder.read_replaced(run_id) != cluster_id.encode():
            self._forget_runs(folder)
            folder.replace(run_id, cluster_id.encode())

    def source_cluster(self, run_id: str) -> str:
        """The id of the cluster that a run of the query reads, as :meth:`store_cluster` has stored it.

        What an earlier run has stored proves nothing: the source may have moved since.

        :raises KafkaLogError: if nothing tells it, or the place has none.
        """
        folder = self._checkpoint.child(_CLUSTERS)
        cluster_id = folder.read_replaced(run_id) if run_id else None
        if cluster_id is None:
            raise KafkaLogError(
                "Nothing tells which cluster the source reads in this run of the query, whose offsets the"
                " sink is to commit (commitSourceOffsets=transaction)",
                file=folder.label(run_id),
                hint="Give the reader, which must be of this package, the query's checkpointLocation, too, in"
                f" every run; all workers must see it. {BY_READER}",
            )
        if not cluster_id:
            raise KafkaLogError(
                "The source is a log directory, or a cluster without an id, so its offsets are not those of"
                " the sink's cluster (commitSourceOffsets=transaction)",
                hint=BY_READER,
            )
        return cluster_id.decode()

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

    :param checkpoint_location: path or URI; with None nothing waits, as nothing is stored.
    """

    def __init__(self, checkpoint_location: str | None) -> None:
        self._log = None if checkpoint_location is None else QueryLog(checkpoint_location)
        self._waiting: dict[Callable[..., None], Callable[[], None]] = {}
        self.is_own = self._log is None

    def once_own(self, store: Callable[..., None]) -> Callable[..., None]:
        """``store``, whose last call waits."""

        def store_later(*content: object) -> None:
            if self.is_own:
                store(*content)
            else:
                self._waiting[store] = partial(store, *content)

        return store_later

    def planned(self, end: Offsets) -> None:
        """Spark has planned a micro-batch to ``end``, and not run it: then so says the query's checkpoint."""
        if self._log is None or self.is_own:
            return
        batch = self._log.batch_to(end)
        self.is_own = batch is not None and not self._log.is_complete(batch)
        while self.is_own and self._waiting:
            self._waiting.popitem()[1]()


def check_apart(checkpoint_location: str, places: Iterable[str]) -> None:
    """Refuse a checkpoint in a log directory that is read.

    :raises OptionError: if it is in one.
    """
    check_outside(places, checkpoint_location)


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


def plan_digest(logged: bytes) -> str:
    """The digest of a plan, by which a sink knows it again."""
    return hashlib.sha256(logged).hexdigest()


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
