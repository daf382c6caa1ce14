"""CI installs what the package asks for, and all of the package."""

from __future__ import annotations

import configparser
import importlib.metadata
import os
import re
import runpy
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OF_PYSPARK = {"pyspark/daemon.py"}
"""Modules of PySpark that documents name."""


def requirements() -> list[Requirement]:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    lines = setup["options"]["install_requires"].split("\n")
    for extra in setup["options.extras_require"].values():
        lines += extra.split("\n")
    return [Requirement(line) for line in lines if line]


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_requirement_is_pinned_within_its_bounds(python: str) -> None:
    lines = (ROOT / "ci" / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    valid = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_version": python})]
    versions = {pin.name: str(pin.specifier).removeprefix("==") for pin in valid}
    assert len(versions) == len(valid), "nothing is pinned twice"
    for requirement in requirements():
        if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
            continue
        assert versions[requirement.name] in requirement.specifier, requirement.name


def test_the_wheel_has_every_file_of_the_package() -> None:
    # Not by name alone: that finds the egg-info which the build left in the checkout.
    site_packages = sysconfig.get_path("purelib")
    (wheel,) = importlib.metadata.distributions(name="pyspark-kafkalog", path=[site_packages])
    installed = {str(file) for file in wheel.files or ()}
    if "pyspark_kafkalog/__init__.py" not in installed:
        pytest.skip("this is an editable install")
    package = ROOT / "pyspark_kafkalog"
    expected = {str(file.relative_to(ROOT)) for file in [*package.rglob("*.py"), package / "py.typed"]}
    assert not expected - installed


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_script_that_a_document_names_can_be_run(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.])ci/[a-z][\w-]*\b(?!\.\w)", text))
    assert {"ci/check", "ci/test"} <= named
    assert not {script for script in named if not os.access(ROOT / script, os.X_OK)}


MAPPED = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/design-notes.md"]


@pytest.mark.parametrize("document", MAPPED)
def test_every_module_that_a_document_names_is_there(document: str) -> None:
    """A folder before its name need not be the whole path."""
    text = (ROOT / document).read_text(encoding="utf-8")
    modules = ["/" + path.relative_to(ROOT).as_posix() for path in (ROOT / "pyspark_kafkalog").rglob("*.py")]
    modules += ["/" + path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")]
    modules += ["/" + path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.py")]
    named = set(re.findall(r"(?<![\w/.])(?:[a-z_]+/)*[a-z_0-9]+\.py\b", text)) - OF_PYSPARK
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in modules)}


def test_every_module_is_in_the_file_map() -> None:
    _, _, file_map = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## File map")
    named = set(re.findall(r"[a-z_0-9]+\.py\b", file_map))
    missing = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pyspark_kafkalog").rglob("[a-z]*.py")
        if path.name not in named
    )
    assert not missing, f"add to the file map of docs/architecture.md: {', '.join(missing)}"


def test_no_script_removes_the_site() -> None:
    """``ci/docs`` alone replaces what it has built."""
    for script in (ROOT / "ci").iterdir():
        removed = re.findall(r"\brm -rf ([^\n;&|']*)", script.read_text(encoding="utf-8"))
        targets = {word.rstrip("/") for words in removed for word in words.split()}
        assert script.name == "docs" or "site" not in targets, script.name


def test_every_mutant_can_be_seeded() -> None:
    mutants = runpy.run_path(str(ROOT / "ci" / "mutants"))["MUTANTS"]
    assert len({mutant.name for mutant in mutants}) == len(mutants) > 100
    for mutant in mutants:
        code = (ROOT / "pyspark_kafkalog" / mutant.file).read_text(encoding="utf-8")
        assert code.count(mutant.old) == 1, mutant.name
        assert mutant.old != mutant.new, mutant.name
        for file in mutant.tests.split():
            assert (ROOT / "tests" / file).is_file(), mutant.name
