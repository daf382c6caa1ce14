"""The files of a query about its writes, beside its checkpoint: its intent, and its producers.

The intent is stored before a run begins: that the query writes here, and which batch it has tried. Without
it, a first batch looks like one whose marker the cluster lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_kafkalog.errors import UNREADABLE, TransactionError
from pyspark_kafkalog.filesystem.folder import Folder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Content = TypeVar("_Content")
_INTENT = "intent.json"
_PRODUCERS = "producers.json"
"""Apart from the intent: two drivers may write at once."""
_MOST_IDS = 20


class RowsOf(NamedTuple):
    """The producer whose rows a transaction has, and their epoch."""

    producer_id: int
    epoch: int


class Settling(NamedTuple):
    """The entry for a transaction with the epoch ``by`` that writes the markers of one with ``epoch``.

    Until it has ``started``, an abort of it can reach the marker of the query, but no rows and no other
    group.
    """

    producer_id: int
    epoch: int
    by: int
    started: bool = True


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent of a query to write to a cluster, exactly once.

    ``topic`` has the marker; it is empty as long as no row said one. ``batch`` was tried first, or by a job
    last, at ``since_ms`` by this machine's clock. ``confirmed`` says that one is known to be committed.
    ``settling`` has the committed transactions whose markers are being written, ``carried_out`` the last one
    of which that is done.
    """

    query_id: str
    cluster_id: str | None
    topic: str
    batch: int
    since_ms: int
    confirmed: bool = False
    settling: tuple[Settling, ...] = ()
    carried_out: tuple[Settling, ...] = ()

    def with_settling(
        self,
        *,
        new: Settling | None = None,
        over: Collection[Settling] = (),
        carried_out: Settling | None = None,
    ) -> Intent:
        """The intent with a new settling, and without those that are over; one that has started stays so."""
        settling = [each for each in self.settling if each not in over]
        if new is not None:
            same = [each for each in settling if each[:3] == new[:3]]
            settling = [*(each for each in settling if each not in same), max([new, *same])]
        done = self.carried_out if carried_out is None else (carried_out,)
        return replace(self, settling=tuple(settling), carried_out=done)


_INTENT_TYPES: dict[str, tuple[type, ...]] = {
    "query_id": (str,),
    "cluster_id": (str, type(None)),
    "topic": (str,),
    "batch": (int,),
    "since_ms": (int,),
    "confirmed": (bool,),
}


def stored_intent(folder: Folder) -> Intent | None:
    """The intent in a query's folder; None if there is none.

    :raises TransactionError: if it can't be read or parsed.
    """
    return stored_json(folder, _INTENT, _intent)


def _intent(found: Any) -> Intent:
    if not all(isinstance(found[name], kinds) for name, kinds in _INTENT_TYPES.items()):
        raise TypeError
    settling, carried_out = (tuple(map(_settling, found.pop(name))) for name in ("settling", "carried_out"))
    return Intent(**found, settling=settling, carried_out=carried_out)


def _settling(found: Any) -> Settling:
    producer_id, epoch, by, started = map(int, found)
    return Settling(producer_id, epoch, by, bool(started))


def store_intent(folder: Folder, intent: Intent) -> None:
    """Store the intent, before the first transaction begins.

    :raises TransactionError: if it can't be written.
    """
    store_json(folder, _INTENT, intent)


def stored_json(folder: Folder, name: str, parse: Callable[[Any], _Content]) -> _Content | None:
    """The content of a file in a query's folder, parsed; None if there is no file.

    :raises TransactionError: if it can't be read or parsed.
    """
    try:
        data = folder.read_replaced(name)
        return None if data is None else parse(json.loads(data))
    except OSError as e:
        raise _cannot("read", folder, name, e) from None
    except UNREADABLE:
        raise TransactionError(
            "What the query keeps about its writes is corrupt",
            file=folder.label(name),
            hint="Stop all runs of the query, then delete the file.",
        ) from None


def store_json(folder: Folder, name: str, content: DataclassInstance) -> None:
    """Replace a file in a query's folder, and flush it.

    :raises TransactionError: if it can't be written.
    """
    try:
        folder.replace(name, json.dumps(asdict(content)).encode(), flush=True)
    except OSError as e:
        raise _cannot("store", folder, name, e) from None


def _cannot(do: str, folder: Folder, name: str, error: OSError) -> TransactionError:
    return TransactionError(
        f"Could not {do} what the query keeps about its writes: {error}",
        file=folder.label(name),
        hint="Let the user that runs Spark's driver read and write the checkpoint, or the stagingLocation.",
    )


@dataclass(frozen=True, slots=True)
class Producers:
    """``ids`` are the producer ids that the query has had, the one of the last rows last.

    ``skipped`` is of the marker by which a run has found last that its batch is there.
    """

    ids: tuple[int, ...] = ()
    skipped: RowsOf | None = None

    def with_id(self, producer_id: int) -> Producers:
        """The producers with this one as the newest; the oldest is dropped if there are too many."""
        others = (each for each in self.ids if each != producer_id)
        return replace(self, ids=(*others, producer_id)[-_MOST_IDS:])

    def is_before(self, rows: RowsOf, others: RowsOf) -> bool:
        """Whether the query has written ``rows`` before others, as far as ids and epochs tell."""
        if rows.producer_id == others.producer_id:
            return rows.epoch < others.epoch
        known = [each for each in self.ids if each in (rows.producer_id, others.producer_id)]
        return known == [rows.producer_id, others.producer_id]


def stored_producers(folder: Folder) -> Producers:
    """The content of a query's folder.

    :raises TransactionError: if it can't be read or parsed.
    """
    return stored_json(folder, _PRODUCERS, _producers) or Producers()


def store_producers(folder: Folder, producers: Producers) -> None:
    """Store it, before a producer with a new id writes.

    :raises TransactionError: if it can't be written.
    """
    store_json(folder, _PRODUCERS, producers)


def _producers(found: Any) -> Producers:
    skipped = found["skipped"]
    ids = tuple(map(int, found["ids"]))
    return Producers(ids, None if skipped is None else RowsOf(*map(int, skipped)))
