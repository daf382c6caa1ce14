"""Refuses a stream that writes to a topic that it reads: each row would come back, and make new ones."""

from __future__ import annotations

import logging
import time

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.options.settings import PlaceOptions, WriteOptions
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.spark.running_query import RunningQuery

_log = logging.getLogger("pyspark_kafkalog")

_SECONDS = 60
"""The longest time until a topic counts that the query has read since."""
_read: dict[str, tuple[float, set[str]]] = {}
"""The topics that a run of a query reads where it writes, and when a task of this process has looked."""


class OwnTopics:
    """The topics that a query reads in the place that it writes to.

    Only a reader that has the checkpoint stores its place there, so without it nothing is known.
    """

    def __init__(self, options: WriteOptions, query: RunningQuery) -> None:
        self._options, self._query = options, query

    def check(self, topic: str) -> None:
        """Refuse an internal topic, and one that the query reads.

        :raises OptionError: for such a topic.
        """
        check_writable(topic)
        if topic in self._found():
            raise OptionError(
                f"The query reads topic {topic}, and writes to it: it would read its own rows for ever",
                hint="Write to another topic. If the rows that come back are few, as in a retry that ends,"
                " write them in foreachBatch.",
            )

    def _found(self) -> set[str]:
        run = self._query.run_id or self._query.query_id
        looked, found = _read.get(run, (float("-inf"), set()))
        if time.monotonic() - looked > _SECONDS:
            found = self._look()
            _read[run] = time.monotonic(), found
        return found

    def _look(self) -> set[str]:
        options, query = self._options, self._query
        location = options.checkpoint_location or query.default_checkpoint
        if location is None:
            return set()
        from pyspark_kafkalog.stream.source_state import topics_read

        place = PlaceOptions((options.root,) if options.brokers is None else (), options.brokers)
        try:
            return topics_read(location, query.default_fs, query.query_id, identity(place)[1])
        except (KafkaLogError, OSError) as e:
            _log.info("Whether the query reads what it writes is not known: %s", e)
            return set()
