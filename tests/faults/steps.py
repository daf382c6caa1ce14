"""Processes that end by SIGKILL at a chosen step; each is a cheap fork of a server process.

A step is a call that changes the file system where the test has its files: not a kernel that is compiled
and cached in the first run alone. Before the one of the given number
the process kills itself; of a write, half is done. Step 0 is never reached. Nothing is
flushed to disk, as a process that is killed does not take the system's memory with it.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS = ("open", "pwrite", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir")
KILLED = -9
Runner = Callable[[Path, int], int]
"""(folder, step to die at) -> exit code."""


@contextmanager
def step_runner(module: str) -> Iterator[Runner]:
    """A process of ``module``, which calls :func:`serve`."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(folder: Path, step: int) -> int:
            print(folder, step, file=server.stdin, flush=True)
            return int(server.stdout.readline())

        yield run
        server.stdin.close()


def changes(report: Path) -> list[int]:
    """The numbers of a report's steps but flushes: dying before one is dying before the next step."""
    steps = report.read_text().splitlines()
    return [number for number, step in enumerate(steps, 1) if not step.startswith("fsync")]


def serve(run: Callable[[Path, int], None]) -> None:
    """Read lines ``<folder> <step>`` and answer each with the exit code of a fork that runs so."""
    for line in sys.stdin:
        folder, step = line.rsplit(" ", 1)
        child = os.fork()
        if child == 0:
            try:
                run(Path(folder), int(step))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def count_steps(report: Path, kill_at: int) -> None:
    """List the steps of this process in ``report``, one per line, and end it at number ``kill_at``."""
    os.fsync = lambda descriptor: None
    lock = threading.Lock()
    numbers = itertools.count(1)
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    of_test = os.path.join(report.parent.parent, "")

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            is_elsewhere = not isinstance(args[0], int) and not os.fspath(args[0]).startswith(of_test)
            if is_elsewhere or (name == "open" and not args[1] & (os.O_CREAT | os.O_TRUNC)):
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
