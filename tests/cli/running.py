"""Run ``kafkalog`` in this process."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

from pyspark_kafkalog.cli.application import kafkalog

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
    def lines(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]


def run(*words: object, text: str | None = None) -> Done:
    """Run a command, which must not raise; ``text`` is its stdin."""
    result = CliRunner(**_SEPARATE).invoke(
        kafkalog, [str(word) for word in words], input=text, catch_exceptions=False
    )
    return Done(result.exit_code, result.stdout, result.stderr)
