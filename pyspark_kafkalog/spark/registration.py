"""``register(spark)``: makes ``format("kafkalog")`` work in a running session, and sees that it does."""

from __future__ import annotations

import html
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from pyspark_kafkalog._version import __version__
from pyspark_kafkalog.errors import RegistrationError
from pyspark_kafkalog.options.values import MAY_BE_SECRET
from pyspark_kafkalog.plugins import BY_VALUE
from pyspark_kafkalog.read.splits import PARALLELISM
from pyspark_kafkalog.spark.session import cause_in, check_session, is_remote
from pyspark_kafkalog.spark.source import DefaultSource
from pyspark_kafkalog.spark.worker_python import worker_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_log = logging.getLogger("pyspark_kafkalog")

_PYTHON_CONF = "spark.pyspark.python"
_REDACTION_CONF = "spark.sql.redaction.options.regex"
_REDACTED = "|".join((f"(?i)^{BY_VALUE}", *(f"^{re.escape(start)}" for start in MAY_BE_SECRET)))
"""The options that plans in Spark's event log and UI must not show, by their names or values.

By itself Spark redacts what looks like a password, a secret or a token: not keys, passphrases and
logins of registries.
"""
_FOUND_BY_NAME = "DATA_SOURCE_ALREADY_EXISTS"
_ANY_PLACE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "any"}
"""Spark asks only for its schema, which takes no connection."""
_HINTS = {
    "No compiled library": (
        "Install the package on every machine, or ship an environment by spark.archives: a zip, as py-files"
        " and addPyFile ship it, has no compiled library."
    ),
    "PYTHON_VERSION_MISMATCH": (
        "Workers need the driver's version of Python: let PYSPARK_PYTHON name one that has the package, too,"
        " before the session starts."
    ),
}
"""The hints, by words of Spark's error."""


@dataclass(frozen=True)
class Registration:
    """A session in which ``format("kafkalog")`` works. Its text, which notebooks show, says so."""

    version: str
    """The version of this package."""
    spark_version: str
    worker_python: str | None
    """The interpreter that Spark's workers run; None under Spark Connect, where the server decides."""

    def __str__(self) -> str:
        workers = (
            "the server chooses its workers' Python"
            if self.worker_python is None
            else f"workers run {self.worker_python}"
        )
        return f"kafkalog {self.version} is ready on Spark {self.spark_version}; {workers}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"


def register(spark: SparkSession) -> Registration:
    """Make every mode of ``format("kafkalog")`` work in a session, however Python was started.

    In a local session, Spark's workers run this process's interpreter from now on, unless ``PYSPARK_PYTHON``
    or ``spark.pyspark.python`` names one. Elsewhere the cluster's interpreter must have the package. To check
    this, one worker is started, and the planner that Spark starts beside its driver.

    The session becomes the active one of this thread: Spark looks up the sink of a write there. So call this
    in each thread that writes.

    :param spark: a session, also one of Spark Connect.
    :raises RegistrationError: if workers or the planner can't run the package.
    :raises OptionError: if ``spark`` isn't a session.
    """
    check_session(spark)
    python = None if is_remote(spark) else _choose_python(spark)
    where = "workers"
    try:
        if python is not None:
            spark.createDataFrame([], "none int")  # of all that is public, this sets the active session
        _register(spark)
        _redact(spark)
        found = _version_of_workers(spark)
        where = "planner, which runs beside the driver,"
        ask_planner(spark)
    except Exception as e:
        cause = cause_in(str(e))
        hint = _other_version(spark) or next(
            (hint for words, hint in _HINTS.items() if words in cause), _hint(python, where)
        )
        raise RegistrationError(f"Spark's {where} can't run the package: {cause}", hint=hint) from None
    if found != __version__:
        raise RegistrationError(
            f"Spark's workers have pyspark_kafkalog {found}, expected {__version__}",
            hint=_hint(python, "workers"),
        )
    return Registration(__version__, spark.version, python)


def ask_planner(spark: SparkSession) -> None:
    """Let the planner that Spark starts beside its driver run the package; or an error of Spark's."""
    spark.read.format(DefaultSource.name()).options(**_ANY_PLACE).load().schema  # noqa: B018 - asks it


def _register(spark: SparkSession) -> None:
    """Register the data source, unless Spark has it: Spark 4.0 lets none replace what it found by itself."""
    try:
        spark.dataSource.register(_source_for(spark))
    except PySparkException as e:
        if _FOUND_BY_NAME not in str(e):
            raise


def _source_for(spark: SparkSession) -> type[DefaultSource]:
    """The data source for a session: where that has more than 8 cores, small partitions share no fewer tasks.

    A class of its own is sent to Spark by value, and so is its number.
    """
    parallelism = 0 if is_remote(spark) else spark.sparkContext.defaultParallelism
    if parallelism <= PARALLELISM:
        return DefaultSource
    return type(DefaultSource.__name__, (DefaultSource,), {"parallelism": parallelism})


def _redact(spark: SparkSession) -> None:
    """Have Spark redact the options of logins where it shows the options of a view."""
    try:
        before = spark.conf.get(_REDACTION_CONF) or ""
        if _REDACTED not in before:
            spark.conf.set(_REDACTION_CONF, f"{before}|{_REDACTED}" if before else _REDACTED)
    except PySparkException as e:  # a platform may not let its users set it
        _log.warning("Spark may show options of logins in its event log: %s", cause_in(str(e)))


def _choose_python(spark: SparkSession) -> str:
    """The interpreter of workers; in a local session where none is named, this process's from now on."""
    context = spark.sparkContext
    named = os.environ.get("PYSPARK_PYTHON") or spark.conf.get(_PYTHON_CONF, None)
    if str(context.master).startswith("local") and not named:
        context.pythonExec = worker_python()
    python: str = context.pythonExec
    return python


def _version_of_workers(spark: SparkSession) -> str:
    """The version of the package that a worker has, with all that it needs to read, which is tried."""

    def load(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Pickled by value: the worker may not have the package.
        import numpy as np
        import pyarrow as pa

        import pyspark_kafkalog
        import pyspark_kafkalog.codec.decode
        from pyspark_kafkalog.codec.walk import walk

        walk(np.zeros(100, np.uint8))  # by a kernel
        for _ in arrow_batches:
            yield pa.RecordBatch.from_pydict({"version": [pyspark_kafkalog.__version__]})

    version: str = spark.range(0, 1, 1, 1).mapInArrow(load, "version string").collect()[0][0]
    return version


def _other_version(spark: SparkSession) -> str | None:
    """The hint if Spark and the imported PySpark are of different versions; None if they are not."""
    import pyspark

    theirs, ours = spark.version, pyspark.__version__
    if is_remote(spark) or _numbers(theirs) == _numbers(ours):
        return None
    home = os.environ.get("SPARK_HOME")
    where = f" (SPARK_HOME={home})" if home else ""
    return (
        f"Spark {theirs} runs{where}, but PySpark {ours} is imported: unset SPARK_HOME, or install"
        f" pyspark=={'.'.join(map(str, _numbers(theirs)))}."
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", version)[:3]]


def _hint(python: str | None, where: str) -> str:
    if python is None:
        return (
            "Install the package on the Spark Connect server, from where workers load it, and let"
            " PYSPARK_PYTHON name an interpreter that has it before the server starts."
        )
    if where != "workers" and not os.path.isabs(python):
        return (
            f"The driver starts {python}, too: unpack the archive that has it into the driver's working"
            " folder, under the same name."
        )
    return (
        f"Install the package for {python}, on every machine of the cluster, or let PYSPARK_PYTHON name an"
        " interpreter that has it before the session starts."
    )
