"""Archives of the classes that Spark and Kafka load, with which their JVMs start in half the time.

This is Java's class data sharing (JEP 350). :mod:`tests.make_class_archives` makes them, for
one virtual environment; tests go without where there are none. A JVM pays no heed
to one that was made by another Java, or of other jars than it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDER = Path(sys.prefix) / "class-archives"
OF_SPARK = _FOLDER / "spark.jsa"
OF_KAFKA = _FOLDER / "kafka.jsa"

# Else a JVM would complain on its standard output, where applications answer tests.
_QUIET = "-Xlog:cds*=off"


def using(archive: Path) -> list[str]:
    """Options of a JVM that takes classes from an archive."""
    return [_QUIET, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def making(archive: Path) -> list[str]:
    """Options of a JVM that archives, when it ends, the classes that it has loaded."""
    archive.parent.mkdir(exist_ok=True)
    return [_QUIET, f"-XX:ArchiveClassesAtExit={archive}"]
