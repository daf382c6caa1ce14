"""Python workers walk their modules once, not after every task."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

from pyspark_kafkalog import garbage
from pyspark_kafkalog.garbage import freeze_modules, loading


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
    del kept


def test_nothing_is_collected_while_modules_are_loaded_and_they_are_frozen() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    with loading():
        kept = [[] for _ in range(1000)]
    assert gc.get_freeze_count() <= frozen
    del kept


def test_a_failure_to_load_leaves_the_collector_as_it_was() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
