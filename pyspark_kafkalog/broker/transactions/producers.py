"""What a query keeps of its producers, beside its intent and apart from it: two drivers may write at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark_kafkalog.broker.transactions.intent import store_json, stored_json
from pyspark_kafkalog.broker.transactions.marker import RowsOf
from pyspark_kafkalog.filesystem.folder import Folder

_FILE = "producers.json"
_MOST_IDS = 20


@dataclass(frozen=True, slots=True)
class Producers:
    """``ids`` are the producer ids that the query has had, the newest last.

    ``skipped`` is of the marker that has let a run skip its batch last.
    """

    ids: tuple[int, ...] = ()
    skipped: RowsOf | None = None

    def with_id(self, producer_id: int) -> Producers:
        """With one more, if it is not known; the oldest is forgotten if there are too many."""
        if producer_id in self.ids:
            return self
        return replace(self, ids=(*self.ids, producer_id)[-_MOST_IDS:])


def stored_producers(folder: Folder) -> Producers:
    """What is in a query's folder.

    :raises TransactionError: if it can't be read or parsed.
    """
    return stored_json(folder, _FILE, _parse) or Producers()


def store_producers(folder: Folder, producers: Producers) -> None:
    """Store it, before a producer with a new id writes.

    :raises TransactionError: if it can't be written.
    """
    store_json(folder, _FILE, producers)


def _parse(found: Any) -> Producers:
    skipped = found["skipped"]
    ids = tuple(map(int, found["ids"]))
    return Producers(ids, None if skipped is None else RowsOf(*map(int, skipped)))
