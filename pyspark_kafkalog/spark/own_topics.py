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
"""The longest time until a topic counts that the query has begun to read."""
_asked: dict[tuple[str, str], tuple[float, bool]] = {}
"""Whether a run of a query reads a topic where it writes, and when a task of this process has asked."""


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
        asked = self._query.run_id or self._query.query_id, topic
        when, is_read = _asked.get(asked, (float("-inf"), False))
        if time.monotonic() - when > _SECONDS:
            is_read = self._reads(topic)
            _asked[asked] = time.monotonic(), is_read
        if is_read:
            raise OptionError(
                f"The query reads topic {topic}, and writes to it: it would read its own rows for ever",
                hint="Write to another topic. If the rows that come back are few, as in a retry that ends,"
                " write them in foreachBatch.",
            )

    def _reads(self, topic: str) -> bool:
        options, query = self._options, self._query
        location = options.checkpoint_location or query.default_checkpoint
        if location is None:
            return False
        from pyspark_kafkalog.stream.source_state import reads_topic

        try:
            return reads_topic(topic, location, query.default_fs, query.query_id, self._place)
        except (KafkaLogError, OSError) as e:
            _log.info("Whether the query reads what it writes is not known: %s", e)
            return False

    def _place(self) -> str:
        options = self._options
        paths = (options.root,) if options.brokers is None else ()
        return identity(PlaceOptions(paths, options.brokers))[1]
