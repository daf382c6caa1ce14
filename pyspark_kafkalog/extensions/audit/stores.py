"""The store of an audit: an entry for each share of the work, replaced when the share is run again.

An entry has the name ``<side>/<query>/<batch>/<share>``, and its counts as lines of JSON. An entry
``committed`` beside the others of a batch says that the batch is complete, and how many shares it had. In a
folder entries are files, and in a topic they are records, of which the last one with a name stands. So both
say the same, whatever was killed when.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import quote

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.extensions.audit.auditor import AuditedTask
from pyspark_kafkalog.filesystem.locate import locate

COMMITTED = "committed"
_SUFFIX = ".jsonl"


class Name(NamedTuple):
    """The name of an entry: the batch, as ``<side>/<query>/<batch>``, and the share."""

    batch: str
    share: str

    def __str__(self) -> str:
        return f"{self.batch}/{self.share}"


class Entries(Protocol):
    """The entries of an audit, to read."""

    def names(self) -> list[Name]:
        """The names of all that there are."""

    def read(self, name: Name) -> bytes | None:
        """The content of an entry; None if it is gone."""


class Store(Protocol):
    """A place where entries are stored. Sent to the tasks, so it opens nothing by itself."""

    def check(self) -> None:
        """Look, before any work, whether it can be there.

        :raises KafkaLogError: if not.
        """

    def put(self, name: Name, data: bytes) -> None:
        """Store an entry, in place of one with the same name.

        :raises KafkaLogError: if it can't be stored.
        """


def batch_name(task: AuditedTask) -> str:
    """The name of a task's batch."""
    return f"{task.side}/{quote(task.query, safe='')}/{'batch' if task.batch is None else task.batch}"


def mark_committed(store: Store, task: AuditedTask, shares: int) -> None:
    """Note that the batch of a task is complete, and how many numbered shares it had.

    :raises KafkaLogError: if it can't be stored.
    """
    store.put(Name(batch_name(task), COMMITTED), str(shares).encode())


def read_entries(entries: Entries) -> Iterator[tuple[bytes, bool]]:
    """The content of each entry with counts, and whether its batch is marked as complete.

    Left out are shares of an earlier run that divided the work into more shares.
    """
    names = sorted(entries.names())
    shares = {name.batch: int(entries.read(name) or 0) for name in names if name.share == COMMITTED}
    for name in names:
        if name.share == COMMITTED:
            continue
        number = name.share.partition(".")[0]
        if name.batch in shares and number.isdigit() and int(number) >= shares[name.batch]:
            continue
        data = entries.read(name)
        if data is not None:
            yield data, name.batch in shares


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A folder (path or URI), with a file for each entry. Not shown, as a URI may hold a secret.

    :param batch: a batch to which it is narrowed, by name; empty for all.
    """

    location: str = field(repr=False)
    batch: str = ""

    def check(self) -> None:
        """See :meth:`Store.check`; a folder is made with its first file."""

    def put(self, name: Name, data: bytes) -> None:
        """See :meth:`Store.put`; each file is replaced as a whole."""
        file = _file_of(name)
        folder = locate(self.location).child(name.batch)
        try:
            folder.replace(file, data)
        except OSError as e:
            raise LogDirectoryError(
                f"Cannot write the audit: {os.strerror(e.errno) if e.errno else e}",
                file=folder.label(file),
                hint="Set auditLocation to a folder that all workers can write to.",
            ) from None

    def names(self) -> list[Name]:
        """See :meth:`Entries.names`."""
        top, narrowed = locate(self.location), f"{self.batch}/" if self.batch else ""
        found = (top.child(self.batch) if self.batch else top).replaced_files()
        names = []
        for path in found:
            batch, _, file = f"{narrowed}{path}".rpartition("/")
            if file == COMMITTED or file.endswith(_SUFFIX):
                names.append(Name(batch, file.removesuffix(_SUFFIX)))
        return names

    def read(self, name: Name) -> bytes | None:
        """See :meth:`Entries.read`."""
        return locate(self.location).child(name.batch).read_replaced(_file_of(name))


def _file_of(name: Name) -> str:
    return name.share if name.share == COMMITTED else name.share + _SUFFIX
