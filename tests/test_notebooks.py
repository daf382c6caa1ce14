"""The notebooks run as plain Python and show what they say; each ``.ipynb`` is its source with outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import nbformat
import pytest

from tests.notebooks import LARGEST, OF_README, ROOT, cells, like_databricks, made, plot, sources

SHOWN = {
    "1_log_directory": [
        r"clicks +\|2 +\|\d+ +\|40000 ",
        r"clicks +\|none +\|40000 +\|1\.0 ",
        r"clicks: \d\.\d MB as it is, \d\.\d MB in zstd",
        r"(\|orders\|\d +\|2026-11-01 01:19:59[.\d]*\|2026-11-01 01:32:00[.\d]* *\|12\.0 +\|\n){3}",
        r"orders *\|ok +\|9 +\|",
    ],
    "2_from_kafka": [
        r"kafkalog: 1,000,000 rows, fingerprint (-?\d+)\n +kafka: 1,000,000 rows, fingerprint \1\n",
        r"kafka +\|1000000\|\n\|kafkalog\|200000 ",
        r"1,200,000 rows, 1,200,000 different",
        r"write: kafkalog \d+\.\d\d s, kafka \d+\.\d\d s",
    ],
    "3_live_lag": [
        r"clicks batch \d+: [\d,]+ rows, ",
        r"clicks-2: committed ([\d,]+) of \1, lag 0\n",
        r"138,000 records were produced, 138,000 read",
        r"The lag rose to \d{2,3},\d{3} offsets, and is 0 in the end",
    ],
    "4_large_messages": [
        r"138 records hold 60 documents; 0 differ from what was written",
        r"expired_by_offset\|\d+ +\|4 +\|\[0, 2, 3\]",
        r"59 documents were delivered",
        r"From 00:50 on: 10 written, 9 read",
    ],
    "5_damaged_disk": [
        r"00000000000000032848\.log at byte 693,674: Skipped 16382 bytes: CRC mismatch",
        r"00000000000000032850\.log: Offsets 32850 to 65030 are gone: the segment \d+\.log is missing",
        r"CorruptRecordError: CRC mismatch \(partition orders-0, offset 43521, file orders-0/",
        r"266,182 of 300,000 records can be read, 88\.7%",
        r" 2 +32850 65030 +32181 ",
        r"The log of partition 2 ends at offset 99,872",
        r"266,182 records are saved, with 0 damages\n0 of them differ",
    ],
    "6_exactly_once": [
        r"(Killed with [\d,]{6,} rows under way, behind [\d,]{7} that are committed\n){2}",
        r"The stream has ended by itself",
        r"read_committed: +600,000 records",
        r"missing numbers: +0\ndoubled numbers: +0",
    ],
    "7_json_to_delta": [
        r"The table is a delta table",
        r"The table has 20,000 rows, from 20,000 records\n",
        r"micro-batch 2: 0 rows\nmicro-batch 3: 8,000 rows\nmicro-batch 4: 2,000 rows\n",
        r"The table has 30,000 rows, from 30,000 records\n",
        r'\|\{"id":7500,.*amount: ',
        r"29,969 orders, 31 broken records",
    ],
}
"""What the notebooks print, as regular expressions."""
CHEAP = {"5_damaged_disk"}
"""Those that ci/long runs, too: they start no broker."""
NEED_BROKERS = {"2_from_kafka", "3_live_lag", "6_exactly_once"}


def test_every_notebook_is_tested() -> None:
    assert set(SHOWN) == set(sources())


def test_cells_of_databricks_source_format() -> None:
    markdown = "# MAGIC %md\n# MAGIC # A\n# MAGIC\n# MAGIC B\n"
    source = f"# Databricks notebook source\n{markdown}\n# COMMAND ----------\n\nx = 1\n"
    assert cells(source) == [("markdown", "# A\n\nB"), ("code", "x = 1")]
    with pytest.raises(AssertionError, match="expected %md, got %sql"):
        cells("# Databricks notebook source\n# MAGIC %sql\n")
    with pytest.raises(AssertionError, match="in the first line"):
        cells("x = 1\n")


def test_all_begin_in_the_same_way() -> None:
    """With what Databricks installs, and with a session: Databricks' own, or one of this machine."""
    of_all = [cells(source.read_text(encoding="utf-8"))[:3] for source in sources().values()]
    assert [[kind for kind, _ in first] for first in of_all] == [["markdown", "pip", "code"]] * len(SHOWN)
    assert len({session for *_, (_, session) in of_all}) == 1


def test_none_needs_the_tests() -> None:
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.py")]
    assert not any(re.search(r"^\s*(from|import) tests\b", text, re.MULTILINE) for text in code)


def ran(
    arguments: list[object],
    folder: Path,
    session: Callable[[Mapping[str, str]], dict[str, str]] = like_databricks,
) -> str:
    """What a program printed that runs in ``folder`` from an environment that is not active.

    It leaves no files behind.
    """
    of_an_environment = {"VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"}
    environment = {key: value for key, value in os.environ.items() if key not in of_an_environment}
    environment |= {
        "PATH": os.defpath,
        "MPLBACKEND": "Agg",
        "TMPDIR": str(folder),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=session(environment),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(folder.glob("kafkalog-*"))
    return done.stdout


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in CHEAP else [pytest.mark.soak]) for name in SHOWN]
)
def test_runs_as_plain_python(name: str, tmp_path: Path, soak: bool) -> None:
    printed = ran([sources()[name]], tmp_path)
    for pattern in SHOWN[name]:
        assert re.search(pattern, printed), f"expected {pattern}, got:\n{printed}"


@pytest.mark.soak
def test_without_delta_the_table_is_of_parquet(tmp_path: Path) -> None:
    printed = ran([sources()["7_json_to_delta"]], tmp_path, dict)
    assert "The table is a parquet table" in printed
    assert "The table has 30,000 rows, from 30,000 records" in printed


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SHOWN)
def test_runs_in_a_fake_of_a_workspace(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a session, widgets and ``display`` that are given; a volume is a folder here."""
    (volume := tmp_path / "volume").mkdir()
    needs_brokers = name in NEED_BROKERS | {"7_json_to_delta"}
    brokers = request.getfixturevalue("broker").bootstrap if needs_brokers else None
    widgets = json.dumps({"folder": str(volume), "brokers": brokers, "table": "default.kafkalog_orders"})
    (folder := tmp_path / "temporary").mkdir()
    printed = ran([ROOT / "tests" / "platforms" / "databricks.py", sources()[name], widgets], folder)
    for pattern in SHOWN[name]:
        assert re.search(pattern, printed), f"expected {pattern}, got:\n{printed}"
    assert not list(volume.iterdir())


@pytest.mark.parametrize("name", SHOWN)
def test_ipynb_is_the_source_with_outputs(name: str) -> None:
    file = sources()[name].with_suffix(".ipynb")
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    source = made(sources()[name].read_text(encoding="utf-8"))
    assert [(cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells] == [
        (cell.cell_type, cell.source, cell.metadata) for cell in source.cells
    ], "run ci/notebooks"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert "pyspark_kafkalog.register(spark)" in code[0].source
    outputs = [output for cell in code for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    shown = "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")
    for pattern in SHOWN[name]:
        assert re.search(pattern, shown), f"expected {pattern}, got:\n{shown}"


@pytest.mark.parametrize("name", OF_README)
def test_readme_shows_the_plot_of_the_ipynb(name: str) -> None:
    notebook = nbformat.read(sources()[name].with_suffix(".ipynb"), as_version=4)
    assert OF_README[name].read_bytes() == plot(notebook), "run ci/notebooks"
    assert f"({OF_README[name].relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHOWN)
def test_ipynb_is_small_and_tells_nothing_of_the_machine(name: str) -> None:
    text = sources()[name].with_suffix(".ipynb").read_text(encoding="utf-8")
    assert len(text) <= LARGEST
    assert not {
        word for word in (str(ROOT), "/tmp/", "/home/", "Traceback (", " WARN ", " ERROR ") if word in text
    }
