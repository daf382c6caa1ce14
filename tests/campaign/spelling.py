"""Options spelled otherwise that name the same: what people change between two runs of a query."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

Options = Mapping[str, str]
_Spelled = Callable[[Options], dict[str, str]]

BOOTSTRAP = "kafka.bootstrap.servers"


def source(options: Options, spelling: int) -> dict[str, str]:
    """The options of a reader in one of several spellings; 0 is as given."""
    return _SOURCES[spelling % len(_SOURCES)](options)


def sink(options: Options, spelling: int) -> dict[str, str]:
    """The options of a writer in one of several spellings; 0 is as given."""
    spelled = _DIRECTORIES if "path" in options else _BROKERS
    return spelled[spelling % len(spelled)](options)


def checkpoint(path: str, spelling: int) -> str:
    """A checkpoint's location in one of several spellings; 0 is as given."""
    return (path, f"file://{path}", f"{path}/")[spelling % 3]


def _other_order(options: Options) -> dict[str, str]:
    topics = ",".join(reversed(options["subscribe"].split(",")))
    return {**_names(options), "subscribe": topics}


def _pattern(options: Options) -> dict[str, str]:
    others = {name: value for name, value in options.items() if name != "subscribe"}
    return {**others, "subscribePattern": "|".join(map(re.escape, options["subscribe"].split(",")))}


def _names(options: Options) -> dict[str, str]:
    """Names for addresses, in another order."""
    servers = options[BOOTSTRAP].replace("127.0.0.1", "localhost").split(",")
    return {**options, BOOTSTRAP: ",".join(reversed(servers))}


def _uri(options: Options) -> dict[str, str]:
    return {**options, "path": Path(options["path"]).as_uri()}


def _slash(options: Options) -> dict[str, str]:
    return {**options, "path": options["path"] + "/"}


def _link(options: Options) -> dict[str, str]:
    link = options["path"] + ".link"
    if not os.path.lexists(link):
        os.symlink(options["path"], link)
    return {**options, "path": link}


_SOURCES: tuple[_Spelled, ...] = (dict, _names, _other_order, _pattern)
_BROKERS: tuple[_Spelled, ...] = (dict, _names)
_DIRECTORIES: tuple[_Spelled, ...] = (dict, _uri, _slash, _link)
