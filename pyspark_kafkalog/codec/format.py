"""Byte layouts of record batches (magic 2) and messages (magic 0 and 1).

All integers are big-endian. Every layout opens with the same 17 bytes::

    log overhead           v0, v1: message              v2: record batch
     0 offset int64         12 crc int32 (CRC-32 of      12 partitionLeaderEpoch int32
     8 size   int32            16..end)                  16 magic int8 = 2
                            16 magic int8 = 0 or 1       17 crc uint32 (CRC-32C of 21..end)
    size counts what        17 attributes int8           21 attributes int16
    follows it              18 timestamp int64 (v1)      23 lastOffsetDelta int32
                            .. keySize int32, key        27 baseTimestamp int64
                            .. valueSize int32, value    35 maxTimestamp int64
                                                         43 producerId int64
                                                         51 producerEpoch int16
    record (v2; varints are zig-zag)                     53 baseSequence int32
       length varint, of what follows                    57 records count int32
       attributes int8                                   61 records
       timestampDelta varlong
       offsetDelta varint
       keySize varint, key (negative size: null)
       valueSize varint, value (negative size: null)
       headersCount varint
         headerKeySize varint >= 0, key
         valueSize varint, value (negative size: null)

A compressed v2 batch has its records compressed as one. A compressed v0 or v1
message (a wrapper) has a message set as its value. Neither the base offset nor
the leader epoch of a batch is covered by its CRC.

Sources: Kafka's ``DefaultRecordBatch``, ``DefaultRecord``, ``LegacyRecord``.
"""

from __future__ import annotations

LOG_OVERHEAD = 12
"""Bytes of the offset and the size before every batch or message."""
HEADER_SIZE_UP_TO_MAGIC = 17
"""Bytes needed to tell the format and the size of a batch."""

OFFSET = 0
SIZE = 8
MAGIC = 16

LEADER_EPOCH_V2 = 12
CRC_V2 = 17
ATTRIBUTES_V2 = 21
LAST_OFFSET_DELTA_V2 = 23
BASE_TIMESTAMP_V2 = 27
MAX_TIMESTAMP_V2 = 35
PRODUCER_ID_V2 = 43
PRODUCER_EPOCH_V2 = 51
BASE_SEQUENCE_V2 = 53
COUNT_V2 = 57
RECORDS_V2 = 61
"""Size of a v2 header; the records begin here."""

CRC_LEGACY = 12
ATTRIBUTES_LEGACY = 17
TIMESTAMP_V1 = 18
KEY_SIZE_V0 = 18
KEY_SIZE_V1 = 26

MIN_SIZE_V0 = 26
"""Whole size of a v0 message with null key and null value, log overhead included."""
MIN_SIZE_V1 = 34

MAX_HEADERS = 1 << 20
"""The most headers of a record that is read: Kafka has no limit, and a few KB can claim any number."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""The base timestamp is the delete horizon of the batch (KIP-534); record timestamps still add to it."""

COMPRESSION_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of Kafka's ``compression.type``; the index is the id in the attributes."""
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

NO_TIMESTAMP = -1
NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Kafka's TimestampType ids, as the column ``timestampType`` shows them."""

NO_PRODUCER_ID = -1

CONTROL_ABORT, CONTROL_COMMIT = 0, 1
"""The type in a control record's key (int16 version, int16 type); other types don't end transactions."""
CONTROL_TYPE = 2
"""Position of the type in a control record's key."""
CONTROL_KEY_SIZE = 4
CONTROL_COORDINATOR_EPOCH = 2
"""Position of the coordinator's epoch in the value of a transaction's marker (int16 version, int32 epoch)."""
CONTROL_VALUE_SIZE = 6
