"""PySpark's filters as plain values."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from pyspark_kafkalog.reading.filters import Comparison

_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def comparisons(filters: Iterable[Filter]) -> Iterator[Comparison]:
    """The comparisons of columns with values among ``filters``, all of which hold for every wanted row."""
    for condition in filters:
        operator = _OPERATORS.get(type(condition))
        if operator is not None and len(condition.attribute) == 1:  # type: ignore[attr-defined]
            value = condition.value  # type: ignore[attr-defined]
            plain = [_plain(item) for item in value] if operator == "in" else _plain(value)
            yield Comparison(condition.attribute[0], operator, plain)  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    """``value``; a point in time as microseconds since the epoch."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // datetime.timedelta(microseconds=1)
    return value
