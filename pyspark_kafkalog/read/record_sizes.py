"""The sizes of records: advice for planning, so a place is asked seldom, and may fail to answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import Place, TopicPartition

_log = logging.getLogger("pyspark_kafkalog")

_SECONDS = 60.0
"""The time for which an answer counts."""


class RecordSizes:
    """The mean record bytes of a place, for :func:`.splits.join_small`: unknown where it has no answer."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._known: dict[TopicPartition, float | None] = {}
        self._since = 0.0

    def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """The mean record bytes of the ``partitions`` of which the place knows them."""
        if self._clock() - self._since > _SECONDS:
            self._known, self._since = {}, self._clock()
        if unknown := [partition for partition in partitions if partition not in self._known]:
            self._known |= dict.fromkeys(unknown)
            try:
                self._known |= self._place.mean_record_bytes(unknown)
            except KafkaLogError as e:
                _log.info("Planning without the sizes of records: %s", e)
        return {p: mean for p in partitions if (mean := self._known[p]) is not None}
