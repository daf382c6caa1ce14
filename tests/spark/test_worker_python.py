"""The interpreter for Spark's workers: it leaves out copies of PySpark, and changes nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import worker_python
from pyspark_kafkalog.spark.worker_python import without_duplicates

INSTALLED = Path(pyspark.__file__).parent
ZIP = str(INSTALLED / "python/lib/pyspark.zip")
PY4J_ZIP = str(next((INSTALLED / "python/lib").glob("py4j-*.zip")))
JAR = str(next((INSTALLED / "jars").glob("spark-core_*.jar")))


def started(*arguments: str, python_path: str = "", stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [worker_python(), *arguments],
        env={**os.environ, "PYTHONPATH": python_path},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_is_installed_with_the_package() -> None:
    assert Path(worker_python()).name == "kafkalog-python"


def test_without_it_the_running_interpreter_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert worker_python() == sys.executable


def test_it_imports_pyspark_from_where_pip_put_it(tmp_path: Path) -> None:
    code = "import os, pyspark, py4j; print(pyspark.__file__, py4j.__file__, os.environ['PYTHONPATH'])"
    mine = str(tmp_path)
    found = started("-c", code, python_path=os.pathsep.join([ZIP, PY4J_ZIP, JAR, mine])).stdout.split()
    assert found[0] == pyspark.__file__
    assert ".zip" not in found[1]
    assert found[2] == mine


def test_it_is_the_same_interpreter_otherwise() -> None:
    code = "import sys; print(sys.prefix, sys.argv, sys.stdin.read()); sys.exit(3)"
    done = started("-c", code, "a b", "--c", python_path=ZIP, stdin="typed")
    assert done.stdout.strip() == f"{sys.prefix} ['-c', 'a b', '--c'] typed"
    assert done.returncode == 3


def test_a_module_runs_as_by_python_itself(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(
        "import os, sys\n"
        "main = sys.modules['__main__']\n"
        "print(__name__, main.__spec__.name, vars(main) is globals(), sys.argv, sys.path)\n"
        "sys.exit(4)\n"
    )
    arguments = ["-m", "shown", "a b", "-c"]
    done = [
        subprocess.run([python, *arguments], cwd=tmp_path, check=False, capture_output=True, text=True)
        for python in (sys.executable, worker_python())
    ]
    assert "shown" in done[0].stdout
    assert done[1].stdout == done[0].stdout
    assert done[1].returncode == done[0].returncode == 4


def test_other_arguments_are_left_to_the_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv, sys.flags.dont_write_bytecode)")
    assert started("-B", str(script), "-m", python_path=ZIP).stdout.strip() == f"['{script}', '-m'] 1"
    assert started(python_path=ZIP, stdin="print(6 * 7)").stdout.strip() == "42"
    assert "Argument expected for the -m option" in started("-m").stderr


def test_numpy_has_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; print(os.environ['OMP_NUM_THREADS'])"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert started("-c", code).stdout.strip() == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert started("-c", code).stdout.strip() == "4"


@pytest.mark.parametrize(
    ("worker", "at_once", "later"),
    [
        ("pyspark.worker", {"numpy", "pyarrow", "pyspark_kafkalog.spark.reader"}, {"pandas"}),
        ("pyspark.sql.worker.create_data_source", set(), {"pyarrow", "pyspark_kafkalog.spark.reader"}),
    ],
)
def test_the_daemon_imports_what_its_workers_need(worker: str, at_once: set[str], later: set[str]) -> None:
    code = f"""
import gc, runpy, sys
from pyspark_kafkalog.spark import worker_python
runpy.run_module = lambda name, **kwargs: print(name, gc.get_freeze_count() > 0, *sys.modules)
sys.argv = ["kafkalog-python", "-m", "pyspark.daemon", "{worker}"]
worker_python.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, is_frozen, *modules = done.stdout.split()
    assert (name, is_frozen) == ("pyspark.daemon", "True")
    assert {worker} | at_once <= set(modules)
    assert not later & set(modules)


def test_all_is_kept_where_pyspark_is_not_installed(tmp_path: Path) -> None:
    given = [ZIP, PY4J_ZIP, str(tmp_path)]
    assert without_duplicates(given, [str(tmp_path)]) == given


def test_all_is_kept_where_py4j_is_in_the_zip_alone(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    given = [str(tmp_path / "pyspark/python/lib/pyspark.zip")]
    assert without_duplicates(given, [str(tmp_path)]) == given
    (tmp_path / "py4j").mkdir()
    (tmp_path / "py4j/__init__.py").touch()
    assert without_duplicates(given, [str(tmp_path)]) == []


def test_the_zip_of_another_pyspark_is_kept(tmp_path: Path) -> None:
    """A cluster's own, which SPARK_HOME names."""
    given = [str(tmp_path / "python/lib/pyspark.zip"), ZIP]
    assert without_duplicates(given, [str(INSTALLED.parent)]) == given[:1]


def test_the_workers_of_a_session_run_it(spark: SparkSession) -> None:
    def where(number: int) -> str:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([1]).map(where).collect() == [pyspark.__file__]
