"""``kafkalog-python``: this interpreter for Spark's Python processes, with PySpark from site-packages.

Spark starts a process for the plan of a source, for each stream and for the tasks, with ``pyspark.zip``
first on its PYTHONPATH (PythonUtils.sparkPythonPath). The zip holds no byte code, so each process
compiles PySpark again, which takes half a second. If pip installed PySpark, the same modules
are in site-packages, compiled.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import NoReturn

_LIBRARIES = ("pyspark", "py4j")
"""The packages in the zips."""


def worker_python() -> str:
    """The best value for PYSPARK_PYTHON, to be set before a session starts: the path of an interpreter.

    That is ``kafkalog-python`` if it is installed, else the running interpreter.
    """
    installed = os.path.join(sysconfig.get_path("scripts"), "kafkalog-python")
    return installed if os.access(installed, os.X_OK) else sys.executable


def main() -> NoReturn:
    """Replace this process by its interpreter, with the same arguments."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = without_duplicates(given, [entry for entry in sys.path if entry not in given])
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


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
