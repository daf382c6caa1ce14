"""Looks for what keeps a place from being read or written, on this machine and on Spark's executors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from pyspark_kafkalog.admin.doctor.compare import findings_of
from pyspark_kafkalog.admin.doctor.look import check_options, leave_marks, look, remove_marks
from pyspark_kafkalog.admin.doctor.report import Finding, Report, State

_HERE = "this machine"


def examine(options: Mapping[str, str]) -> Report:
    """What this machine sees of a place, without Spark; ``pyspark_kafkalog.doctor`` also asks executors.

    :param options: those of a reader or a writer.
    :raises OptionError: if an option is wrong.
    """
    check_options(options)
    mark = f".kafkalog-doctor-{uuid.uuid4().hex}"
    marked = leave_marks(options, mark)
    try:
        looked = look(options, mark)
    finally:
        remove_marks(marked, mark)
    return Report((_pyspark(), *findings_of(_HERE, looked)))


def _pyspark() -> Finding:
    try:
        return Finding(_HERE, "PySpark", State.FINE, version("pyspark"))
    except PackageNotFoundError:
        return Finding(_HERE, "PySpark", State.FINE, "not installed, and not needed here")
