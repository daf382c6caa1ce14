"""The kind and the time zone of a session, and the meaning of Spark's errors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no JVM here, and no Spark context."""
    return not hasattr(spark, "_jsc")


def check_session(spark: SparkSession) -> None:
    """Check the value that a caller gives as its session.

    :raises OptionError: for anything else, such as options, a Spark context or the class of sessions.
    """
    if isinstance(spark, type) or hasattr(spark, "parallelize") or not hasattr(spark, "version"):
        what = f"the class {spark.__name__}" if isinstance(spark, type) else type(spark).__name__
        raise OptionError(
            f"Expected a Spark session, got {what}",
            hint="It comes first. Get it by SparkSession.builder.getOrCreate().",
        )


def session_zone() -> str:
    """``spark.sql.session.timeZone`` in a task, where Spark puts the confs of the query's session.

    If it isn't set, it is Java's default, which is the time zone of the machine.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    named = None if context is None else context.getLocalProperty("spark.sql.session.timeZone")
    return named or os.environ.get("TZ", "").lstrip(":") or _zone_of_machine()


def _zone_of_machine() -> str:
    """The time zone of the machine, as Java finds it on Linux and macOS."""
    _, found, name = os.path.realpath("/etc/localtime").partition("/zoneinfo/")
    return name if found else "UTC"


def cause_in(text: str) -> str:
    """The line in the text of an error of Spark's that says most; such texts quote whole tracebacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or "Exception: " in line or line.startswith("[")]
    return (causes or lines or [""])[-1]
