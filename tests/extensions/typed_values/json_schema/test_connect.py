"""Kafka Connect's forms of its logical types in JSON, as Connect's own converter writes them."""

from __future__ import annotations

import decimal
import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json_schema.types import json_type, shape_of
from pyspark_kafkalog.extensions.typed_values.json_schema.writing import JsonSchemaEncoder
from tests.extensions.typed_values.json_schema.oracle import decode
from tests.kafka_jars import java, mirror_maker_jars

CONNECT = "org.apache.kafka.connect.data."


def described(kind: str) -> str:
    """The schema that Confluent's converter makes, with decimals as a JSON type."""
    decimals = {"title": f"{CONNECT}Decimal", "connect.type": "bytes", "connect.parameters": {"scale": "2"}}
    whole = {
        name: {"type": "integer", "title": f"{CONNECT}{title}", "connect.type": hint}
        for name, title, hint in (("d", "Date", "int32"), ("t", "Timestamp", "int64"), ("c", "Time", "int32"))
    }
    properties: dict[str, Any] = {"p": {"type": kind, **decimals}, **whole}
    properties["b"] = {"type": "string", "connect.type": "bytes"}
    return json.dumps({"type": "object", "properties": properties})


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_forms(chance: random.Random) -> None:
    source = Path(__file__).with_name("ConnectForms.java")
    command = [java(), "-cp", f"{mirror_maker_jars()}/*", str(source), str(chance.getrandbits(48))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split("\t") for line in printed.splitlines()]
    assert len(rows) == 2000
    micros = pa.array([int(row[2]) * 1000 for row in rows]).cast(pa.timestamp("us", tz="UTC"))
    raw = [row[4].partition(":") for row in rows]
    expected = pa.StructArray.from_arrays(
        [
            pa.array([decimal.Decimal(row[0]) for row in rows], pa.decimal128(38, 2)),
            pa.array([int(row[1]) for row in rows], pa.int32()).cast(pa.date32()),
            micros,
            pa.array([int(row[3]) for row in rows], pa.int32()),
            pa.array([int(digits, 16).to_bytes(int(size), "big") for digits, _, size in raw]),
        ],
        ["p", "d", "t", "c", "b"],
    )
    for kind, place in ("string", 5), ("number", 6):
        schema, texts = described(kind), [row[place].encode() for row in rows]
        found = json_type(schema)
        assert found.type == parse_ddl("p decimal(38,2), d date, t timestamp, c int, b binary")
        decoded = decode(found, [*texts])
        assert not decoded.corrupt.size
        assert decoded.array.equals(expected)
        written = JsonSchemaEncoder(shape_of(schema), "value").encode(expected).to_pylist()
        load = json.JSONDecoder(parse_float=decimal.Decimal).decode
        assert [load(text.decode()) for text in written] == [load(text.decode()) for text in texts]
