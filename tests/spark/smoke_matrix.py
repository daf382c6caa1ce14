"""Runs the smoke test in several environments, each with a broker of its own, and prints mode x environment.

Usage: ``python -m tests.spark.smoke_matrix NAME=PYTHON ...``; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.kafka import Broker
from tests.kafka_service import running
from tests.sessions import OF_SHORT_LIVED_JVMS

ROOT = Path(__file__).parents[2]
MINUTES = 15


def smoke(python: str, *remote: str, root: Path = ROOT) -> dict[str, str]:
    """How each mode went with the PySpark of this interpreter, which runs the tests of ``root``."""
    flags = " ".join(flag for flag in OF_SHORT_LIVED_JVMS if "rchive" not in flag)
    with (
        tempfile.TemporaryDirectory(prefix="kafkalog-smoke-") as scratch,
        running(Broker(Path(scratch, "broker"), {"auto.create.topics.enable": True})) as broker,
    ):
        folder = Path(scratch, "spark")
        folder.mkdir()
        done = subprocess.run(
            [os.path.abspath(python), "-m", "tests.spark.smoke", str(folder), broker.bootstrap, *remote],
            cwd=root,
            env={"JAVA_TOOL_OPTIONS": flags, **os.environ, "PYTHONPATH": str(root)},
            stdout=subprocess.PIPE,
            text=True,
            timeout=MINUTES * 60,
            check=False,
        )
    try:
        said = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"start": f"exit code {done.returncode}"}
    return {"start": "ok", **said["modes"]}


def print_table(found: Mapping[str, Mapping[str, str]]) -> int:
    """Print how each mode went, by environment; 1 if anything failed."""
    modes = list(dict.fromkeys(mode for results in found.values() for mode in results))
    print("| mode |" + "".join(f" {name} |" for name in found))
    print("|---|" + "---|" * len(found))
    for mode in modes:
        print(f"| {mode} |" + "".join(f" {results.get(mode, '-')} |" for results in found.values()))
    return int(any(result != "ok" for results in found.values() for result in results.values()))


def main(environments: list[str]) -> int:
    named = (environment.partition("=") for environment in environments)
    return print_table({name: smoke(python) for name, _, python in named})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
