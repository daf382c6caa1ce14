"""The folders in which rows are staged, and a query's intent is stored.

Imports happen on first use, as many short-lived processes only name a folder.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.filesystem.machine import Mark, is_marked_by, leave_mark
from pyspark_kafkalog.model import QueryBatch

if TYPE_CHECKING:
    from pyspark_kafkalog.filesystem.folder import Folder

_NAME = "kafkalog-transactions"
"""The folder of this package in a checkpoint, or in a staging location."""
_URI = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")
_LOCAL_URI = re.compile(r"\Afile:(//(localhost)?(?=/))?")


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of all queries in ``staging``, and in ``state`` what outlives a batch.

    Both are paths or URIs, which are not shown, because a URI may hold a secret.
    """

    staging: str = field(repr=False)
    state: str = field(repr=False)

    @classmethod
    def of(cls, options: TransactionOptions) -> Folders:
        """The folders that the options name, or else one of this user for temporary files."""
        checkpoint = options.checkpoint_location
        if checkpoint is not None:
            from pyspark_kafkalog.filesystem.hadoop import openable

            checkpoint = openable(checkpoint)
        staging = options.staging_location or checkpoint or _temporary()
        return cls(staging, checkpoint or staging)

    def mark(self) -> Mark | None:
        """Mark a local folder for staged rows as one that this host sees; None if it isn't local.

        :raises OSError: if it can't be written.
        :raises TransactionError: if the default folder is another user's.
        """
        if _URI.match(self.staging):
            return None
        if self.staging == _temporary():
            with suppress(FileExistsError):
                os.mkdir(self.staging, 0o700)  # for this user only, wherever it is
            _check_own(self.staging)
        return leave_mark(self._local())

    def are_shared_with(self, mark: Mark | None) -> bool:
        """Whether staged rows of this host are seen by the one that has left ``mark``.

        :raises TransactionError: if that can't be seen.
        """
        try:
            return mark is None or is_marked_by(self._local(), mark)
        except OSError as e:
            raise TransactionError(
                f"Could not look for the folder for staged rows: {e.strerror}", file=self._local()
            ) from None

    def _local(self) -> str:
        path, is_uri = _LOCAL_URI.subn("", self.staging)
        return os.path.join(unquote(path) if is_uri else path, _NAME)

    def of_rows(self, transactional_id: str, batch: QueryBatch) -> Folder:
        """The folder in which the tasks of a batch stage its rows."""
        name = "job" if batch.batch_id is None else str(batch.batch_id)
        return _child(self.staging, transactional_id).child(name)

    def make(self, transactional_id: str, batch: QueryBatch) -> None:
        """Make the folder where the tasks of a batch stage its rows.

        :raises OSError: if it can't be made.
        """
        from pyspark_kafkalog.filesystem.private import make_folder

        make_folder(self.of_rows(transactional_id, batch))

    def of_intent(self, transactional_id: str) -> Folder:
        """The folder of the query's intent."""
        return _child(self.state, transactional_id)

    def sweep(self, transactional_id: str, batch: QueryBatch) -> None:
        """Remove what was staged for ``batch``, which is over, and for earlier micro-batches of the query."""
        from pyspark_kafkalog.filesystem.private import remove_folder

        of_query = _child(self.staging, transactional_id)
        if batch.batch_id is None:
            remove_folder(of_query)
            return
        with suppress(FileNotFoundError):
            for name in of_query.list(str.isdecimal):
                if int(name) <= batch.batch_id:
                    remove_folder(of_query.child(name))


def _temporary() -> str:
    return os.path.join(tempfile.gettempdir(), f"kafkalog-{os.getuid()}")


def _check_own(path: str) -> None:
    """Check that the folder is this user's: where all may write, another user may have been first."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise TransactionError(
            "Expected a folder that only its owner, the user that runs Spark, may read",
            file=path,
            hint="Remove it, or set stagingLocation.",
        )


def _child(location: str, name: str) -> Folder:
    from pyspark_kafkalog.filesystem.locate import locate

    return locate(location).child(_NAME).child(name)
