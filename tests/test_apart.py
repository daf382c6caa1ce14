"""What the package does without the folder of an extension or tool."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_kafkalog
from tests.test_architecture import NEEDS, OPTIONS_ALONE

PLAIN = """
import sys

sys.path.insert(0, sys.argv[1])
import pyarrow as pa
import pyspark_kafkalog
from pyspark_kafkalog import connect

assert pyspark_kafkalog.__file__.startswith(sys.argv[1])
with connect(sys.argv[1] + "/log") as kafka:
    assert kafka.write(pa.table({"value": [b"a"]}), "t") == 1
    assert kafka.read("t").read_all()["value"].to_pylist() == [b"a"]
"""


@pytest.mark.parametrize("left_out", sorted(NEEDS.keys() - OPTIONS_ALONE))
def test_records_are_written_and_read_without(left_out: str, tmp_path: Path) -> None:
    package = tmp_path / pyspark_kafkalog.__name__
    shutil.copytree(
        Path(pyspark_kafkalog.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.rmtree(package.joinpath(*left_out.split(".")))
    subprocess.run([sys.executable, "-c", PLAIN, str(tmp_path)], check=True)
