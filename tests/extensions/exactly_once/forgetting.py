"""A broker that has completed a transaction without writing its markers, as after a kill right after EndTxn.

Where it happens depends on milliseconds, so it is made: the broker is stopped while the transaction is open,
and gets the record that its coordinator writes at the end.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from pyspark_kafkalog.codec.transaction_topic import decode_transaction, decode_transactional_id
from pyspark_kafkalog.model.topics import TRANSACTIONS_TOPIC

_STATE = 16
"""Where the state is in the value: after version, producer id and epoch, and timeout."""


def complete_without_markers(log_dir: Path, transactional_id: str, *, commit: bool) -> None:
    """Append what says CompleteCommit, or CompleteAbort, to the log directory of a broker that is stopped."""

    def completed(value: bytes) -> bytes:
        state = decode_transaction(value)
        is_flexible = struct.unpack_from(">h", value)[0] >= 1
        return b"".join(
            [
                value[:_STATE],
                bytes([4 if commit else 5]),
                b"\x01" if is_flexible else struct.pack(">i", 0),  # no partitions
                struct.pack(">qq", state.last_update_timestamp, state.start_timestamp),
                b"\x00" if is_flexible else b"",
            ]
        )

    _append(log_dir, transactional_id, completed)


def decide(log_dir: Path, transactional_id: str) -> None:
    """Append what says PrepareCommit to the log directory of a stopped broker, which carries it out later."""
    _append(log_dir, transactional_id, lambda value: value[:_STATE] + bytes([2]) + value[_STATE + 1 :])


def forget_id(log_dir: Path, transactional_id: str) -> None:
    """Append the tombstone of an id that has expired to the log directory of a broker that is stopped."""
    _append(log_dir, transactional_id, lambda value: None)


def _append(log_dir: Path, transactional_id: str, change: Callable[[bytes], bytes | None]) -> None:
    """Append the newest state of a transactional id, changed."""
    for folder in log_dir.glob(f"{TRANSACTIONS_TOPIC}-*"):
        file = max(folder.glob("*.log"))
        found = [
            (record.key, record.value)
            for batch in _batches(file.read_bytes())
            for record in DefaultRecordBatch(batch)
            if record.value is not None and decode_transactional_id(record.key) == transactional_id
        ]
        if not found:
            continue
        *_, last = _batches(file.read_bytes())
        key, value = found[-1]
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        builder.append(0, decode_transaction(value).last_update_timestamp, key, change(value), [])
        batch = builder.build()
        next_offset = struct.unpack_from(">q", last)[0] + struct.unpack_from(">i", last, 23)[0] + 1
        struct.pack_into(">q", batch, 0, next_offset)
        batch[12:16] = last[12:16]  # the leader's epoch
        with file.open("ab") as log:
            log.write(batch)
        return
    raise AssertionError(f"no state of {transactional_id}")


def _batches(data: bytes) -> Iterator[bytes]:
    while data:
        size = 12 + struct.unpack_from(">i", data, 8)[0]
        yield data[:size]
        data = data[size:]


def write_markers(
    bootstrap: str,
    producer_id: int,
    epoch: int,
    partitions: Collection[tuple[str, int]],
    *,
    coordinator_epoch: int,
    commit: bool,
) -> None:
    """Write the markers of a transaction on some of its partitions, as its coordinator does for each broker.

    WriteTxnMarkers, version 1, which brokers take from each other. A coordinator's epoch is the leader
    epoch of its partition.
    """
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    body = _varint(2) + struct.pack(">qh?", producer_id, epoch, commit) + _varint(len(topics) + 1)
    for topic, numbers in topics.items():
        body += _varint(len(topic) + 1) + topic.encode() + _varint(len(numbers) + 1)
        body += b"".join(struct.pack(">i", number) for number in numbers) + b"\0"
    body += struct.pack(">i", coordinator_epoch) + b"\0" + b"\0"
    message = struct.pack(">hhih", 27, 1, 0, -1) + b"\0" + body
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        assert len(answer.read(size)) == size


def _varint(number: int) -> bytes:
    assert 0 <= number < 128
    return bytes([number])
