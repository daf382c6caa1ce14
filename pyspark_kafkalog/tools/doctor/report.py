"""The findings of a doctor: one table, for a terminal, a notebook and programs."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from html import escape

from pyspark_kafkalog.tools.cli.printable import one_line

_NAMED = 3
"""The number of executors that a row names before it only counts them."""
_EXECUTOR = "executor "


class State(str, enum.Enum):
    """The state of a finding."""

    FINE = "fine"
    PROBLEM = "problem"
    UNKNOWN = "unknown"
    """The thing could not be looked at, or nothing can be said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the table.

    :param where: ``this machine``, ``driver``, ``executor ..`` and its name, or ``session``.
    :param what: what was looked at.
    :param found: what was found; never a secret.
    :param remedy: what to do, a sentence; given if not all is fine.
    """

    where: str
    what: str
    state: State
    found: str
    remedy: str | None = None


@dataclass(frozen=True)
class Report:
    """The findings as a table: ``print`` it, or let a notebook show it."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return all(finding.state is not State.PROBLEM for finding in self.findings)

    def rows(self) -> list[dict[str, str | None]]:
        """The findings for programs, as JSON has them. Executors that agree share a row."""
        return [asdict(finding) | {"state": finding.state.value} for finding in _folded(self.findings)]

    def __str__(self) -> str:
        folded = _folded(self.findings)
        columns = [
            [one.state.value.upper() if one.state is State.PROBLEM else one.state.value, one.where, one.what]
            for one in folded
        ]
        widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
        lines = []
        for texts, one in zip(columns, folded, strict=True):
            start = "  ".join(f"{text:{width}}" for text, width in zip(texts, widths, strict=True))
            lines.append(f"{start}  {one.found}")
            if one.remedy is not None:
                lines.append(f"{'':{widths[0]}}  -> {one.remedy}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        titles = "".join(f"<th>{title}</th>" for title in ("where", "what", "state", "found", "what to do"))
        rows = ""
        for row in self.rows():
            cells = "".join(f'<td style="text-align:left">{escape(text or "")}</td>' for text in row.values())
            weight = "bold" if row["state"] == State.PROBLEM.value else "normal"
            rows += f'<tr style="font-weight:{weight}">{cells}</tr>'
        return f"<table><tr>{titles}</tr>{rows}</table>"


def _folded(findings: Iterable[Finding]) -> list[Finding]:
    """The findings on one line each; those that differ only in the executor are one."""
    folded: dict[Finding, list[str]] = {}
    for one in findings:
        where, remedy = one_line(one.where), None if one.remedy is None else one_line(one.remedy)
        one = replace(one, what=one_line(one.what), found=one_line(one.found), remedy=remedy)
        if where.startswith(_EXECUTOR):
            folded.setdefault(replace(one, where=""), []).append(where.removeprefix(_EXECUTOR))
        else:
            folded.setdefault(replace(one, where=where), [])
    return [replace(one, where=_executors(names)) if names else one for one, names in folded.items()]


def _executors(names: list[str]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} executors"
    return ("executors " if len(names) > 1 else _EXECUTOR) + ", ".join(names)
