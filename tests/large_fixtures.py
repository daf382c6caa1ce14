"""Topics with large messages that LinkedIn's producers wrote, and what their consumer made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from pyspark_kafkalog.model import TopicPartition
from tests.fixtures_dir import FIXTURES

ROOT = FIXTURES / "large-messages"
requires_large_fixtures = pytest.mark.skipif(
    not (ROOT / "manifest.json").is_file(), reason="needs the fixture collection, see KAFKALOG_FIXTURES"
)


@dataclass(frozen=True)
class Scenario:
    """One configuration of their consumer over one case, and all that it did."""

    case: dict[str, Any]
    entry: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.case['case']}-{self.entry['scenario']}"

    @property
    def settings(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.entry["consumer_config"].items()}

    @property
    def read_committed(self) -> bool:
        return self.settings.get("isolation.level") == "read_committed"

    @property
    def evicts(self) -> bool:
        return "message.assembler.buffer.capacity" in self.settings

    @property
    def partitions(self) -> dict[TopicPartition, int]:
        """The log end offset of each."""
        return {
            TopicPartition(its["dir"].rpartition("-")[0], its["partition"]): its["log_end_offset"]
            for its in self.case["topic_partitions"]
        }

    def delivered(self, partition: int, *, so: bool = True) -> list[tuple[Any, ...]]:
        """The rows that their consumer returned, as :func:`as_row` shows them."""
        return [
            as_row(
                its["offset"],
                its["timestamp"],
                None if its["key_hex"] is None else bytes.fromhex(its["key_hex"]),
                (its["value_length"], its["value_sha256"]),
                [(key, None if value is None else bytes.fromhex(value)) for key, value in its["headers_hex"]],
                so=so,
            )
            for its in self.entry["delivered"]
            if its["partition"] == partition
        ]

    def table(self, name: str) -> list[Any]:
        return self.entry.get(name, {}).get("rows", [])


def as_row(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | tuple[Any, Any] | None,
    headers: Iterable[tuple[str, bytes | None]],
    *,
    so: bool = True,
) -> tuple[Any, ...]:
    """A row that can be compared; not ``so``: without the safe offset, which tells of earlier rows."""
    if not isinstance(value, tuple):
        value = (None, None) if value is None else (len(value), hashlib.sha256(value).hexdigest())
    return offset, timestamp, key, value, tuple(pair for pair in headers if so or pair[0] != "_so")


@cache
def scenarios() -> list[Scenario]:
    """All of the collection; none where it is not at hand."""
    manifest = ROOT / "manifest.json"
    if not manifest.is_file():
        return []
    return [
        Scenario(case, its) for case in json.loads(manifest.read_text())["cases"] for its in case["scenarios"]
    ]
