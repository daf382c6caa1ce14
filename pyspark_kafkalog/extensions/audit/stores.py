"""The store of an audit: an entry for each share of the work, replaced when the share is run again.

An entry has the name ``<side>/<query>/<batch>/<share>``, and its counts as lines of JSON. An entry
``committed`` beside the others of a batch says that the batch is complete. It has how many shares there were;
or, if they awaited a commit, their counts: the shares of a later run, of which nothing became visible, change
nothing then. In a folder entries are files, and in a topic they are records, of which the last one with a
name stands. So both say the same, whatever was killed when.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple, Protocol
from urllib.parse import quote

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.extensions.audit.auditor import CONSUMER, PRODUCER, AuditedTask
from pyspark_kafkalog.filesystem.locate import locate

COMMITTED = "committed"
_SUFFIX = ".jsonl"
_FILE = re.compile(rf"(?:{PRODUCER}|{CONSUMER})/[^/]+/[^/]+/(?:{COMMITTED}|[^/]+{re.escape(_SUFFIX)})")


class Name(NamedTuple):
    """The name of an entry: the batch, as ``<side>/<query>/<batch>``, and the share."""

    batch: str
    share: str

    def __str__(self) -> str:
        return f"{self.batch}/{self.share}"


def names_in(texts: Iterable[str]) -> list[Name]:
    """The names of entries among these texts: metrics of writes, for one, may be in the same folder."""
    split = (text.split("/") for text in texts)
    return [
        Name("/".join(parts[:3]), parts[3])
        for parts in split
        if len(parts) == 4 and parts[0] in (PRODUCER, CONSUMER)
    ]


class Entries(Protocol):
    """The entries of an audit, to read."""

    def names(self) -> list[Name]:
        """The names of all that there are."""

    def read(self, name: Name) -> bytes | None:
        """The content of an entry; None if it is gone."""


class Store(Protocol):
    """A place where entries are stored. Sent to the tasks, so it opens nothing by itself."""

    def check(self, batch: str) -> None:
        """Look, before any work, whether entries of a batch can be stored there.

        :raises KafkaLogError: if not.
        """

    def put(self, name: Name, data: bytes) -> None:
        """Store an entry, in place of one with the same name.

        :raises KafkaLogError: if it can't be stored.
        """

    def has(self, name: Name) -> bool:
        """Whether there is an entry with this name.

        :raises KafkaLogError: if nothing tells.
        """


def batch_name(task: AuditedTask) -> str:
    """The name of a task's batch."""
    return f"{task.side}/{quote(task.query, safe='')}/{'batch' if task.batch is None else task.batch}"


def mark_committed(store: Store, task: AuditedTask, counts: int | bytes, *, once: bool = False) -> None:
    """Note that the batch of a task is complete.

    :param counts: what counts of it: this many numbered shares, or these lines.
    :param once: whether an older note stands.
    :raises KafkaLogError: if it can't be stored.
    """
    name = Name(batch_name(task), COMMITTED)
    if not (once and store.has(name)):
        store.put(name, counts if isinstance(counts, bytes) else str(counts).encode())


def read_entries(entries: Entries) -> Iterator[tuple[bytes, bool]]:
    """The content of each entry with counts, and whether its batch is marked as complete.

    Left out are shares of an earlier run that divided the work otherwise, and all those of a batch whose
    counts are in its mark.
    """
    names = sorted(_once_read(entries.names()))
    marks = {name.batch: entries.read(name) or b"0" for name in names if name.share == COMMITTED}
    for name in names:
        mark = marks.get(name.batch)
        data = mark if name.share == COMMITTED else entries.read(name)
        if data is not None and _counts(name.share, mark):
            yield data, mark is not None


_RANGE = re.compile(r"(.+)\.([0-9]+)-([0-9]+)")
"""The share of a reader: the partition, and a range of offsets."""


def _once_read(names: Iterable[Name]) -> Iterator[Name]:
    """The names without ranges of offsets that overlap others of their batch: most offsets are left."""
    ranges: defaultdict[tuple[str, str], list[tuple[int, int, Name]]] = defaultdict(list)
    for name in names:
        found = _RANGE.fullmatch(name.share)
        if found is None:
            yield name
        else:
            ranges[name.batch, found[1]].append((int(found[3]), int(found[2]), name))
    for of_partition in ranges.values():
        yield from _apart(sorted(of_partition))


def _apart(ranges: Sequence[tuple[int, int, Name]]) -> Iterator[Name]:
    """The ranges with most offsets that don't overlap, of some given by end and start, in order."""
    most = [0]
    """The most offsets of the first ranges, for each number of them."""
    before = [
        bisect_right(ranges, start, hi=row, key=itemgetter(0)) for row, (_, start, _) in enumerate(ranges)
    ]
    for (end, start, _), count in zip(ranges, before, strict=True):
        most.append(max(most[-1], most[count] + end - start))
    left = len(ranges)
    while left:
        if most[left] > most[left - 1]:
            yield ranges[left - 1][2]
            left = before[left - 1]
        else:
            left -= 1


def _counts(share: str, mark: bytes | None) -> bool:
    """Whether an entry has counts that stand beside the mark of its batch."""
    if mark is None:
        return True
    if not mark.isdigit():
        return not share.isdigit()
    number = share.partition(".")[0]
    return share != COMMITTED and not (number.isdigit() and int(number) >= int(mark))


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A folder (path or URI), with a file for each entry. Not shown, as a URI may hold a secret.

    :param batch: a batch to which it is narrowed, by name; empty for all.
    """

    location: str = field(repr=False)
    batch: str = ""

    def check(self, batch: str) -> None:
        """See :meth:`Store.check`; the folder of the batch is made."""
        folder = locate(self.location).child(batch)
        with _writing(folder.label()):
            folder.make()

    def put(self, name: Name, data: bytes) -> None:
        """See :meth:`Store.put`; each file is replaced as a whole."""
        file = _file_of(name)
        folder = locate(self.location).child(name.batch)
        with _writing(folder.label(file)):
            folder.replace(file, data)

    def has(self, name: Name) -> bool:
        """See :meth:`Store.has`."""
        return self.read(name) is not None

    def names(self) -> list[Name]:
        """See :meth:`Entries.names`."""
        top = locate(self.location)
        if self.batch:  # which has none if nothing was counted
            found = [f"{self.batch}/{path}" for path in top.child(self.batch).replaced_files()]
        else:
            found = [*top.replaced_files_of("auditLocation", _FILE)]
        return names_in(path.removesuffix(_SUFFIX) for path in found if _FILE.fullmatch(path))

    def read(self, name: Name) -> bytes | None:
        """See :meth:`Entries.read`."""
        return locate(self.location).child(name.batch).read_replaced(_file_of(name))


@contextmanager
def _writing(file: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise LogDirectoryError(
            f"Cannot write the audit: {os.strerror(e.errno) if e.errno else e}",
            file=file,
            hint="Set auditLocation to a folder that all workers can write to.",
        ) from None


def _file_of(name: Name) -> str:
    return name.share if name.share == COMMITTED else name.share + _SUFFIX
