"""The files of an audit: one for each share of the work, replaced when the share is run again.

``<location>/<side>/<query>/<batch>/<share>.jsonl``; a file ``committed`` beside them
says that the batch is complete, and how many shares it had.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem import Folder, locate

COMMITTED = "committed"
_SUFFIX = ".jsonl"
_WITH_RENAMES = ("local", "hdfs")


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
    folder = locate(location)
    path = "/".join((folder.path, *folders))
    found = folder.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    paths = sorted(info.path for info in found if info.type == fs.FileType.File)
    shares = {
        path.rpartition("/")[0]: int(_read(folder, path) or 0)
        for path in paths
        if path.endswith(f"/{COMMITTED}")
    }
    for path in paths:
        if not path.endswith(_SUFFIX):
            continue
        parent, _, name = path.rpartition("/")
        number = name.partition(".")[0]
        if parent in shares and number.isdigit() and int(number) >= shares[parent]:
            continue
        data = _read(folder, path)
        if data is not None:
            yield data, parent in shares


def _read(folder: Folder, path: str) -> bytes | None:
    try:
        with folder.filesystem.open_input_file(path) as file:
            data: bytes = file.read()
            return data
    except FileNotFoundError:  # it is being replaced
        return None


def _put(location: str, folders: tuple[str, ...], name: str, data: bytes) -> None:
    top = locate(location)
    filesystem, path = top.filesystem, "/".join((top.path, *folders))
    try:
        filesystem.create_dir(path, recursive=True)
        if filesystem.type_name not in _WITH_RENAMES:
            # An object becomes visible when its stream is closed.
            _write(top, f"{path}/{name}", data)
            return
        temporary = f"{path}/.{name}.{uuid.uuid4().hex}"
        _write(top, temporary, data)
        if filesystem.type_name == "hdfs":  # HDFS does not rename onto an existing file
            with suppress(FileNotFoundError):
                filesystem.delete_file(f"{path}/{name}")
        filesystem.move(temporary, f"{path}/{name}")
    except OSError as e:
        raise LogDirectoryError(
            f"Cannot write the audit: {e}",
            file=top.label("/".join((*folders, name))),
            hint="Set auditLocation to a folder that all workers can write to.",
        ) from None


def _write(top: Folder, path: str, data: bytes) -> None:
    with top.filesystem.open_output_stream(path) as stream:
        stream.write(data)
