"""The files of a checkpoint, of which only those are read that a report or a change needs.

Names are listed once: a query that never tidies up leaves millions of them.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property

from pyspark_kafkalog.errors import KafkaLogError, LogDirectoryError, OptionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.hadoop import locate_as_hadoop
from pyspark_kafkalog.stream.checkpoint import QueryLog
from pyspark_kafkalog.stream.source_state import StoredState
from pyspark_kafkalog.tools.checkpoint.offset_log import LoggedPlan, LoggedSource, check_commit

_OFFSETS, _COMMITS, _STATE = "offsets", "commits", "state"
KEPT = "kafkalog-kept"
"""The folder of what was there before each change; a file of this name is locked while one is made."""
KEPT_NAME = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")
"""The name of a folder with what was there before a change: when that was."""
_BEGUN = re.compile(rf"{KEPT}/({KEPT_NAME.pattern}): ".encode())
_CRC_HEAD = b"crc\0" + (512).to_bytes(4, "big")
"""The beginning of Hadoop's file of checksums: 512 bytes have one (ChecksumFileSystem)."""
_NOT_ONE = (
    "Give the checkpointLocation of a query, as the query has it. Without a scheme Spark looks for it in"
    " Hadoop's fs.defaultFS."
)


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a checkpoint, as they were listed.

    ``plans`` and ``complete`` are the numbers of micro-batches, in order.
    """

    location: str
    folder: Folder
    query_id: str
    plans: tuple[int, ...]
    complete: tuple[int, ...]
    operators: tuple[int, ...] = field(default=())
    """The stateful operators of the query."""

    @classmethod
    def open(cls, location: str) -> CheckpointFiles:
        """The checkpoint at a path or URI.

        :raises OptionError: if the location is empty, or the folder is not a checkpoint.
        :raises LogDirectoryError: if it can't be opened or does not exist.
        """
        if not location.strip():
            raise OptionError("The location of a checkpoint is empty", hint="Give a path or a URI.")
        folder = locate_as_hadoop(location)
        if not folder.exists():
            is_file = folder.is_local and os.path.lexists(folder.path)
            what = "is a file, or a link to nowhere" if is_file else "does not exist"
            raise LogDirectoryError(f"The checkpoint {what}", file=folder.label(), hint=_NOT_ONE)
        try:
            query_id = QueryLog(location).query_id()
        except KafkaLogError as e:
            raise OptionError(
                "The folder is not the checkpoint of a query: its file metadata is missing or has no id",
                file=e.file,
                hint=_NOT_ONE,
            ) from None
        return cls(
            location,
            folder,
            query_id,
            _numbers(folder.child(_OFFSETS)),
            _numbers(folder.child(_COMMITS)),
            _numbers(folder.child(_STATE)),
        )

    @property
    def offsets(self) -> Folder:
        """The folder of plans."""
        return self.folder.child(_OFFSETS)

    @property
    def kept(self) -> Folder:
        """The folder with what was there before each change."""
        return self.folder.child(KEPT)

    @cached_property
    def begun(self) -> Folder | None:
        """The folder with what was there before a change that was begun and not ended: that counts."""
        found = None if self.newest is None else _BEGUN.match(self.offsets.read(str(self.newest)) or b"")
        return None if found is None else self.kept.child(found[1].decode())

    @property
    def state(self) -> StoredState:
        """Files that readers have stored beside the plans."""
        return self.state_in(self.begun or self.folder)

    def state_in(self, folder: Folder) -> StoredState:
        """The same, or as it is kept in a folder."""
        return StoredState(folder, None if self.is_complete else self.newest)

    @property
    def newest(self) -> int | None:
        """The micro-batch that was planned last."""
        return self.plans[-1] if self.plans else None

    @property
    def newest_complete(self) -> int | None:
        """The micro-batch that was completed last."""
        return self.complete[-1] if self.complete else None

    @cached_property
    def is_complete(self) -> bool:
        """Whether the micro-batch that was planned last is complete."""
        return self.newest is not None and self.newest == self.newest_complete

    def before(self, batch: int) -> int | None:
        """The plan before a micro-batch; with async progress tracking some numbers have none."""
        at = bisect_left(self.plans, batch)
        return self.plans[at - 1] if at else None

    def has_plan(self, batch: int) -> bool:
        """Whether the plan of a micro-batch is there."""
        at = bisect_left(self.plans, batch)
        return at < len(self.plans) and self.plans[at] == batch

    def data(self, batch: int) -> bytes:
        """The bytes of a plan.

        :raises KafkaLogError: if it is gone, or differs from Hadoop's checksums of it.
        """
        if self.begun is not None and self.begun.child(_OFFSETS).look(str(batch)).size:
            return self._checked(self.begun.child(_OFFSETS), batch)
        return self._checked(self.offsets, batch)

    def plan(self, batch: int) -> LoggedPlan:
        """The plan of a micro-batch.

        :raises CorruptRecordError: if it is damaged, and see :meth:`data`.
        """
        return LoggedPlan.parse(self.data(batch), self.offsets.label(str(batch)))

    @cached_property
    def lacks_partitions(self) -> bool:
        """Whether Spark can't repeat the micro-batch that is not complete: see :class:`.LoggedPlan`."""
        before = None if self.newest is None or self.is_complete else self.before(self.newest)
        if self.newest is None or before is None:
            return False
        return self.plan(before).lacks_partitions_of(self.plan(self.newest))

    def check_commit(self, batch: int) -> None:
        """See that the commit of a micro-batch is whole.

        :raises KafkaLogError: if it is not.
        """
        commits = self.folder.child(_COMMITS)
        check_commit(self._checked(commits, batch), commits.label(str(batch)))

    def position(self) -> dict[str, LoggedSource]:
        """The ends of all sources, by name, in the micro-batch that was completed last, if there is one.

        :raises KafkaLogError: if its plan can't be read.
        """
        if self.newest is None:
            return {}
        batch = self.newest if self.is_complete else self.before(self.newest)
        return {} if batch is None else {source.name: source for source in self.plan(batch).sources}

    def age(self) -> float | None:
        """The seconds since Spark wrote the newest plan or commit; None where nothing tells."""
        commits = self.folder.child(_COMMITS)
        files = ((self.offsets, self.newest), (commits, self.newest_complete))
        times = [folder.look(str(batch)).mtime_ns for folder, batch in files if batch is not None]
        newest = max(times, default=0)
        return max(0.0, time.time() - newest / 1e9) if newest else None

    def _checked(self, folder: Folder, batch: int) -> bytes:
        name = str(batch)
        data = folder.read(name)
        if data is None:
            raise LogDirectoryError("A file of Spark's is gone", file=folder.label(name))
        if folder.is_local:
            sums = folder.read(crc_name(name))
            if sums is not None and sums.startswith(_CRC_HEAD) and sums != checksums(data):
                raise LogDirectoryError(
                    "A file of Spark's differs from its checksums",
                    file=folder.label(name),
                    hint="It was edited, or is damaged; Spark can't read it. If it is as it should be,"
                    f" remove {folder.label(crc_name(name))}.",
                )
        return data


def begun_note(kept: str) -> bytes:
    """The newest plan while a change is carried out: Spark can't read it, and quotes it.

    :param kept: the name of the folder with what was there.
    """
    return f"{KEPT}/{kept}: kafkalog checkpoint was interrupted, run it again\n".encode()


def crc_name(name: str) -> str:
    """The name of the file with Hadoop's checksums of a local file."""
    return f".{name}.crc"


def checksums(data: bytes) -> bytes:
    """The content of such a file."""
    sums = (zlib.crc32(data[at : at + 512]).to_bytes(4, "big") for at in range(0, len(data), 512))
    return _CRC_HEAD + b"".join(sums)


def _numbers(folder: Folder) -> tuple[int, ...]:
    try:
        names = folder.names()
    except FileNotFoundError:
        return ()
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdecimal()))
