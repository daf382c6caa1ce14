"""Spark applications in separate processes, for tests to kill, whole or in part."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]


class Application:
    """A module run in its own session, which answers each line that it is sent with a line."""

    def __init__(
        self,
        module: str,
        *arguments: str,
        output: Path,
        paths: tuple[Path, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._output = output
        python_path = os.pathsep.join(map(str, (*paths, _ROOT)))
        with output.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env={**os.environ, "PYTHONPATH": python_path, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def receive(self) -> str:
        """The answer; empty if the application died."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def has_answered(self) -> bool:
        """Whether there is something to :meth:`receive`, even if it is the end of a dead application."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def exit_code(self) -> int:
        return self._process.wait(60)

    def output_tail(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def planners(self) -> list[psutil.Process]:
        """The Python processes of the driver that plan streams, one for each query."""
        everything = psutil.Process(self._process.pid).children(recursive=True)
        return [process for process in everything if _runs(process, "python_streaming_source_runner")]

    def python_below_spark(self) -> list[psutil.Process]:
        """The Python processes that do Spark's work, without the daemons that fork them."""
        below = []
        for spark in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                parent = spark.parent()
                daemon = _runs(spark, "pyspark.daemon") and not _runs(parent, "pyspark.daemon")
                if "python" in spark.name() and not daemon:
                    below.append(spark)
        return below

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks, other than the driver's."""
        everything = psutil.Process(self._process.pid).children(recursive=True)
        return [process for process in everything if _runs(process, "CoarseGrainedExecutorBackend")]

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks in executors; each is a fork of a daemon."""
        below = [process for executor in self.executors() for process in executor.children(recursive=True)]
        return [
            process
            for process in below
            if _runs(process, "pyspark.worker") and _runs(process.parent(), "pyspark.daemon")
        ]

    def task_workers(self) -> list[psutil.Process]:
        """The Python processes that run tasks of a local session; each is a fork of a daemon."""
        everything = psutil.Process(self._process.pid).children(recursive=True)
        return [
            process
            for process in everything
            if _runs(process, "pyspark.worker") and _runs(_parent(process), "pyspark.daemon")
        ]

    def kill(self) -> None:
        """Kill -9 all of its processes, also those of PySpark's daemon, which has a group of its own."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        os.killpg(self._process.pid, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, 60)
        self._process.wait(60)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)


def _parent(process: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return process.parent()
    return None


def _runs(process: psutil.Process | None, word: str) -> bool:
    try:
        return process is not None and any(word in part for part in process.cmdline())
    except psutil.Error:
        return False
