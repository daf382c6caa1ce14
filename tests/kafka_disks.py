"""A broker with several disks, and partitions that move between them."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import numpy as np

from tests.kafka import Broker, random_uuid


def add_disk(formatted: Path, disk: Path) -> None:
    """Make a second log directory for a stopped broker, beside its formatted one."""
    disk.mkdir()
    meta = (formatted / "meta.properties").read_text()
    other = "".join(
        f"directory.id={random_uuid()}\n" if line.startswith("directory.id") else line
        for line in meta.splitlines(keepends=True)
    )
    (disk / "meta.properties").write_text(other)


def move(broker: Broker, disk: Path, topic: str, partitions: int) -> None:
    """Have the broker move all partitions to a disk: AlterReplicaLogDirs v1."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    numbers = struct.pack(f">{partitions + 1}i", partitions, *range(partitions))
    body = struct.pack(">i", 1) + text(str(disk)) + struct.pack(">i", 1) + text(topic) + numbers
    request = struct.pack(">hhi", 34, 1, 1) + text("test") + body
    host, _, port = broker.bootstrap.partition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        errors = np.frombuffer(answer.read(size)[-6 * partitions :], [("partition", ">i4"), ("code", ">i2")])
    assert not errors["code"].any()
