"""Records of ``__consumer_offsets`` and ``__transaction_state`` as JSON, with fields in camel case."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.codec.offsets_topic import (
    CONSUMER_MEMBER,
    GROUP_METADATA,
    OFFSET_COMMIT,
    decode_consumer_member,
    decode_group,
    decode_key,
    decode_offset,
)
from pyspark_kafkalog.codec.text import TEXT, json_strings
from pyspark_kafkalog.codec.transaction_topic import decode_transaction, decode_transactional_id
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.model.rows import plain
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_Value = Callable[[bytes], Any]


def is_decoded(topic: str) -> bool:
    """Whether the records of ``topic`` can be decoded."""
    return topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def decoded_columns(topic: str, keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and values of one of these topics as JSON; those that can't be decoded as of any other topic."""
    json_keys, json_values = json_strings(keys).to_pylist(), json_strings(values).to_pylist()
    for row, record in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)):
        for texts, found in zip((json_keys, json_values), decoded_record(topic, *record), strict=True):
            if isinstance(found, dict):
                texts[row] = as_json(found)
    return pa.array(json_keys, TEXT), pa.array(json_values, TEXT)


def decoded_record(topic: str, key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    """A key and a value of one of these topics as dicts; as they are, where they can't be decoded."""
    decode = _offsets_record if topic == OFFSETS_TOPIC else _transaction_record
    shown: list[Any] = [key, value]
    with suppress(CorruptRecordError):
        shown[0], decode_value = decode(key or b"")
        if value is not None and decode_value is not None:
            shown[1] = plain(decode_value(value))
    return shown[0], shown[1]


def _offsets_record(key: bytes) -> tuple[dict[str, Any], _Value | None]:
    found = decode_key(key)
    name, decode_value = _OFFSETS_TOPIC_VALUES.get(found.type, (str(found.type), None))
    shown: dict[str, Any] = {"type": name, "group": found.group}
    if found.partition is not None:
        shown |= plain(found.partition)
    if found.member_id:
        shown["memberId"] = found.member_id
    return shown, decode_value


def _transaction_record(key: bytes) -> tuple[dict[str, Any], _Value]:
    return {"transactionalId": decode_transactional_id(key)}, decode_transaction


def _group(value: bytes) -> dict[str, Any]:
    """A group; what its members agree on is decoded if they are consumers."""
    group = decode_group(value)
    shown: dict[str, Any] = plain(group)
    for member, decoded in zip(shown["members"], group.members, strict=True):
        with suppress(CorruptRecordError):
            member["subscription"] = decoded.subscribed_topics()
            member["assignment"] = plain(decoded.assigned_partitions())
    return shown


_OFFSETS_TOPIC_VALUES: Mapping[int, tuple[str, _Value]] = {
    OFFSET_COMMIT: ("OffsetCommit", decode_offset),
    GROUP_METADATA: ("GroupMetadata", _group),
    CONSUMER_MEMBER: ("ConsumerGroupMemberMetadata", decode_consumer_member),
}
"""Kafka's names of the types of keys, and how their values are decoded."""


def as_json(value: Any) -> bytes:
    """The record that :func:`decoded_record` gives, as a text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_base64)
    return text.encode(errors="replace")


def _base64(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}
