"""Translation of a query's offsets to those of another cluster, for a move of its checkpoint.

There are several: the map of a restore knows each record, and others only some offsets. A translation never
gives an offset past a record that the query has not processed: what it does not know, it says, or it goes
back to an earlier record, which the query then reads again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets

EXACT, EARLIER, UNKNOWN = "exact", "earlier", "unknown"
"""The exactness of a translation: the next record there is the one that follows here; some
records before it may come again; nothing tells where it is.
"""


class Translated(NamedTuple):
    """The partition of the other cluster, and its next offset to read; None if that is ``UNKNOWN``.

    ``exactness`` is one of ``EXACT``, ``EARLIER`` and ``UNKNOWN``. ``repeated`` is a bound of how many
    records come again, None if there is none. ``note`` says why it is not exact.
    """

    partition: TopicPartition
    offset: int | None
    exactness: str
    repeated: int | None = None
    note: str = ""


class Translation(Protocol):
    """A translation of offsets from one cluster, or directory, to another."""

    def check_source(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """See that the offsets are of the topics that the translation is from.

        :param topic_ids: of the topics that the query has read, as far as its checkpoint has them.
        :return: the topics of which that is proven; of others one of both has no id.
        :raises KafkaLogError: if they are others.
        """

    def check_target(self, cluster_id: str | None, topic_ids: Mapping[str, str]) -> None:
        """See that the place of the move is the one that the translation is for.

        :param cluster_id: of the place; None for a directory, and for a cluster without one.
        :param topic_ids: of the topics there that :meth:`translate` has named.
        :raises KafkaLogError: if it is another.
        """

    def translate(self, offsets: Offsets) -> Mapping[TopicPartition, Translated]:
        """The translation of the next offset to read of each partition: all of them at once.

        A partition of which the translation knows nothing is ``UNKNOWN``, under the name that it has.

        :raises KafkaLogError: if what the translation is made of can't be read.
        """
