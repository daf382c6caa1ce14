"""Python workers walk their modules once, not after every task."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

from pyspark_kafkalog.spark import garbage
from pyspark_kafkalog.spark.garbage import freeze_modules


@pytest.fixture(autouse=True)
def _new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage, "_frozen_modules", 0)
    yield
    gc.unfreeze()


def test_what_exists_is_frozen_and_what_comes_with_more_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze_modules()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    kept = [[] for _ in range(1000)]
    freeze_modules()
    assert gc.get_freeze_count() <= frozen
    monkeypatch.setitem(sys.modules, "a_module_of_another_task", types.ModuleType("b"))
    freeze_modules()
    assert gc.get_freeze_count() > frozen
    assert len(kept) == 1000
