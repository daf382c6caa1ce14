"""The results of LinkedIn's consumer for topics with large messages: ``large-messages`` of the fixtures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.fixtures_dir import FIXTURES, SMALL_FIXTURES

SCHEMA = pa.schema(list(ROW_TYPES.items()))
MAX_TRACKED_MESSAGES = 500
"""Of a partition, by default."""
_SETTINGS = {
    "message.assembler.buffer.capacity": "buffer_capacity",
    "message.assembler.expiration.offset.gap": "expiration_offset_gap",
    "exception.on.message.dropped": "exception_on_message_dropped",
}


@dataclass(frozen=True)
class Scenario:
    """One partition of a case as read by a consumer with some configuration."""

    case: str
    partition: int
    log_end_offset: int
    folder: Path
    entry: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.case}-{self.partition}-{self.entry['scenario']}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.case, self.partition)

    @property
    def settings(self) -> AssemblerSettings:
        given = self.entry["consumer_config"]
        changed: dict[str, Any] = {field: given[name] for name, field in _SETTINGS.items() if name in given}
        if "exception_on_message_dropped" in changed:
            changed["exception_on_message_dropped"] = changed["exception_on_message_dropped"] == "true"
        return AssemblerSettings(**changed)

    @property
    def max_tracked_messages(self) -> int:
        """Of their consumer."""
        return int(
            self.entry["consumer_config"].get("max.tracked.messages.per.partition", MAX_TRACKED_MESSAGES)
        )

    @property
    def read_committed(self) -> bool:
        return self.entry["consumer_config"].get("isolation.level") == "read_committed"

    @property
    def evicts(self) -> bool:
        """Whether it is about the capacity."""
        return "message.assembler.buffer.capacity" in self.entry["consumer_config"]

    @property
    def has_default_gap(self) -> bool:
        return "message.assembler.expiration.offset.gap" not in self.entry["consumer_config"]

    @cached_property
    def place(self) -> LogDirectory:
        return LogDirectory.open(str(self.folder))

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """All records, as this package decodes them."""
        rules = ReadRules(SCHEMA, self.read_committed, True, DecodeLimits())
        split = Split(self.topic_partition, OffsetRange(EARLIEST, LATEST))
        batches = RecordReader(self.place, rules).read(split)
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    @cached_property
    def delivered(self) -> list[dict[str, Any]]:
        """The rows in the form of :func:`as_delivered`, without the fields computed for them."""
        computed = ("starting_offset", "safe_offset_of_message")
        return [
            {name: value for name, value in row.items() if name not in computed}
            for row in self.expected("delivered")
        ]

    def table(self, name: str) -> list[list[Any]]:
        """The rows of one of the tables for this partition; empty if the scenario lacks it."""
        rows = self.entry.get(name, {}).get("rows", [])
        return [
            row for row in rows if (row[0] if isinstance(row, list) else partition_of(row)) == self.partition
        ]

    def expected(self, name: str) -> list[dict[str, Any]]:
        """The entries of the list ``delivered`` or ``exceptions`` for this partition."""
        return [row for row in self.entry[name] if row["partition"] == self.partition]

    def end(self, name: str) -> Any:
        """The consumer's final state."""
        return self.entry["end"][name].get(str(self.partition))


@dataclass(frozen=True)
class InMemory:
    """Records of a partition from offset 0 on, to be read with some settings; None for no record."""

    values: Sequence[bytes | None]
    settings: AssemblerSettings

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition("t", 0)

    @property
    def log_end_offset(self) -> int:
        return len(self.values)

    @property
    def max_tracked_messages(self) -> int:
        """Their default."""
        return MAX_TRACKED_MESSAGES

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """The rows as this package decodes them, without constant columns."""
        offsets = [offset for offset, value in enumerate(self.values) if value is not None]
        values = [self.values[offset] for offset in offsets]
        schema = pa.schema([(name, ROW_TYPES[name]) for name in ("offset", "value", "headers")])
        headers = pa.nulls(len(offsets), ROW_TYPES["headers"])
        return pa.record_batch([pa.array(offsets), pa.array(values, pa.binary()), headers], schema=schema)


def partition_of(row: dict[str, Any]) -> int:
    return row["exception"]["partition"] if "exception" in row else row["partition"]


def as_delivered(row: dict[str, Any]) -> dict[str, Any]:
    """A row of ours in the manifest's form."""
    key, value = row["key"], row["value"]
    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": round(row["timestamp"].timestamp() * 1000),
        "key_hex": _hex(key),
        "value_sha256": None if value is None else hashlib.sha256(value).hexdigest(),
        "value_length": None if value is None else len(value),
        "headers_hex": [[header["key"], _hex(header["value"])] for header in row["headers"] or ()],
    }


def without_safe_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in that form without ``_so``, which depends on earlier rows."""
    return [
        {**row, "headers_hex": [header for header in row["headers_hex"] if header[0] != "_so"]}
        for row in rows
    ]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


@cache
def _scenarios(folder: Path) -> list[Scenario]:
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return []
    return [
        Scenario(case["case"], partition["partition"], partition["log_end_offset"], folder, entry)
        for case in json.loads(manifest.read_text())["cases"]
        for entry in case["scenarios"]
        for partition in case["topic_partitions"]
    ]


SCENARIOS = _scenarios(FIXTURES / "large-messages") or _scenarios(SMALL_FIXTURES / "large-messages")
"""The whole collection, or the small copies if it is missing."""
