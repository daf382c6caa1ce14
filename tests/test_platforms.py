"""What pip would change on a platform that brings its own PySpark and libraries: nothing that is there."""

from __future__ import annotations

import configparser
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LISTS = sorted(Path(__file__).with_name("platforms").glob("*.txt"))
EXTRAS = ("stateful", "aws", "gcp", "azure")
"""Those that fit a platform: ``spark`` is for places without PySpark, and ``fsspec`` needs a newer one."""


def versions_of(platform: Path) -> dict[str, str]:
    lines = platform.read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def our_requirements() -> Iterator[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    for text in (setup["options"]["install_requires"], *(extras[name] for name in EXTRAS)):
        yield from map(Requirement, filter(None, text.splitlines()))


def needed_beside(platform: dict[str, str]) -> Iterator[tuple[str, Requirement]]:
    """All requirements, each with who has it: ours, and those of what pip would add, as installed here."""
    left = [("pyspark-kafkalog", requirement) for requirement in our_requirements()]
    seen = set()
    while left:
        asker, requirement = left.pop()
        name = canonicalize_name(requirement.name)
        yield asker, requirement
        if name not in platform and name not in seen:
            seen.add(name)
            more = map(Requirement, importlib.metadata.requires(name) or ())
            environment = {"extra": "", "python_version": "3.12"}
            left += [(name, one) for one in more if one.marker is None or one.marker.evaluate(environment)]


@pytest.mark.parametrize("platform", LISTS, ids=lambda path: path.stem)
def test_what_a_platform_brings_is_good_enough(platform: Path) -> None:
    brought = versions_of(platform)
    wrong, checked = [], set()
    for asker, requirement in needed_beside(brought):
        name = canonicalize_name(requirement.name)
        assert name != "pyspark", f"{asker} would bring a second PySpark"
        if name in brought:
            checked.add(name)
            if brought[name] not in requirement.specifier:
                wrong.append(f"{asker} needs {requirement}, the platform has {brought[name]}")
    assert not wrong
    assert {"pyarrow", "numpy", "click", "rich", "pandas", "google-crc32c"} <= checked


def test_only_libraries_whose_internals_are_used_have_an_upper_bound() -> None:
    bounded = {one.name for one in our_requirements() if any("<" in each.operator for each in one.specifier)}
    assert bounded - {"numba"} == {"kafka-python"}


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """A virtual environment with nothing in it, of Python 3.12, which the platforms have, if it is here."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    base = next(iter(sorted(pyenv.glob("versions/3.12.*/bin/python"))), Path(sys.executable))
    subprocess.run([base, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    return tmp_path / "venv" / "bin" / "python"


def would_install(interpreter: Path, what: str) -> dict[str, str]:
    """What pip would install there, by name: its dry run looks at the package index."""
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--dry-run", "--report", "-", what],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [item["metadata"] for item in json.loads(done.stdout)["install"]]
    return {canonicalize_name(one["name"]): one["version"] for one in found}


@pytest.mark.soak
@pytest.mark.parametrize("platform", LISTS, ids=lambda path: path.stem)
def test_pip_replaces_nothing_that_a_platform_brings(platform: Path, interpreter: Path) -> None:
    brought = versions_of(platform)
    where = subprocess.run(
        [interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    for name, version in brought.items():
        stub = Path(where) / f"{name.replace('-', '_')}-{version}.dist-info"
        stub.mkdir()
        (stub / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    added = would_install(interpreter, f".[{','.join(EXTRAS)}]")
    assert "pyspark-kafkalog" in added
    assert not {*brought, "pyspark"} & set(added), added
    # The dry run sees what is to be replaced: a plain install with PySpark's own extra shows it.
    assert "pyspark" in would_install(interpreter, ".[spark]")
