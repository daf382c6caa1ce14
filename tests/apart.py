"""Runs the tests in copies of the tree, each without one extension or tool.

Tests that import what is left out are left out, too; those that ask for it are skipped as they are refused.
As a plugin of pytest, in the copy, this does both.
usage: python -m tests.apart [extensions.audit ...] [-- arguments for pytest]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_architecture import NAME, NEEDS, imported_by, imports, parsed

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
_VARIABLE = "KAFKALOG_LEFT_OUT"
_LEFT_OUT = os.environ.get(_VARIABLE, "")


@cache
def _public() -> dict[str, str]:
    """Where the public names of the package are."""
    names = (name for name, _ in imports(ROOT / NAME / "__init__.py"))
    return {f"{NAME}.{name.rpartition('.')[2]}": name for name in names}


@cache
def _loads(path: Path) -> frozenset[str]:
    """The names that a module imports as it is loaded."""
    names = (name for node in parsed(path).body for name in imported_by(node))
    return frozenset(_public().get(name, name) for name in names)


@cache
def _modules(name: str) -> tuple[Path, ...]:
    """The module of a name, of the package or the tests, if it is there."""
    if name.partition(".")[0] not in (NAME, TESTS.name):
        return ()
    paths = (ROOT / f"{module.replace('.', '/')}.py" for module in (name, name.rpartition(".")[0]))
    return tuple(path for path in paths if path.exists())


def needs(path: Path, folder: str) -> bool:
    """Whether a module can't be loaded without a folder of the package."""
    waiting, seen = [path], {path}
    while waiting:
        names = _loads(waiting.pop())
        if any(f"{name}.".startswith(f"{NAME}.{folder}.") for name in names):
            return True
        modules = {module for name in names for module in _modules(name)} - seen
        seen |= modules
        waiting += modules
    return False


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that import what is not there."""
    return (
        True if _LEFT_OUT and collection_path.suffix == ".py" and needs(collection_path, _LEFT_OUT) else None
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Skip a test that asks for what is not there, where it is refused."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    refused = f"{_LEFT_OUT.rpartition('.')[2]}, which is not installed"
    missing = f"No module named '{NAME}.{_LEFT_OUT}"
    if _LEFT_OUT and report.failed and any(text in report.longreprtext for text in (refused, missing)):
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, f"Skipped: {refused}")


def run_without(folder: str, arguments: list[str]) -> int:
    """Run the tests in a copy of the tree without a folder, and return pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-apart-") as temporary:
        copy = Path(temporary) / "copy"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, tracked.decode().split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
        for parent in NAME, TESTS.name:
            shutil.rmtree(copy.joinpath(parent, *folder.split(".")), ignore_errors=True)
        environment = {**os.environ, "PYTHONPATH": str(copy), _VARIABLE: folder}
        library = [sys.executable, "-m", f"{NAME}.make_library"]
        subprocess.run(library, cwd=copy, env=environment, check=True)
        print(f"Without {folder}:", flush=True)
        command = [sys.executable, "-m", "pytest", "-p", "tests.apart", *arguments]
        return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run without each of the folders, or each of all."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    failed = []
    for folder in arguments[:split] or sorted(NEEDS):
        if needs(TESTS / "conftest.py", folder):
            print(f"{folder}: all tests need it")
        elif run_without(folder, arguments[split + 1 :]):
            failed.append(folder)
    print(f"Failed without: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
