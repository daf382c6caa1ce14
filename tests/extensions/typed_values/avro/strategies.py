"""Hypothesis strategies: a writer's schema, values of it, and a reader's schema that has evolved from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.extensions.typed_values.avro.oracle import Json, kind_of

Draw = Callable[[Any], Any]

_text = st.text(max_size=8) | st.just("ä€😀" * 8)
_ints = st.integers(-(2**31), 2**31 - 1)
_longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
_days = st.integers(-719_162, 2_932_896)
_micros = st.integers(-62_135_424_000_000_000, 253_402_300_799_999_999)
"""From two days after year 1 began: Python's ``fromtimestamp`` looks at the day before, too."""
_floats = st.floats(width=32)

PRIMITIVES: dict[str, Any] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _ints,
    "long": _longs,
    "float": _floats,
    "double": st.floats(),
    "string": _text,
    "bytes": _text.map(str.encode),
}
_LOGICAL: list[tuple[Json, Any]] = [
    ({"type": "int", "logicalType": "date"}, _days),
    ({"type": "int", "logicalType": "time-millis"}, _ints),
    ({"type": "long", "logicalType": "timestamp-micros"}, _micros),
    ({"type": "long", "logicalType": "timestamp-millis"}, _micros.map(lambda us: us // 1000)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, _micros),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, _micros.map(lambda us: us // 1000)),
    ({"type": "string", "logicalType": "uuid"}, _text),
]
_PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_GROUPS: list[tuple[str, ...]] = [
    ("boolean",),
    ("int", "long", "float", "double"),
    ("string", "enum"),
    ("fixed",),
    ("array",),
    ("map",),
    ("record",),
]
"""A union has one of each at most, so that a value of Python's tells its branch.

Bytes are alone, and so are numbers: fastavro takes the first branch to which a value can be promoted, where
Java takes one of the same type first.
"""


class Made(NamedTuple):
    """A schema, and values of it as fastavro's writer takes them."""

    schema: Json
    values: Any


class Case(NamedTuple):
    """What one wrote, and how it is read."""

    writer: Json
    reader: Json
    values: list[Any]


@st.composite
def cases(draw: Draw) -> Case:
    """Some values of a writer's schema, and a reader's."""
    names = itertools.count()
    made = draw(_schemas(names, 3))
    if draw(st.integers(0, 4)):
        made = draw(_records(names, 3))
    values = draw(st.lists(made.values, max_size=5))
    return Case(made.schema, draw(_evolved(made.schema, names)), values)


@st.composite
def _schemas(draw: Draw, names: Iterator[int], depth: int, kinds: tuple[str, ...] = ()) -> Made:
    leaves = (*PRIMITIVES, "logical", "decimal", "enum", "fixed")
    kind = draw(st.sampled_from(kinds or (leaves + ("array", "map", "record", "union") * 3 * (depth > 0))))
    if kind in PRIMITIVES:
        return Made(draw(st.sampled_from([kind, {"type": kind}])), PRIMITIVES[kind])
    if kind == "logical":
        return Made(*draw(st.sampled_from(_LOGICAL)))
    if kind == "decimal":
        return _decimal(draw, names)
    if kind == "enum":
        symbols = [f"S{number}" for number in range(draw(st.integers(1, 4)))]
        return Made({"type": "enum", "name": f"E{next(names)}", "symbols": symbols}, st.sampled_from(symbols))
    if kind == "fixed":
        size = draw(st.integers(0, 20))
        schema = {"type": "fixed", "name": f"F{next(names)}", "size": size}
        return Made(schema, st.binary(min_size=size, max_size=size))
    if kind == "record":
        return draw(_records(names, depth - 1))
    if kind == "union":
        return draw(_unions(names, depth - 1))
    inner = draw(_schemas(names, depth - 1))
    if kind == "array":
        return Made({"type": "array", "items": inner.schema}, st.lists(inner.values, max_size=4))
    return Made({"type": "map", "values": inner.schema}, st.dictionaries(_text, inner.values, max_size=4))


def _decimal(draw: Draw, names: Iterator[int]) -> Made:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    if draw(st.booleans()):
        size = draw(st.integers(16, 20))
        schema = {"type": "fixed", "name": f"F{next(names)}", "size": size, **logical}
        return Made(schema, unscaled.map(lambda number: number.to_bytes(size, "big", signed=True)))
    spare = draw(st.integers(0, 3))
    return Made(
        {"type": "bytes", **logical},
        unscaled.map(
            lambda number: number.to_bytes(number.bit_length() // 8 + 1 + spare, "big", signed=True)
        ),
    )


@st.composite
def _records(draw: Draw, names: Iterator[int], depth: int) -> Made:
    fields = [(f"f{next(names)}", draw(_schemas(names, depth))) for _ in range(draw(st.integers(0, 5)))]
    schema = {
        "type": "record",
        "name": f"R{next(names)}",
        "fields": [{"name": name, "type": made.schema} for name, made in fields],
    }
    return Made(schema, st.fixed_dictionaries({name: made.values for name, made in fields}))


@st.composite
def _unions(draw: Draw, names: Iterator[int], depth: int) -> Made:
    special = draw(st.sampled_from([None] * 6 + [("int", "long"), ("float", "double"), ("bytes",)]))
    if special:
        branches = [Made(kind, PRIMITIVES[kind]) for kind in draw(st.permutations(special))]
    else:
        groups = draw(st.lists(st.sampled_from(_GROUPS), min_size=1, max_size=4, unique=True))
        branches = [draw(_schemas(names, depth, group)) for group in groups]
    if draw(st.integers(0, 2)):
        branches.insert(draw(st.integers(0, len(branches))), Made("null", st.none()))
    values = st.one_of([_named(branch) for branch in branches])
    return Made([branch.schema for branch in branches], values)


def _named(branch: Made) -> Any:
    """Values of a branch; those of a record with its name, as a map may have the same."""
    if kind_of(branch.schema) == "record":
        return branch.values.map(lambda value: (branch.schema["name"], value))
    return branch.values


@st.composite
def _evolved(draw: Draw, schema: Json, names: Iterator[int], *, in_union: bool = False) -> Json:
    """A schema that reads what ``schema`` writes, or some of it."""
    if isinstance(schema, list):
        branches = [draw(_evolved(branch, names, in_union=True)) for branch in schema]
        return draw(st.permutations(branches))
    if not in_union and draw(st.integers(0, 5)) == 0 and kind_of(schema) != "null":
        wrapped = draw(_evolved(schema, names, in_union=True))
        return draw(st.permutations(["null", wrapped]))
    kind = kind_of(schema)
    if kind == "record":
        return {**schema, "fields": _evolved_fields(draw, schema["fields"], names)}
    if kind == "array":
        return {**schema, "items": draw(_evolved(schema["items"], names))}
    if kind == "map":
        return {**schema, "values": draw(_evolved(schema["values"], names))}
    if kind == "enum":
        symbols = draw(st.permutations([*schema["symbols"], "T"]))
        symbols = symbols[: draw(st.integers(1, len(symbols)))]
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {**schema, "symbols": symbols, **default}
    is_plain = isinstance(schema, str) or set(schema) == {"type"}
    if kind in _PROMOTED and is_plain and not in_union and draw(st.booleans()):
        return draw(st.sampled_from(_PROMOTED[kind]))
    return schema


def _evolved_fields(draw: Draw, fields: list[Json], names: Iterator[int]) -> list[Json]:
    found = []
    for field in fields:
        what = draw(st.sampled_from(["kept", "kept", "kept", "dropped", "renamed"]))
        kept = {**field, "type": draw(_evolved(field["type"], names))}
        if what == "renamed":
            kept = {**kept, "name": f"g{next(names)}", "aliases": ["other", field["name"]]}
        if what != "dropped":
            found.append(kept)
    for _ in range(draw(st.integers(0, 2))):
        schema, default = draw(_defaults(names, 2))
        found.append({"name": f"h{next(names)}", "type": schema, "default": default})
    return list(draw(st.permutations(found)))


@st.composite
def _defaults(draw: Draw, names: Iterator[int], depth: int) -> tuple[Json, Json]:
    """A schema and a default of it in JSON."""
    made: Made = draw(
        _schemas(names, 0, ("null", "boolean", "int", "long", "double", "string", "enum", "bytes"))
    )
    kind = draw(st.sampled_from(["leaf", "leaf", "nullable", *(["array", "map", "record"] * (depth > 0))]))
    if kind in ("leaf", "nullable"):
        values = {"double": st.floats(allow_nan=False, allow_infinity=False)}
        value = draw(values.get(kind_of(made.schema), made.values))
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        if kind == "leaf" or kind_of(made.schema) == "null":
            return made.schema, value
        return draw(st.sampled_from([(["null", made.schema], None), ([made.schema, "null"], value)]))
    schema, default = draw(_defaults(names, depth - 1))
    if kind == "array":
        return {"type": "array", "items": schema}, [default] * draw(st.integers(0, 2))
    if kind == "map":
        return {"type": "map", "values": schema}, dict.fromkeys(draw(st.sets(_text, max_size=2)), default)
    inner = [{"name": "i", "type": schema}, {"name": "j", "type": "int", "default": 7}]
    return {"type": "record", "name": f"R{next(names)}", "fields": inner}, {"i": default}
