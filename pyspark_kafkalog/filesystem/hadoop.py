"""The place of a path for Spark: one without a scheme belongs to Hadoop's ``fs.defaultFS``.

As in Hadoop's Path and FileSystem. It is ``spark.hadoop.fs.defaultFS`` of Spark's configuration, or what the
first file ``core-site.xml`` on the class path says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import locate, without_secrets

_SCHEME = re.compile(r"(?P<scheme>[^/:]+):(?P<rest>.*)\Z", re.DOTALL)
_CONF_DIRS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
_LOCAL = "file:///"


def locate_as_hadoop(location: str, default: str | None = None) -> Folder:
    """The folder that Hadoop finds at a path or URI.

    :param default: Hadoop's default file system, as Spark's configuration has it; None if that says nothing.
    :raises LogDirectoryError: if there is no access to its file system, or the path is relative to its folder
        of the user.
    """
    return locate(openable(location, default))


def openable(location: str, default: str | None = None) -> str:
    """The location for :func:`.locate.locate` of a path or URI, in which Hadoop takes ``%20`` for no blank.

    :raises LogDirectoryError: if the path is relative to its folder of the user.
    """
    found = qualified(location, default)
    match = _SCHEME.match(found)
    if match is None or match["scheme"].lower() != "file":
        return found
    return re.sub(r"\A//[^/]*", "", match["rest"])


def qualified(location: str, default: str | None = None) -> str:
    """A path or URI with the file system that Hadoop finds it in; a local path as it is."""
    default = default or _configured()
    given, base = _SCHEME.match(location), _SCHEME.match(default)
    scheme = "file" if base is None else base["scheme"].lower()
    if given is not None:
        if given["scheme"].lower() != scheme or scheme == "file" or re.match(r"//[^/]", given["rest"]):
            return location
        location = "/" + given["rest"].lstrip("/")
    if scheme == "file":
        return location
    if not location.startswith("/"):
        raise LogDirectoryError(
            f"A relative path belongs to the user's folder in {without_secrets(default)}",
            file=location,
            hint="Give an absolute path, or a URI.",
        )
    return default.rstrip("/") + location


def check_outside(roots: Iterable[str], location: str, option: str = "checkpointLocation") -> None:
    """Refuse a folder of ours in a log directory: a broker would not start there.

    :param option: what names the folder.
    :raises OptionError: if it is there.
    """
    folder = openable(location)
    needed = "a query goes on from it" if option == "checkpointLocation" else "you need it"
    if any(is_in(folder, openable(root)) for root in roots):
        raise OptionError(
            f"Option {option!r} is inside the log directory that 'path' names",
            hint="Give a folder outside of it: a broker refuses a log directory that has others in it. If the"
            f" folder is there already, move it if {needed}, else remove it.",
        )


def is_in(folder: str, root: str) -> bool:
    """Whether a folder is in another one, or is it."""
    if any(":/" in path and "/" not in path.partition(":")[0] for path in (root, folder)):
        return False  # of other file systems
    if not _may_be_a_path(folder):
        return False  # which is said where it is opened
    # A broker follows a link that is in the directory, and does not start beside it, wherever it leads.
    return any(
        os.path.commonpath([resolved(root), resolved(folder)]) == resolved(root)
        for resolved in (os.path.realpath, os.path.abspath)
    )


def _may_be_a_path(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _configured() -> str:
    for name in _CONF_DIRS:
        file = Path(os.environ.get(name) or "/nowhere", "core-site.xml")
        if file.is_file():
            return _property(file, "fs.defaultFS") or _property(file, "fs.default.name") or _LOCAL
    return _LOCAL


def _property(file: Path, name: str) -> str | None:
    try:
        properties = ElementTree.parse(file).getroot().iter("property")
        return next((found.findtext("value") for found in properties if found.findtext("name") == name), None)
    except (OSError, ElementTree.ParseError):
        return None  # without it, Spark would not run either
