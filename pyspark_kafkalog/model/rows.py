"""Row classes: each field of a dataclass says once how views of SQL, Arrow, JSON and tables show it.

::

    @dataclass(frozen=True, slots=True)
    class Stored:
        topic: str = field(metadata=column(STRING, "TOPIC"))
        stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))

JSON has all fields, under their names in camel case; views and tables have those with a column.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple, TypeVar

Row = TypeVar("Row")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _as_it_is(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """The kind of a column's values.

    ``sql`` is its type in views, empty where no view has it. ``value`` makes of a field what views and JSON
    have, ``text`` what a table shows, where None is a dash; ``wide_text`` makes that of a wide table, if it
    is another. Fields that are None are None everywhere.
    """

    sql: str = ""
    text: Callable[[Any], object] = _as_it_is
    value: Callable[[Any], Any] = _as_it_is
    wide_text: Callable[[Any], object] | None = None


class TableColumn(NamedTuple):
    """A field of a row class, and how it is shown; ``name`` is its key in JSON. See :func:`column`."""

    field: str
    name: str
    kind: Kind
    title: str
    wide: bool
    if_any: bool
    rank: int

    def cell(self, row: Any, *, wide: bool) -> object:
        """The cell of a row in a table: a number, a text or None."""
        value = getattr(row, self.field)
        value = None if value is None else self.kind.value(value)
        return None if value is None else ((wide and self.kind.wide_text) or self.kind.text)(value)


def column(
    kind: Kind, title: str = "", *, wide: bool = False, if_any: bool = False, rank: int = 0
) -> Mapping[str, Any]:
    """The metadata of a field that views and tables show.

    :param title: that in tables; without one they leave it out.
    :param wide: only wide tables show it.
    :param if_any: tables that are not wide leave it out if it is empty, 0 or None in all rows.
    :param rank: the columns of a table are in order of this, and then in that of the fields.
    """
    return {"column": (kind, title, wide, if_any, rank)}


def columns(row_class: type) -> list[TableColumn]:
    """The columns of a row class, in the order of its fields."""
    return [
        TableColumn(field.name, camel_case(field.name), *field.metadata["column"])
        for field in dataclasses.fields(row_class)
        if "column" in field.metadata
    ]


def table_columns(row_class: type, rows: Collection[Any], *, wide: bool) -> list[TableColumn]:
    """The columns that a table of these rows has, in order."""
    shown = [
        one
        for one in columns(row_class)
        if one.title
        and (wide or not one.wide)
        and (wide or not one.if_any or any(getattr(row, one.field) for row in rows))
    ]
    return sorted(shown, key=lambda one: one.rank)


def sql_types(row_class: type) -> dict[str, str]:
    """The columns of a view of these rows, with their Spark types."""
    return {one.name: one.kind.sql for one in columns(row_class) if one.kind.sql}


class Rows(list[Row]):
    """Rows of one class: a list, which a notebook shows as a table."""

    def __init__(self, row_class: type[Row], rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self._row_class = row_class

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._row_class, list(self))

    def _repr_html_(self) -> str:
        shown = table_columns(self._row_class, self, wide=False)
        lines = [[one.cell(row, wide=False) for one in shown] for row in self]
        head = "".join(f"<th>{html.escape(one.title)}</th>" for one in shown)
        body = "".join(
            f"<tr>{''.join(f'<td>{_in_html(value)}</td>' for value in line)}</tr>" for line in lines
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _in_html(value: object) -> str:
    return "-" if value is None else html.escape(str(value))


def plain(value: Any) -> Any:
    """Rows, also within lists and dicts, as dicts and lists in camel case, ready for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        row = {}
        for field in dataclasses.fields(value):
            kind = field.metadata["column"][0] if "column" in field.metadata else _OTHER
            row[camel_case(field.name)] = plain(kind.value(getattr(value, field.name)))
        return row
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {camel_case(name): plain(item) for name, item in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def camel_case(name: str) -> str:
    """``log_start_offset`` as ``logStartOffset``."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)


def time_text(ms: int, *, precision: str = "milliseconds") -> str:
    """A timestamp in UTC; a number if it is beyond the range of dates."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec=precision).replace("+00:00", "Z")
    except OverflowError:
        return str(ms)


def size_text(size: int) -> str:
    """A size in the largest unit that leaves at least 1 of it."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"


_OTHER = Kind()
STRING = Kind("string")
INT = Kind("int")
BIGINT = Kind("bigint")
BOOLEAN = Kind("boolean", text=lambda value: "yes" if value else "no")
TIMESTAMP = Kind("timestamp", text=lambda ms: time_text(ms, precision="seconds"), wide_text=time_text)
"""Milliseconds since 1970."""
SIZE = Kind("bigint", text=size_text)
"""Bytes."""
NOTE = Kind("string", text=lambda value: value or None)
"""A text that is empty where there is nothing to say."""
STRINGS = Kind(text=lambda values: ", ".join(values) or None)
COUNT = Kind(text=len)
"""A list of which a table shows the length."""
