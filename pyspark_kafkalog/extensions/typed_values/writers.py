"""The schemas that a column's values were written by, looked up by the keys that records have of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError, SchemaError
from pyspark_kafkalog.extensions.typed_values.column_decoder import (
    ColumnToDecode,
    ColumnValues,
    segments_in,
)
from pyspark_kafkalog.extensions.typed_values.framing import MessageKey, WriterKey, WriterKeys, framing_of
from pyspark_kafkalog.extensions.typed_values.registries.contract import ApicurioId, Key, shown
from pyspark_kafkalog.extensions.typed_values.registries.sources import registry_of
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema

WITHOUT = 0
"""The entry of rows that have no key of a schema."""


class Writers:
    """The writers of a column.

    :param registry: where their schemas are.
    :param add: gives the decoder's entry for a schema and the key of a message in it, or :data:`WITHOUT`
        if it has no such message; it raises SchemaError if the schema can't be read with the reader's.
    :param refuse: gives the entry for rows that can't be decoded for a reason.
    """

    def __init__(
        self,
        column: ColumnToDecode,
        registry: RegistryOptions,
        add: Callable[[RegisteredSchema, MessageKey], int],
        refuse: Callable[[str], int],
    ) -> None:
        self._column, self._add, self._refuse = column, add, refuse
        self._registry = registry_of(registry)
        self._framing = framing_of(column)
        self._own = _by_keys(column.schema, registry)
        """The reader's schema, if the registry has given it: most values are written by it."""
        self._entries: dict[WriterKey, int] = {}
        self._has_segments = False

    def find(self, values: ColumnValues) -> tuple[ColumnValues, np.ndarray, dict[str, pa.Array]]:
        """The bodies of the values, the entry of each row's writer, and the columns of keys that are wanted.

        There are no entries where only the keys are wanted.

        :raises SchemaError: if a schema can't be read with the reader's, unless such values are kept.
        :raises SchemaRegistryError: if the registry does not know one, or does not answer.
        """
        bodies, found = self._framing.find(values)
        made = {name: found.column(kind) for name, kind in self._column.ids.items()}
        if self._column.type is None:
            return bodies, np.empty(0, np.int64), made
        self._leave_out_segments(values.batch, found)
        numbers, first, index = np.unique(found.numbers, return_index=True, return_inverse=True)
        of_numbers = [
            WITHOUT if number < 0 else self._entry(found.keys[number], row, values.place)
            for number, row in zip(numbers.tolist(), first.tolist(), strict=True)
        ]
        return bodies, np.array(of_numbers, np.int64)[index], made

    def _leave_out_segments(self, batch: pa.RecordBatch, found: WriterKeys) -> None:
        """Take the keys from rows that are message segments: no registry will ever know them.

        A value may look like one by chance, so the registry is asked for the first one.
        """
        known = [number for number, key in enumerate(found.keys) if key in self._entries]
        rows = found.prefixed[found.numbers[found.prefixed] >= 0]
        rows = rows[~np.isin(found.numbers[rows], known)]
        if self._column.name != "value" or not rows.size:
            return
        for row in rows[segments_in(batch.take(pa.array(rows)))].tolist():
            schema = found.keys[found.numbers[row]].schema
            self._has_segments = self._has_segments or not self._registry.knows(schema)
            if self._has_segments:
                found.numbers[row] = -1

    def _entry(self, key: WriterKey, row: int, place: Callable[[int], dict[str, Any]]) -> int:
        """The decoder's entry for a writer's schema; ``row`` is the first one that has it."""
        entry = self._entries.get(key)
        if entry is None:
            registry, expected = self._registry, self._column.format.encoding.upper()
            try:
                schema = self._own.get(key.schema) or registry.by_key(key.schema)
                if schema.kind != expected:
                    raise SchemaError(
                        f"it is a schema of type {schema.kind}, expected {expected}",
                        hint=self._column.format.hint_for(schema.kind),
                    )
                entry = self._add(schema, key.message)
            except SchemaError as e:
                why = f"schema {shown(key.schema)}: {e.message}"
                if not self._column.takes_foreign:
                    hint = e.hint or f"Give a schema that can read both as {self._column.name}.schema."
                    raise SchemaError(
                        f"The {self._column.name} can't be read with the schema of this query: {why}",
                        hint=f"{hint} Or set includeCorrupt=true: the column corrupt has such records.",
                        **place(row),
                    ) from None
                entry = self._refuse(why)
            except KafkaLogError as e:
                raise type(e)(e.message, hint=e.hint, **place(row)) from None
            if entry != WITHOUT:  # else values can make up any number of messages
                self._entries[key] = entry
        return entry


def _by_keys(schema: RegisteredSchema | None, registry: RegistryOptions) -> dict[Key, RegisteredSchema]:
    """A schema by the keys of it that its registry has told, if it has."""
    found: dict[Key, RegisteredSchema] = {}
    if schema is not None and schema.guid is not None:
        found[schema.guid] = schema
    if schema is not None and schema.schema_id is not None:
        found[schema.schema_id] = found[ApicurioId(registry.use_id, schema.schema_id)] = schema
    return found
