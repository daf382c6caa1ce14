"""What the project writes is plain English: comments, docstrings, messages and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("pyspark_kafkalog", "tests", "ci", "docs", "notebooks")

_STATES = r"(?<![Tt]here )\b(?:is|are|was|were|be)"
INSTEAD = {
    rf"{_STATES} no\b(?! (?:longer|more|less|later|older|newer|larger|smaller|earlier)\b)": (
        "isn't a ..., or expected ..., got ..."
    ),
    rf"{_STATES} none\b": "isn't one, does not exist",
    r"\bnone of\b(?! (?:the|them|these|those|its|their|our)\b)": "not any of, without",
    r"\b[Nn]obody\b": "name who or what does not, or no one",
    r"\b[Ww]hoever\b": "name who",
    r"\b[Aa]new\b": "again, created again, started over",
    r"\bdear\b": "expensive",
    r"\bas by\b": "as ... does",
    r"\b[Bb]ut for\b": "except, or except for",
    r"\bthe care of\b": "upkeep, or what is done",
    r"(?<!such )\bas (?:those|that) of\b": "like those of, as ... does",
    r"\bin bounds\b": "within its limits",
    r"\b(?:is|are|be|was|were)(?: \w+)? waited for\b": "name who waits",
    r"\b[Aa]lso (?:if|when)\b": "even if, even when",
    r"\bwhatever is killed\b": "whichever process is killed",
    r"\b(?:is|are) said on\b": "a line on ... says so",
}
"""What is not said, and what to say instead."""


def written(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file that people read, each with its first line: paragraphs, comments and strings."""
    if path.suffix == ".md":
        yield from _paragraphs(path.read_text().splitlines())
    elif path.suffix == ".py":
        yield from _of_python(path.read_text())
    else:
        yield from _comments(path.read_text())


def _paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    first, text = 1, ""
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            first, text = (first, f"{text} {line}") if text else (number, line)
        elif text:
            yield first, text
            text = ""


def _of_python(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    yield from _comments(source)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """And what follows a # in a string."""
    yield from _paragraphs([line.partition("#")[2] for line in source.splitlines()])


def _files() -> list[Path]:
    """All but this one, which names the patterns."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found += ROOT.glob("*.md")
    return sorted(
        path
        for path in found
        if path.suffix in (".md", ".py", "") and "__pycache__" not in path.parts and path != Path(__file__)
    )


def test_plain_english() -> None:
    """No sentence has a pattern that a native engineer would not write."""
    found = []
    for path in _files():
        name = str(path.relative_to(ROOT))
        try:
            texts = list(written(path))
        except UnicodeDecodeError:
            continue
        for line, text in texts:
            said = " ".join(text.split())
            for pattern, instead in INSTEAD.items():
                found += [
                    f"{name}:{line}: {said[max(0, match.start() - 30) : match.end() + 30]!r}; say {instead}"
                    for match in re.finditer(pattern, said)
                ]
    assert not found, "\n" + "\n".join(found)


_FRAGMENT = re.compile(
    r"(?:Of|By|With|Without|For|In|As|What|Where|When|How|Which|From|To|On|At|Who|That|Those|Up|Behind|Below|Above"
    r"|None|Nothing|Why|Whose|Also|This|These)\b"
)


def test_docstrings_name_their_objects_first() -> None:
    """No docstring of the package begins with a word that stands for its object, or goes before it."""
    found = []
    for path in sorted((ROOT / "pyspark_kafkalog").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(ast.Constant(str(text))) if _FRAGMENT.match(text):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text.splitlines()[0]}")
    assert not found, "\n" + "\n".join(found)
