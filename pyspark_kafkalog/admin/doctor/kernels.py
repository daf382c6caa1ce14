"""Whether the kernels of the codec are compiled, and where."""

from __future__ import annotations

from pyspark_kafkalog.admin.doctor.report import State
from pyspark_kafkalog.codec import library
from pyspark_kafkalog.codec.kernel import kernels as all_kernels


def kernels() -> tuple[State, str, str | None]:
    """State, finding and remedy. Nothing is compiled for it."""
    others = [one for one in all_kernels() if library.find(one.function, one.signature) is None]
    if not others:
        return State.FINE, f"compiled: {library.path()}", None
    try:
        from pyspark_kafkalog.codec import jit
    except ImportError as e:
        return (
            State.PROBLEM,
            f"no compiled library fits, and numba cannot be imported: {e.__cause__}",
            "Run: pip install 'pyspark-kafkalog[jit]'",
        )
    cached = [jit.cached(one.function, one.signature) for one in others]
    folder = cached[0][0]
    if folder is None:
        return (
            State.PROBLEM,
            "there is no place to cache them: each process compiles them again with numba, which takes 10 s",
            "Set NUMBA_CACHE_DIR to a folder that the user of Spark's Python processes may write to.",
        )
    if all(there for _, there in cached):
        return State.FINE, f"compiled by numba, cached in {folder}", None
    return (
        State.FINE,
        f"not compiled yet: numba does it at the first use, in 10 s of one core, and caches them in {folder}",
        None,
    )
