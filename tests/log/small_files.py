"""Runs commands on a directory in which one small file is hostile, under a limit of address space.

Prints a line of JSON for each: kind of file, command, exit code (None for an exception), and what was said.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from pathlib import Path

from pyspark_kafkalog.model import TopicPartition
from tests.tools.backup.histories import batch, make_log_of
from tests.tools.cli.running import run

HUGE = 6 << 30
SPACE = 4 << 30
"""Bytes of address space."""
BESIDE_LOGS = (".index", ".timeindex", ".txnindex", ".snapshot")
IN_FOLDER = ("leader-epoch-checkpoint", "partition.metadata")
IN_ROOT = (
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafkalog-publish",
    ".kafkalog-backup",
    ".kafkalog-topics",
)
KINDS = (*BESIDE_LOGS, *IN_FOLDER, *IN_ROOT)
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": (),
    "repair": (),
    "topics": (),
    "cat": ("t",),
    "produce": ("t",),
    "compact": ("t", "--any-policy"),
    "retain": ("t", "--set", "retention.bytes=0", "--set", "cleanup.policy=delete", "--execute"),
}


def make(root: Path) -> None:
    """The topics t and u; of t the newest segments are not closed by a snapshot."""
    for topic in ("t", "u"):
        make_log_of(root, [batch(at, 0) for at in range(0, 40, 5)], partition=TopicPartition(topic, 0))


def files_of(root: Path, kind: str) -> list[Path]:
    """The files of t of this kind, which need not exist."""
    if kind in IN_ROOT:
        return [root / kind]
    if kind in IN_FOLDER:
        return [root / "t-0" / kind]
    logs = (root / "t-0").glob("*.log")
    return sorted({*(log.with_suffix(kind) for log in logs), *(root / "t-0").glob(f"*{kind}")})


def hurt(file: Path, private: Path | None) -> None:
    """Make a file huge, or a link to a private one."""
    file.unlink(missing_ok=True)
    if private is not None:
        file.symlink_to(private)
        return
    with file.open("wb") as huge:
        huge.truncate(HUGE)


def main(folder: Path, private: Path | None) -> None:
    make(folder / "whole")
    resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    for kind in KINDS:
        for name, words in COMMANDS.items():
            root = folder / "root"
            shutil.copytree(folder / "whole", root)
            for file in files_of(root, kind):
                hurt(file, private)
            try:
                done = run(name, root, *words, text="a row\n")
                print(json.dumps([kind, name, done.code, done.out + done.err]))
            except Exception as e:
                print(json.dumps([kind, name, None, repr(e)]))
            shutil.rmtree(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
