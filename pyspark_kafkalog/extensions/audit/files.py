"""The files of an audit: one for each share of the work, replaced when the share is run again.

``<location>/<side>/<query>/<batch>/<share>.jsonl``; a file ``committed`` beside them
says that the batch is complete, and how many shares it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.folder import NEW_SUFFIX
from pyspark_kafkalog.filesystem.locate import locate

COMMITTED = "committed"
_SUFFIX = ".jsonl"


def put_audit(location: str, folders: tuple[str, ...], name: str, data: bytes) -> None:
    """Write the file of a share atomically.

    :raises LogDirectoryError: if it can't be written.
    """
    _put(location, folders, name + _SUFFIX, data)


def mark_committed(location: str, folders: tuple[str, ...], shares: int) -> None:
    """Note that the work in this folder is complete, and how many numbered shares it had.

    :raises LogDirectoryError: if it can't be written.
    """
    _put(location, folders, COMMITTED, str(shares).encode())


def read_audits(location: str, folders: tuple[str, ...] = ()) -> Iterator[tuple[bytes, bool]]:
    """The content of each file, and whether the work in its folder is marked as committed.

    Left out are shares of an earlier run that divided the work into more shares.
    """
    top = locate(location)
    path = "/".join((top.path, *folders))
    found = top.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    paths = {info.path.removesuffix(NEW_SUFFIX) for info in found if info.type == fs.FileType.File}
    files = [path.rpartition("/")[::2] for path in sorted(paths)]
    shares = {
        folder: int(replace(top, path=folder).read_replaced(name) or 0)
        for folder, name in files
        if name == COMMITTED
    }
    for folder, name in files:
        if not name.endswith(_SUFFIX):
            continue
        number = name.partition(".")[0]
        if folder in shares and number.isdigit() and int(number) >= shares[folder]:
            continue
        data = replace(top, path=folder).read_replaced(name)
        if data is not None:
            yield data, folder in shares


def _put(location: str, folders: tuple[str, ...], name: str, data: bytes) -> None:
    folder = locate(location)
    for child in folders:
        folder = folder.child(child)
    try:
        folder.replace(name, data)
    except OSError as e:
        raise LogDirectoryError(
            f"Cannot write the audit: {e}",
            file=folder.label(name),
            hint="Set auditLocation to a folder that all workers can write to.",
        ) from None
