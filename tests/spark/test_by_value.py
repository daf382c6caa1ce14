"""Functions that workers can't import, sent in the options themselves."""

from __future__ import annotations

import base64
import pickle
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import by_value
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.plugins import PYTHON, PlugIn

NOTEBOOK: dict[str, Any] = {"__name__": "__main__"}
"""Where a cell's names are: no process can import it."""
exec(
    """
import pyarrow as pa
secret = b"x"

def mask(rows):
    masked = pa.array([secret for _ in range(rows.num_rows)], pa.binary())
    return pa.RecordBatch.from_pydict({"value": masked, "offset": rows.column("offset")})

def fail(rows):
    raise ValueError("not today")
""",
    NOTEBOOK,
)


def test_a_read_of_spark(spark: SparkSession, write: Any) -> None:
    path = write([("a",), ("b",)], "value string")
    reader = spark.read.format("kafkalog").options(subscribe="t", transform=by_value(NOTEBOOK["mask"]))
    assert [tuple(row) for row in reader.load(path).collect()] == [(b"x", 0), (b"x", 1)]


def test_errors_name_the_function(spark: SparkSession, write: Any) -> None:
    path = write([("a",)], "value string")
    reader = spark.read.format("kafkalog").options(subscribe="t", transform=by_value(NOTEBOOK["fail"]))
    with pytest.raises(Exception, match=r"transform 'fail' raised ValueError.*not today"):
        reader.load(path)


def test_what_can_be_sent() -> None:
    assert PlugIn("transform", by_value(lambda rows: rows)).function(5) == 5
    with pytest.raises(TypeError, match="Expected a function or a class, got an object of str"):
        by_value("package:function")  # type: ignore[arg-type]
    lock = threading.Lock()
    with pytest.raises(TypeError, match="can't be sent: TypeError"):
        by_value(lambda: lock)


@pytest.mark.parametrize(
    "pickled", [b"", b"nonsense", pickle.dumps(OptionError)[:-3], b"cnot_there\nfunction\n."]
)
def test_what_can_not_be_loaded(pickled: bytes) -> None:
    text = f"by-value:mask:{PYTHON}:{base64.b64encode(pickled).decode()}"
    with pytest.raises(OptionError, match="The transform 'mask' cannot be loaded") as caught:
        PlugIn("transform", text)
    assert base64.b64encode(pickled).decode() == "" or text not in str(caught.value)


def test_another_python_does_not_run_it() -> None:
    """It would take its code for its own, and crash."""
    text = by_value(NOTEBOOK["mask"]).replace(f":{PYTHON}:", ":3.9:")
    with pytest.raises(OptionError, match=rf"'mask' was sent by Python 3\.9, but this is Python {PYTHON}"):
        PlugIn("transform", text)


def test_one_that_was_changed_on_its_way_is_not_shown() -> None:
    text = by_value(NOTEBOOK["mask"])
    wrapped = f"{text[:60]}\n{text[60:]}"
    with pytest.raises(OptionError, match="not as it made it") as caught:
        read_options({"path": "/log", "subscribe": "t", "transform": wrapped}, batch=True)
    assert text[40:60] not in str(caught.value)


def test_tables_of_arrow_need_no_spark(write: Any) -> None:
    from pyspark_kafkalog import connect

    path = write([("a",)], "value string")
    read = connect(path).read("t", options={"transform": by_value(NOTEBOOK["mask"])}).read_all()
    assert read == pa.table({"value": pa.array([b"x"], pa.binary()), "offset": [0]})
