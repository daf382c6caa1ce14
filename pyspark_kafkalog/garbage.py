"""Keeps Python's garbage collector from walking the objects of modules: numba and kafka-python have 150,000.

While modules load, the collector walks them again and again, which takes a third of the time. And
PySpark's daemon collects all garbage after every task, plan and commit, which takes about 50 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_frozen_modules = 0


@contextmanager
def loading() -> Iterator[None]:
    """Load modules in this context: nothing is collected meanwhile, and they are not walked later."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        _freeze_more_modules(collect=False)
    finally:
        if enabled:
            gc.enable()


def freeze_modules() -> None:
    """Keep all present objects, mainly modules, from being walked again. Call it where a worker's part ends.

    Objects are still freed when nothing refers to them, except cycles.
    Does nothing unless modules were loaded since the last call.
    """
    _freeze_more_modules(collect=True)


def _freeze_more_modules(*, collect: bool) -> None:
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        if collect:
            gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
