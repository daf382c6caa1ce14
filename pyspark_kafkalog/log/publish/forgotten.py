"""The queries whose ledgers were removed, so that one whose checkpoint comes back is refused.

``.kafkalog-forgotten`` is a JSON file of the names of these ledgers. Without it a query that repeats its
first micro-batch, or a job with numbers of its own, would publish its rows twice. It is read only for a query
that has no ledger, which is new, or one of these.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection

from pyspark_kafkalog.errors import UNREADABLE
from pyspark_kafkalog.filesystem.locate import local_folder
from pyspark_kafkalog.log.publish import journal

FORGOTTEN_FILE = ".kafkalog-forgotten"
_VERSION = 1


def read_forgotten(root: str) -> set[str]:
    """The names of the ledgers that were removed.

    :raises LogDirectoryError: if the file can't be read.
    """
    text = local_folder(root).read(FORGOTTEN_FILE)
    if text is None:
        return set()
    try:
        content = json.loads(text)
        names = content["ledgers"]
        is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if content["version"] != _VERSION or not is_list:
            raise ValueError(content)
        return set(names)
    except UNREADABLE as e:
        raise journal.unusable(os.path.join(root, FORGOTTEN_FILE)) from e


def write_forgotten(root: str, ledgers: Collection[str]) -> None:
    """Store, before they are removed, that these ledgers, too, are removed; the caller holds the lock."""
    all_of_them = sorted(read_forgotten(root) | set(ledgers))
    journal.put(root, FORGOTTEN_FILE, json.dumps({"version": _VERSION, "ledgers": all_of_them}))
