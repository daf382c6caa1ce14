"""The function of the option ``transform``: what it may return, and errors that name it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.extensions.transform.transform import Transform
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.plugins import PlugIn
from tests import plugins

GIVEN = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("topic", pa.string())])
ROWS = pa.RecordBatch.from_pydict(
    {"value": [b"1", b"2"], "offset": [7, 8], "topic": ["t", "t"]}, schema=GIVEN
)
PLACE: dict[str, Any] = {"topic_partition": TopicPartition("t", 3), "offset": 7}


def path(name: str) -> str:
    return f"tests.plugins:{name}"


def test_rows_and_columns_may_change() -> None:
    assert Transform(path("same"), GIVEN)(ROWS) == ROWS
    assert Transform(path("evens"), GIVEN)(ROWS) == ROWS.slice(1)
    assert Transform(path("twice"), GIVEN)(ROWS).num_rows == 4
    transform = Transform(path("numbers"), GIVEN)
    assert transform.schema == plugins.NUMBERS
    assert transform(ROWS).to_pydict() == {"topic": ["t", "t"], "offset": [7, 8], "number": [1, 2]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nothing",
            "cannot be imported: its module has no such callable. Give package.module:function, which",
        ),
        ("fails_at_once", r"raised KeyError \(line \d+ of .*plugins.py\): 'no such column'. It is called"),
        ("fails_without_words", r"raised SpeechlessError \(line \d+ of .*plugins.py\)\. It is called"),
        ("ends_the_process", r"raised SystemExit \(line \d+ of .*plugins.py\): 3"),
        ("gives_a_table", "returned Table, expected a pyarrow.RecordBatch. It is called with an empty batch"),
        ("yields", "returned generator, expected a pyarrow.RecordBatch"),
        ("gives_no_columns", "returned no column"),
        ("gives_a_column_twice", "returned two columns 'value'"),
        ("gives_no_type", "gave column 'value' no type .* Name the type"),
    ],
)
def test_what_is_wrong_without_rows(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"^The transform 'tests.plugins:{name}' {said}"):
        Transform(path(name), GIVEN)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails_at_rows", r"raised ValueError \(line \d+ of .*plugins.py\): these rows are wrong"),
        ("changes_its_mind", "returned value: binary, expected value: binary, offset: int64, topic: string,"),
        ("forgets_to_return", "returned NoneType, expected a pyarrow.RecordBatch"),
        ("gives_negative_sizes", "returned a broken batch: .*"),
        ("gives_sizes_beyond_the_bytes", "returned a broken batch: .*"),
        ("gives_text_that_is_none", "returned a broken batch: .*"),
    ],
)
def test_what_is_wrong_with_rows(name: str, said: str) -> None:
    transform = Transform(path(name), GIVEN)
    with pytest.raises(KafkaLogError, match=rf"^The transform 'tests.plugins:{name}' {said}") as raised:
        transform(ROWS, **PLACE)
    assert (raised.value.topic_partition, raised.value.offset) == ("t-3", 7)


def test_another_version_of_the_function_is_refused() -> None:
    promised = Transform(path("same"), GIVEN).schema
    assert Transform(path("evens"), GIVEN, promised).schema == promised
    with pytest.raises(
        OptionError, match=r"returns topic: string, .* here, and returned value: binary, .* plan"
    ):
        Transform(path("numbers"), GIVEN, promised)


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_that_fails.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OptionError, match=r"'module_that_fails:f' cannot be imported: ZeroDivisionError"):
        PlugIn("transform", "module_that_fails:f")
    with pytest.raises(OptionError, match=r"cannot be imported: there is no such module\. .* workers must"):
        PlugIn("transform", "no_such.module:f")


def test_a_function_of_c_has_no_line() -> None:
    with pytest.raises(KafkaLogError, match=r"raised TypeError: "):
        PlugIn("transform", "builtins:len")(1)
