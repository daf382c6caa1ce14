"""The workflow of a release, the metadata of the package and what its pages say agree."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import pyspark_kafkalog
from pyspark_kafkalog.make_library import CPUS
from tests.documents.test_links import links_of

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
WORKFLOW = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8"))
JOBS = WORKFLOW["jobs"]
MATRIX = JOBS["test"]["strategy"]["matrix"]
PYTHONS: list[str] = MATRIX["python"]
CLASSIFIERS = SETUP["metadata"]["classifiers"].split("\n")
VERSION = pyspark_kafkalog.__version__

GLIBC = {machine: [f"manylinux_2_{minor}_{machine}" for minor in range(17, 40)] for machine in CPUS}
RUNNERS = {
    "ubuntu-24.04": ("linux", "x86_64", ["manylinux2014_x86_64", *GLIBC["x86_64"]]),
    "ubuntu-24.04-arm": ("linux", "aarch64", ["manylinux2014_aarch64", *GLIBC["aarch64"]]),
    "macos-15": ("darwin", "arm64", ["macosx_15_0_arm64"]),
    "macos-15-intel": ("darwin", "x86_64", ["macosx_15_0_x86_64"]),
}
"""Each runner of the workflow: its sys.platform, its machine, and the tags of wheels that it takes."""
WITHOUT_WHEELS = {"crcmod"}
"""Built by pip from source, in Python alone where there is no C compiler."""
TOP_LEVEL = {
    *("pyspark_kafkalog", "tests", "notebooks", "ci", "docs"),
    *("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    "CITATION.cff",
}
"""What stands beside dot-files. Code hosts look for CITATION.cff there and nowhere else."""


def in_matrix() -> Iterator[tuple[str, str]]:
    """Each runner with each Python that the workflow tests."""
    left_out = excluded()
    return (each for each in product(MATRIX["runner"], PYTHONS) if each not in left_out)


def excluded() -> list[tuple[str, str]]:
    """What the workflow leaves out."""
    return [(each["runner"], each["python"]) for each in MATRIX["exclude"]]


def needed(runner: str, python: str) -> list[Requirement]:
    """The requirements of the package there."""
    system, machine, _ = RUNNERS[runner]
    there = {"sys_platform": system, "platform_machine": machine, "python_version": python}
    lines = SETUP["options"]["install_requires"].split("\n")
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [each for each in requirements if each.marker is None or each.marker.evaluate(there)]


def test_the_workflow_and_the_metadata_name_the_same_pythons() -> None:
    prefix = "Programming Language :: Python :: 3."
    assert [f"3.{each.removeprefix(prefix)}" for each in CLASSIFIERS if each.startswith(prefix)] == PYTHONS
    supported = SpecifierSet(SETUP["options"]["python_requires"])
    first, last = (int(python.removeprefix("3.")) for python in (PYTHONS[0], PYTHONS[-1]))
    assert [f"3.{minor}" for minor in range(first, last + 1)] == PYTHONS, "none is left out"
    assert f"3.{first}" in supported
    assert f"3.{first - 1}" not in supported
    backend = (ROOT / "pyspark_kafkalog" / "build.py").read_text(encoding="utf-8")
    assert f"\"python_version < '3.{last + 1}'\"" in backend, "those that build a library"


def test_the_workflow_and_the_metadata_name_the_same_platforms() -> None:
    systems = {system for system, _, _ in map(RUNNERS.__getitem__, MATRIX["runner"])}
    named = {"linux": "Operating System :: POSIX :: Linux", "darwin": "Operating System :: MacOS"}
    assert {named[system] for system in systems} == {each for each in CLASSIFIERS if "Operating" in each}
    machines = [RUNNERS[runner][1] for runner in MATRIX["runner"] if runner.startswith("ubuntu")]
    assert machines == list(CPUS), "those with a compiled library"
    assert f"MACHINES=({' '.join(machines)})" in (ROOT / "ci" / "wheel").read_text(encoding="utf-8")


def test_only_what_was_tested_and_signed_is_published() -> None:
    publish = JOBS["publish"]
    assert publish["needs"] == ["build", "test"]
    assert publish["if"] == "github.event_name == 'push' && github.ref_type == 'tag'"
    steps = publish["steps"]
    uploads = [number for number, step in enumerate(steps) if "pypi-publish" in step.get("uses", "")]
    assert len(uploads) == 1
    before = "\n".join(step.get("run", "") for step in steps[: uploads[0]])
    assert ".verification.verified" in before
    assert "sha256sum --check" in before


def test_only_the_job_that_publishes_may_write_and_none_has_a_password() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    may = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert may == {"publish": {"contents": "write", "id-token": "write"}}
    text = (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "password" not in text


def test_the_scripts_of_the_workflows_are_there() -> None:
    for workflow in (GITHUB / "workflows").glob("*.yml"):
        for script in re.findall(r"\bci/[a-z-]+", workflow.read_text(encoding="utf-8")):
            assert (ROOT / script).is_file(), f"{workflow.name}: {script}"


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("runner", "python"), [*in_matrix(), *excluded()])
def test_each_platform_has_wheels_of_what_the_package_needs(runner: str, python: str, tmp_path: Path) -> None:
    """pip finds them for platforms that are not here, in a dry run. What the workflow leaves out has none."""
    platforms = [f"--platform={tag}" for tag in RUNNERS[runner][2]]
    names = [f"{each.name}{each.specifier}" for each in needed(runner, python)]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    command += ["--target", str(tmp_path), "--only-binary=:all:", *platforms, "--python-version", python]
    command += [name for name in names if not name.startswith((*WITHOUT_WHEELS,))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (runner, python) in excluded():
        assert "No matching distribution found for numba" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_a_release_has_a_page_with_its_files_and_their_checksums(tmp_path: Path) -> None:
    ends = (".tar.gz", *(f"-py3-none-{tag}.whl" for tag in [*map("manylinux_2_17_{}".format, CPUS), "any"]))
    for end in ends:
        (tmp_path / f"pyspark_kafkalog-{VERSION}{end}").write_bytes(end.encode())
    page = run_page(str(tmp_path))
    sums = subprocess.run("sha256sum *", shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    for line in sums.stdout.splitlines():
        digest, name = line.split()
        assert re.search(rf"^\| {re.escape(name)} \| .+ \| \d+ \| `{digest}` \|$", page.stdout, re.M), name
    assert f"pip install 'pyspark-kafkalog[spark]=={VERSION}'" in page.stdout
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert page.stdout.splitlines()[0] == re.search(r"^## .+\n\n(.+)", changelog, re.M)[1]

    assert not [link for link in links_of(page.stdout) if "://" not in link]

    assert f"expected the tag v{VERSION}" in run_page("--tag", "v9.9", str(tmp_path)).stderr
    (tmp_path / f"pyspark_kafkalog-{VERSION}{ends[0]}").rename(tmp_path / "other.txt")
    refused = run_page(str(tmp_path)).stderr
    assert f"['pyspark_kafkalog-{VERSION}.tar.gz'] are missing, ['other.txt'] are others" in refused


def test_a_version_without_a_day_is_not_released(tmp_path: Path) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    said = run_page("--tag", f"v{VERSION}", str(tmp_path)).stderr
    assert (f"'## {VERSION} (YYYY-MM-DD)' in CHANGELOG.md" in said) == ("(unreleased)" in changelog)


def run_page(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "ci" / "release-page"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_citation_and_changelog_are_those_of_the_version() -> None:
    """Those of pages are held by tests/documents/test_claims.py."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION
    assert citation["title"] == SETUP["metadata"]["name"]
    assert citation["license"] == SETUP["metadata"]["license"]
    assert citation["abstract"] == SETUP["metadata"]["description"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+) \(", changelog, re.M)[0] == VERSION


def test_the_site_is_that_of_the_version() -> None:
    settings = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    assert "version = release = __version__" in settings
    assert 'html_title = f"pyspark-kafkalog {version}"' in settings


BADGES = {
    "license": f"license: {SETUP['metadata']['license']}",
    "python": f"Python: {PYTHONS[0]} to {PYTHONS[-1]}",
    "status": f"status: {CLASSIFIERS[1].rpartition(' - ')[2].lower()}",
}


@pytest.mark.parametrize("name", BADGES)
def test_badges_say_what_the_metadata_says(name: str) -> None:
    picture = (ROOT / "docs" / f"badge-{name}.svg").read_text(encoding="utf-8")
    label, value = BADGES[name].split(": ")
    assert re.findall(r"<text [^>]*>([^<]+)</text>", picture) == [label, value]
    assert f"<title>{BADGES[name]}</title>" in picture
    assert f"![{BADGES[name]}](docs/badge-{name}.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_there_are_no_other_badges() -> None:
    """What is on another host may be gone, or say what is not so."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {*re.findall(r"\(docs/badge-(\w+)\.svg\)", readme)} == BADGES.keys()
    assert not re.search(r"!\[[^]]*\]\(\w+:", readme)


def test_a_report_of_a_bug_asks_for_the_doctor() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    (doctor,) = (part for part in form["body"] if part.get("id") == "doctor")
    assert "`kafkalog doctor PLACE`" in doctor["attributes"]["description"]
    assert "`pyspark_kafkalog.doctor(spark, options)`" in doctor["attributes"]["description"]
    assert doctor["validations"]["required"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is no list of files")
def test_the_top_level_has_few_entries() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {file.partition("/")[0] for file in files.splitlines()}
    assert {name for name in found if not name.startswith(".")} == TOP_LEVEL
