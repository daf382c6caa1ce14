"""Every benchmark runs, on little data; figures are for people, and no test looks at them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.run import BENCHMARKS


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", "--folder", str(tmp_path)]
    done = subprocess.run(
        [*command, "--scale", "0.002", "--rounds", "1"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "ratio" in done.stdout or "exponent" in done.stdout
    assert not list(tmp_path.iterdir())
