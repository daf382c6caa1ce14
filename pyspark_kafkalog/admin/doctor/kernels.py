"""Whether the kernels of the codec are compiled, and where."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark_kafkalog
from pyspark_kafkalog.admin.doctor.report import State


def kernels() -> tuple[State, str, str | None]:
    """State, finding and remedy. Nothing is compiled and nothing loaded for it."""
    codec = Path(pyspark_kafkalog.__file__).with_name("codec")
    places = [Path(given)] if (given := os.environ.get("NUMBA_CACHE_DIR")) else []
    places += [codec / "__pycache__", *_of_the_user()]
    tag = f"py{sys.version_info.major}{sys.version_info.minor}"
    for place in places:
        if next(place.glob(f"**/read_kernels.*.{tag}.nbi"), None) is not None:
            return State.FINE, f"compiled, cached in {place}", None
    writable = next((place for place in places if _can_be_written(place)), None)
    if writable is not None:
        return (
            State.FINE,
            f"not compiled yet; the first use takes 10 s of one core and caches them in {writable}",
            None,
        )
    return (
        State.PROBLEM,
        "not compiled, and no place to cache them: each process compiles them anew, which takes 10 s",
        "Set NUMBA_CACHE_DIR to a folder that the user of Spark's Python processes may write to.",
    )


def _of_the_user() -> list[Path]:
    """Where numba caches if it may not write beside the package."""
    try:
        home = Path.home()
    except RuntimeError:
        return []
    return [home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "numba"]


def _can_be_written(place: Path) -> bool:
    existing = next((folder for folder in (place, *place.parents) if folder.is_dir()), None)
    return existing is not None and os.access(existing, os.W_OK | os.X_OK)
