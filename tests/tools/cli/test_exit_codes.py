"""The exit codes that docs/command-line.md lists: its example of each is run."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.documents.blocks import ROOT
from tests.log.writing import values, write
from tests.tools.cli.running import command

ORDERS = TopicPartition("orders", 0)
_PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8").partition("## Exit codes")[2]
EXAMPLES = {
    int(code): typed for code, typed in re.findall(r"^\| (\d+) \|.*\| `kafkalog ([^`]+)` \|$", _PAGE, re.M)
}
_ENDED_BY = {130: signal.SIGINT, 143: signal.SIGTERM}


def test_every_code_has_an_example() -> None:
    assert sorted(EXAMPLES) == [0, 1, 2, 3, 130, 143]


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_example_of_a_code_ends_with_it(code: int, tmp_path: Path) -> None:
    root = tmp_path / "log"
    root.mkdir()
    write(root, {ORDERS: values(10)}, num_partitions=1)
    DirectoryGroups.open([str(root)], num_partitions=1).commit("etl", {ORDERS: CommittedOffset(4)})
    words = command(*EXAMPLES[code].replace("/data/kafka-logs", str(root)).split())
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        if code in _ENDED_BY:
            assert process.stdout is not None
            assert process.stdout.readline(), "it prints what is there, and goes on"
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                process.send_signal(_ENDED_BY[code])  # Python drops one that comes at a wrong moment
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        _, said = process.communicate(timeout=60)
    as_a_shell_shows_it = process.returncode if process.returncode >= 0 else 128 - process.returncode
    assert as_a_shell_shows_it == code, said
