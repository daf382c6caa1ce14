"""The ledger of a streaming query: the last of its micro-batches in the directory, and how it was planned.

It is made of a :mod:`.journal`. A micro-batch without rows is noted as well: so a ledger that lacks some is
older than the checkpoint, and one that is missing was lost. The last record batch that the query has written
to each partition shows whether one of them is older than the ledger, also after others wrote to it again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pyspark_kafkalog.codec.batch_identity import is_same
from pyspark_kafkalog.errors import CorruptRecordError, LogDirectoryError
from pyspark_kafkalog.log.checkpoints import read_topic_id
from pyspark_kafkalog.log.journal_file import Ledger, WrittenEnd
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish.appender import PartitionLog, PendingBatches, header_at, last_batch
from pyspark_kafkalog.model import BatchHeader, LogSettings, Plan, QueryBatch, TopicPartition
from pyspark_kafkalog.model.sinks import LastBatch, Standing, older_version, standing

_GO_ON = "To go on nevertheless, set failOnMissingMarker to false for one run"
_NO_PLAN = Plan()
_UNPROVEN = (Standing.BEHIND, Standing.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of a batch to publish: its plan, and who has numbered it.

    :param is_job: whether a job has numbered the batch, rather than Spark.
    :param required: whether a ledger that is missing or older, or can't tell, is an error.
    """

    plan: Plan = _NO_PLAN
    is_job: bool = False
    required: bool = True


@dataclass(frozen=True, slots=True)
class QueryLedger:
    """The ledger that a batch will go into. A batch without a number has none.

    :param last: the ledger as it is in the directory; None without one.
    """

    root: str
    batch: QueryBatch
    history: Provenance
    last: Ledger | None

    @classmethod
    def find(cls, root: str, batch: QueryBatch, history: Provenance) -> QueryLedger:
        """The ledger of the batch's query.

        :raises LogDirectoryError: if it can't be read.
        """
        ledger = cls(root, batch, history, None)
        return ledger if batch.batch_id is None else replace(ledger, last=journal.read_ledger(ledger.path))

    @property
    def path(self) -> str:
        """The path of the ledger file."""
        return os.path.join(self.root, journal.ledger_file(self.batch.query_id))

    @property
    def written(self) -> Mapping[TopicPartition, WrittenEnd]:
        """The last record batches that the query has written."""
        return journal.NOTHING_WRITTEN if self.last is None else self.last.written

    @property
    def to_compare(self) -> Mapping[TopicPartition, WrittenEnd]:
        """The :attr:`written` record batches that must be there: none if a history is not required."""
        return self.written if self.history.required else journal.NOTHING_WRITTEN

    def is_published(self) -> bool:
        """Whether the ledger ends with the batch.

        :raises LogDirectoryError: if the ledger is another history's, or can't tell.
        """
        batch, history, ledger = self.batch, self.history, self.last
        if batch.batch_id is None:
            return False
        if ledger is None:
            from pyspark_kafkalog.log.publish.forgotten import read_forgotten

            if history.required and os.path.basename(self.path) in read_forgotten(self.root):
                raise _forgotten(self.path, batch)
            if batch.batch_id and history.required and not history.is_job:
                raise _missing(self.path, batch)
            return False
        if ledger.query_id != batch.query_id:
            raise journal.unusable(self.path)
        last = LastBatch(ledger.batch_id, ledger.plan)
        found = standing(batch.batch_id, history.plan, last, is_job=history.is_job)
        if found is Standing.AHEAD and history.is_job:
            message, hint = older_version(batch.batch_id, last)
            raise LogDirectoryError(message, file=self.path, hint=hint)
        if found in (Standing.AHEAD, Standing.OTHER) or (history.required and found in _UNPROVEN):
            raise _refused(found, self.path, batch, last)
        return found is Standing.SAME

    def check_there(self, existing: Mapping[str, Collection[int]]) -> QueryLedger:
        """The ledger without the partitions that are missing while their topics are there.

        :param existing: the numbers of the partitions that are there, by topic.
        :raises LogDirectoryError: if one is missing that has to be there: a topic is only ever deleted as a
            whole.
        """
        missing = [partition for partition in self.written if self._is_missing(partition, existing)]
        if self.last is None or not missing:
            return self
        for partition in missing:
            if partition in self.to_compare:
                raise LogDirectoryError(
                    f"The partition is missing, and query {self.batch.query_id} has written to it up to"
                    f" offset {self.written[partition].offset}",
                    topic_partition=partition,
                    file=os.path.join(self.root, str(partition)),
                    hint="Its folder was removed, or is on a disk that is not there. Records of the query are"
                    f" missing. Restore it, or finish the deletion of the topic. {_GO_ON}.",
                )
        written = {partition: end for partition, end in self.written.items() if partition not in missing}
        return replace(self, last=self.last._replace(written=written))

    def _is_missing(self, partition: TopicPartition, existing: Mapping[str, Collection[int]]) -> bool:
        there = existing.get(partition.topic, ())
        if not there or partition.partition in there:
            return False
        other = os.path.join(self.root, str(TopicPartition(partition.topic, min(there))))
        return not self.written[partition].is_of_another(read_topic_id(other))

    def check_ends(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Check that each partition has what the query has written to it last, or that it was deleted since.

        :raises LogDirectoryError: if one ends sooner, or has another record batch there: it is older than the
            ledger, or others have written to it since it was.
        """
        ends = {
            partition: written
            for partition, log in logs.items()
            if (written := self.to_compare.get(partition)) is not None
            and not (log.created or written.is_of_another(log.topic_id))
        }
        for partition, written in ends.items():
            log = logs[partition]
            if log.next_offset < written.offset:
                raise self._set_back(
                    partition,
                    f"The log ends at offset {log.next_offset}, and query {self.batch.query_id} has written"
                    f" to it up to offset {written.offset}",
                )
        last_offsets = {partition: written.batch.last_offset for partition, written in ends.items()}
        for partition, found in self._headers_at(last_offsets, logs).items():
            if is_same(ends[partition].batch, found) is False:
                raise self._set_back(
                    partition,
                    f"The record batch at offset {last_offsets[partition]} is not the one that query"
                    f" {self.batch.query_id} has written there",
                )

    def _headers_at(
        self, offsets: Mapping[TopicPartition, int], logs: Mapping[TopicPartition, PartitionLog]
    ) -> dict[TopicPartition, BatchHeader]:
        """The headers of the record batches at these offsets; for those in older segments all are listed."""
        found, older = {}, {}
        for partition, offset in offsets.items():
            active = logs[partition].active
            if active is None or offset < active.base_offset:
                older[partition] = offset
                continue
            with suppress(CorruptRecordError):
                if (header := header_at(logs[partition], offset)) is not None:
                    found[partition] = header
        if older:
            from pyspark_kafkalog.filesystem.locate import open_folder
            from pyspark_kafkalog.log.read.directory import LogDirectory
            from pyspark_kafkalog.log.read.root import LogRoot

            found |= LogDirectory([LogRoot(open_folder(self.root))]).batches_at(older)
        return found

    def _set_back(self, partition: TopicPartition, message: str) -> LogDirectoryError:
        return LogDirectoryError(
            message,
            topic_partition=partition,
            file=os.path.join(self.root, str(partition)),
            hint="The partition was set back: restored from a copy, or cut off by a repair or a broker."
            f" Records of the query are missing. Restore a newer copy. {_GO_ON}.",
        )

    def written_with(
        self,
        pending: Mapping[TopicPartition, PendingBatches],
        logs: Mapping[TopicPartition, PartitionLog],
        settings: Mapping[str, LogSettings],
        append_time: int | None,
    ) -> dict[TopicPartition, WrittenEnd]:
        """The last record batches that the query has written once these are in their logs."""
        if self.batch.batch_id is None:
            return {}
        ends = {
            partition: WrittenEnd(
                logs[partition].topic_id,
                last_batch(logs[partition], batches, settings[partition.topic], append_time),
            )
            for partition, batches in pending.items()
        }
        return {**self.written, **ends}

    def store(self) -> None:
        """Store that the batch is done, which has no rows."""
        if self.batch.batch_id is not None:
            digest = self.history.plan.digest or ""
            ledger = Ledger(self.batch.query_id, self.batch.batch_id, digest, self.written)
            journal.put(self.root, os.path.basename(self.path), ledger.text())


def _missing(path: str, batch: QueryBatch) -> LogDirectoryError:
    return LogDirectoryError(
        f"Micro-batch {batch.batch_id} of query {batch.query_id} is to be written, but the directory has"
        " none of the earlier ones",
        file=path,
        hint="The directory, or this file, is gone or was restored from a copy: what earlier ones wrote may"
        f" be missing. Restore it, or give the query a new checkpoint. {_GO_ON}, even if the query has"
        " written elsewhere so far.",
    )


def _forgotten(path: str, batch: QueryBatch) -> LogDirectoryError:
    return LogDirectoryError(
        f"The directory has forgotten query {batch.query_id}: its ledger was removed by kafkalog"
        " forget-queries, and nothing tells whether batch"
        f" {batch.batch_id} was written",
        file=path,
        hint="Restore the file, or give the query a new checkpoint, which publishes its records again."
        f" {_GO_ON}, which writes this batch, whether it is there or not.",
    )


def _refused(found: Standing, path: str, batch: QueryBatch, last: LastBatch) -> LogDirectoryError:
    query, number = batch.query_id, last.batch_id
    message, hint = {
        Standing.AHEAD: (
            f"Expected micro-batch {number} or later of query {query}, got {batch.batch_id}",
            "The query's checkpoint is older than the log directory: restored from a backup, or copied."
            " Give the query a new checkpoint, or delete this file and set failOnMissingMarker to false for"
            " one run; either publishes its records again.",
        ),
        Standing.OTHER: (
            f"The directory has micro-batch {number} of query {query}, but with other offsets of its"
            " sources than the checkpoint has",
            "The checkpoint was set back or copied, and the micro-batch was planned again: rows would be"
            " lost or doubled. If kafkalog checkpoint has set it back, name the directory by --with-sink."
            " Else give the query a new checkpoint, which publishes its records again.",
        ),
        Standing.BEHIND: (
            f"Expected micro-batch {number + 1} of query {query}, got {batch.batch_id}",
            "The log directory is older than the query's checkpoint, restored from a copy: what the"
            f" micro-batches between wrote is missing. Restore a newer one. {_GO_ON}.",
        ),
        Standing.UNKNOWN: (
            f"The directory has micro-batch {number} of query {query}, and nothing tells whether it was"
            " planned as the checkpoint has it",
            "If it is the same, its rows are there already. To write it whether they are or not, set"
            " failOnMissingMarker to false for one run; or give the query a new checkpoint.",
        ),
    }[found]
    return LogDirectoryError(message, file=path, hint=hint)
