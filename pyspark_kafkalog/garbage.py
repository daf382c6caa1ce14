"""Spare Python workers walks over the objects of all modules, of which numba and kafka-python bring 150,000.

While modules are loaded Python's garbage collector walks them over and over, which takes a third of
the time. And PySpark's daemon collects all garbage after every task, plan and commit, in some 50 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_frozen_modules = 0


@contextmanager
def loading() -> Iterator[None]:
    """Where modules are loaded: nothing is collected meanwhile, and they are kept from being walked later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        _freeze_more_modules(collect=False)
    finally:
        if enabled:
            gc.enable()


def freeze_modules() -> None:
    """Keep what exists now, modules above all, from being walked again. Where a worker's part ends.

    Objects are still freed when nothing refers to them; only cycles of them are not.
    Does nothing while no more modules are loaded than the last time.
    """
    _freeze_more_modules(collect=True)


def _freeze_more_modules(*, collect: bool) -> None:
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        if collect:
            gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
