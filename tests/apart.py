"""Runs the tests in copies of the tree that lack extensions and tools.

Without the names of folders, each test runs in a copy with no other folders than it needs: those that its
file imports, those for which it is refused where they are not there, and those that these need. So it runs
without each other one.
With names, the tests run in a copy without each of these; those that import it are left out, and those that
ask for it are skipped as they are refused. As a plugin of pytest, in the copy, this does both.
usage: python -m tests.apart [extensions.audit ...] [-- arguments for pytest]
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_architecture import NAME, NEEDS, imported_by, imports, parsed

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
AT_ONCE = 2
"""Copies in which tests run at the same time."""

OF_THE_WHOLE = {
    "documents",
    "test_apart.py",
    "test_architecture.py",
    "test_ci.py",
    "test_hints.py",
    "test_package.py",
    "test_page.py",
    "test_public.py",
    "test_release.py",
}
"""Tests of the tree as a whole, which is not there."""

_LEFT_OUT_VARIABLE = "KAFKALOG_LEFT_OUT"
_OUTCOMES_VARIABLE = "KAFKALOG_OUTCOMES"
_LEFT_OUT: dict[str, list[str]] = json.loads(os.environ.get(_LEFT_OUT_VARIABLE, "{}"))
"""The folders that are left out, with the names by which they are refused."""

_WHOLE_ASSERTIONS = ("-o", "verbosity_assertions=2")
"""Else a failure might not show the refusal."""

_REFUSED = re.compile(
    rf"(\w+), which is not installed|No module named \\?'{NAME}\.\w+\.(\w+)|No such command '([\w-]+)'"
)


class Outcome(NamedTuple):
    """How a test ended; ``missing`` is the folder for which it was refused, or else empty."""

    test: str
    passed: bool
    missing: str


class Run(NamedTuple):
    """Tests that ran in a copy of the tree: whether none failed, what pytest printed, and how each ended."""

    passed: bool
    output: str
    outcomes: list[Outcome]


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


@cache
def folders_of(path: Path) -> frozenset[str]:
    """The extensions and tools without which a module can't be loaded."""
    waiting, seen, found = [path], {path}, set()
    while waiting:
        names = _loads(waiting.pop())
        found |= {".".join(name.split(".")[1:3]) for name in names if name.startswith(f"{NAME}.")}
        modules = {module for name in names for module in _modules(name)} - seen
        seen |= modules
        waiting += modules
    return frozenset(found & NEEDS.keys())


def needed_by(test: Path) -> frozenset[str]:
    """The folders of the package that a file of tests needs: what it is about, and all that it imports."""
    own = ".".join(test.relative_to(TESTS).parts[:2])
    conftests = (folder / "conftest.py" for folder in test.parents if folder.is_relative_to(TESTS))
    loaded = (folders_of(path) for path in (test, *conftests) if path.exists())
    return with_needs(frozenset({own} & NEEDS.keys()).union(*loaded))


def with_needs(folders: frozenset[str]) -> frozenset[str]:
    """The folders with those that they may need, and so on. What every test loads brings no others."""
    more = folders.union(*(NEEDS[folder] for folder in folders - folders_of(TESTS / "conftest.py")))
    return folders if more == folders else with_needs(more)


def is_of_the_whole(test: Path) -> bool:
    """Whether a file of tests is about the tree as a whole."""
    return not OF_THE_WHOLE.isdisjoint(test.relative_to(TESTS).parts)


@cache
def names_of(folder: str) -> list[str]:
    """The names by which a folder is refused if it is not there: its own, and those of its commands."""
    modules = ROOT.joinpath(NAME, *folder.split("."), "commands").glob("*.py")
    commands = (command for module in modules for command in _commands(parsed(module)))
    return [folder.partition(".")[2], *commands]


def _commands(module: ast.Module) -> Iterator[str]:
    """The commands that a module adds to ``kafkalog``."""
    for function in module.body:
        for decorator in getattr(function, "decorator_list", ()):
            if ast.unparse(decorator).startswith(("kafkalog.command(", "kafkalog.group(")):
                assert isinstance(function, ast.FunctionDef)
                given = [name.value for name in decorator.args if isinstance(name, ast.Constant)]
                yield str(given[0]) if given else function.name.replace("_", "-")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that import what is not there, or are of the tree as a whole."""
    if not _LEFT_OUT or collection_path.suffix != ".py":
        return None
    return (
        True if is_of_the_whole(collection_path) or folders_of(collection_path) & _LEFT_OUT.keys() else None
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Skip a test that asks for what is not there, where it is refused, and note how each ended."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    missing = _missing(report.longreprtext + report.capstderr) if report.failed else ""
    if missing:
        report.outcome = "skipped"
        report.longrepr = (report.location[0], report.location[1] or 0, f"Skipped: {missing} is not there")
    if _OUTCOMES_VARIABLE in os.environ and (report.when == "call" or missing):
        line = json.dumps(Outcome(report.nodeid, report.passed, missing))
        with open(os.environ[_OUTCOMES_VARIABLE], "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def _missing(text: str) -> str:
    """The folder that is left out and for which a test was refused, by its report; empty without one."""
    refused = {found for match in _REFUSED.finditer(text) for found in match.groups()}
    return next((folder for folder, names in _LEFT_OUT.items() if refused.intersection(names)), "")


class Copies:
    """Copies of the tree, made from one with the compiled library."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._whole = folder / "whole"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in filter(None, tracked.decode().split("\0")):
            (self._whole / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self._whole / name)
        environment = {**os.environ, "PYTHONPATH": str(self._whole)}
        library = [sys.executable, "-m", f"{NAME}.make_library"]
        subprocess.run(library, cwd=self._whole, env=environment, check=True)
        # Else each copy would compile all again.
        subprocess.run([sys.executable, "-m", "compileall", "-q", self._whole / NAME], check=True)

    def run(self, left_out: Collection[str], arguments: Iterable[str]) -> Run:
        """Run tests in a copy without some folders of the package."""
        with tempfile.TemporaryDirectory(dir=self._folder) as temporary:
            copy, outcomes = Path(temporary, "copy"), Path(temporary, "outcomes")
            shutil.copytree(self._whole, copy)
            outcomes.touch()
            for folder in left_out:
                shutil.rmtree(copy.joinpath(NAME, *folder.split(".")))
            variables = {
                _LEFT_OUT_VARIABLE: json.dumps({folder: names_of(folder) for folder in left_out}),
                _OUTCOMES_VARIABLE: str(outcomes),
            }
            command = [sys.executable, "-m", "pytest", "-p", "tests.apart", *_WHOLE_ASSERTIONS, *arguments]
            done = subprocess.run(
                command,
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy), **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            ended = [Outcome(*json.loads(line)) for line in outcomes.read_text().splitlines()]
        return Run(
            done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout, ended
        )


def run_without(folder: str, copies: Copies, arguments: list[str]) -> bool:
    """Run the tests in a copy without a folder and its tests, and return whether all passed."""
    run = copies.run([folder], [f"--ignore=tests/{folder.replace('.', '/')}", *arguments])
    print(f"Without {folder}:", run.output, sep="\n", flush=True)
    return run.passed


def files_by_need() -> dict[frozenset[str], list[str]]:
    """The files of tests by the folders that they need, without those about the tree as a whole."""
    found = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        if not is_of_the_whole(path):
            found[needed_by(path)].append(str(path.relative_to(ROOT)))
    return found


def run_with_least(copies: Copies, waiting: Mapping[frozenset[str], list[str]], arguments: list[str]) -> bool:
    """Run each test in a copy with the folders that it needs, and return whether all passed.

    :param waiting: files or tests by the folders that they need. One that is refused for another runs again,
        with that one, too.
    """
    passed, failed = Counter[str](), []

    def run(there: frozenset[str]) -> Run:
        # One file is one worker's; starting more would cost as much as most files do.
        is_small = len({test.partition("::")[0] for test in waiting[there]}) == 1
        return copies.run(NEEDS.keys() - there, [*arguments, *(["-n", "0"] * is_small), *waiting[there]])

    while waiting:
        refused: dict[frozenset[str], list[str]] = defaultdict(list)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for there, done in zip(waiting, pool.map(run, waiting), strict=True):
                with_these = ", ".join(sorted(there)) or "the core alone"
                print(f"With {with_these}:", done.output, sep="\n", flush=True)
                if not done.passed:
                    failed.append(with_these)
                for folder in NEEDS.keys() - there:
                    passed[folder] += sum(each.passed for each in done.outcomes)
                for each in done.outcomes:
                    if each.missing:
                        refused[with_needs(there | {each.missing})].append(each.test)
        waiting = refused
    for folder, count in sorted(passed.items()):
        print(f"Without {folder}: {count:,} passed")
    print(f"Failed with: {'; '.join(failed) or 'none'}")
    return not failed


def main(arguments: list[str]) -> int:
    """Run without each of the folders, or each test with those that it needs."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    folders, options = arguments[:split], arguments[split + 1 :]
    with tempfile.TemporaryDirectory(prefix="kafkalog-apart-") as temporary:
        copies = Copies(Path(temporary))
        if not folders:
            return not run_with_least(copies, files_by_need(), options)
        needed = folders_of(TESTS / "conftest.py")
        for folder in needed.intersection(folders):
            print(f"{folder}: all tests need it")
        failed = [each for each in folders if each not in needed and not run_without(each, copies, options)]
    print(f"Failed without: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
