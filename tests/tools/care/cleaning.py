"""A process that renames the segments of a partition as Kafka's cleaner does, until its input ends.

Run as ``python -m tests.tools.care.cleaning FOLDER``; see :func:`beside_a_cleaner`.
"""

from __future__ import annotations

import itertools
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIXES = (".log", ".index", ".timeindex")


def clean(folder: Path, base_offset: int) -> None:
    """Put a copy of a segment in its place: the order of Kafka's ``LocalLog.replaceSegments``."""
    files = [folder / f"{base_offset:020d}{suffix}" for suffix in SUFFIXES]
    for file in files:
        shutil.copy2(file, f"{file}.cleaned")
    for before, after in ((".cleaned", ".swap"), ("", ".deleted"), (".swap", "")):
        for file in files:
            Path(f"{file}{before}").rename(f"{file}{after}")
    for file in files:
        Path(f"{file}.deleted").unlink()


@contextmanager
def beside_a_cleaner(folder: Path) -> Iterator[None]:
    """While this lasts, all segments of the partition but the active one are cleaned again and again."""
    command = [sys.executable, "-m", "tests.tools.care.cleaning", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cleaner:
        assert cleaner.stdout is not None
        assert cleaner.stdout.readline()
        yield
        assert cleaner.poll() is None
        cleaner.communicate(timeout=60)
    assert cleaner.returncode == 0


def _main(folder: Path) -> None:
    base_offsets = [int(file.stem) for file in sorted(folder.glob("*.log"))][:-1]
    for count, base_offset in enumerate(itertools.cycle(base_offsets)):
        clean(folder, base_offset)
        if count == 0:
            print("cleaning", flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            return


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
