"""Small files of a directory that are huge, or links out of it, are refused or rebuilt by each command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.small_files import COMMANDS, KINDS, make
from tests.tools.cli.running import run

SECRET = "SECRET"


def outcomes(*words: object) -> list[Any]:
    command = [sys.executable, "-m", "tests.log.small_files", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(kind, name) for kind, name, _, _ in found] == [
        (kind, name) for kind in KINDS for name in COMMANDS
    ]
    return found


@pytest.mark.long
def test_huge_ones(tmp_path: Path) -> None:
    """Sparse files of 6 GiB with 4 GiB of address space: no command runs out of it."""
    for kind, name, code, said in outcomes(tmp_path):
        assert code in (0, 1, 3), (kind, name, said)
        if name == "verify" and kind != ".kafkalog-topics":
            assert code != 0, (kind, said)


@pytest.mark.long
def test_links_out_of_the_directory(tmp_path: Path) -> None:
    """Nothing that they point to is quoted, or changed."""
    private = tmp_path / "private"
    private.write_text(f"0\n1\n{SECRET}\n")
    (tmp_path / "work").mkdir()
    for kind, name, code, said in outcomes(tmp_path / "work", private):
        assert code in (0, 1, 3), (kind, name, said)
        assert SECRET not in said, (kind, name, said)
        assert private.read_text() == f"0\n1\n{SECRET}\n", (kind, name)


def test_a_partition_that_is_a_link_out_of_the_directory(tmp_path: Path) -> None:
    """It is that partition's problem, where others go on; nothing behind the link is read or changed."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    make(root)
    (root / "t-0").rename(outside)
    (root / "t-0").symlink_to(outside)
    held = {file.name: file.read_bytes() for file in outside.iterdir()}
    link = "A symbolic link leads out of the log directory"
    done = run("verify", root)
    assert (done.code, link in done.out, "u              0        8       40" in done.out) == (1, True, True)
    for words in ([], ["--execute"]):
        done = run("repair", root, *words)
        assert (done.code, link in done.out, done.out.count("958 B")) == (1, True, 1)
    done = run("copy", root, tmp_path / "copy", "--no-groups")
    assert (done.code, link in done.out + done.err) == (1, True)
    assert run("verify", tmp_path / "copy").code == 0
    for name, more in (("cat", []), ("compact", ["--any-policy"]), ("produce", [])):
        assert run(name, root, "u", *more, text="a row\n").code == 0
        done = run(name, root, "t", *more, text="a row\n")
        assert (done.code, link in done.err) == (3, True), (name, done)
    assert run("delete-records", root, "u:0=5", "--execute").code == 0
    done = run("delete-records", root, "t:0=5", "--execute")
    assert (done.code, link in done.out) == (1, True)
    retained = ("--set", "retention.bytes=0", "--set", "cleanup.policy=delete", "--execute")
    assert run("retain", root, "u", *retained).code == 0
    done = run("retain", root, *retained)
    assert (done.code, link in done.out) == (1, True)
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == held
