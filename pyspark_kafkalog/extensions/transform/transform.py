"""The function of the option ``transform``: it takes rows as an arrow batch, and returns them changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.plugins import PlugIn


class Transform:
    """Calls the function, and checks what it returns.

    :param path: its import path.
    :param given: the columns that it gets.
    :param promised: the columns that it returned where the query was planned; None there.
    :raises OptionError: if it can't be imported, or returns no columns, or others than promised, when it is
        called with no rows.
    """

    def __init__(self, path: str, given: pa.Schema, promised: pa.Schema | None = None) -> None:
        self.path = path
        self._function = PlugIn("transform", path)
        self.given: list[str] = given.names
        """The names of the columns that it gets."""
        none = pa.RecordBatch.from_pylist([], schema=given)
        found = self._function(none, kind=OptionError, hint=_CALLED_FIRST)
        if not isinstance(found, pa.RecordBatch):
            raise self.error(_not_a_batch(found), kind=OptionError, hint=_CALLED_FIRST)
        names = found.schema.names
        twice = next((name for name in names if names.count(name) > 1), None)
        untyped = next((field.name for field in found.schema if pa.types.is_null(field.type)), None)
        if not names or twice is not None:
            what = "no column" if twice is None else f"two columns {twice!r}"
            raise self.error(f"returned {what}", kind=OptionError)
        if untyped is not None:
            raise self.error(
                f"gave column {untyped!r} no type when it was called with no rows",
                kind=OptionError,
                hint="Name the type: pyarrow.array(values, pyarrow.binary()).",
            )
        if promised is not None and not _are_same(found.schema, promised):
            raise self.error(
                f"returns {_listed(found.schema)} here, and returned {_listed(promised)} where the query was"
                " planned",
                kind=OptionError,
                hint="Give all machines the same version of its module.",
            )
        self.schema = pa.schema([(field.name, field.type) for field in found.schema])
        """The columns that it returns, all nullable."""

    def __call__(
        self, rows: pa.RecordBatch, *, topic_partition: object | None = None, offset: int | None = None
    ) -> pa.RecordBatch:
        """The rows that the function makes of ``rows``: any number, all of :attr:`schema`.

        :param topic_partition: where the rows are from, and ``offset`` that of the first one, for errors.
        :raises KafkaLogError: if it raises anything, or returns something else.
        """
        place: dict[str, Any] = {"topic_partition": topic_partition, "offset": offset}
        found = self._function(rows, **place)
        if not isinstance(found, pa.RecordBatch):
            raise self.error(_not_a_batch(found), **place)
        if not _are_same(found.schema, self.schema):
            raise self.error(
                f"returned {_listed(found.schema)}, expected {_listed(self.schema)}, as when it was called"
                " with no rows",
                **place,
            )
        if found is not rows:
            try:
                found.validate(full=True)
            except pa.ArrowInvalid as e:
                raise self.error(f"returned a broken batch: {e}", **place) from None
        return pa.RecordBatch.from_arrays(found.columns, schema=self.schema)

    def error(self, did: str, **place: Any) -> KafkaLogError:
        """See :meth:`.PlugIn.error`."""
        return self._function.error(did, **place)


_CALLED_FIRST = "It is called with an empty batch first, to see which columns it returns."


def _not_a_batch(found: object) -> str:
    return f"returned {type(found).__name__}, expected a pyarrow.RecordBatch"


def _are_same(one: pa.Schema, other: pa.Schema) -> bool:
    return bool(one.names == other.names and one.types == other.types)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
