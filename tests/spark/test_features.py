"""Sparks that lack features: what is found, what stands in, and that no record stays unread."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_kafkalog.spark.features import HAS_READ_LIMITS, features

ROOT = Path(__file__).parents[2]
NAMES = ["limits per trigger", "latest offsets in progress", "filter pushdown"]


def test_each_feature_says_in_a_sentence_what_is_lost_without_it() -> None:
    assert [feature.name for feature in features()] == NAMES
    assert all(feature.without.endswith(".") for feature in features())


@pytest.mark.long
@pytest.mark.skipif(not HAS_READ_LIMITS, reason="this PySpark has too little that could be hidden")
@pytest.mark.parametrize(("release", "found"), [("4.0", [False] * 3), ("4.1", [False, False, True])])
def test_an_older_spark(tmp_path: Path, release: str, found: list[bool]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.older_spark", release, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == dict(zip(NAMES, found, strict=True))
