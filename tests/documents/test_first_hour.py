"""What README and the page on the install say first, word for word: no virtual environment is active."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.documents.blocks import README, ROOT, blocks, code_blocks, comparable

KERNEL = """
import sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="kafkalog")
try:
    reply = client.execute_interactive(sys.stdin.read(), timeout=300)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.exit(reply["content"]["status"] != "ok")
"""
"""Runs standard input as one cell, and prints what it prints."""

SPARK_ALONE = """
from pyspark.sql import SparkSession
SparkSession.builder.getOrCreate().range(1).show()
"""
"""What the first read is compared with."""


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is nothing to clone")
def test_the_readme_word_for_word(tmp_path: Path) -> None:
    bare, clone = tmp_path / "project.git", tmp_path / "project"
    subprocess.run(["git", "clone", "--quiet", "--bare", ROOT, bare], check=True)
    subprocess.run(["git", "clone", "--quiet", bare, clone], check=True)
    user = User(clone, tmp_path)
    install, read, *_ = code_blocks(README)
    command_line = next(block for block in code_blocks(README) if ".venv/bin/kafkalog cat" in block.code)
    user.run("install", "bash", "-euo", "pipefail", "-c", install.code)
    user.run("Spark alone", ".venv/bin/python", "-", text=SPARK_ALONE)
    printed = user.run("first read", ".venv/bin/python", "-", text=user.at_home(read.code))
    assert comparable(printed) == comparable(read.printed or "")
    assert user.run("again", ".venv/bin/python", "-", text=user.at_home(read.code)).count("c2") == 2
    said = user.run("command line", "bash", "-c", user.at_home(command_line.code))
    assert said.splitlines()[-1] == "4", "the first read was run twice"
    (kernel,) = (block for block in blocks(ROOT / "docs" / "install.md") if "ipykernel" in block.code)
    user.run("kernel", "bash", "-euo", "pipefail", "-c", kernel.code)
    cell = user.at_home(read.code).replace("kafka-logs", "kafka-logs-of-jupyter")
    printed = user.run("first read in Jupyter", ".venv/bin/python", "-c", KERNEL, text=cell)
    assert comparable(printed) == comparable(read.printed or "")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="there is nothing to clone")
def test_the_install_by_name_word_for_word(tmp_path: Path) -> None:
    clone, files, empty = (tmp_path / name for name in ("clone", "index/pyspark-kafkalog", "project"))
    empty.mkdir()
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    wheel = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", files, clone]
    subprocess.run(wheel, check=True)
    (install,) = (
        block for block in blocks(ROOT / "docs" / "install.md") if "install 'pyspark-kafkalog" in block.code
    )
    read = code_blocks(README)[1]
    with index(files.parent) as url:
        user = User(empty, tmp_path, PIP_EXTRA_INDEX_URL=url)
        user.run("install by name", "bash", "-euo", "pipefail", "-c", install.code)
    printed = user.run("first read", ".venv/bin/python", "-", text=user.at_home(read.code))
    assert comparable(printed) == comparable(read.printed or "")


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """The URL of a web server that shows a folder, which pip takes for an index of packages."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class User:
    """Runs commands in a folder, with no virtual environment active and nothing of ours on the PATH."""

    def __init__(self, folder: Path, home: Path, **environment: str) -> None:
        self._folder = folder
        self._home = home
        own = Path(sys.executable).parent
        path = [folder for folder in os.environ["PATH"].split(":") if Path(folder) != own]
        self._environment = {"HOME": str(home), "PATH": ":".join(path)}
        self._environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        if "JAVA_HOME" in os.environ:
            self._environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        self._environment |= environment

    def at_home(self, code: str) -> str:
        return code.replace("/tmp/kafkalog", str(self._home / "kafka-logs"))

    def run(self, what: str, *command: str, text: str | None = None) -> str:
        """What a command prints; how long it takes is printed."""
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{what}: {time.monotonic() - began:.1f} s")
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout
