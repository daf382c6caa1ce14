"""The writers of a column: the entries that are kept of their schemas."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.extensions.typed_values import writers
from pyspark_kafkalog.extensions.typed_values.column_decoder import ColumnValues
from pyspark_kafkalog.extensions.typed_values.framing import MessageKey
from pyspark_kafkalog.extensions.typed_values.protobuf.wire import varint
from pyspark_kafkalog.extensions.typed_values.registries.wire import glue_header
from pyspark_kafkalog.extensions.typed_values.registry_options import GLUE, RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
from pyspark_kafkalog.model import TopicPartition

GUID = uuid.UUID(int=7)


def test_messages_that_are_made_up_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values may name any number of them, as long as a task runs."""
    schema = RegisteredSchema("", "PROTOBUF", guid=GUID)
    registry = SimpleNamespace(by_key=lambda _: schema)
    monkeypatch.setattr(writers, "registry_of", lambda _: registry)
    format_ = SimpleNamespace(encoding="protobuf", registry=GLUE)
    column: Any = SimpleNamespace(name="key", format=format_, ids={}, type=pa.null(), schema=None)
    asked: list[MessageKey] = []

    def add(_: RegisteredSchema, message: MessageKey) -> int:
        asked.append(message)
        return 5 if message == 0 else writers.WITHOUT

    made = writers.Writers(column, RegistryOptions(()), add, lambda _: 9)
    for first in range(0, 4000, 1000):
        numbers = [0, 0, *range(first + 1, first + 999)]
        array = pa.array([glue_header(GUID) + varint(number) for number in numbers], pa.binary())
        headers = pa.nulls(len(numbers), ROW_TYPES["headers"])
        batch = pa.record_batch({"key": array, "headers": headers})
        _, entries, _ = made.find(ColumnValues(batch, *value_bounds(array), TopicPartition("t", 0), {}))
        assert np.array_equal(np.flatnonzero(entries), [0, 1])
    assert asked.count(0) == 1
    assert len(made._entries) == 1
