"""The notebooks: ``python -m tests.notebooks [NAME ...]`` executes them, and writes each as ``.ipynb``.

The source of a notebook is a ``.py`` in Databricks' source format. The ``.ipynb`` beside it has the same
cells, and what they showed, except for ``%pip``, which is for Databricks. The plots that README shows are
those of two notebooks.
"""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

from tests.kafka_jars import delta_jars, spark_kafka_connector_jars

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
LARGEST = 500_000
"""Bytes of an ``.ipynb``: repositories hold each version of it."""

OF_README = {"2_from_kafka": ROOT / "docs" / "rates.png", "3_live_lag": ROOT / "docs" / "lag.png"}
"""The notebooks whose plots README shows, and where these are."""

_HEADER = "# Databricks notebook source\n"
_SEPARATOR = "# COMMAND ----------\n"
_MAGIC = re.compile(r"# MAGIC ?")

_MACHINES_FOLDERS = re.compile(rf"{re.escape(str(ROOT))}/|[\w/]*/kafkalog-notebook-\w+/")
_OF_THE_START = re.compile(
    r"WARNING: Using incubator modules: .*\n|Picked up JAVA_TOOL_OPTIONS: .*\n|"
    r"Using Spark's default log4j profile: .*\n|Setting default log level to .*\n|"
    r"To adjust logging level use .*\n|Setting Spark log level to .*\n|"
    r"\S+ \S+ WARN (?:Utils|NativeCodeLoader): .*\n"
)
"""What a JVM of Spark's prints before its log level can be set."""


def sources() -> dict[str, Path]:
    """The notebooks by their names."""
    return {path.stem: path for path in sorted(FOLDER.glob("[0-9]*.py"))}


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a notebook in Databricks' source format: their kind and text; see :func:`_cell`."""
    assert source.startswith(_HEADER), f"expected {_HEADER.strip()!r} in the first line"
    return [_cell(part.strip("\n")) for part in source.removeprefix(_HEADER).split(_SEPARATOR)]


def _cell(text: str) -> tuple[str, str]:
    """``code``, ``markdown`` or ``pip``, and the text."""
    if not _MAGIC.match(text):
        return "code", text
    first, *lines = (_MAGIC.sub("", line, count=1) for line in text.splitlines())
    if first.startswith("%pip ") and not lines:
        return "pip", first
    assert first == "%md", f"expected %md, got {first}"
    return "markdown", "\n".join(lines)


def made(source: str) -> NotebookNode:
    """The notebook as ``.ipynb``, not executed yet; the session's cell, which is the first, is folded."""
    makers = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    shown = [(kind, text) for kind, text in cells(source) if kind in makers]
    # Random ids would differ each time.
    made = [makers[kind](text, id=f"cell-{number}") for number, (kind, text) in enumerate(shown, start=1)]
    next(cell for cell in made if cell["cell_type"] == "code")["metadata"]["jupyter"] = {
        "source_hidden": True
    }
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def like_databricks(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which sessions have what those of Databricks have: Spark's connector, and Delta."""
    jars = ",".join(map(str, [*spark_kafka_connector_jars(), *delta_jars()]))
    confs = (
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Its log is small here.
        "spark.databricks.delta.snapshotPartitions=2",
    )
    arguments = ["--jars", jars, *(word for conf in confs for word in ("--conf", conf)), "pyspark-shell"]
    return {**environment, "PYSPARK_SUBMIT_ARGS": " ".join(arguments)}


def execute(notebook: NotebookNode) -> None:
    """Run all cells in a Jupyter kernel of this interpreter; an error of a cell is raised."""
    options: dict[str, Any] = {"timeout": 900, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, resources={"metadata": {"path": str(FOLDER)}}, **options).execute()
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell["cell_type"] == "code":
            cell["outputs"] = [output for output in cell["outputs"] if _clean(output)]


def _clean(output: NotebookNode) -> bool:
    """Take folders of this machine and Spark's first lines out of an output; whether anything is left."""
    data = output.get("data", {})
    for node, name in [(output, "text"), *((data, kind) for kind in data if kind.startswith("text/"))]:
        if name in node:
            node[name] = _MACHINES_FOLDERS.sub("", node[name])
    if output.get("name") == "stderr":
        output["text"] = _OF_THE_START.sub("", output["text"])
    return bool(output.get("text", True))


def plot(notebook: NotebookNode) -> bytes:
    """The only plot of an executed notebook, as PNG."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    (plot,) = (output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {}))
    return base64.b64decode(plot)


def main() -> None:
    chosen = sys.argv[1:] or list(sources())
    os.environ.update(like_databricks({}))
    for name in chosen:
        notebook = made(sources()[name].read_text(encoding="utf-8"))
        execute(notebook)
        text = nbformat.writes(notebook) + "\n"
        assert len(text) <= LARGEST, f"{name} has {len(text)} bytes, expected at most {LARGEST}"
        (FOLDER / f"{name}.ipynb").write_text(text, encoding="utf-8")
        if name in OF_README:
            OF_README[name].write_bytes(plot(notebook))
        print(f"{name}.ipynb: {len(text):,} bytes")


if __name__ == "__main__":
    main()
