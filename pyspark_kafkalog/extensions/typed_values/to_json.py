"""Columns as JSON, as Spark's ``to_json`` writes them by default (its JacksonGenerator and JSONOptions).

Numbers with a point have the shortest digits that are read as the same number, in the form of Java's
``Double.toString`` since Java 19; before that it gave some numbers a digit more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_kafkalog.codec.buffers import list_column, valid_rows
from pyspark_kafkalog.codec.rows import MAX_TIMESTAMP, as_utf8
from pyspark_kafkalog.codec.text import (
    TEXT,
    Choices,
    Decimals,
    OfRows,
    Part,
    base64_strings,
    java_numbers,
    joined_texts,
    json_strings,
    texts_of_lists,
)
from pyspark_kafkalog.errors import InvalidRecordError, KafkaLogError, OptionError
from pyspark_kafkalog.extensions.typed_values.json.times import BEGIN_OF_2037, seconds_east_of_utc, zone

WITH_NULL = {b"null": b"written"}
"""The metadata of a field that is written where it is null, too."""
_NULL = pa.scalar(b"null", TEXT)
_MANY_NULLS = 0.6
"""The share of rows above which a field that is null in them is written row by row that has it."""
_FEW_DIGITS = 1000
"""Times the least number: above that the nearest two digits of a number with one end in a 0."""
_DAY = 86_400_000
_DIGITS = [(36_000_000, 3), (3_600_000, 10), (600_000, 6), (60_000, 10), (10_000, 6), (1000, 10)]
_DIGITS += [(100, 10), (10, 10), (1, 10)]
"""The milliseconds that each digit of a time stands for, and how many digits there are."""
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""The factor and the divisor that make milliseconds of a time in each unit."""
_MICROS = pa.array([b"", *(b"%03d" % number for number in range(1, 1000))], TEXT)


def check_json_type(kind: pa.DataType, path: str = "") -> None:
    """Check that values of this type can be written.

    :raises OptionError: naming the field that can't.
    :raises KafkaLogError: for a time zone that is not known here.
    """
    if pa.types.is_timestamp(kind):
        _times(pa.array([0], kind))
    if pa.types.is_struct(kind):
        for field in kind:
            check_json_type(field.type, f"{path}.{field.name}")
    elif pa.types.is_list(kind):
        check_json_type(kind.value_type, f"{path}.element")
    elif pa.types.is_map(kind):
        if not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
            raise _no_type(kind.key_type, f"{path}.key")
        check_json_type(kind.item_type, f"{path}.value")
    elif _texts_of(kind) is None:
        raise _no_type(kind, path)


def to_json(column: pa.Array, *, in_full: bool = False) -> pa.LargeBinaryArray:
    """Each row as JSON; nulls stay.

    :param in_full: write fields that are null, which are left out otherwise (``ignoreNullFields``), and
        the microseconds of times.
    :raises InvalidRecordError: for a time that is too large for Spark's.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        texts = _structs(column, in_full)
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        texts = _lists(column, in_full)
    else:
        write = _texts_of(kind)
        assert write is not None, "the types are checked where a write or a read is planned"
        texts = write(column) if write is not _times else _times(column, in_full=in_full)
    if column.null_count and texts.null_count != column.null_count:
        texts = pc.if_else(column.is_valid(), texts, pa.scalar(None, TEXT))
    return texts


def _structs(column: pa.StructArray, in_full: bool) -> pa.LargeBinaryArray:
    parts: list[bytes | pa.Array | Part] = [b"{"]
    before: np.ndarray | None = np.zeros(len(column), bool)
    """Whether a row has a field before; None: each has."""
    for number, field in enumerate(column.type):
        values = column.field(number)
        name = _name(field.name)
        with_null = in_full or WITH_NULL.items() <= (field.metadata or {}).items()
        nulls = 0 if with_null else values.null_count
        if before is None and not nulls:
            parts += [b"," + name, _value(values, in_full, with_null=with_null)]
            continue
        if nulls and nulls == len(column):
            continue
        given = valid_rows(values) if nulls else np.ones(len(column), bool)
        if nulls > _MANY_NULLS * len(column):
            rows = np.flatnonzero(given)
            which = np.ones(rows.size, bool) if before is None else before[rows]
            named = Choices((name, b"," + name), which.astype(np.uint8))
            parts.append(OfRows(rows, [named, _value(values.drop_null(), in_full, with_null=False)]))
        else:
            choice = np.where(given, 2 if before is None else 1 + before, 0)
            parts.append(Choices((b"", name, b"," + name), choice.astype(np.uint8)))
            parts.append(_value(values, in_full, with_null=with_null))
        if before is not None:
            before |= given
            before = None if before.all() else before
    return joined_texts([*parts, b"}"], len(column))


def _lists(column: pa.ListArray, in_full: bool) -> pa.LargeBinaryArray:
    """Arrays, and maps."""
    offsets = list_column(column)[0].astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    offsets -= first
    follows = np.ones(count, np.uint8)
    follows[offsets[:-1][offsets[:-1] < offsets[1:]]] = 0
    parts: list[bytes | pa.Array | Part] = [Choices((b"", b","), follows)]
    opening, closing, items = b"[", b"]", column.values
    if pa.types.is_map(column.type):
        opening, closing, items = b"{", b"}", column.items
        parts += [_strings(_as_text(column.keys.slice(first, count))), b":"]
    parts.append(_value(items.slice(first, count), in_full, with_null=True))
    inner = texts_of_lists(joined_texts(parts, count), offsets)
    return joined_texts([opening, inner, closing], len(column))


def _value(column: pa.Array, in_full: bool, *, with_null: bool) -> pa.Array | Part:
    """The values of each row, as a part of it: null is ``null``, or empty."""
    numbers = None if with_null and column.null_count else Decimals.of(column)
    if numbers is not None:
        return numbers
    texts = to_json(column, in_full=in_full)
    return texts.fill_null(_NULL) if with_null else texts


@lru_cache(maxsize=10_000)
def _name(name: str) -> bytes:
    (text,) = _strings(pa.array([name])).to_pylist()
    return bytes(text) + b":"


def _strings(column: pa.Array) -> pa.Array:
    texts = json_strings(column, upper_case=True)
    if pc.any(pc.starts_with(texts, "{")).as_py():  # which is not UTF-8
        texts = json_strings(as_utf8(column), upper_case=True)
    return texts


def _as_text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _numbers(column: pa.Array) -> pa.Array:
    numbers = Decimals.of(column)
    return _as_text(column).cast(TEXT) if numbers is None else joined_texts([numbers], len(column))


def _booleans(column: pa.Array) -> pa.Array:
    return pc.if_else(column, pa.scalar(b"true", TEXT), pa.scalar(b"false", TEXT))


def _floats(column: pa.Array) -> pa.Array:
    texts = _as_text(column)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    least = np.finfo(values.dtype).smallest_subnormal
    is_least = (np.abs(values) < _FEW_DIGITS * least) & (values != 0)
    if is_least.any():
        different, number = np.unique(values[is_least], return_inverse=True)
        two_digits = pa.array([_of_two_digits(value) for value in different]).take(pa.array(number))
        texts = pc.replace_with_mask(texts, pa.array(is_least), two_digits)
    return java_numbers(texts)


def _of_two_digits(value: np.floating) -> str:
    """The shortest digits, but the nearest two in place of one."""
    text = np.format_float_scientific(value, unique=True, trim="0")
    if text.partition("e")[0].endswith(".0"):
        nearest = np.format_float_scientific(value, precision=1, unique=False, trim="0")
        text = nearest if type(value)(nearest) == value else text
    return text


def _dates(column: pa.Array) -> pa.Array:
    return joined_texts([b'"', _days(column), b'"'], len(column))


def _days(column: pa.Array) -> pa.Array:
    """Dates, with a sign before years of more than four digits."""
    texts = _as_text(column)
    unknown = pc.starts_with(texts, "<")  # beyond the years that Arrow writes
    if pc.any(unknown).as_py():
        days = column.cast(pa.int32()).fill_null(0).to_numpy().astype("datetime64[D]")
        texts = pc.if_else(unknown, pa.array(np.datetime_as_string(days)), texts)
    return pc.replace_substring_regex(texts, r"^(\d{5,})", r"+\1").cast(TEXT)


def _times(column: pa.Array, *, in_full: bool = False) -> pa.Array:
    """Milliseconds, with the offset of the type's time zone if it has one; microseconds if there are some."""
    factor, divisor = _PER_MS[column.type.unit]
    given = column.cast(pa.int64()).fill_null(0).to_numpy()
    most = MAX_TIMESTAMP // factor
    if divisor == 1 and ((given > most) | (given < -most)).any():
        raise InvalidRecordError("A time is too large for JSON: it is beyond the year 290,000")
    ms = given * factor // divisor
    there, offset = (ms, b"") if column.type.tz is None else _local(ms, column.type.tz)
    days, number = np.unique(there // _DAY, return_inverse=True)
    dates = _days(pa.array(days.astype(np.int32)).cast(pa.date32())).take(pa.array(number))
    micros: bytes | pa.Array = b""
    if in_full and divisor > 1:
        micros = _MICROS.take(pa.array(given // (divisor // 1000) % 1000))
    return joined_texts([b'"', dates, _clock(there % _DAY), micros, offset, b'"'], len(column))


def _local(ms: np.ndarray, name: str) -> tuple[np.ndarray, bytes | pa.Array]:
    """The times of clocks in a time zone, in milliseconds, and their offsets from UTC as text."""
    known = zone(name)
    if isinstance(known, int):
        return ms + 1000 * known, _offset(known).encode()
    times = pa.array(ms, pa.timestamp("ms")).cast(pa.timestamp("ms", name if known is None else known.key))
    try:
        there = pc.local_timestamp(times).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as e:
        raise KafkaLogError(
            f"Times of zone {name!r} can't be written as JSON: {e}",
            hint="Set spark.sql.session.timeZone to the name of a place, such as Europe/Berlin.",
        ) from None
    late = ms >= 1000 * BEGIN_OF_2037
    if known is not None and late.any():
        there = np.where(late, ms, there)
        there[late] += 1000 * seconds_east_of_utc(known, ms[late] // 1000)
    ahead, number = np.unique(there - ms, return_inverse=True)
    return there, pa.array([_offset(int(each) // 1000) for each in ahead], TEXT).take(pa.array(number))


def _clock(ms: np.ndarray) -> pa.Array:
    """Times of a day, such as ``T23:59:59.999``."""
    text = np.empty((ms.size, 13), np.uint8)
    text[:] = np.frombuffer(b"T00:00:00.000", np.uint8)
    for place, (unit, digits) in zip((1, 2, 4, 5, 7, 8, 10, 11, 12), _DIGITS, strict=True):
        text[:, place] += (ms // unit % digits).astype(np.uint8)
    ends = np.arange(ms.size + 1) * 13
    return pa.Array.from_buffers(TEXT, ms.size, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _offset(seconds: int) -> str:
    """The offset from UTC as Spark writes it, with seconds if it has some."""
    if not seconds:
        return "Z"
    minutes, rest = divmod(abs(seconds), 60)
    text = f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{rest:02}" if rest else text


def _binaries(column: pa.Array) -> pa.Array:
    return joined_texts([b'"', base64_strings(column), b'"'], len(column))


def _nulls(column: pa.Array) -> pa.Array:
    return pa.nulls(len(column), TEXT)


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_string, _strings),
    (pa.types.is_integer, _numbers),
    (pa.types.is_floating, _floats),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_timestamp, _times),
    (pa.types.is_decimal128, _numbers),
    (pa.types.is_date32, _dates),
    (pa.types.is_binary, _binaries),
    (pa.types.is_null, _nulls),
)


def _texts_of(kind: pa.DataType) -> Callable[[pa.Array], pa.Array] | None:
    return next((write for is_of, write in _TEXTS if is_of(kind)), None)


def _no_type(kind: pa.DataType, path: str) -> OptionError:
    return OptionError(
        f"JSON has no form for {path.removeprefix('.') or 'the column'}, which is {kind}",
        hint="Convert it, for example with CAST(... AS string).",
    )
