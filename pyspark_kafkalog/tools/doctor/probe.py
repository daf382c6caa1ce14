"""The probe that the doctor sends to executors, pickled by value: it works where the package is missing.

So it uses nothing of this module but its one function, and imports only what every Spark worker has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

PROBED = "seen string"
"""The schema of what it yields: for each row that it gets a JSON object."""


def probe(batches: Iterable[Any], *, run: str, options: dict[str, str], hold: float) -> Iterator[Any]:
    """Look at this executor, once for all its tasks that run at the same time.

    :param run: a name for this examination, of letters and digits.
    :param options: where to look.
    :param hold: seconds to keep the task's core at least, so that Spark gives the next task to another.
    """
    import json
    import os
    import platform
    import sys
    import tempfile
    import time

    import pyarrow as pa

    began = time.monotonic()
    host = platform.node()
    # A worker is forked by the executor's own daemon.
    executor = f"{host}:{os.getppid()}"
    seen: dict[str, Any] = {
        "executor": executor,
        "python": platform.python_version(),
        "executable": sys.executable,
        "looked": None,
        "missing": None,
    }
    claim = os.path.join(tempfile.gettempdir(), f"kafkalog-doctor-{run}-{os.getppid()}")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        is_first = True
    except FileExistsError:
        is_first = False
    except OSError:
        is_first, claim = True, ""
    try:
        if is_first:
            try:
                import pyspark_kafkalog

                seen["version"] = pyspark_kafkalog.__version__
                from pyspark_kafkalog.tools.doctor.look import look

                seen["looked"] = look(options, f".kafkalog-doctor-{run}")
            except ImportError as e:
                seen["missing"] = str(e)
        time.sleep(max(0.0, began + hold - time.monotonic()))
    finally:
        if is_first and claim:
            os.remove(claim)
    rows = sum(batch.num_rows for batch in batches)
    texts = [json.dumps(seen) if is_first else None] * rows
    yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["seen"])
