"""The demo prints its results, and nothing of Spark's."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PRINTS = """
import os, time
from pyspark_kafkalog.tools.try_out.demo import without_sparks_noise

with without_sparks_noise():
    os.system("echo noise >&2; echo 'pyspark-kafkalog: Compiling' >&2")
    time.sleep(0.5)
    {then}
os.write(2, b"afterwards\\n")
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=False)


def test_only_lines_of_ours_are_shown() -> None:
    done = run("-c", _PRINTS.format(then="pass"))
    assert (done.returncode, done.stderr) == (0, "pyspark-kafkalog: Compiling\nafterwards\n")


def test_everything_is_shown_of_a_failure() -> None:
    done = run("-c", _PRINTS.format(then="1 / 0"))
    assert done.returncode == 1
    assert done.stderr.startswith("pyspark-kafkalog: Compiling\nnoise\nTraceback")
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.soak
def test_the_demo() -> None:
    done = run("-m", "pyspark_kafkalog.tools.try_out.demo")
    assert done.returncode == 0, done.stderr
    assert "3000 records in" in done.stdout
    assert [line for line in done.stderr.splitlines() if not line.startswith("pyspark-kafkalog: ")] == []
