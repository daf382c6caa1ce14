"""What the package does without the folder of an extension or tool."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_kafkalog
from tests.test_architecture import NEEDS

PLAIN = """
import sys

sys.path.insert(0, sys.argv[1])
import pyarrow as pa
import pyspark_kafkalog
from pyspark_kafkalog import connect

assert pyspark_kafkalog.__file__.startswith(sys.argv[1])
with connect(sys.argv[1] + "/log") as kafka:
    rows = pa.table({"value": [b"a"], "headers": [[{"key": "h", "value": b"b"}]]})
    assert kafka.write(rows, "t") == 1
    assert kafka.read("t").read_all()["value"].to_pylist() == [b"a"]
"""

CHANGES = """
with connect(sys.argv[1] + "/log") as kafka, kafka.changes("t", group=sys.argv[2]) as changes:
    assert changes.read().read_all()["value"].to_pylist() == [b"a"]
"""

ASKING = """
import sys

sys.path.insert(0, sys.argv[1])
from pyspark_kafkalog import OptionError
from pyspark_kafkalog.options.settings import read_options, write_options

for options_of in (lambda given: read_options(given, batch=False)), write_options:
    try:
        options_of({"path": "/log", sys.argv[2]: sys.argv[3]})
    except OptionError as e:
        print(e)
"""


def without(left_out: str, folder: Path) -> Path:
    """A copy of the package without a folder."""
    package = folder / pyspark_kafkalog.__name__
    shutil.copytree(Path(pyspark_kafkalog.__file__).parent, package)
    shutil.rmtree(package.joinpath(*left_out.split(".")))
    return folder


@pytest.mark.parametrize("left_out", sorted(NEEDS))
def test_records_are_written_and_read_without(left_out: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PLAIN, str(without(left_out, tmp_path))], check=True)


@pytest.mark.parametrize("left_out", ["extensions.exactly_once", "tools.groups"])
def test_what_came_since_a_commit_is_read_without(left_out: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAIN + CHANGES, str(without(left_out, tmp_path)), "g"]
    subprocess.run(command, check=True)


def test_a_group_that_may_hold_a_marker_is_left_alone_without_what_reads_it(tmp_path: Path) -> None:
    root = str(without("extensions.exactly_once", tmp_path))
    command = [sys.executable, "-c", PLAIN + CHANGES, root, "kafkalog-g"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "OptionError: Group 'kafkalog-g' needs exactly_once, which is not installed." in done.stderr


@pytest.mark.parametrize(
    ("extension", "option", "value"),
    [
        ("large_messages", "large.message.enabled", "true"),
        ("typed_values", "value.format", "json"),
        ("audit", "auditLocation", "/audit"),
        ("transform", "transform", "package:function"),
    ],
)
def test_an_option_of_what_is_not_installed_is_refused(
    extension: str, option: str, value: str, tmp_path: Path
) -> None:
    root = str(without(f"extensions.{extension}", tmp_path))
    command = [sys.executable, "-c", ASKING, root, option, value]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    refused = f"Option '{option}' needs {extension}, which is not installed. Leave it out, or install a"
    assert [line[: len(refused)] for line in done.stdout.splitlines()] == [refused] * 2
