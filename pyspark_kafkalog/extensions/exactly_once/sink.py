"""Brokers as a sink that writes each batch exactly once: tasks stage, the driver commits one transaction.

See :class:`pyspark_kafkalog.model.sinks.Sink`. It imports late, as many short-lived processes make one.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError, TransactionError
from pyspark_kafkalog.extensions.exactly_once.folders import Folders
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.filesystem.machine import Mark
from pyspark_kafkalog.garbage import loading
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.model.listening import WriteListener
    from pyspark_kafkalog.staging import Staged, Staging

_TO_SHARE = (
    "Set stagingLocation to a folder that the driver and all workers see and can write to, such as a mounted"
    " one or a URI of an object store."
)

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class TransactionalSink:
    """Shows the rows of a batch all at once to read_committed readers, and those of a micro-batch only once.

    :param driver: what the driver has left in the folder for staged rows.
    :param is_open: whether the driver has made the folder of the only batch, a job's, so that tasks that are
        too late find it gone. Of a query's micro-batches each is made by its tasks.
    """

    needs_commit = True

    connection: ConnectionOptions
    produce: ProduceOptions
    encode: EncodeSettings
    transactions: TransactionOptions
    folders: Folders
    driver: Mark | None
    is_open: bool = False

    @classmethod
    def on_driver(
        cls,
        connection: ConnectionOptions,
        produce: ProduceOptions,
        encode: EncodeSettings,
        transactions: TransactionOptions,
        batch: QueryBatch | None,
    ) -> TransactionalSink:
        """The sink of this driver.

        :param batch: of a job, which begins now.
        :raises TransactionError: if it can't write to the folder for staged rows.
        """
        from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id

        folders = Folders.of(transactions)
        try:
            mark = folders.mark()
            if batch is not None:
                folders.make(transactional_id(batch.query_id), batch)
        except OSError as e:
            raise TransactionError(f"Could not stage rows: {e}", hint=_TO_SHARE) from None
        return cls(connection, produce, encode, transactions, folders, mark, is_open=batch is not None)

    def open(
        self, batch: QueryBatch, attempt: TaskAttempt, listener: WriteListener | None = None
    ) -> AbstractContextManager[Staging]:
        """See :meth:`pyspark_kafkalog.model.sinks.Sink.open`.

        :raises OptionError: if this task and the driver share no folder.
        """
        if not self.folders.are_shared_with(self.driver):
            raise OptionError(
                f"Tasks run on {platform.node()}, which does not share the folder for staged rows with the"
                " driver",
                hint=_TO_SHARE,
            )
        with loading():
            from pyspark_kafkalog.broker.cluster.cluster import cluster_of
            from pyspark_kafkalog.broker.cluster.pool import note_reached
            from pyspark_kafkalog.broker.produce.topics import ProducerTopics
            from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
            from pyspark_kafkalog.extensions.exactly_once.staged_rows import staging

        if batch.batch_id:  # earlier micro-batches were written
            note_reached(self.connection)
        # The commit changes what checksums are of, and computes them.
        settings = replace(self.encode, checksums=False)
        topics = ProducerTopics(cluster_of(self.connection), self.produce, settings)
        folder = self.folders.of_rows(transactional_id(batch.query_id), batch)
        return staging(topics, folder, makes_folder=not self.is_open, listener=listener)

    def commit(
        self,
        batch: QueryBatch,
        finished: Sequence[Staged],
        plan: Plan,
        listener: WriteListener | None = None,
    ) -> bool:
        """Commit one transaction, unless the micro-batch was committed before, and remove what was staged."""
        with loading():
            from pyspark_kafkalog.broker.cluster.cluster import cluster_of
            from pyspark_kafkalog.broker.cluster.pool import note_reached
            from pyspark_kafkalog.extensions.exactly_once.committing import commit_work
            from pyspark_kafkalog.extensions.exactly_once.work import Work

        note_reached(self.connection)  # by the tasks
        options = self.transactions
        work = Work(
            batch,
            finished,
            self.folders,
            plan,
            options.is_job,
            required=options.fail_on_missing_marker,
            listener=listener,
        )
        is_new = commit_work(cluster_of(self.connection), self.produce, options.timeout_ms, work)
        self._sweep(batch)
        return is_new

    def abort(self, batch: QueryBatch, finished: Sequence[Staged]) -> None:
        """Remove the staged rows. Failed tasks have removed their own.

        What killed tasks left of a numbered batch goes with its next commit: it may be another driver's.
        """
        if batch.batch_id is None:
            self._sweep(batch)
            return
        from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id
        from pyspark_kafkalog.filesystem.private import remove_file

        try:
            folder = self.folders.of_rows(transactional_id(batch.query_id), batch)
            for staged in finished:
                if staged.name is not None:
                    remove_file(folder, staged.name)
        except Exception as e:
            _log.warning("Could not remove the staged rows of %s: %s", batch.job, e)

    def _sweep(self, batch: QueryBatch) -> None:
        """Remove staged rows. Never raises: a batch that is committed must not fail."""
        from pyspark_kafkalog.extensions.exactly_once.marker import transactional_id

        try:
            self.folders.sweep(transactional_id(batch.query_id), batch)
        except Exception as e:
            _log.warning("Could not remove the staged rows of %s: %s", batch.job, e)
