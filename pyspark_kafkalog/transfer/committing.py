"""What a streaming query has finished, committed to its consumer group, so that every lag tool sees it.

Spark's checkpoint decides where a query goes on; the group only tells others. So
a commit comes after the micro-batch that it tells of, never before, and one that
fails is made up for by the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import CommittedOffset, GroupOffsets
from pyspark_kafkalog.options.offsets_json import Offsets

TIMEOUT = 2.0
"""Seconds that a commit may hold up a query."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds without another attempt after one that failed, doubled with each that fails."""
METADATA = "pyspark-kafkalog"
"""What lag tools show beside our commits."""

_log = logging.getLogger("pyspark_kafkalog")


class OffsetCommitter:
    """Commits for one query what is news to its group.

    :param groups: opens the place's groups; asked anew for each commit.
    :param required: raise where a commit fails, instead of a warning and another attempt later.
    :param clock: seconds that only grow.
    """

    def __init__(
        self,
        groups: Callable[[], GroupOffsets],
        group: str,
        *,
        required: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._groups = groups
        self._group = group
        self._required = required
        self._clock = clock
        self._committed: Offsets = {}
        self._pause = 0.0
        self._not_before = float("-inf")

    def finished(self, offsets: Offsets) -> None:
        """Commit those of ``offsets`` that have changed, all of which the query has processed.

        :raises KafkaLogError: if it fails and is required.
        """
        news = {
            partition: CommittedOffset(offset, metadata=METADATA)
            for partition, offset in offsets.items()
            if self._committed.get(partition) != offset
        }
        if not news or self._clock() < self._not_before:
            return
        try:
            self._groups().commit(self._group, news)
        except Exception as e:
            # Whatever it is, a query that reads on is worth more than its lag.
            if self._required:
                raise
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
            self._not_before = self._clock() + self._pause
            trouble = e if isinstance(e, KafkaLogError) else repr(e)
            _log.warning(
                "What group %s has read is not committed, next attempt in %.0f s: %s",
                self._group,
                self._pause,
                trouble,
            )
            return
        self._committed.update(offsets)
        self._pause = 0.0
