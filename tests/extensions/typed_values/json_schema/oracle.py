"""Random JSON Schemas with values that they allow, and what a type makes of a value."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.json_schema.decoder import DecodedBySchema, SchemaDecoder
from pyspark_kafkalog.extensions.typed_values.json_schema.types import JsonType


def decode(kind: JsonType, values: list[Any]) -> DecodedBySchema:
    """The rows of values, which are JSON unless they are bytes or None."""
    raw = [value if isinstance(value, bytes | None) else json.dumps(value).encode() for value in values]
    data = np.frombuffer(b"".join(text or b"" for text in raw), np.uint8)
    sizes = np.array([-1 if text is None else len(text) for text in raw], np.int64)
    taken = np.maximum(sizes, 0)
    return SchemaDecoder(kind, 0, "_corrupt_record").decode(data, np.cumsum(taken) - taken, sizes)


def as_column(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as Arrow gives it, if it is read as ``kind``."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: as_column(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(name, as_column(each, kind.item_type)) for name, each in value.items()]
    if pa.types.is_list(kind):
        return [as_column(each, kind.value_type) for each in value]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return value


def schema(random: Random, depth: int = 0) -> dict[str, Any]:
    """A schema, with references to ``#/$defs/leaf`` and ``#/$defs/node``, which contains itself."""
    kinds = ["integer", "string", "boolean", "enum", "leaf", "node", "anything"]
    if depth < 3:
        kinds += ["object", "object", "array", "map", "nullable", "either", "all"]
    kind = "object" if depth == 0 else random.choice(kinds)
    if kind in ("integer", "string", "boolean"):
        return {"type": [kind, "null"]} if random.random() < 0.2 else {"type": kind}
    if kind == "enum":
        return random.choice([{"enum": ["a", "b", None]}, {"const": 7}, {"enum": [1, 2], "type": "integer"}])
    if kind in ("leaf", "node"):
        return {"$ref": f"#/$defs/{kind}"}
    if kind == "anything":
        return random.choice([{}, {"type": ["string", "integer"]}])
    if kind == "array":
        return {"type": "array", "items": schema(random, depth + 1)}
    if kind == "map":
        return {"type": "object", "additionalProperties": schema(random, depth + 1)}
    if kind == "nullable":
        return {random.choice(["oneOf", "anyOf"]): [{"type": "null"}, schema(random, depth + 1)]}
    if kind == "either":
        return {"anyOf": [schema(random, depth + 1) for _ in range(2)]}
    names = random.sample("abcdefgh", random.randint(1, 5))
    found = {"type": "object", "properties": {name: schema(random, depth + 1) for name in names}}
    if random.random() < 0.5:
        found["required"] = random.sample(names, random.randint(0, len(names)))
    if kind == "all":
        return {"allOf": [found, {"type": "object", "properties": {"z": schema(random, depth + 1)}}]}
    return found


DEFS = {
    "leaf": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
    "node": {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "boolean"}},
        "required": ["v"],
    },
}


def value_of(random: Random, described: dict[str, Any], depth: int = 0) -> Any:
    """A value by a schema of :func:`schema`."""
    if "$ref" in described:
        return value_of(random, DEFS[described["$ref"].rpartition("/")[2]], depth + 1)
    for key in ("oneOf", "anyOf"):
        if key in described:
            return value_of(random, random.choice(described[key]), depth + 1)
    if "allOf" in described:
        parts = [value_of(random, each, depth + 1) for each in described["allOf"]]
        return {name: each for part in parts for name, each in part.items()}
    if "const" in described or "enum" in described:
        return random.choice(described.get("enum", [described.get("const")]))
    kind = described.get("type", ["string", "integer", "null"])
    kind = random.choice(kind) if isinstance(kind, list) else kind
    if kind == "object" and "additionalProperties" in described:
        names = random.sample(["k", "é", "k k", "a"], random.randint(0, 3))
        return {name: value_of(random, described["additionalProperties"], depth + 1) for name in names}
    if kind == "object":
        required = described.get("required", ())
        return {
            name: value_of(random, part, depth + 1)
            for name, part in described["properties"].items()
            if name in required or random.random() < (0.7 if depth < 8 else 0)
        }
    if kind == "array":
        return [value_of(random, described["items"], depth + 1) for _ in range(random.randint(0, 3))]
    if kind == "null":
        return None
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "string":
        return random.choice(["", "a", "é€", '"quoted"', "x" * 40, "1"])
    return random.choice([0, -1, random.randint(-(2**63), 2**63 - 1)])
