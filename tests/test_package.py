"""The package as it is installed: imports little and without fail, and says what it needs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pyspark_kafkalog


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_importing_loads_one_module_and_little_of_python() -> None:
    """PySpark imports it in each driver and worker, be it used or not."""
    code = "import sys; before = {*sys.modules}; import pyspark_kafkalog; print(*{*sys.modules} - before)"
    loaded = run(code).split()
    ours = {name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names}
    assert ours == {"pyspark_kafkalog"}
    assert len(loaded) < 40, "typing brings 25"


def test_planning_loads_neither_arrow_nor_numba() -> None:
    loaded = run("import sys, pyspark_kafkalog.streams.planner; print(*sys.modules)").split()
    assert not {"pyspark", "pyarrow", "numpy", "numba"} & set(loaded)


def test_without_pyspark_there_is_a_package_and_no_data_source() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; import pyspark_kafkalog;"
        "print(*(name for name in pyspark_kafkalog.__all__ if not hasattr(pyspark_kafkalog, name)))"
    )
    assert run(code) == "AuditListener DefaultSource LagListener reassemble"


def test_windows_is_told_in_a_sentence() -> None:
    code = "import sys; sys.platform = 'win32'; import pyspark_kafkalog, pyspark_kafkalog.places"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: pyspark-kafkalog runs on Linux and macOS, not on Windows"


def test_the_data_source_is_there_for_spark_to_find() -> None:
    assert pyspark_kafkalog.DefaultSource.name() == "kafkalog"


def test_the_listener_is_there_for_users() -> None:
    from pyspark_kafkalog import LagListener

    assert LagListener().latest == {}


def test_metadata() -> None:
    metadata = importlib.metadata.metadata("pyspark-kafkalog")
    assert metadata["Version"] == pyspark_kafkalog.__version__
    requirements = importlib.metadata.requires("pyspark-kafkalog") or []
    needed = {
        requirement.split(";")[0].replace(" ", "")
        for requirement in requirements
        if "extra" not in requirement
    }
    assert "pyspark<5,>=4.2" in needed
    assert "pandas<3,>=2.2" in needed
    assert all("<" in requirement and ">=" in requirement for requirement in needed), (
        "every version is bounded"
    )


def test_names_that_do_not_exist_are_attribute_errors() -> None:
    assert not hasattr(pyspark_kafkalog, "NoSuchThing")
