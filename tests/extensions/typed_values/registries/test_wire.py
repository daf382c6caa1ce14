"""The keys of schemas before values and in headers, and bytes that only look like them."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable

import pytest

from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key
from pyspark_kafkalog.extensions.typed_values.registries.wire import (
    apicurio_key,
    azure_key,
    confluent_key,
    content_id,
    global_id,
    glue_header,
    glue_key,
    undone,
)

GUID = uuid.UUID("89791762-2336-4186-9674-299b90a802e2")


@pytest.mark.parametrize(
    ("read", "text", "key"),
    [
        (confluent_key, b"\0\0\0\1\0", 256),
        (confluent_key, b"\0\0\0\1\0more", 256),
        (confluent_key, b"\1" + GUID.bytes, GUID),
        (confluent_key, b"\2" + GUID.bytes, None),
        (confluent_key, b"\0\0\0\1", None),
        (confluent_key, b"\1\0\0\0\1", None),
        (glue_key, b"\3\0" + GUID.bytes, GUID),
        (glue_key, b"\3\5" + GUID.bytes, GUID),
        (glue_key, b"\3\1" + GUID.bytes, None),
        (glue_key, b"\2\0" + GUID.bytes, None),
        (glue_key, b"\3\0" + GUID.bytes[:15], None),
        (apicurio_key, b"\0\0\0\1\0", 256),
        (apicurio_key, b"\0" + bytes(6) + b"\1\0", 256),
        (apicurio_key, bytes(9), None),
        (apicurio_key, b"\1\0\0\1\0", None),
        (apicurio_key, b"", None),
        (global_id, bytes(7) + b"\7", ApicurioId("globalId", 7)),
        (content_id, bytes(6) + b"\1\0", ApicurioId("contentId", 256)),
        (global_id, b"\xff" * 8, None),
        (global_id, b"7", None),
        (azure_key, b"avro/binary+" + GUID.hex.encode(), GUID),
        (azure_key, b"avro/binary+" + str(GUID).upper().encode(), GUID),
        (azure_key, b"application/json", None),
        (azure_key, b"avro/binary+" + GUID.hex.encode() + b"0", None),
        (azure_key, b"", None),
    ],
)
def test_keys(read: Callable[[bytes], Key | None], text: bytes, key: Key | None) -> None:
    assert read(text) == key


def test_the_header_of_glue() -> None:
    assert glue_key(glue_header(GUID)) == GUID


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"body", "its compressed body is damaged"),
        (zlib.compress(b"body" * 50)[:-3], "its compressed body ends too early"),
        (b"", "its compressed body ends too early"),
        (zlib.compress(b"body") + b"x", "bytes follow its compressed body"),
        (zlib.compress(bytes(1001)), "its compressed body has more than 1000 bytes after decompression"),
        (zlib.compress(bytes(1000)), ""),
        (zlib.compress(b""), ""),
    ],
)
def test_zlib(value: bytes, why: str) -> None:
    text, found = undone(value, 1000)
    assert found == why
    assert why or text == zlib.decompress(value)
