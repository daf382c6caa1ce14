"""Java's properties files, which Kafka's tools take with ``--command-config`` (java.util.Properties)."""

from __future__ import annotations

import re

from pyspark_kafkalog.errors import OptionError

_LINE = re.compile(
    r"[ \t\f]*(?P<key>(?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|\Z)(?P<value>.*)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|\Z)", re.DOTALL)
_MEANING = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The properties in a file; of duplicates the last. No error shows a value, since it may be secret.

    :raises OptionError: for an escape that Java refuses.
    """
    properties = {}
    for number, line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        if match is None or re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", line):
            raise OptionError(
                f"Properties file, line {number}: expected four hexadecimal digits after \\u",
                hint="Write a single backslash as two.",
            )
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines that are neither empty nor comments; one that ends in an odd number of backslashes continues."""
    lines: list[tuple[int, str]] = []
    continued = False
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        line = line[:-1] if continues else line
        if continued:
            first, before = lines[-1]
            lines[-1] = first, before + line
        else:
            lines.append((number, line))
        continued = continues
    return lines


def _unescaped(text: str) -> str:
    def meaning(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        return _MEANING.get(escape[2] or "", escape[2] or "")

    return _ESCAPE.sub(meaning, text)
