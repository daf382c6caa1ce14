"""The whole codec with crcmod, as on platforms for which google-crc32c has no build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_codec_with_crcmod() -> None:
    """All tests of this folder that take no long time pass in a process that lacks google-crc32c."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not long"]
    apart = ["-p", "tests.codec.without_google_crc32c", "-p", "no:cacheprovider", "-p", "no:randomly"]
    folder = Path(__file__).parent
    done = subprocess.run(
        [*command, *apart, str(folder)], cwd=folder.parents[1], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout[-4000:]
    assert " passed" in done.stdout
