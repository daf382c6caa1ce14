"""Texts that a terminal shows and does not act on."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` with an escape for each unprintable character."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """``text`` on one line, and :func:`printable`."""
    return printable(" ".join(text.split()))
