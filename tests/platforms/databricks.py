"""A notebook as a workspace of Databricks runs it: ``python tests/platforms/databricks.py SOURCE WIDGETS``.

It is a fake: Spark is a local session, and ``dbutils`` has the widgets that notebooks use, whose values
``WIDGETS`` gives as JSON. What Databricks itself does is not shown by it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import DataFrame, SparkSession


class Widgets:
    """``dbutils.widgets``: a user has changed the defaults of all of them."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values, self._made = values, set[str]()

    def text(self, name: str, default: str) -> None:
        """Make a widget, before its value is asked for."""
        assert default is not None
        self._made.add(name)

    def get(self, name: str) -> str:
        """What the user has entered."""
        assert name in self._made, f"There is no widget {name}"
        return self._values[name]


def display(frame: DataFrame) -> None:
    """Databricks' table, here as text."""
    assert isinstance(frame, DataFrame)
    print("display:")
    frame.show(truncate=False)


def main() -> None:
    source, widgets = sys.argv[1:]
    # Small data needs few tasks; the rest is as Databricks has it.
    small = SparkSession.builder.config("spark.sql.shuffle.partitions", "4")
    spark = small.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    given = {
        "spark": spark,
        "dbutils": SimpleNamespace(widgets=Widgets(json.loads(widgets))),
        "display": display,
        "__name__": "__main__",
    }
    exec(compile(Path(source).read_text(encoding="utf-8"), source, "exec"), given)
    assert given["spark"] is spark, "expected the given session, got another"
    assert given["display"] is display, "expected the given display, got another"


if __name__ == "__main__":
    main()
