"""Writes PARITY.md, the table of all cases: ``python -m tests.parity.table``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.parity.case import Case
from tests.parity.cases import CASES
from tests.parity.elsewhere import ELSEWHERE
from tests.parity.lab import FORMATS, OURS, PEER
from tests.parity.suites import IN_ORDER

PATH = Path(__file__).with_name("PARITY.md")
_HEAD = f"""# `{PEER}` and `{OURS}`, case by case

All cases of the test suites of Spark's Kafka connector (4.2.0), and some of our own. `pytest tests/parity`
runs those with a ✓ for both formats in one Spark session, and expects the same outcome except for the
differences shown here. `python -m tests.parity.table` writes this file.
"""


def table() -> str:
    """The content of PARITY.md."""
    differing = sum(bool(case.ours) for case in CASES)
    elsewhere = sum(len(cases.names) for cases in ELSEWHERE)
    counts = (
        f"{len(CASES)} cases are run: {len(CASES) - differing} have the same outcome, {differing} differ as "
        f"shown. {elsewhere} have no counterpart in Python, or are tested elsewhere.\n"
    )
    suites = dict.fromkeys([*IN_ORDER, *(cases.suite for cases in ELSEWHERE)])
    return "\n".join([_HEAD, counts, *("\n".join(_section(suite)) for suite in suites)])


def _section(suite: str) -> Iterator[str]:
    yield f"## {suite}\n"
    yield f"| case | {PEER} | {OURS} | note |"
    yield "|---|---|---|---|"
    for case in CASES:
        if case.suite == suite:
            yield _row(case.name, *(_shown(case, format) for format in FORMATS), case.note)
    for cases in ELSEWHERE:
        if cases.suite == suite:
            for name in cases.names:
                yield _row(name, "", "", cases.reason)
    yield ""


def _shown(case: Case, format: str) -> str:
    """A tick, with what differs from the other format."""
    expected = case.expected(format)
    return "; ".join(["✓", *(f"{name}: {_text(expected[name])}" for name in case.ours)])


def _text(value: object) -> str:
    if isinstance(value, list) and len(value) > 3 and value == [*range(len(value))]:
        return f"0 to {value[-1]}"
    return value if isinstance(value, str) else f"`{value}`"


def _row(*cells: str) -> str:
    return " | ".join(["", *(cell.replace("|", r"\|") for cell in cells), ""]).strip()


def main() -> None:
    """Write the file."""
    PATH.write_text(table(), encoding="utf-8")
    print(f"{PATH}: {len(CASES)} cases")


if __name__ == "__main__":
    main()
