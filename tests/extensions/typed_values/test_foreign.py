"""Values of schemas that the reader's can't read: an error, or a row like one that can't be decoded."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import SchemaError
from tests.confluent import prefixed, record
from tests.schema_registry import SchemaRegistryServer
from tests.tools.cli.running import run

pytestmark = pytest.mark.broker

ORDER, OTHER = record("Order", id="long"), record("Order", id={"type": "array", "items": "long"})
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; } message Refund { int64 id = 1; }'
ROW = {"id": 7}


def sample(registry: SchemaRegistryServer, encoding: str) -> tuple[str, dict[bytes, str]]:
    """A topic whose newest schema reads the first of some values, and each value with what is said of it."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    of_json = registry.register(f"{topic}-json", {"title": topic, "properties": {}}, kind="JSON")
    if encoding == "avro":
        foreign = registry.register(f"{topic}-value", OTHER)
        registry.set_compatibility(f"{topic}-value", "NONE")
        good = prefixed(registry.register(f"{topic}-value", ORDER), ORDER, ROW)
        bad = {b"\0" + foreign.to_bytes(4, "big") + b"\x02\x0e\0": f"schema id {foreign}: id: the reader's"}
    else:
        number = registry.register(f"{topic}-value", PROTO, kind="PROTOBUF")
        good = b"\0" + number.to_bytes(4, "big") + b"\0\x08\x07"
        why = f"schema id {number}: the value is a message Refund, and is read as a message Order"
        bad = {b"\0" + number.to_bytes(4, "big") + b"\x02\x02\x08\x07": why}
    kinds = {b"\0" + of_json.to_bytes(4, "big") + b"\0": f"schema id {of_json}: it is a schema of type JSON"}
    return topic, {good: "", **bad, **kinds, good[:-1]: "ends too early"}


@pytest.mark.parametrize("encoding", ["avro", "protobuf"])
def test_foreign_values(registry: SchemaRegistryServer, tmp_path: Path, encoding: str) -> None:
    """With ``includeCorrupt`` each is a row with its reason, even if that column is not read."""
    topic, values = sample(registry, encoding)
    root = str(tmp_path / "log")
    connect(root).write(pa.table({"value": [*values]}), topic)
    given = {"value.format": f"confluent-{encoding}", "schema.registry.url": registry.url}

    def read(columns: list[str] | None = None, **more: str) -> list[dict[str, Any]]:
        rows = connect(root).read(options={"subscribe": topic, **given, **more}, columns=columns)
        found: list[dict[str, Any]] = rows.read_all().to_pylist()
        return found

    reason = [*values.values()][1]
    with pytest.raises(SchemaError, match=r"includeCorrupt=true: the column corrupt has such") as caught:
        read()
    assert all(part in str(caught.value) for part in (f"{topic}-0", "offset 1", reason))
    found = read(includeCorrupt="true")
    assert [row["value"] for row in found] == [ROW, *[{"id": None}] * 3]
    assert [row["corrupt"] and row["corrupt"]["value"] for row in found] == [None, *[*values][1:]]
    for row, why in zip(found[1:], [*values.values()][1:], strict=True):
        assert why in row["corrupt"]["reason"]
    assert [row["value"] for row in read(["value"], includeCorrupt="true")] == [ROW, *[{"id": None}] * 3]
    words = ["cat", root, topic, "--value-format", f"confluent-{encoding}"]
    words += ["-o", f"schema.registry.url={registry.url}", "--json"]
    failed = run(*words)
    assert (failed.code, "--skip-damaged" in failed.err) == (3, True)
    lines = run(*words, "--skip-damaged").out.splitlines()
    assert [json.loads(line)["value"] for line in lines] == [ROW, *[{"id": None}] * 3]
