"""What kind of session there is, and what its errors say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no JVM here, and no Spark context."""
    return not hasattr(spark, "_jsc")


def cause_in(text: str) -> str:
    """The line in the text of an error of Spark's that says most; such texts quote whole tracebacks."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "Error: " in line or "Exception: " in line or line.startswith("[")]
    return (causes or lines or [""])[-1]
