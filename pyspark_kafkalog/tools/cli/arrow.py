"""Imports pyarrow without pandas, which would be a third of all that a command does to start."""

from __future__ import annotations

import sys
from typing import Any


class _WithoutPandas:
    """Refuses to find pandas."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def import_arrow() -> None:
    """Have pyarrow look for pandas while it can't be found.

    pyarrow does so once, at its first array or scalar, to know a pandas object if it is given one. Here none
    is. What needs pandas later finds it, ``to_pandas`` too. Where pyarrow is in use already nothing is done.
    """
    if "pyarrow" in sys.modules:
        return
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
