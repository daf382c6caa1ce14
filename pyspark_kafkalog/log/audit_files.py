"""The files of an audit: one for each share of the work, replaced when the share is done again.

``<location>/<side>/<query>/<batch>/<share>.jsonl``; beside those of a micro-batch
that becomes visible as a whole a file ``committed`` says that it has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.filesystem import Folder, locate

COMMITTED = "committed"
_SUFFIX = ".jsonl"


def put_audit(location: str, folders: tuple[str, ...], name: str, data: bytes) -> None:
    """Let the file of a share hold ``data``, whole or not at all.

    :raises LogDirectoryError: if that can't be written.
    """
    _put(location, folders, name + _SUFFIX, data)


def mark_committed(location: str, folders: tuple[str, ...]) -> None:
    """Say that the work in this folder has become visible.

    :raises LogDirectoryError: if that can't be written.
    """
    _put(location, folders, COMMITTED, b"")


def read_audits(location: str) -> Iterator[tuple[bytes, bool]]:
    """The bytes of each file, and whether the work in its folder is marked as committed."""
    folder = locate(location)
    found = folder.filesystem.get_file_info(
        fs.FileSelector(folder.path, allow_not_found=True, recursive=True)
    )
    paths = sorted(info.path for info in found if info.type == fs.FileType.File)
    committed = {path.rpartition("/")[0] for path in paths if path.endswith(f"/{COMMITTED}")}
    for path in paths:
        if not path.endswith(_SUFFIX):
            continue
        try:
            with folder.filesystem.open_input_file(path) as file:
                yield file.read(), path.rpartition("/")[0] in committed
        except FileNotFoundError:  # replaced just now
            continue


def _put(location: str, folders: tuple[str, ...], name: str, data: bytes) -> None:
    top = locate(location)
    filesystem, path = top.filesystem, "/".join((top.path, *folders))
    try:
        filesystem.create_dir(path, recursive=True)
        if not isinstance(filesystem, fs.LocalFileSystem):
            # An object appears when its stream is closed.
            _write(top, f"{path}/{name}", data)
            return
        temporary = f"{path}/.{name}.{uuid.uuid4().hex}"
        _write(top, temporary, data)
        filesystem.move(temporary, f"{path}/{name}")
    except OSError as e:
        raise LogDirectoryError(
            f"Cannot write the audit: {e}",
            file=top.label("/".join((*folders, name))),
            hint="The option auditLocation must name a folder that all workers can write to.",
        ) from None


def _write(top: Folder, path: str, data: bytes) -> None:
    with top.filesystem.open_output_stream(path) as stream:
        stream.write(data)
