"""The code blocks of README and docs/."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted(ROOT.glob("docs/*.md")))
RUN = {"python", "sh", "sql"}
SHOWN = {"text", "diff", "yaml", "dockerfile", "", "{toctree}", "{eval-rst}"}
"""No code to run: output, comparisons, settings of other tools, the file map, what only the site reads."""

_BLOCK = re.compile(r"^```(?P<language>\S*)\n(?P<code>.*?)^```$", re.M | re.S)
_NOT_RUN = re.compile(r"^# not run: (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block, the line where it begins, and the ``text`` right after it: what it prints."""

    line: int
    language: str
    code: str
    printed: str | None

    @property
    def not_run(self) -> str | None:
        """Why it can't be run here, if it says so."""
        found = _NOT_RUN.search(self.code)
        return found and found[1]


def blocks(page: Path) -> list[Block]:
    """All of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    assert text.count("\n```") == 2 * len(found), f"{page.name} has a block that is not closed"
    blocks = []
    for match, following in zip_longest(found, found[1:]):
        is_output = following is not None and following["language"] == "text"
        after = following["code"] if is_output and not text[match.end() : following.start()].strip() else None
        line = text.count("\n", 0, match.start()) + 2
        blocks.append(Block(line, match["language"], match["code"], after))
    return blocks


def code_blocks(page: Path) -> list[Block]:
    """Those that hold code."""
    return [block for block in blocks(page) if block.language in RUN]


def comparable(output: str) -> str:
    """Without what differs from run to run: times, versions, the workers' path, trailing blanks."""
    for pattern, mark in _DIFFERS:
        output = re.sub(pattern, mark, output)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


_DIFFERS = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME"),
    (r"Spark \d+\.\d+\.\d+", "Spark"),
    (r"workers run \S+", "workers run"),
)
