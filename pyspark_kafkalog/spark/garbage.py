"""Spare Python workers a garbage collection of some 50 ms after every task, plan and commit.

PySpark's daemon collects all garbage when one of them has ended, which walks every
object of the process. numba and kafka-python alone bring 150,000, which stay.
"""

from __future__ import annotations

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """Keep what exists now, modules above all, from being walked again. Where a worker's part ends.

    Objects are still freed when nothing refers to them; only cycles of them are not.
    Does nothing while no more modules are loaded than the last time.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)
