"""Steps at which tests stop a process, to kill it there. Free unless an environment variable names a folder.

``PYSPARK_KAFKALOG_STOPS`` names a folder. A process that comes to a step of which the folder has a file
waits: it puts a file ``<step>.stopped-<process id>`` beside it, and goes on once the first is gone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

VARIABLE = "PYSPARK_KAFKALOG_STOPS"
_FOLDER = os.environ.get(VARIABLE)
_PAUSE = 0.01


def stop_at(step: str) -> None:
    """Wait here if a test wants that."""
    if _FOLDER is None:
        return
    wanted = os.path.join(_FOLDER, step)
    if not os.path.exists(wanted):
        return
    Path(f"{wanted}.stopped-{os.getpid()}").touch()
    while os.path.exists(wanted):
        time.sleep(_PAUSE)
