"""Keep Python's garbage collector away from modules: numba and kafka-python bring 150,000 objects.

While modules are loading, the collector walks them over and over, which takes a third of the time.
And PySpark's daemon collects all garbage after every task, plan and commit, in some 50 ms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_frozen_modules = 0


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without collections meanwhile, and exempt them from later ones."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        _freeze_more_modules(collect=False)
    finally:
        if enabled:
            gc.enable()


def freeze_modules() -> None:
    """Exempt what exists now, above all modules, from later collections; call it where a worker's part ends.

    Objects are still freed when nothing refers to them, unless they form cycles.
    Does nothing if no modules were loaded since the last call.
    """
    _freeze_more_modules(collect=True)


def _freeze_more_modules(*, collect: bool) -> None:
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        if collect:
            gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
