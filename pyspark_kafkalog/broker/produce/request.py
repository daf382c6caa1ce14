"""ProduceRequest, versions 3 to 11, as pieces to be sent one after the other.

Each record batch is its own piece, so that its bytes go from where they were
encoded to the socket without a copy; kafka-python's encoder copies them twice.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

from pyspark_kafkalog.model import TopicPartition

MIN_VERSION = 3
"""The first that carries v2 record batches (KIP-98)."""
MAX_VERSION = 11
"""Later versions are for transactions of KIP-890 and name topics by their ids."""
_FIRST_FLEXIBLE = 9


def produce_request(
    version: int, acks: int, timeout_ms: int, batches: Iterable[tuple[TopicPartition, memoryview]]
) -> list[bytes | memoryview]:
    """The body of the request, without its header; one record batch per partition.

    transactional_id, acks, timeout_ms, [name, [index, records]]; from version 9 on
    lengths are varints of length + 1, and every struct ends in its tagged fields (KIP-482).
    """
    by_topic: defaultdict[str, list[tuple[int, memoryview]]] = defaultdict(list)
    for partition, records in batches:
        by_topic[partition.topic].append((partition.partition, records))
    flexible = version >= _FIRST_FLEXIBLE
    size = _compact_size if flexible else _size
    end_of_struct = b"\0" if flexible else b""
    small = bytearray(b"\0" if flexible else b"\xff\xff")
    small += struct.pack(">hi", acks, timeout_ms) + size(len(by_topic))
    pieces: list[bytes | memoryview] = []
    for topic, partitions in by_topic.items():
        name = topic.encode()
        small += (size(len(name)) if flexible else struct.pack(">h", len(name))) + name
        small += size(len(partitions))
        for index, records in partitions:
            small += struct.pack(">i", index) + size(len(records))
            pieces += (bytes(small), records)
            small = bytearray(end_of_struct)
        small += end_of_struct
    small += end_of_struct
    return [*pieces, bytes(small)]


def _size(size: int) -> bytes:
    return struct.pack(">i", size)


def _compact_size(size: int) -> bytes:
    rest = size + 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
