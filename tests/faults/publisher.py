"""Runs publishes that end by SIGKILL at a chosen step; each in a fork of this process, so it costs little.

Reads lines ``<folder> <step>`` and answers each with the exit code of the
process that took the steps; their names are in ``<folder>/steps``. A step is a call that changes the
file system. Before the one of the given number the process kills itself;
of a write, half is done. Step 0 is never reached. Nothing is flushed to disk, as a
process that is killed does not take the system's memory with it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark_kafkalog.log.publish import PublishedBatch
from pyspark_kafkalog.model import TopicPartition
from tests.log.writing import Values, publish_staged, stage, values

STEPS = ("open", "pwrite", "fsync", "ftruncate", "replace", "unlink", "mkdir", "rmdir")
BATCHES = 2
QUERY = "query"


def records(batch_id: int, tasks: int) -> list[Values]:
    """The rows of a micro-batch as each of its tasks has them; the same rows, whatever the number of tasks.

    The first makes topic ``t``, the second makes ``new`` and appends to ``t``; segments roll.
    """
    numbered = values(60, 50, 1000 * batch_id)
    topics = ("t", "new")[: batch_id + 1]
    split: list[dict[TopicPartition, list[bytes]]] = [{} for _ in range(tasks)]
    for i, value in enumerate(numbered):
        # Neither the task nor the partition of a row is the same if there are more tasks.
        partition = TopicPartition(topics[value[-1] % len(topics)], i // tasks % 2)
        split[i % tasks].setdefault(partition, []).append(value)
    return split  # type: ignore[return-value]


def publish_batch(root: Path, batch_id: int, tasks: int) -> None:
    """Stage and publish a micro-batch as Spark does it."""
    job = f"{QUERY}-{batch_id}"
    staged = [file for its in records(batch_id, tasks) for file in stage(root, job, its, batch_size=300)]
    publish_staged(root, staged, job, PublishedBatch(QUERY, batch_id), segment_bytes=2000)


def run(folder: Path, kill_at: int) -> None:
    """Publish the batches that are not in ``folder/committed``, which stands for Spark's own commit log."""
    count_steps(folder / "steps", kill_at)
    committed = folder / "committed"
    done = json.loads(committed.read_text()) if committed.exists() else -1
    for batch_id in range(done + 1, BATCHES):
        publish_batch(folder / "log", batch_id, tasks=2)
        committed.write_text(json.dumps(batch_id))


def count_steps(report: Path, kill_at: int) -> None:
    """List the steps of this process in ``report``, a line each, and end it at number ``kill_at``."""
    os.fsync = lambda descriptor: None
    lock = threading.Lock()
    numbers = itertools.count(1)
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & (os.O_CREAT | os.O_TRUNC):
                return function(*args, **kwargs)
            with lock:
                number = next(numbers)
                os.write(descriptor, f"{name} {args[-1]!r:.200}\n".encode())
                if number == kill_at:
                    if name == "pwrite":
                        function(args[0], args[1][: len(args[1]) // 2], args[2])
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, counted(name, getattr(os, name)))


def serve() -> None:
    for line in sys.stdin:
        folder, step = line.rsplit(" ", 1)
        child = os.fork()
        if child == 0:
            try:
                run(Path(folder), int(step))
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)


if __name__ == "__main__":
    serve()
