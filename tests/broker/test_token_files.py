"""Files of tokens, which their platform replaces while they are read."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from pyspark_kafkalog.broker.wire import token_files
from pyspark_kafkalog.broker.wire.token_files import content_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "token-1f"


@pytest.mark.parametrize("before", [None, b"", b" \n"])
def test_one_that_is_about_to_be_written_is_waited_for(file: Path, before: bytes | None) -> None:
    """A writer removes or empties it first, unless it renames another one over it."""
    if before is not None:
        file.write_bytes(before)
    writer = threading.Timer(0.3, file.write_bytes, [b"token\n"])
    writer.start()
    assert content_of(str(file)) == b"token"
    writer.join()


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"\n", "empty")])
def test_it_is_not_waited_for_for_long(
    file: Path, content: bytes | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "_PAUSE", 0.01)
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=why) as caught:
        content_of(str(file))
    assert file.name not in str(caught.value)


def test_a_pipe_is_not_waited_for(file: Path) -> None:
    os.mkfifo(file)
    begun = time.monotonic()
    with pytest.raises(ValueError, match="regular file"):
        content_of(str(file))
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("path", "why"), [("/dev/zero", "regular file"), ("/", "directory|regular file"), ("a\0b", "null byte")]
)
def test_only_a_regular_file_is_read(path: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        content_of(path)


def test_one_that_is_too_large(file: Path) -> None:
    file.write_bytes(b"t" * ((1 << 20) + 1))
    with pytest.raises(ValueError, match="more than 1048576 bytes"):
        content_of(str(file))
