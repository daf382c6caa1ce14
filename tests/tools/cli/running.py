"""Run ``kafkalog`` in this process."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from pyspark_kafkalog.tools.cli.application import kafkalog

_SEPARATE: dict[str, Any] = (
    {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
)
"""Before click 8.2 stderr is separate only if asked for."""


@dataclass(frozen=True)
class Done:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        """The rows of the JSON object, which has one list."""
        (rows,) = (value for value in self.json.values() if isinstance(value, list))
        return rows

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]


def run(*words: object, text: str | None = None) -> Done:
    """Run a command, which must not raise; ``text`` is its stdin."""
    result = CliRunner(**_SEPARATE).invoke(
        kafkalog, [str(word) for word in words], input=text, catch_exceptions=False
    )
    # pytest shows it with a test that fails.
    sys.stderr.write(result.stderr)
    return Done(result.exit_code, result.stdout, result.stderr)


def lines(*words: object, text: str | None = None) -> list[str]:
    """The lines that a command prints, which must end well."""
    done = run(*words, text=text)
    assert done.code == 0, done.err
    return done.out.splitlines()


def records(*words: object) -> list[Any]:
    """What ``kafkalog cat --json`` prints, parsed."""
    return [json.loads(line) for line in lines("cat", *words, "--json")]


def command(*words: object) -> list[str]:
    """A command as words for a process of its own."""
    return [sys.executable, "-m", "pyspark_kafkalog", *map(str, words)]
