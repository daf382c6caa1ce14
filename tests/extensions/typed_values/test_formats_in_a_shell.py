"""kafkalog cat and export of keys and values that are decoded."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from pyspark_kafkalog import connect
from tests.confluent import body, prefixed, record
from tests.schema_registry import SchemaRegistryServer
from tests.tools.cli.running import lines, records, run

ITEM = record("Item", id="long", name=["null", "string"], tags={"type": "map", "values": "int"})
ROWS = [{"id": 1, "name": "a", "tags": {"x": 1}}, {"id": 2, "name": None, "tags": {}}]
AVRO = ("--value-format", "avro", "-o", f"value.schema={json.dumps(ITEM)}")


@pytest.fixture
def place(tmp_path: Path) -> str:
    root = str(tmp_path / "log")
    values = [*(body(ITEM, row) for row in ROWS), None]
    keys = [body("string", key) for key in ("k1", "k2", "k3")]
    connect(root).write(pa.table({"key": pa.array(keys), "value": pa.array(values, pa.binary())}), "items")
    return root


def test_values_are_objects(place: str) -> None:
    assert [row["value"] for row in records(place, "items", *AVRO)] == [*ROWS, None]
    assert [row["value"] for row in records(place, "items", *AVRO, "--tail", 2)] == [ROWS[1], None]
    text = ['{"id":1,"name":"a","tags":{"x":1}}', '{"id":2,"name":null,"tags":{}}', ""]
    assert lines("cat", place, "items", *AVRO) == text
    assert lines("cat", place, "items", *AVRO, "--format", r"%S\n") == [
        *(str(len(t)) for t in text[:2]),
        "-1",
    ]
    assert lines("cat", place, "items", *AVRO, "--count") == ["3"]
    assert [row["offset"] for row in records(place, "items", *AVRO, "--grep", "a")] == [0]
    keys = ("--key-format", "avro", "-o", 'key.schema="string"')
    assert [row["key"] for row in records(place, "items", *keys)] == ["k1", "k2", "k3"]
    assert lines("cat", place, "items", *keys, *AVRO, "--format", r"%k %v\n")[0] == f"k1 {text[0]}"


def test_json(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    values = pa.array([b'{"id": 1, "at": "2024-01-02T03:04:05Z", "more": {}}', None], pa.binary())
    connect(root).write(pa.table({"value": values}), "items")
    given = ("--value-format", "json", "-o", "value.schema=at timestamp, id int")
    found = [row["value"] for row in records(root, "items", *given)]
    assert found == [{"at": "2024-01-02T03:04:05.000Z", "id": 1}, None]
    assert "value.schema" in run("cat", root, "items", "--value-format", "json").err


def test_files(place: str, tmp_path: Path) -> None:
    def exported(suffix: str) -> str:
        path = str(tmp_path / f"items{suffix}")
        assert run("export", place, "items", path, *AVRO).code == 0
        return path

    table = pyarrow.parquet.read_table(exported(".parquet"))
    assert table.schema.field("value").type.field("id").type == pa.int64()
    assert table.column("value").to_pylist()[1] == {"id": 2, "name": None, "tags": []}
    found = [json.loads(line) for line in Path(exported(".jsonl")).read_text().splitlines()]
    assert [row["value"] for row in found] == [*ROWS, None]
    texts = pyarrow.csv.read_csv(exported(".csv")).column("value").to_pylist()
    assert [json.loads(text) if text else None for text in texts] == [*ROWS, None]


@pytest.mark.parametrize("words", [[], ["--key-format", "avro", "-o", 'key.schema="string"']])
def test_an_empty_file_has_the_same_columns(place: str, tmp_path: Path, words: list[str]) -> None:
    schemas = []
    for name, selected in ("all", ()), ("none", ("--grep", "nowhere")):
        path = tmp_path / f"{name}.parquet"
        assert run("export", place, "items", path, *AVRO, *words, *selected).code == 0
        schemas.append(pyarrow.parquet.read_schema(path))
    assert schemas[0].equals(schemas[1], check_metadata=True)


def test_a_record_without_fields(place: str, tmp_path: Path) -> None:
    connect(place).write(pa.table({"value": [b""]}), "empty")
    empty = ("--value-format", "avro", "-o", f"value.schema={json.dumps(record('Empty'))}")
    assert lines("cat", place, "empty", *empty) == ["{}"]
    done = run("export", place, "empty", tmp_path / "empty.parquet", *empty)
    assert done.code == 3
    assert "Write JSON or CSV." in done.err
    assert not [*tmp_path.glob("empty*")]


def test_what_can_not_be_decoded(place: str) -> None:
    connect(place).write(pa.table({"value": [b"\x02", body(ITEM, ROWS[0])]}), "items")
    done = run("cat", place, "items", *AVRO, "--json")
    assert done.code == 3
    assert "(partition items-0, offset 3)" in done.err
    assert "--skip-damaged" in done.err
    done = run("cat", place, "items", *AVRO, "--json", "--skip-damaged")
    assert done.code == 1
    values = [json.loads(line)["value"] for line in done.out.splitlines()]
    assert values == [*ROWS, None, dict.fromkeys(ROWS[0]), ROWS[0]]
    assert "can't be decoded" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--value-format", "avro", "--value-as", "hex"], "Give only one of --value-format and --value-as"),
        (["--value-format", "avro"], "which needs 'value.schema'"),
        (["--value-format", "xml"], "expected one of"),
        (["--key-format", "confluent-avro"], "which needs 'schema.registry.url'"),
        (["--key-format", "avro", "--key", "k1"], "give it with --key-as, not with --key-format"),
        (["-o", "value.schema=id int"], "'value.schema' needs 'value.format'"),
        ([*AVRO, "-o", "includeCorrupt=true"], "'includeCorrupt' belongs to a read of records"),
    ],
)
def test_wrong_commands(place: str, words: list[str], said: str) -> None:
    done = run("cat", place, "items", *words)
    assert done.code == 2
    assert said in done.err
    done = run("cat", place, "__consumer_offsets", "--value-format", "avro")
    assert "is decoded by itself" in done.err


@pytest.mark.broker
def test_a_registry(tmp_path: Path, registry: SchemaRegistryServer) -> None:
    topic, place = f"items-{uuid.uuid4().hex[:8]}", str(tmp_path / "log")
    number = registry.register(f"{topic}-value", ITEM)
    connect(place).write(pa.table({"value": [prefixed(number, ITEM, row) for row in ROWS]}), topic)
    words = ("--value-format", "confluent-avro", "-o", f"schema.registry.url={registry.url}")
    assert [row["value"] for row in records(place, topic, *words)] == ROWS
    config = tmp_path / "client.properties"
    at = registry.url.replace("http://", "http://me:hidden@")
    config.write_text(f"schema.registry.url={at}\n")
    words = ("--value-format", "confluent-avro", "--config", str(config))
    assert [row["value"] for row in records(place, topic, *words)] == ROWS
    done = run("cat", place, "other", *words)
    assert done.code == 3
    assert "hidden" not in done.err
    connect(place).write(pa.table({"value": [b"x"]}), "other")
    done = run("cat", place, "other", *words)
    assert "does not know subject 'other-value'" in done.err
    assert "hidden" not in done.err


def test_only_what_is_shown_is_decoded(place: str) -> None:
    connect(place).write(pa.table({"value": [b"\x02", body(ITEM, ROWS[0])]}), "items")
    assert [row["value"] for row in records(place, "items", *AVRO, "--tail", 1)] == [ROWS[0]]
    assert lines("cat", place, "items", *AVRO, "--offset", 4) == ['{"id":1,"name":"a","tags":{"x":1}}']
    assert run("cat", place, "items", *AVRO, "--tail", 2).code == 3


def test_the_last_records_of_several_partitions(tmp_path: Path) -> None:
    place, count = str(tmp_path / "log"), 40
    values = [body(ITEM, {**ROWS[0], "id": number}) for number in range(count)]
    times = pa.array(range(count), pa.timestamp("ms", "UTC"))
    table = pa.table({"value": values, "timestamp": times})
    connect(place).write(table, "items", options={"numPartitions": "3"})
    found = records(place, "items", *AVRO, "--tail", 9)
    assert [row["timestamp"] for row in found] == [*range(count - 9, count)]
    assert all(row["value"]["id"] == row["timestamp"] for row in found)
    assert not lines("cat", place, "items", *AVRO, "--tail", 0)


def test_how_values_are_decoded(tmp_path: Path) -> None:
    root = str(tmp_path)
    values = [b'{"at":"2024-07-02 03:04:05"}', b'{"at":"no"}']
    connect(root).write(pa.table({"value": values}), "times")
    as_json = ["--value-format", "json", "-o", "value.schema=at timestamp, bad string", "--skip-damaged"]
    for more, time in (
        (["-o", "timeZone=Europe/Berlin", "-o", "columnNameOfCorruptRecord=bad"], "01"),
        ([], "03"),
    ):
        done = run("cat", root, "times", *as_json, *more)
        good, bad = (json.loads(line) for line in done.out.splitlines())
        assert good == {"at": f"2024-07-02T{time}:04:05.000Z", "bad": None}
        assert bad == {"at": None, "bad": values[1].decode() if more else None}
