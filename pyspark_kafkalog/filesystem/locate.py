"""Opens the folder at a local path or URI, by pyarrow or fsspec."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from pyarrow import fs

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.folder import Folder

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)(?P<rest>:.*)\Z", re.DOTALL)
_ARROW_SCHEMES = frozenset({"file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_CODE = re.compile(r"(?:AWS Error |Status\()([A-Z][A-Z_]+(?: \(HTTP status [0-9]{3}\))?)")
"""The code in an error of pyarrow's clients for stores: a word of theirs."""
_REFUSED = re.compile(r"ACCESS|DENIED|SIGNATURE|CREDENTIAL|TOKEN|UNAUTH|HTTP status 40[13]")
_GLOB = re.compile(r"[*?]|\[.+\]|\{.+\}")
_OF_URIS = "%:/?#[]@!$&'()*+,;="
"""The characters that have a meaning in a URI."""
_ALIASES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names for file systems of pyarrow."""
_HADOOP = ("hdfs", "viewfs")
_FORMS = {
    "s3": "s3://bucket/path?region=eu-west-1, or ?endpoint_override=host:port&scheme=http",
    **dict.fromkeys(("gs", "gcs"), "gs://bucket/path, or ?endpoint_override=host:port&scheme=http"),
    **dict.fromkeys(("abfs", "abfss"), "abfss://container@account.dfs.core.windows.net/path"),
    "hdfs": "hdfs://host:8020/path",
    "viewfs": "viewfs://cluster/path",
}
"""The form of the URIs of each store."""


def open_folder(location: str) -> Folder:
    """The existing folder at a local path or URI; see :func:`locate`.

    :raises LogDirectoryError: if it can't be opened, does not exist or is not a folder.
    """
    folder = locate(location)
    kind = folder.filesystem.get_file_info(folder.path).type
    if kind == fs.FileType.NotFound:
        raise no_such_directory(folder)
    if kind != fs.FileType.Directory:
        raise LogDirectoryError(
            "The log directory is not a folder",
            file=folder.label(),
            hint="Give the folder that holds the <topic>-<partition> folders, or one of those.",
        )
    return folder


def no_such_directory(folder: Folder) -> LogDirectoryError:
    """The error for a log directory that is not there."""
    hint = (
        "Give an entry of Kafka's log.dirs, or one partition's folder, by its path on this machine. A new one"
        " begins with a write to it, or with mkdir."
    )
    if _GLOB.search(folder.path):
        hint = "Globs are not expanded: give a list, or the folder above and the option subscribePattern."
    elif folder.filesystem.get_file_info(f"{folder.path}-0").type == fs.FileType.Directory:
        hint = "It is a topic's name: give the folder above, and the topic as the option subscribe."
    return LogDirectoryError("The log directory does not exist", file=folder.label(), hint=hint)


def locate(location: str) -> Folder:
    """The folder at a local path or URI, whether it exists or not.

    ``file:``, ``s3:``, ``gs:``, ``hdfs:``, ``abfs:`` are pyarrow's, and may have blanks and letters of all
    languages as they are; other schemes and chains of them (``zip://*::file:/x.zip``) are fsspec's, if it is
    installed.

    :raises LogDirectoryError: if there is no access to its file system.
    """
    match = _SCHEME.match(location)
    try:
        if match is None:
            folder = local_folder(location)
        else:
            folder = _remote(location, match["scheme"].lower(), match["rest"])
        folder.filesystem.get_file_info(folder.path)
        return folder
    except Exception as e:
        # Stores and their clients raise all kinds of errors, and may quote a part of the location.
        shown = without_secrets(location)
        code = _CODE.search(str(e))
        said = str(e).partition("\n")[0]  # libhdfs appends a hundred paths
        what = said if shown == location else type(e).__name__ + (f", {code[1]}" if code else "")
        is_refused = isinstance(e, PermissionError) or (code is not None and _REFUSED.search(code[1]))
        scheme = "" if match is None else _ALIASES.get(match["scheme"].lower(), match["scheme"].lower())
        raise LogDirectoryError(
            f"Cannot open the folder: {what}", file=shown, hint=_way(scheme, e, is_refused=bool(is_refused))
        ) from None


def _way(scheme: str, error: Exception, *, is_refused: bool) -> str:
    """The remedy for a folder that can't be opened; ``scheme`` is that of pyarrow, or empty for a path."""
    if is_refused and scheme:
        return (
            "Check the credentials, and what they permit: the store's client finds them in the URI, the"
            " environment or its own files, on the driver and on each worker."
        )
    if isinstance(error, ImportError):
        return (
            f"Install {error.name}"
            + (": pip install 'pyspark-kafkalog[fsspec]'" if error.name == "fsspec" else "")
            + ", on the driver and on each worker."
        )
    if scheme == "file":
        return "A file: URI names no host, and has an absolute path: file:///data/kafka-logs."
    if scheme not in _ARROW_SCHEMES:
        return (
            "Give a path, or a URI such as s3://bucket/logs. Stores other than S3, GCS, Azure and HDFS need a"
            " package for fsspec."
        )
    if isinstance(error, ValueError):
        return f"Check the URI and the names of its parameters: {_FORMS[scheme]}."
    if scheme in _HADOOP:
        return (
            "On the driver and on each worker, JAVA_HOME and HADOOP_HOME must be set, CLASSPATH must name all"
            " of Hadoop's jars, and the name node must be reachable."
        )
    return (
        "The store can't be reached: check the endpoint and its region in the URI, on the driver and on each"
        f" worker, and that there are credentials: {_FORMS[scheme]}."
    )


def without_secrets(location: str) -> str:
    """The location without what may be credentials: all between ``://`` and the last ``@``, and a query."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return location
    return scheme + separator + rest.rpartition("@")[2].partition("?")[0]


def local_folder(path: str) -> Folder:
    """The folder at a path of this machine, whether it exists or not."""
    if not path:
        raise ValueError("the path is empty")
    return Folder(fs.LocalFileSystem(), os.path.abspath(path), os.path.realpath(path))


def _remote(location: str, scheme: str, rest: str) -> Folder:
    scheme = _ALIASES.get(scheme, scheme)
    if scheme in _ARROW_SCHEMES and "::" not in location:
        filesystem, path = fs.FileSystem.from_uri(quote(scheme + rest, safe=_OF_URIS))
        if scheme == "file":
            return local_folder(path)
        prefix = f"{scheme}://"
    else:
        import fsspec

        if "://" not in location and "::" not in location:
            raise ValueError(f"expected {scheme}://")  # fsspec takes it for a local path
        store, path = fsspec.core.url_to_fs(location)
        filesystem = fs.PyFileSystem(fs.FSSpecHandler(store))
        prefix = f"{location.partition('://')[0]}://"
    path = path.rstrip("/")
    return Folder(filesystem, path, path, prefix)
