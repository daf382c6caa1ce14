"""``register(spark)``: makes ``format("kafkalog")`` work in a running session, and sees that it does."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog import __version__
from pyspark_kafkalog.errors import RegistrationError
from pyspark_kafkalog.spark.session import cause_in, is_remote
from pyspark_kafkalog.spark.source import DefaultSource
from pyspark_kafkalog.spark.worker_python import worker_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PYTHON_CONF = "spark.pyspark.python"


@dataclass(frozen=True)
class Registration:
    """A session in which ``format("kafkalog")`` works. Its text, which notebooks show, says so."""

    version: str
    """That of this package."""
    spark_version: str
    worker_python: str | None
    """The interpreter that Spark's workers run; None under Spark Connect, where the server decides."""

    def __str__(self) -> str:
        workers = (
            "the server's workers" if self.worker_python is None else f"workers run {self.worker_python}"
        )
        return f"kafkalog {self.version} is ready on Spark {self.spark_version}; {workers}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"


def register(spark: SparkSession) -> Registration:
    """Make every mode of ``format("kafkalog")`` work in a session, however Python was started.

    In a local session, Spark's workers run this process's interpreter from now on, unless
    ``PYSPARK_PYTHON`` or ``spark.pyspark.python`` names one. Elsewhere the cluster's interpreter
    must have the package. One worker is started to see that it has.

    :param spark: a session, also one of Spark Connect.
    :raises RegistrationError: if workers can't load the package.
    """
    python = None if is_remote(spark) else _choose_python(spark)
    try:
        spark.dataSource.register(DefaultSource)
        found = _version_of_workers(spark)
    except Exception as e:
        raise RegistrationError(
            f"Spark's workers can't load the package: {cause_in(str(e))}", hint=_hint(python)
        ) from None
    if found != __version__:
        raise RegistrationError(
            f"Spark's workers have pyspark_kafkalog {found}, expected {__version__}", hint=_hint(python)
        )
    return Registration(__version__, spark.version, python)


def _choose_python(spark: SparkSession) -> str:
    """The interpreter of workers; in a local session where none is named, this process's from now on."""
    context = spark.sparkContext
    named = os.environ.get("PYSPARK_PYTHON") or spark.conf.get(_PYTHON_CONF, None)
    if str(context.master).startswith("local") and not named:
        context.pythonExec = worker_python()
    python: str = context.pythonExec
    return python


def _version_of_workers(spark: SparkSession) -> str:
    """The version of the package that a worker has, with all that it needs to read."""

    def load(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Pickled by value: the worker may not have the package.
        import pyarrow as pa

        import pyspark_kafkalog
        import pyspark_kafkalog.codec.decode

        for _ in arrow_batches:
            yield pa.RecordBatch.from_pydict({"version": [pyspark_kafkalog.__version__]})

    version: str = spark.range(0, 1, 1, 1).mapInArrow(load, "version string").collect()[0][0]
    return version


def _hint(python: str | None) -> str:
    if python is None:
        return "Install the package on the Spark Connect server: workers load it from there."
    return (
        f"Install the package for {python}, on every machine of the cluster, or let PYSPARK_PYTHON name an"
        " interpreter that has it before the session starts."
    )
