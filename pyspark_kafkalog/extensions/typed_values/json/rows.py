"""Values as ``from_json`` makes them of tokens: the slow path, which decides what the kernel leaves.

Source: Spark's JacksonParser, with partial results, as is the default since Spark 3.5.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.json import times
from pyspark_kafkalog.extensions.typed_values.json.tokens import (
    END_ARRAY,
    END_OBJECT,
    FALSE,
    INTEGER,
    NAME,
    NULL,
    NUMBER,
    START_ARRAY,
    START_OBJECT,
    STRING,
    TRUE,
    Fault,
    JsonTokens,
    as_chars,
    without_surrogates,
)

Convert: TypeAlias = Callable[[JsonTokens], Any]
"""Makes of the current token, and those that belong to it, a value as Arrow takes it.

:raises Fault: if it can't.
:raises Partial: if a part of it can't be made, which is null then.
"""
Row: TypeAlias = tuple[dict[str, Any] | None, Fault | None]
"""The fields that could be read, or None for a blank text; and why it is corrupt, if it is."""
_INFINITE = {
    "NaN": math.nan,
    **dict.fromkeys(("+INF", "+Infinity", "Infinity"), math.inf),
    **dict.fromkeys(("-INF", "-Infinity"), -math.inf),
}
_DECIMAL = re.compile(r"([+-]?)(?=\.?\d)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?")
_MOST_SCALE = 2**31 - 1
"""The largest scale of Java's BigDecimal."""
_MOST_DIGITS = 1000
_LONGEST_DECIMAL = 39
"""Digits, of which Spark has 38."""
_ESCAPED = re.compile('["\\\\\x00-\x1f\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class Partial(Exception):  # noqa: N818 - it is a value, too
    """A value of which something is missing, and the first fault in it."""

    def __init__(self, value: Any, fault: Fault) -> None:
        super().__init__(str(fault))
        self.value = value
        self.fault = fault


def root(kind: pa.StructType, zone: times.Zone) -> Callable[[str], Row]:
    """The function that makes a row of a text."""
    of_struct = _struct(kind, zone)

    def convert(text: str) -> Row:
        tokens = JsonTokens(text)
        try:
            if tokens.advance() is None:
                return None, None
            if tokens.kind == NULL:
                raise tokens.fault("an object")
            return of_struct(tokens), None
        except Partial as e:
            return e.value, _without_frames(e.fault)
        except Fault as e:
            return {}, _without_frames(e)

    return convert


def _without_frames(fault: Fault) -> Fault:
    """The fault without the frames that it went through, which hold all that they know."""
    fault.__traceback__ = fault.__context__ = None
    return fault


def _converter(kind: pa.DataType, zone: times.Zone) -> Convert:
    if pa.types.is_struct(kind):
        return _struct(kind, zone)
    if pa.types.is_map(kind):
        return _map(_converter(kind.item_type, zone))
    if pa.types.is_list(kind):
        return _array(_converter(kind.value_type, zone))
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _float if pa.types.is_float32(kind) else _double
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_date(kind):
        return _date
    return _timestamp(None if kind.tz is None else zone)


def _begin(tokens: JsonTokens) -> int | None:
    """The current token, behind a name; None for null, and where the parser gives no more."""
    while tokens.kind == NAME:
        tokens.advance()
    return None if tokens.kind == NULL else tokens.kind


def _opens(tokens: JsonTokens, kind: int, expected: str) -> bool:
    """Whether an object or array begins here; not for null, and where the parser gives no more."""
    opened = _begin(tokens)
    if opened not in (None, kind):
        raise tokens.fault(expected)
    return opened is not None


def _struct(kind: pa.StructType, zone: times.Zone) -> Convert:
    fields: Mapping[str | None, Convert] = {field.name: _converter(field.type, zone) for field in kind}

    def convert(tokens: JsonTokens) -> Any:
        if not _opens(tokens, START_OBJECT, "an object"):
            return None
        row, first = {}, None
        while tokens.advance() not in (None, END_OBJECT):
            name = tokens.name
            field = fields.get(name)
            if field is None:
                tokens.skip_children()
                continue
            try:
                row[name] = field(tokens)
            except Partial as e:
                row[name] = e.value
                first = first or _within(name, e.fault)
            except Fault as e:
                first = first or _within(name, e)
                tokens.skip_children()
        if first is not None:
            raise Partial(row, first)
        return row

    return convert


def _within(name: str | None, fault: Fault) -> Fault:
    fault.path.insert(0, str(name))
    return fault


def _array(item: Convert) -> Convert:
    def convert(tokens: JsonTokens) -> Any:
        if not _opens(tokens, START_ARRAY, "an array"):
            return None
        items, first = [], None
        while tokens.advance() not in (None, END_ARRAY):
            try:
                items.append(item(tokens))
            except Partial as e:
                items.append(e.value)
                first = first or e.fault
        if first is not None:
            raise Partial(items, first)
        return items

    return convert


def _map(item: Convert) -> Convert:
    def convert(tokens: JsonTokens) -> Any:
        if not _opens(tokens, START_OBJECT, "an object"):
            return None
        entries, first, missing = [], None, None
        while tokens.advance() not in (None, END_OBJECT):
            key = without_surrogates(tokens.name or "")
            try:
                entries.append((key, item(tokens)))
            except Partial as e:
                entries.append((key, e.value))
                first = first or e.fault
            except Fault as e:
                missing = missing or e
                tokens.skip_children()
        if missing is not None:
            raise missing
        if first is not None:
            raise Partial(entries, first)
        return entries

    return convert


def _boolean(tokens: JsonTokens) -> bool | None:
    kind = _begin(tokens)
    if kind is None:
        return None
    if kind not in (TRUE, FALSE):
        raise tokens.fault("true or false")
    return kind == TRUE


def _integer(kind: pa.DataType) -> Convert:
    bits = kind.bit_width
    lowest = -(1 << (bits - 1))
    # Jackson takes bytes with and without sign.
    highest = 255 if bits == 8 else -lowest - 1
    expected = f"a whole number of {bits} bits"

    def convert(tokens: JsonTokens) -> int | None:
        token = _begin(tokens)
        if token is None:
            return None
        number = int(tokens.number) if token == INTEGER else None
        if number is None or not lowest <= number <= highest:
            raise tokens.fault(expected)
        return number - 256 if number > 127 and bits == 8 else number

    return convert


def _double(tokens: JsonTokens) -> float | None:
    text = _number_text(tokens)
    return None if text is None else _INFINITE[text] if text in _INFINITE else float(text)


def _float(tokens: JsonTokens) -> float | None:
    text = _number_text(tokens)
    if text is None or text in _INFINITE:
        return None if text is None else _INFINITE[text]
    return as_float(text)


def as_float(text: str) -> float:
    """The float of 32 bits that is nearest to a number."""
    number = float(text)
    with np.errstate(over="ignore", under="ignore"):
        found = np.float32(number)
        if not math.isfinite(number) or float(found) == number:
            return float(found)
        # A double that lies right between two floats may have come there by rounding.
        other = np.nextafter(found, np.float32(math.inf if number > float(found) else -math.inf))
        beyond = math.copysign(2.0**128, number)
        ends = [float(end) if math.isfinite(end) else beyond for end in (found, other)]
        if (ends[0] + ends[1]) / 2 == number:
            exact = Fraction(Decimal(text))
            if exact != Fraction(number):
                is_above = (exact > Fraction(number)) == (ends[1] > ends[0])
                return float(other if is_above else found)
    return float(found)


def _number_text(tokens: JsonTokens) -> str | None:
    kind = _begin(tokens)
    if kind is None:
        return None
    if kind in (INTEGER, NUMBER):
        # An integer has no negative zero.
        return "0" if kind == INTEGER and tokens.number == "-0" else tokens.number
    if kind == STRING and tokens.string() in _INFINITE:
        return tokens.string()
    raise tokens.fault("a number")


def _decimal(kind: pa.DataType) -> Convert:
    precision, scale = kind.precision, kind.scale
    expected = f"a number that fits into decimal({precision},{scale})"

    def convert(tokens: JsonTokens) -> Decimal | None:
        token = _begin(tokens)
        if token is None:
            return None
        text = ""
        if token in (INTEGER, NUMBER):
            text = tokens.number
        elif token == STRING:
            text = tokens.string().replace(",", "")
        unscaled = _unscaled(text, scale)
        if unscaled is None or abs(unscaled) >= 10**precision:
            raise tokens.fault(expected)
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return convert


def _unscaled(text: str, scale: int) -> int | None:
    """The nearest whole number of 10 ** -scale; None if it is long, or if Java reads no number there."""
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups()
    digits = whole + (fraction or "")
    if exponent is not None and len(exponent.lstrip("+-").lstrip("0")) > 10:
        return None
    own = len(fraction or "") - int(exponent or 0)
    if not -_MOST_SCALE - 1 <= own <= _MOST_SCALE:
        return None
    # Those behind decide nothing, as only the first digit behind the last one that stays rounds.
    if len(digits) > _MOST_DIGITS:
        digits = "".join(str(int(digit)) for digit in digits).lstrip("0")
    own -= max(len(digits) - _MOST_DIGITS, 0)
    number = int(digits[:_MOST_DIGITS] or "0")
    shift = scale - own
    if number == 0:
        return 0
    size = len(str(number))
    if size + shift > _LONGEST_DECIMAL or size + shift < -1:
        return None if shift > 0 or size + shift > 0 else 0
    if shift >= 0:
        number *= 10**shift
    else:
        divisor: int = 10**-shift
        number, rest = divmod(number, divisor)
        number += 2 * rest >= divisor
    return -number if sign == "-" else number


def _date(tokens: JsonTokens) -> int | None:
    text = _time_text(tokens, "a date")
    if text is None:
        return None
    for days in (times.date(text), times.date(text.replace("GMT", "")), times.days_as_number(text)):
        if days is not None:
            return days
    raise tokens.fault("a date")


def _timestamp(zone: times.Zone | None) -> Convert:
    def convert(tokens: JsonTokens) -> int | None:
        if zone is not None and _begin(tokens) == INTEGER:
            seconds = int(tokens.number)
            if not -(2**63) <= seconds < 2**63:
                raise tokens.fault("a timestamp")
            return (seconds * 1_000_000 + 2**63) % 2**64 - 2**63
        text = _time_text(tokens, "a timestamp")
        if text is None:
            return None
        micros = times.timestamp(text, zone)
        if micros is None and zone is not None:
            micros = times.timestamp(text.replace("GMT", ""), zone)
        if micros is None:
            raise tokens.fault("a timestamp" if zone is not None else "a timestamp without a zone")
        return micros

    return convert


def _time_text(tokens: JsonTokens, expected: str) -> str | None:
    kind = _begin(tokens)
    if kind is None:
        return None
    if kind != STRING or not tokens.string():
        raise tokens.fault(expected)
    return without_surrogates(tokens.string())


def _string(tokens: JsonTokens) -> str | None:
    kind = _begin(tokens)
    if kind is None:
        return None
    return without_surrogates(tokens.string()) if kind == STRING else _copied(tokens)


def _copied(tokens: JsonTokens) -> str:
    """A value that is not a string, as JSON without white space."""
    parts: list[str] = []
    counts: list[int] = []
    """The number of values in each open array, or of names in each object; and whether it is an array."""
    arrays: list[bool] = []
    while True:
        kind = tokens.kind
        if kind in (END_OBJECT, END_ARRAY):
            if not counts:
                raise tokens.fault("a string")
            parts.append("}" if kind == END_OBJECT else "]")
            counts.pop()
            arrays.pop()
        else:
            if counts and (kind == NAME or arrays[-1]):
                if counts[-1]:
                    parts.append(",")
                counts[-1] += 1
            if kind == NAME:
                parts.append(f"{_json(as_chars(tokens.name or ''))}:")
            elif kind in (START_OBJECT, START_ARRAY):
                parts.append("{" if kind == START_OBJECT else "[")
                counts.append(0)
                arrays.append(kind == START_ARRAY)
            elif kind == STRING:
                parts.append(_json(tokens.string()))
            elif kind == INTEGER:
                parts.append(str(int(tokens.number)))
            elif kind == NUMBER:
                parts.append(_java_double(tokens.number))
            else:
                parts.append({TRUE: "true", FALSE: "false"}.get(kind or 0, "null"))
        if not counts:
            return "".join(parts)
        if tokens.advance() is None:
            raise tokens.fault("a string")


def _json(text: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        char = found.group()
        if char in _SHORT:
            return _SHORT[char]
        return f"\\u{ord(char):04X}"

    return f'"{_ESCAPED.sub(escaped, text)}"'


def _java_double(text: str) -> str:
    """Java's Double.toString of a number; Jackson puts infinite ones into quotes."""
    number = _INFINITE[text] if text in _INFINITE else float(text)
    if not math.isfinite(number):
        name = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return f'"{name}"'
    sign, digits, exponent = Decimal(repr(number)).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent
    if len(shown) == 1 and number:
        two, _, power = f"{abs(number):.1e}".partition("e")
        if float(f"{two}e{power}") == abs(number):
            shown, point = two.replace(".", "").rstrip("0"), int(power) + 1
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0.0"
    if 1e-3 <= abs(number) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{shown}"
        shown = shown.ljust(point, "0")
        return f"{minus}{shown[:point]}.{shown[point:] or '0'}"
    return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"
