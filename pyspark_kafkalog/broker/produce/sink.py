"""Brokers as a sink: tasks produce, at least once like Spark's own sink, and the commit reports.

See :class:`pyspark_kafkalog.model.sinks.Sink`. It imports late, as many short-lived processes make one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.garbage import loading
from pyspark_kafkalog.model import (
    EncodeSettings,
    Plan,
    QueryBatch,
    TaskAttempt,
    TopicPartition,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions, ProduceOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.produce.producer import Producer
    from pyspark_kafkalog.broker.produce.state import PartitionResult
    from pyspark_kafkalog.model.listening import WriteListener

    Finished = Mapping[TopicPartition, PartitionResult]

_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class BrokerSink:
    """Writes at least once: what a task has produced stays, whatever happens to its batch."""

    needs_commit = False

    connection: ConnectionOptions
    produce: ProduceOptions
    encode: EncodeSettings

    def open(
        self, batch: QueryBatch, attempt: TaskAttempt, listener: WriteListener | None = None
    ) -> Producer:
        """See :meth:`pyspark_kafkalog.model.sinks.Sink.open`."""
        with loading():
            from pyspark_kafkalog.broker.cluster.cluster import cluster_of
            from pyspark_kafkalog.broker.cluster.pool import note_reached
            from pyspark_kafkalog.broker.produce.producer import Producer

        if batch.batch_id:  # earlier micro-batches were written
            note_reached(self.connection)
        return Producer(cluster_of(self.connection), self.produce, self.encode, listener=listener)

    def commit(
        self,
        batch: QueryBatch,
        finished: Sequence[Finished],
        plan: Plan,
        listener: WriteListener | None = None,
    ) -> bool:
        """Log what was written."""
        by_topic: defaultdict[str, list[tuple[int, PartitionResult]]] = defaultdict(list)
        for results in finished:
            for (topic, partition), result in results.items():
                by_topic[topic].append((partition, result))
        for topic, written in sorted(by_topic.items()):
            _log.info(
                "%s wrote %d records in %d record batches to %d partitions of topic %s",
                batch,
                sum(result.records for _, result in written),
                sum(result.batches for _, result in written),
                len({partition for partition, _ in written}),
                topic,
            )
        return True

    def abort(self, batch: QueryBatch, finished: Sequence[Finished]) -> None:
        """Do nothing: produced records cannot be withdrawn."""
