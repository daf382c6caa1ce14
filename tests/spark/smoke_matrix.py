"""Runs the smoke test in several environments, each with a broker of its own, and prints mode x environment.

Usage: ``python -m tests.spark.smoke_matrix NAME=PYTHON ...``; the exit code is 1 if anything failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kafka import Broker
from tests.kafka_service import running
from tests.sessions import OF_SHORT_LIVED_JVMS

ROOT = Path(__file__).parents[2]
MINUTES = 15


def smoke(python: str) -> dict[str, str]:
    """How each mode went with the PySpark of this interpreter."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-smoke-") as scratch:
        folder = Path(scratch, "spark")
        folder.mkdir()
        with running(Broker(Path(scratch, "broker"))) as broker:
            done = subprocess.run(
                [python, "-m", "tests.spark.smoke", str(folder), broker.bootstrap],
                cwd=ROOT,
                env={
                    "JAVA_TOOL_OPTIONS": " ".join(OF_SHORT_LIVED_JVMS[:2]),
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                },
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


def main(environments: list[str]) -> int:
    found = {}
    for environment in environments:
        name, _, python = environment.partition("=")
        found[name] = smoke(python)
    modes = list(dict.fromkeys(mode for results in found.values() for mode in results))
    print("| mode |" + "".join(f" {name} |" for name in found))
    print("|---|" + "---|" * len(found))
    for mode in modes:
        print(f"| {mode} |" + "".join(f" {results.get(mode, '-')} |" for results in found.values()))
    return int(any(result != "ok" for results in found.values() for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
