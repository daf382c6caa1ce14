"""Log directories that real brokers wrote, and what real consumers read from them.

The whole collection lies outside the checkout (``KAFKALOG_FIXTURES``, by default
``../shared/fixtures``); its smallest cases are copied to ``tests/fixtures``.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
SMALL_FIXTURES = _HERE / "fixtures"
FIXTURES = Path(os.environ.get("KAFKALOG_FIXTURES") or _HERE.parent.parent / "shared" / "fixtures")
"""Where the whole collection is, if it is."""

requires_fixtures = pytest.mark.skipif(
    not (FIXTURES / "logs").is_dir(), reason="needs the fixture collection, see KAFKALOG_FIXTURES"
)

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


@dataclass(frozen=True)
class Case:
    """One log directory and its expectations, each a list of the JSON lines."""

    name: str
    entry: dict[str, Any]
    logs: Path

    @property
    def directory(self) -> Path:
        return self.logs / self.entry["dir"]

    @property
    def partitions(self) -> list[str]:
        return self.entry["partitions"]

    @property
    def damaged(self) -> bool:
        return "recovery" in self.entry["expected"]

    @property
    def recovery(self) -> dict[str, Any]:
        """What a broker made of a damaged directory."""
        return json.loads((self.logs / self.entry["expected"]["recovery"]).read_text())

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """What a read_uncommitted consumer returned."""
        return self._lines("records")

    @cached_property
    def committed(self) -> list[dict[str, Any]]:
        """What a read_committed consumer returned."""
        same = self.entry["expected"].get("committed", "same as records") == "same as records"
        return self.records if same else self._lines("committed")

    @cached_property
    def offsets(self) -> list[dict[str, Any]]:
        """The bounds of each partition and answers to offset-for-timestamp questions; empty if damaged."""
        return self._lines("offsets")

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """What DumpLogSegments shows of each batch; of a damaged case, after recovery."""
        return self._lines("batches_after" if self.damaged else "batches")

    @cached_property
    def side_files(self) -> list[dict[str, Any]]:
        """The entries of index files, as DumpLogSegments shows them."""
        return self._lines("side_files")

    def bounds(self, partition: str) -> dict[str, Any]:
        """The entry of ``offsets`` for the folder ``partition``."""
        return next(e for e in self.offsets if f"{e['topic']}-{e['partition']}" == partition)

    def segments(self, partition: str) -> list[Path]:
        """The live segment files of a partition, in order."""
        return sorted((self.directory / partition).glob("*.log"))

    def _lines(self, kind: str) -> list[dict[str, Any]]:
        name = self.entry["expected"].get(kind)
        if name is None:
            return []
        with (self.logs / name).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]


@cache
def _cases(logs: Path) -> list[Case]:
    manifest = logs / "manifest.json"
    if not manifest.is_file():
        return []
    return [Case(entry["case"], entry, logs) for entry in json.loads(manifest.read_text())["cases"]]


CASES = _cases(FIXTURES / "logs") or _cases(SMALL_FIXTURES / "logs")
"""All cases of the collection, or the small copies where it is not there."""
SMALL_CASES = _cases(SMALL_FIXTURES / "logs")
"""The copies in the repository."""


def case(name: str) -> Case:
    """The case of that name; skips the test where it is not at hand."""
    for one in CASES:
        if one.name == name:
            return one
    pytest.skip(f"needs the fixture collection for {name}, see KAFKALOG_FIXTURES")


def same_bytes(expected: dict[str, Any], field: str, actual: bytes | None) -> bool:
    """Whether ``actual`` is the key or value of an expected record, where long ones are given by digest."""
    if field + "_sha256" in expected:
        digest = hashlib.sha256(actual or b"").hexdigest()
        return actual is not None and (len(actual), digest) == (
            expected[field + "_len"],
            expected[field + "_sha256"],
        )
    return actual == (None if expected[field] is None else bytes.fromhex(expected[field]))
