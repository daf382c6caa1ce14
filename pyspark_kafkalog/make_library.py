"""Makes the compiled library of kernels, beside the codec. Needs numba, and a C compiler that links.

usage: python -m pyspark_kafkalog.make_library [machine]

The machine is ``x86_64`` or ``aarch64``, by default this one. ``CC`` is the compiler, or else ``cc``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CPUS = {"x86_64": "x86-64", "aarch64": "generic"}
"""The least CPU of each machine, in LLVM's words. A newer one decodes and encodes no faster."""


def fits(library: Path) -> bool:
    """Whether a library has all kernels as they are in this source."""
    from pyspark_kafkalog.codec.kernel import kernels
    from pyspark_kafkalog.codec.library import symbol

    code = library.read_bytes() if library.exists() else b""
    return all(symbol(kernel.function, kernel.signature).encode() in code for kernel in kernels())


def library_for(machine: str) -> Path:
    """The path of the library for a machine, whether the file exists or not."""
    from pyspark_kafkalog.codec import library

    return Path(library.path(machine))


def compiler() -> list[str]:
    """The command that links."""
    return shlex.split(os.environ.get("CC") or "cc")


def make(library: Path, machine: str) -> None:
    """Compile and link a library. numba must not have been imported yet.

    :raises FileNotFoundError: if there is no C compiler.
    :raises subprocess.CalledProcessError: if it fails.
    """
    # It would optimize for the CPU of this machine, and announce that it compiles.
    os.environ.update(NUMBA_OPT="0", PYSPARK_KAFKALOG_JIT_SAID="1")
    from pyspark_kafkalog.codec.ahead_of_time import object_code
    from pyspark_kafkalog.codec.kernel import kernels

    with tempfile.TemporaryDirectory() as folder:
        code, linked = Path(folder, "kernels.o"), Path(folder, library.name)
        code.write_bytes(object_code(kernels(), machine, CPUS[machine]))
        subprocess.run([*compiler(), "-shared", "-nostartfiles", "-s", code, "-o", linked], check=True)
        shutil.copyfile(linked, library.with_suffix(".new"))
    library.with_suffix(".new").replace(library)


if __name__ == "__main__":
    machine = sys.argv[1] if len(sys.argv) > 1 else os.uname().machine
    if machine not in CPUS:
        raise SystemExit(f"Expected one of {', '.join(CPUS)}, got {machine}")
    make(library_for(machine), machine)
