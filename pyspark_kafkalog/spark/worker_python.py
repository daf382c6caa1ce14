"""``kafkalog-python``: this interpreter for Spark's Python processes, with PySpark from site-packages.

Spark starts a process for the plan of a source, for each stream and for the tasks, with ``pyspark.zip``
first on its PYTHONPATH (PythonUtils.sparkPythonPath). The zip holds no byte code, so each process
compiles PySpark again, which takes half a second. If pip installed PySpark, the same modules
are in site-packages, compiled. Daemons import what their workers need before they fork them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import PathFinder

_LIBRARIES = ("pyspark", "py4j")
"""The packages in the zips."""
_DAEMON = "pyspark.daemon"
"""The module that forks Spark's Python workers; its argument is the module that they run."""
_READ = ("numpy", "pyarrow", "pyspark_kafkalog.spark.reader", "pyspark_kafkalog.read.reader")
_WRITE = ("numpy", "pyarrow", "pyspark_kafkalog.spark.writer", "pyspark_kafkalog.write.rows")
_IMPORTED = {
    "pyspark.worker": (*_READ, *_WRITE),
    "pyspark.sql.worker.plan_data_source_read": _READ,
    "pyspark.sql.worker.write_into_data_source": _WRITE,
    "pyspark.sql.worker.commit_data_source_write": _WRITE,
    "pyspark.sql.worker.python_streaming_sink_runner": _WRITE,
}
"""The modules that every worker needs which runs such a module for this package."""
_IS_SAFE = getattr(sys.flags, "safe_path", False)
"""``-P``, since Python 3.11."""


def worker_python() -> str:
    """The best value for PYSPARK_PYTHON, to be set before a session starts: the path of an interpreter.

    That is ``kafkalog-python`` if it is installed, else the running interpreter.
    """
    installed = os.path.join(sysconfig.get_path("scripts"), "kafkalog-python")
    return installed if os.access(installed, os.X_OK) else sys.executable


def main() -> None:
    """Be the interpreter: run what the arguments say, with PySpark from site-packages.

    Spark's ``-m module`` and ``-c code`` run in this process, since a second start takes 10 ms. All else
    is left to ``sys.executable``, in place of this process.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = without_duplicates(given, [entry for entry in sys.path if entry not in given])
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    # As PythonRunner does for tasks: in the others' processes numpy's threads would spin for 0.1 s.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    kind, *rest = sys.argv[1:] or [""]
    if kind not in ("-m", "-c") or not rest or _IS_SAFE:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    left_out = set(given) - set(paths)
    # In place of the folder of this script.
    first = "" if kind == "-c" else os.getcwd()
    sys.path[:] = [first, *(entry for entry in sys.path[1:] if entry not in left_out)]
    sys.argv = [kind, *rest[1:]]
    if kind == "-m":
        if rest[0] == _DAEMON:
            _import_for_workers(*rest[1:])
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))


def _import_for_workers(module: str) -> None:
    """Import before the fork what the workers that run ``module`` need.

    Each would take half a second for it, and memory of its own. What the workers' garbage collector walks
    is copied for them, so it leaves out all that is here.
    """
    with contextlib.suppress(ImportError):
        for name in (module, *_IMPORTED.get(module, ())):
            importlib.import_module(name)
    gc.freeze()


def without_duplicates(python_path: Sequence[str], others: Sequence[str]) -> list[str]:
    """``python_path`` without the zips and jars that lie inside the installed PySpark.

    Nothing is removed unless PySpark and Py4J can be imported from ``others``, the rest of ``sys.path``.
    """
    found = [PathFinder.find_spec(name, list(others)) for name in _LIBRARIES]
    pyspark = found[0]
    if pyspark is None or pyspark.submodule_search_locations is None or None in found:
        return list(python_path)
    installed = tuple(os.path.realpath(folder) + os.sep for folder in pyspark.submodule_search_locations)
    return [entry for entry in python_path if not os.path.realpath(entry).startswith(installed)]
