"""Refuses a stream that writes to a topic that it reads: each row would come back, and make new ones."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.options.settings import PlaceOptions, WriteOptions
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.spark.running_query import RunningQuery

if TYPE_CHECKING:
    from pyspark_kafkalog.stream.source_state import TopicsRead

_log = logging.getLogger("pyspark_kafkalog")

_SECONDS = 60
"""The longest time until a topic counts that the query has begun to read."""
_known: dict[str, _Known] = {}
"""Topics of a query, by the id of its run."""


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
        run = self._query.run_id or self._query.query_id
        for old in [key for key, each in _known.items() if time.monotonic() - each.since > _SECONDS]:
            del _known[old]
        known = _known.get(run)
        if known is None:
            known = _known[run] = _Known(self._options, self._query)
        if topic in known.names and topic in known.own:
            raise OptionError(
                f"The query reads topic {topic}, and writes to it: it would read its own rows for ever",
                hint="Write to another topic. If the rows that come back are few, as in a retry that ends,"
                " write them in foreachBatch.",
            )


class _Known:
    """Topics that a task has found in the checkpoint, for the other tasks of its process."""

    def __init__(self, options: WriteOptions, query: RunningQuery) -> None:
        self.since = time.monotonic()
        self._options = options
        self._topics: TopicsRead | None = None
        location = options.checkpoint_location or query.default_checkpoint
        if location is None:
            return
        from pyspark_kafkalog.stream.source_state import TopicsRead

        with _told():
            self._topics = TopicsRead(location, query.default_fs, query.query_id)

    @property
    def names(self) -> set[str]:
        """The topics that the query reads in any place."""
        return set() if self._topics is None else self._topics.names

    @cached_property
    def own(self) -> set[str]:
        """The topics that it reads where it writes. This asks for the place, a cluster's id for example."""
        assert self._topics is not None, "it has names"
        options = self._options
        paths = (options.root,) if options.brokers is None else ()
        with _told():
            return self._topics.of_place(identity(PlaceOptions(paths, options.brokers))[1])
        return set()


@contextmanager
def _told() -> Iterator[None]:
    """Have errors say only that it is not known what the query reads."""
    try:
        yield
    except (KafkaLogError, OSError) as e:
        _log.info("Whether the query reads what it writes is not known: %s", e)
