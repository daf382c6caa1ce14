"""The partitions that a stream subscribes to, as topics come and go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.read.partitions import look_up_partitions, with_topic_ids


@dataclass(frozen=True, slots=True)
class Assignment:
    """Partitions, sorted, and the ids of their topics (empty where unknown)."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, str]

    def only(self, partitions: Collection[TopicPartition]) -> Assignment:
        """The assignment of those that are among ``partitions``."""
        chosen = tuple(partition for partition in self.partitions if partition in partitions)
        topics = {partition.topic for partition in chosen}
        return Assignment(chosen, {topic: each for topic, each in self.topic_ids.items() if topic in topics})


class Subscription:
    """The partitions that a selection covers, as topics come and go.

    :param max_age: seconds for which an answer is kept, so that a cluster need not list its topics
        each time a stream asks for new records.
    """

    def __init__(
        self, place: Place, selection: Selection, *, max_age: float, clock: Callable[[], float]
    ) -> None:
        self._place = place
        self._selection = selection
        self._max_age = max_age
        self._clock = clock
        self._known: Assignment | None = None
        self._looked_up = 0.0

    def forget(self) -> None:
        """Look topics up again at the next call, because the known ones were wrong."""
        self._known = None

    def assignment(self) -> Assignment:
        """The existing partitions; named ones that no longer exist are left out."""
        now = self._clock()
        if self._known is None or now - self._looked_up >= self._max_age:
            partitions = look_up_partitions(self._place, self._selection, must_exist=False)
            partitions, topic_ids = with_topic_ids(self._place, partitions)
            found = Assignment(partitions, topic_ids)
            if found != self._known:  # an equal assignment stays the same object, which is quick to compare
                self._known = found
            self._looked_up = now
        return self._known
