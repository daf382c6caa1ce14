"""All messages of a module, read from its syntax tree.

A message is a string with a space and a word in it: an error, its hint, a line of the log. All such strings
are listed, not only the arguments of some calls, so none is missed because a helper passes it on. Docstrings
and the help of commands are left out: docs/commands.md shows that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "pyspark_kafkalog"

_WORD = re.compile(r"(?<![%\\A-Za-z])[A-Za-z]{2,}")
_HOLE = "{…}"


def messages_of(source: str) -> Iterator[str]:
    """The messages of a module, a line each, with {…} for what an f-string fills in."""
    for node in _strings(ast.parse(source)):
        text = _text(node)
        if " " in text.strip() and _WORD.search(text):
            yield text.strip().replace("\n", "\\n")


def _strings(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Constant):
        yield node
    elif isinstance(node, ast.JoinedStr):
        yield node
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part)
    elif not _is_silent(node):
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _is_silent(node: ast.AST) -> bool:
    """Docstrings, regular expressions, titles of columns, and the help of commands."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.keyword):
        return node.arg in ("help", "epilog")
    return isinstance(node, ast.Call) and re.match(r"re\.|column$", ast.unparse(node.func)) is not None


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else _HOLE for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
