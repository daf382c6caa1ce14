"""Builds the package: a PEP 517 backend that adds the compiled library to wheels for Linux.

usage: python -m pyspark_kafkalog.build machine    makes the library for x86_64 or aarch64, beside the codec

It takes numba, and a C compiler that links: ``CC``, or else ``cc``. Where one of them is missing the wheel is
pure, and requires numba, which compiles on first use. The setting ``platform`` is the platform tag of a wheel
that must have a library, be it for another machine: ``-C platform=manylinux_2_17_aarch64``.
"""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import build_meta
from setuptools.build_meta import build_sdist, get_requires_for_build_sdist
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

if TYPE_CHECKING:
    from pyspark_kafkalog.codec.kernel import Kernel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]
# Without hooks for metadata alone: whether numba is required is known when the library is built or not.

MODULES = ("codec.read_kernels", "codec.write_kernels", "largemessage.kernels", "log.write.append_kernels")
"""Those that have kernels."""
CPUS = {"x86_64": "x86-64", "aarch64": "generic"}
"""The least CPU of each machine, in LLVM's words. A newer one decodes and encodes no faster."""
_ROOT = Path(__file__).parents[1]
_NUMBA_HAS_PYTHON = "python_version < '3.15'"

_platform: str | None = None
"""The platform tag of the wheel that is built, None if it is pure."""


def kernels() -> list[Kernel]:
    """All kernels of the package."""
    from pyspark_kafkalog.codec.kernel import Kernel

    modules = [import_module(f"pyspark_kafkalog.{module}") for module in MODULES]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Kernel)]


def fits(library: Path) -> bool:
    """Whether a library has all kernels as they are in this source."""
    from pyspark_kafkalog.codec.library import symbol

    code = library.read_bytes() if library.exists() else b""
    return all(symbol(kernel.function, kernel.signature).encode() in code for kernel in kernels())


def make(library: Path, machine: str) -> None:
    """Compile and link a library. numba must not have optimized yet: NUMBA_OPT=0.

    :raises subprocess.CalledProcessError: if the C compiler fails.
    """
    from pyspark_kafkalog.codec.ahead_of_time import object_code

    with tempfile.TemporaryDirectory() as folder:
        code, linked = Path(folder, "kernels.o"), Path(folder, library.name)
        code.write_bytes(object_code(kernels(), machine, CPUS[machine]))
        subprocess.run([*_linker(), "-shared", "-nostartfiles", "-s", code, "-o", linked], check=True)
        shutil.copyfile(linked, library.with_suffix(".new"))
    library.with_suffix(".new").replace(library)


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """setuptools' own requirements, and numba if a library is to be made."""
    requirements: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    platform = _wanted(config_settings)
    if platform and shutil.which(_linker()[0]) and not fits(_library(platform)):
        requirements.append(f"{_numba()} ; {_NUMBA_HAS_PYTHON}")
    return requirements


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """A wheel with a library, or a pure one; see this module."""
    _prepare(config_settings)
    name: str = build_meta.build_wheel(wheel_directory, None, metadata_directory)
    return name


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """An editable install, with a library in the checkout."""
    _prepare(config_settings)
    name: str = build_meta.build_editable(wheel_directory, None, metadata_directory)
    return name


def _prepare(config_settings: Mapping[str, Any] | None) -> None:
    """Have a library for the wheel, unless it can't be made and is not demanded."""
    global _platform
    _platform = _wanted(config_settings)
    if _platform is None or fits(_library(_platform)):
        return
    environment = {**os.environ, "NUMBA_OPT": "0", "PYSPARK_KAFKALOG_JIT_SAID": "1"}
    command = [sys.executable, "-m", __name__, _machine(_platform)]
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if config_settings and "platform" in config_settings:
        raise SystemExit(f"The kernels could not be compiled for {_platform}:\n{done.stderr}")
    reason = (done.stderr.strip().splitlines() or ["it ended"])[-1]
    print(f"The kernels are not compiled, so numba will be needed to run them: {reason}", file=sys.stderr)
    _platform = None


def _wanted(config_settings: Mapping[str, Any] | None) -> str | None:
    """The platform tag of a wheel with a library; None if none is known for this platform."""
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    platform = str((config_settings or {}).get("platform", here))
    return platform if "linux" in platform and _machine(platform) in CPUS else None


def _machine(platform: str) -> str:
    return next((machine for machine in CPUS if platform.endswith(f"_{machine}")), "")


def _library(platform: str) -> Path:
    from pyspark_kafkalog.codec import library

    return Path(library.path(_machine(platform)))


def _linker() -> list[str]:
    return shlex.split(os.environ.get("CC") or "cc")


def _numba() -> str:
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg", encoding="utf-8")
    return setup["options.extras_require"]["jit"].strip()


class EggInfo(egg_info):  # type: ignore[misc]
    """Requires numba of all but wheels with a library, on every platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if _platform is None and _numba() not in self.distribution.install_requires:
            self.distribution.install_requires.append(_numba())


class BuildPy(build_py):  # type: ignore[misc]
    """Adds the library to the package."""

    def run(self) -> None:
        super().run()
        if _platform is not None and not self.editable_mode:
            library = _library(_platform)
            self.copy_file(str(library), str(Path(self.build_lib, library.relative_to(_ROOT))))


class BdistWheel(bdist_wheel):  # type: ignore[misc]
    """A wheel with a library is for one platform and every Python 3."""

    def finalize_options(self) -> None:
        if _platform is not None:
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        found: tuple[str, str, str] = super().get_tag()
        return found if _platform is None else ("py3", "none", _platform)


if __name__ == "__main__":
    make(_library(f"linux_{sys.argv[1]}"), sys.argv[1])
