"""The ids of the topics that a stream has read, by which it notices that one was recreated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.stream.data_loss import find_recreated


class TopicIds:
    """The ids of the topics whose offsets a query goes on from.

    :param known: the ids of the topics whose offsets an earlier run left, if known.
    :param store: called with these ids when they change: when everything read before has been processed, with
        None; and before that, when a micro-batch is planned, with those that count until it is complete.
    """

    def __init__(
        self, known: Mapping[str, str], store: Callable[[Mapping[str, str], Mapping[str, str] | None], None]
    ) -> None:
        self.known = dict(known)
        self._store = store
        self._proven = set(self.known)
        """The topics whose offsets certainly belong to these ids: this run or an earlier one saw both."""

    def prove(self, topic_ids: Mapping[str, str]) -> None:
        """Take these ids for those of offsets that this run has looked up."""
        self._proven |= {topic for topic, topic_id in topic_ids.items() if topic_id}

    def is_proven(self, topic: str) -> bool:
        """Whether the known offsets of a topic certainly belong to its known id."""
        return topic in self._proven

    def remember(self, topic_ids: Mapping[str, str], offsets: Offsets) -> None:
        """Remember the known ids of the topics in ``offsets``, from which the query continues."""
        known = _of_topics(topic_ids, offsets)
        if known != self.known:
            self.known = known
            self._store(known, None)

    def announce(self, topic_ids: Mapping[str, str], end: Offsets) -> None:
        """Have the topic ids stored that count once the planned micro-batch is complete.

        The run may end before it hears of that, and then the next one continues from ``end``.
        """
        planned = _of_topics(topic_ids, end)
        if not planned.items() <= self.known.items():
            self._store({**self.known, **planned}, self.known)

    def recreated(self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]) -> set[str]:
        """The topics of these partitions whose known id is not the one that they have now."""
        return find_recreated(topics_of(partitions), self.known, topic_ids)


def topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    """The topics of these partitions."""
    return {partition.topic for partition in partitions}


def _of_topics(topic_ids: Mapping[str, str], offsets: Offsets) -> dict[str, str]:
    topics = topics_of(offsets)
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id and topic in topics}
