"""Builds the package: a PEP 517 backend that adds the compiled library to wheels for Linux.

:mod:`pyspark_kafkalog.make_library` makes it. Where numba or a C compiler is missing the wheel is pure, and
requires numba, which compiles on first use. The setting ``platform`` is the platform tag of a wheel
that must have a library, be it for another machine: ``-C platform=manylinux_2_17_aarch64``. With
``-C platform=any`` the wheel is pure.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info < (3, 10):  # noqa: UP036 - what is imported below is not for older ones
    raise SystemExit(f"pyspark-kafkalog needs Python 3.10 or newer, and this is {sys.version.split()[0]}")

from setuptools import build_meta
from setuptools.build_meta import build_sdist, get_requires_for_build_sdist
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

from pyspark_kafkalog import make_library
from pyspark_kafkalog.make_library import CPUS, compiler, fits, library_for

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]
# Without hooks for metadata alone: whether numba is required is known when the library is built or not.

_ROOT = Path(__file__).parents[1]
_NUMBA_HAS_PYTHON = "python_version < '3.15'"

_ANY = "any"
"""The platform tag of a pure wheel."""

_platform: str | None = None
"""The platform tag of the wheel that is built, None if it is pure."""


def get_requires_for_build_wheel(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """setuptools' own requirements, and numba if a library is to be made."""
    requirements: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    platform = _wanted(config_settings)
    if platform and shutil.which(compiler()[0]) and not fits(library_for(_machine(platform))):
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
    if _platform is None or fits(library_for(_machine(_platform))):
        return
    command = [sys.executable, "-m", make_library.__name__, _machine(_platform)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if config_settings and "platform" in config_settings:
        raise SystemExit(f"The kernels could not be compiled for {_platform}:\n{done.stderr}")
    reason = (done.stderr.strip().splitlines() or ["it ended"])[-1]
    print(f"The kernels are not compiled, so numba will be needed to run them: {reason}", file=sys.stderr)
    _platform = None


def _wanted(config_settings: Mapping[str, Any] | None) -> str | None:
    """The platform tag of a wheel with a library; None if it is to be pure, as where none can be made.

    :raises SystemExit: if none can be made for the one that is demanded.
    """
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    demanded = (config_settings or {}).get("platform")
    if demanded == _ANY:
        return None
    platform = str(demanded or here)
    if "linux" in platform and _machine(platform):
        return platform
    if demanded:
        tags = f"a platform tag of Linux on {' or '.join(CPUS)}"
        raise SystemExit(f"Expected {tags}, or {_ANY}, got {demanded}")
    return None


def _machine(platform: str) -> str:
    return next((machine for machine in CPUS if platform.endswith(f"_{machine}")), "")


def _numba() -> str:
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg", encoding="utf-8")
    return setup["options.extras_require"]["jit"].strip()


def description_of(readme: str) -> str:
    """The README as the package's description, without pictures and links that name files beside it."""
    without_pictures = re.sub(r"!\[[^]]*\]\((?!\w+:)[^)]*\)\n*", "", readme)
    return re.sub(r"\[([^]]*)\]\((?!\w+:)[^)]*\)", r"\1", without_pictures)


class EggInfo(egg_info):  # type: ignore[misc]
    """Requires numba of all but wheels with a library, on every platform."""

    def finalize_options(self) -> None:
        super().finalize_options()
        metadata = self.distribution.metadata
        metadata.long_description = description_of(metadata.long_description)
        if _platform is None and _numba() not in self.distribution.install_requires:
            self.distribution.install_requires.append(_numba())


class BuildPy(build_py):  # type: ignore[misc]
    """Adds the library to the package."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        # What a build for another machine left.
        for left in Path(self.build_lib, "pyspark_kafkalog", "codec").glob("kernels-*"):
            left.unlink()
        if _platform is not None:
            library = library_for(_machine(_platform))
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
