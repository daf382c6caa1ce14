"""The decoding of a column: its settings, which tasks get, and the base of all formats' decoders."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import value_bounds
from pyspark_kafkalog.codec.rows import ROW_TYPES
from pyspark_kafkalog.errors import CorruptRecordError
from pyspark_kafkalog.extensions.large_messages.segments import find
from pyspark_kafkalog.extensions.typed_values.columns import check_part
from pyspark_kafkalog.extensions.typed_values.options import ColumnFormat
from pyspark_kafkalog.model import CORRUPT_FIELD, HEADERS_FIELD, TopicPartition
from pyspark_kafkalog.options.user_options import log_once
from pyspark_kafkalog.read.messages import messages_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
    from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema
    from pyspark_kafkalog.options.settings import ReadOptions

PREFIX = 5
"""Bytes before a value: a zero, and the id of its schema, big-endian."""
CORRUPT_TYPE = pa.struct(
    [
        ("reason", pa.string()),
        ("column", pa.string()),
        *((name, ROW_TYPES[name]) for name in ("topic", "partition", "offset", "timestamp")),
        *((name, ROW_TYPES[name]) for name in ("key", "value", "headers")),
    ]
)
"""A record that can't be decoded, whole."""
_ID_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
_log = logging.getLogger("pyspark_kafkalog")


@dataclass(frozen=True, slots=True)
class ColumnToDecode(ABC):
    """A column that is decoded: its format, schema and type. Sent to the tasks.

    ``schema`` is the reader's, if the format has one, and ``type`` a part of what it gives; None if the
    values are not wanted. ``id_columns`` are those with the keys of their schemas that are wanted. With
    ``keeps_corrupt`` there is one with the records that can't be decoded. With ``takes_foreign`` these may
    be values of a schema that can't be read with the reader's, which end a query otherwise. With
    ``of_whole`` the records are whole large messages. A subclass is a format.
    """

    format: ColumnFormat
    schema: RegisteredSchema | None
    type: pa.DataType | None
    id_columns: tuple[str, ...]
    keeps_corrupt: bool
    takes_foreign: bool
    of_whole: bool

    @classmethod
    def of(
        cls,
        column: ColumnFormat,
        schema: RegisteredSchema | None,
        kind: pa.DataType | None,
        options: ReadOptions,
    ) -> Self:
        """The column, for a reader that wants all that its options make."""
        keeps_corrupt = CORRUPT_FIELD[0] in options.record_fields
        return cls(
            column,
            schema,
            kind,
            id_columns=tuple(column.id_columns),
            keeps_corrupt=keeps_corrupt,
            takes_foreign=keeps_corrupt,
            of_whole=messages_of(options).are_joined,
        )

    @property
    def name(self) -> str:
        return self.format.column

    @property
    def reads(self) -> list[str]:
        """The columns of records that it needs."""
        names = [self.name, "offset"]
        if self.format.is_registered:
            names.append(HEADERS_FIELD[0])
        if self.keeps_corrupt:
            names += ["key", "value", "timestamp", HEADERS_FIELD[0]]
        return names

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The columns that it makes.

        :raises OptionError: if the type of one is not known.
        """
        made = self.ids if self.type is None else {self.name: self.type, **self.ids}
        return made | ({CORRUPT_FIELD[0]: CORRUPT_TYPE} if self.keeps_corrupt else {})

    @property
    def ids(self) -> dict[str, pa.DataType]:
        """The wanted columns with the keys of schemas."""
        return {name: _ID_TYPES[self.format.id_columns[name]] for name in self.id_columns}

    def part(self, wanted: pa.Schema) -> Self | None:
        """The part that makes ``wanted`` columns: structs may have some of their fields. None without one.

        :raises OptionError: if what is wanted isn't a part of it.
        """
        names = wanted.names
        kind = wanted.field(self.name).type if self.name in names else None
        id_columns = tuple(name for name in self.id_columns if name in names)
        keeps_corrupt = self.keeps_corrupt and CORRUPT_FIELD[0] in names
        if kind is None and not id_columns and not keeps_corrupt:
            return None
        if kind is None and keeps_corrupt:
            kind = self.types[self.name]  # decoding finds them
        if kind is not None:
            self.check_part(kind)
        return replace(self, type=kind, id_columns=id_columns, keeps_corrupt=keeps_corrupt)

    def check_part(self, wanted: pa.DataType) -> None:
        """Check that a type is a part of what it makes.

        :raises OptionError: if it isn't.
        """
        if self.type is not None:
            check_part(wanted, self.type, self.name)

    @abstractmethod
    def decoder(self, registry: RegistryOptions | None, zone: str) -> ColumnDecoder:
        """The decoder of the column, in a task.

        :param registry: where the schemas of writers are.
        :param zone: the name of the time zone of times that have none, unless an option gives another.
        :raises OptionError: if there is no such zone here.
        """


class TooLargeBatchError(Exception):
    """The values of a batch are too large together when they are decompressed: a part of it may do."""


class DecodedValues(Protocol):
    """The values that a format's decoder has made of some rows, and which rows are corrupt, and why."""

    @property
    def array(self) -> pa.Array: ...
    @property
    def corrupt(self) -> np.ndarray: ...
    def reason(self, row: int) -> str: ...


class ColumnValues(NamedTuple):
    """The values of a column of ``batch``: ``data[start:start + size]``; a size of -1 is null.

    ``damaged`` gets the rows whose body the framing can't have, and why.
    """

    batch: pa.RecordBatch
    data: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    partition: TopicPartition
    damaged: dict[int, str]

    def place(self, row: int) -> dict[str, Any]:
        """The place of a row, for errors."""
        return {"topic_partition": self.partition, "offset": self.batch.column("offset")[row].as_py()}


class ColumnDecoder(ABC):
    """Decodes one column."""

    left = "structs of nulls"
    """The corrupt values in PERMISSIVE mode, for people."""

    def __init__(self, column: ColumnToDecode) -> None:
        self._column = column
        self._has_warned = False

    def decode(
        self,
        batch: pa.RecordBatch,
        bytes_: pa.Array,
        partition: TopicPartition,
        reasons: dict[int, str],
    ) -> dict[str, pa.Array]:
        """The columns made of a column of ``batch``: its values, and the ids of their schemas.

        :param reasons: gets the reason of each corrupt row, if these are kept; else the first is an error or
            a warning.
        """
        values = ColumnValues(batch, *value_bounds(bytes_), partition, {})
        decoded, made = self.decoded(values)
        if decoded is None:
            return made
        if self._column.keeps_corrupt:
            reasons |= {row: self._reason(decoded, values, row) for row in decoded.corrupt.tolist()}
            if decoded.corrupt.size:
                # A query that does not look at the column would take their rows for good ones.
                log_once(
                    logging.WARNING,
                    "Records whose %s can't be decoded are in the column corrupt. These values are %s, and"
                    " their rows stay among the others",
                    self._column.name,
                    self.left,
                )
        elif decoded.corrupt.size:
            self._have_failed(decoded, values)
        return {**made, self._column.name: decoded.array}

    @abstractmethod
    def decoded(self, values: ColumnValues) -> tuple[DecodedValues | None, dict[str, pa.Array]]:
        """The decoded values, if they are wanted, and the column with their ids, if that is.

        Their starts and sizes may be changed.
        """

    def _seen(self, values: ColumnValues, row: int) -> str | None:
        """The likely nature of a corrupt row, and the remedy. No hint: commands have their own."""
        if self._column.name == "value" and segments_in(values.batch.slice(row, 1)).size:
            return "it is a segment of a large message: give large.message.enabled=true (--large-messages)"
        looks_framed = values.sizes[row] >= PREFIX and values.data[values.starts[row]] == 0
        if looks_framed and not self._column.format.is_registered:
            confluent = f"confluent-{self._column.format.encoding}"
            return f"it begins like a value of Confluent's serializers: give {confluent} for those"
        return None

    def _reason(self, decoded: DecodedValues, values: ColumnValues, row: int) -> str:
        why = values.damaged.get(row) or decoded.reason(row)
        return f"The {self._column.name} can't be decoded: {why}"

    def _have_failed(self, decoded: DecodedValues, values: ColumnValues) -> None:
        """Raise, or warn, of the first corrupt row."""
        row = int(decoded.corrupt[0])
        text = "; ".join(filter(None, [self._reason(decoded, values, row), self._seen(values, row)]))
        error = CorruptRecordError(text, **values.place(row))
        if self._column.format.fails_fast:
            raise error.with_hint(f"Correct the writer. With mode=PERMISSIVE such values are {self.left}.")
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s; this one and others are %s", error, self.left)


def segments_in(batch: pa.RecordBatch) -> np.ndarray:
    """The rows whose values are message segments."""
    found = find(batch)
    return np.empty(0, np.int64) if found is None else found.row[found.error == 0]
