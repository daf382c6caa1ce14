"""The record of a query in a sink of this package: its last micro-batch there, and how that was planned.

A sink refuses a micro-batch whose history is not the one that it knows: of a checkpoint that was set back.
So a change of a checkpoint tells the sink the new digest of the same micro-batch, if it knew the old one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.extensions.exactly_once.marker import Marker, transactional_id
from pyspark_kafkalog.extensions.exactly_once.replanning import Replanning
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.journal_file import Ledger
from pyspark_kafkalog.log.lock import PATIENCE_SECONDS, directory_lock
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.places import open_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark_kafkalog.client.kafka import Kafka

_LOCK_SECONDS = 10
Digests = Mapping[int, tuple[Set[str], str]]
"""The digests that the plan of each micro-batch has had, and the new one."""


class SinkHistory(Protocol):
    """The record of a query in its sink."""

    def look(self, digests: Digests) -> str:
        """Say in a sentence what :meth:`store` would do; nothing is changed.

        :raises KafkaLogError: as :meth:`check` does.
        """

    def check(self, digests: Digests) -> int:
        """See that the sink knows the query as the checkpoint has it; the micro-batch that it has last.

        :raises KafkaLogError: if it does not.
        """

    def store(self, digests: Digests) -> None:
        """Store the new digest of the micro-batch that the sink has last.

        :raises KafkaLogError: if that is not one of these, or can't be written.
        """

    def text(self) -> str | None:
        """The text of what the sink knows now, to be kept; None if it knows nothing."""


def open_sink_history(kafka: Kafka, query_id: str, location: str) -> SinkHistory:
    """The record of a query in a place that it writes to exactly once.

    :param location: of its checkpoint.
    :raises OptionError: for several directories.
    """
    options = kafka.place_options
    if options.brokers is not None:
        from pyspark_kafkalog.broker.cluster.cluster import cluster_of

        return MarkerHistory(
            open_groups(options), Replanning(cluster_of(options.brokers), query_id, location)
        )
    if len(options.paths) != 1:
        raise OptionError("Expected one directory as the sink, got several", hint="A query writes to one.")
    return LedgerHistory(open_folder(options.paths[0]).path, query_id)


@dataclass(frozen=True)
class LedgerHistory:
    """The ledger of a query in a log directory."""

    root: str
    query_id: str

    @property
    def _name(self) -> str:
        return journal.ledger_file(self.query_id)

    def look(self, digests: Digests) -> str:
        """See :meth:`SinkHistory.look`."""
        ledger, where = self._ledger(), os.path.join(self.root, self._name)
        new = _new_digest(ledger.batch_id, ledger.plan, digests, where)
        return _what_is_told(where, ledger.batch_id, is_new=new != ledger.plan)

    def check(self, digests: Digests) -> int:
        """See :meth:`SinkHistory.check`."""
        ledger = self._ledger()
        _new_digest(ledger.batch_id, ledger.plan, digests, os.path.join(self.root, self._name))
        return ledger.batch_id

    def store(self, digests: Digests) -> None:
        """See :meth:`SinkHistory.store`."""
        with self._locked():
            ledger = self._ledger()
            new = _new_digest(ledger.batch_id, ledger.plan, digests, os.path.join(self.root, self._name))
            if new != ledger.plan:
                journal.put(self.root, self._name, ledger._replace(plan=new).text())

    def text(self) -> str | None:
        """See :meth:`SinkHistory.text`."""
        return self._ledger().text()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with directory_lock(self.root, _LOCK_SECONDS, patience=PATIENCE_SECONDS):
            journal.recover(self.root)
            yield

    def _ledger(self) -> Ledger:
        path = os.path.join(self.root, self._name)
        ledger = journal.read_ledger(path)
        if ledger is None or ledger.query_id != self.query_id:
            raise _unknown(self.query_id, path)
        return ledger


@dataclass(frozen=True)
class MarkerHistory:
    """The marker of a query in a cluster."""

    groups: GroupOffsets
    replanning: Replanning

    @property
    def _group(self) -> str:
        return transactional_id(self.replanning.query_id)

    def look(self, digests: Digests) -> str:
        """See :meth:`SinkHistory.look`. A transaction that is not over stays so."""
        marker, is_open = self.replanning.look()
        if is_open:
            return f"A transaction of the query is open in the sink: it is ended first ({self._label})."
        if marker is None:
            raise _unknown(self.replanning.query_id, self._label)
        new = _new_digest(marker.batch_id, marker.plan, digests, self._label)
        return _what_is_told(self._label, marker.batch_id, is_new=new != marker.plan)

    def check(self, digests: Digests) -> int:
        """See :meth:`SinkHistory.check`. It fences the query's driver."""
        marker, _ = self._marker(digests)
        return marker.batch_id

    def store(self, digests: Digests) -> None:
        """See :meth:`SinkHistory.store`."""
        marker, new = self._marker(digests)
        if new != marker.plan:
            self.replanning.store(marker, new)

    def text(self) -> str | None:
        """See :meth:`SinkHistory.text`."""
        found = self.groups.committed(self._group)
        return (
            "\n".join(f"{cell} {offset.offset} {offset.metadata}" for cell, offset in found.items()) or None
        )

    @property
    def _label(self) -> str:
        return f"group {self._group}"

    def _marker(self, digests: Digests) -> tuple[Marker, str]:
        """The marker, which no running driver can replace any more, and the digest that it is to have."""
        marker = self.replanning.take_over(max(digests))
        if marker is None:
            raise _unknown(self.replanning.query_id, self._label)
        return marker, _new_digest(marker.batch_id, marker.plan, digests, self._label)


def _what_is_told(where: str, batch: int, *, is_new: bool) -> str:
    told = "is told its new plan" if is_new else "knows its plan already"
    return f"The sink has micro-batch {batch} of the query last, and {told} ({where})."


def _new_digest(batch: int, plan: str, digests: Digests, where: str) -> str:
    """The digest that a sink should have for the micro-batch that it has last.

    :raises KafkaLogError: if it is of another history.
    """
    if batch not in digests:
        raise KafkaLogError(
            f"The sink has micro-batch {batch} of the query last, and the checkpoint goes on from"
            f" {max(digests)}",
            file=where,
            hint="One of them is older than the other: neither is changed.",
        )
    known, new = digests[batch]
    if plan and plan not in known:
        raise KafkaLogError(
            f"The sink has micro-batch {batch} with other offsets of its sources than the checkpoint",
            file=where,
            hint="The checkpoint was copied or set back otherwise: neither is changed.",
        )
    return new


def _unknown(query_id: str, where: str) -> KafkaLogError:
    return KafkaLogError(
        f"The sink knows nothing of query {query_id}",
        file=where,
        hint="Leave out --with-sink if the query does not write there exactly once.",
    )
