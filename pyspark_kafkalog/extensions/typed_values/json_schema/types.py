"""The types of JSON by a JSON Schema, of draft 4 to 2020-12.

All parts are nullable. Hints of Kafka Connect's converter count (``connect.type``, and the titles of its
logical types). Values are not checked against the schema, as Confluent's deserializer doesn't by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.json_schema.documents import DEEPEST, Documents
from pyspark_kafkalog.extensions.typed_values.json_schema.shapes import (
    Anything,
    ArrayShape,
    Mixed,
    NoValue,
    ObjectShape,
    Scalar,
    Shape,
    both,
    extended,
    is_either,
    scalar,
)

_MOST_COLUMNS = 10_000
_MOST_SCHEMAS = 20_000
"""Schemas that are looked at, each as often as it is referred to."""
_MOST_MERGED = 1_000_000
"""Shapes that are merged with others."""
_LONGEST_PATH = 4000
"""Characters."""
MOST_DIGITS = 38
"""The most digits of Spark's decimals."""
CONNECT = "org.apache.kafka.connect.data."
"""Begins the titles of Connect's logical types."""
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_OF_CONNECT = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
_OF_FORMAT = {"date": pa.date32(), "date-time": _TIMESTAMP}
_OF_TITLE = {
    f"{CONNECT}Date": scalar(pa.date32(), pa.int32()),
    f"{CONNECT}Time": scalar(pa.int32()),
    f"{CONNECT}Timestamp": scalar(_TIMESTAMP, pa.int64()),
}
_LEAST_LONG, _MOST_LONG = -(2**63), 2**63 - 1
_NAMED_BY = {
    "object": ("properties", "patternProperties", "additionalProperties", "required", "propertyNames"),
    "array": ("items", "prefixItems", "additionalItems", "uniqueItems", "contains"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("pattern", "minLength", "maxLength"),
}
"""Keywords that tell the type of a schema that does not name it."""
_TEXT = pa.string()


@dataclass(frozen=True, slots=True)
class JsonType:
    """A type, and what it is read from JSON as; where they differ, :mod:`.conversion` makes one of the other.

    ``notes`` says of fields that stay JSON in a string, by their paths, why.
    """

    type: pa.DataType
    read_as: pa.DataType
    notes: tuple[tuple[str, str], ...] = ()


def json_type(text: str, references: Iterable[tuple[str, str]] = ()) -> JsonType:
    """The type of values of a JSON Schema: a struct.

    :param references: the schemas that it refers to, each with the name by which ``$ref`` names it.
    :raises SchemaError: if a schema is not valid, refers to none of these, or describes no object.
    """
    shape = shape_of(text, references)
    maker = _Maker()
    if not isinstance(shape, ObjectShape):
        what = shape.why if isinstance(shape, Mixed) else "it has another type"
        raise SchemaError(
            f"A JSON Schema does not describe objects with fields: {what}",
            hint="Leave out the format, and read the values as strings, or give the fields as value.schema"
            " (key.schema), in Spark's DDL.",
        )
    if not shape.fields:
        raise SchemaError(
            "A JSON Schema describes objects without naming any field",
            hint="Give the fields as value.schema (key.schema), in Spark's DDL.",
        )
    kind, read_as = maker.struct(shape, "", 1)
    return JsonType(kind, read_as, tuple(maker.notes.items()))


def shape_of(text: str, references: Iterable[tuple[str, str]] = ()) -> Shape:
    """The shape of values of a JSON Schema.

    :raises SchemaError: if a schema is not valid, or refers to one that isn't there.
    """
    documents = Documents(text, references)
    return _Reader(documents).shape(documents.root, "#")


class _Maker:
    """Makes types of shapes; ``path`` is where one is, as fields in one another."""

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self._count = 0

    def type(self, shape: Shape, path: str, depth: int) -> tuple[pa.DataType, pa.DataType]:
        self._count += 1
        if self._count > _MOST_COLUMNS:
            raise _none(path, f"it has more than {_MOST_COLUMNS} fields in one another")
        if depth > DEEPEST or len(path) > _LONGEST_PATH:
            raise _none(path, f"it has more than {DEEPEST} types in one another, or long names")
        if isinstance(shape, Scalar):
            return shape.type, shape.read_as
        if isinstance(shape, ArrayShape):
            return self._array(shape, path, depth)
        if isinstance(shape, ObjectShape):
            if shape.fields and not shape.is_map:
                return self.struct(shape, path, depth)
            if shape.is_map or not isinstance(shape.others, NoValue | None):
                inner = self.type(shape.others or Anything(), f"{path}.value", depth + 1)
                return pa.map_(pa.string(), inner[0]), pa.map_(pa.string(), inner[1])
            self.notes[path] = "it is an object whose fields are not named"
        elif isinstance(shape, Mixed):
            self.notes[path] = shape.why
        elif isinstance(shape, Anything):
            self.notes[path] = "it may be anything"
        return _TEXT, _TEXT

    def struct(self, shape: ObjectShape, path: str, depth: int) -> tuple[pa.DataType, pa.DataType]:
        made = [
            (name, part, *self.type(part, f"{path}.{name}".removeprefix("."), depth + 1))
            for name, part in shape.fields.items()
        ]
        return (
            pa.struct([pa.field(name, kind) for name, _, kind, _ in made]),
            pa.struct([pa.field(name, read_as) for name, _, _, read_as in made]),
        )

    def _array(self, shape: ArrayShape, path: str, depth: int) -> tuple[pa.DataType, pa.DataType]:
        if shape.is_map and isinstance(shape.item, ObjectShape) and {*shape.item.fields} == {"key", "value"}:
            (key, key_as), (value, value_as) = (
                self.type(shape.item.fields[name], f"{path}.{name}", depth + 1) for name in ("key", "value")
            )
            if not pa.types.is_nested(key):
                entry = pa.struct([("key", key_as), ("value", value_as)])
                return pa.map_(key, value), pa.list_(pa.field("element", entry))
        kind, read_as = self.type(shape.item, f"{path}.element", depth + 1)
        return pa.list_(pa.field("element", kind)), pa.list_(pa.field("element", read_as))


class _Reader:
    """Reads shapes of schemas; ``path`` is where one is, as a JSON pointer."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._count = 0
        self._merged = 0
        self._within: list[int] = []
        """The referred schemas that are being read."""
        self._lowest = 0
        """The first of these that something in the last one leads back to."""
        self._known: dict[int, Shape] = {}
        """The shapes of those that do not depend on what is around them."""

    def shape(self, node: Any, path: str, depth: int = 0) -> Shape:
        self._look(path)
        if depth > DEEPEST:
            raise _none(path, f"it has more than {DEEPEST} schemas in one another")
        if node is True:
            return Anything()
        if node is False:
            return NoValue()
        if not isinstance(node, dict):
            raise _wrong(path, f"expected a schema, got {_shown(node)}")
        if id(node) in self._within:
            self._lowest = min(self._lowest, self._within.index(id(node)))
            return Mixed("it contains itself", is_nullable=True)
        if id(node) in self._known:
            return self._known[id(node)]
        around, self._lowest = self._lowest, len(self._within)
        self._within.append(id(node))
        found = self._read(node, path, depth)
        self._within.pop()
        if self._lowest >= len(self._within):
            self._known[id(node)] = found
        self._lowest = min(self._lowest, around)
        return found

    def _read(self, node: dict[str, Any], path: str, depth: int) -> Shape:
        found = self._own(node, path, depth)
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(node.get(key), str):
                referred, place = self._documents.find(node[key], node, path)
                part = self.shape(referred, place if "#" in place else f"{place}#", depth + 1)
                found = self._both(path, found, part)
        for part, each in self._parts(node, "allOf", path, depth):
            if isinstance(found, ObjectShape) and isinstance(each, Mapping) and "if" in each:
                found = self._extended(path, found, [part])
            else:
                found = self._both(path, found, part)
        for key in ("oneOf", "anyOf"):
            parts = [part for part, _ in self._parts(node, key, path, depth)]
            if parts and isinstance(found, ObjectShape):
                found = self._extended(path, found, parts)
            elif parts:
                found = self._both(path, found, self._either(path, parts))
        conditional = [
            self.shape(node[key], f"{path}/{key}", depth + 1)
            for key in ("then", "else")
            if "if" in node and key in node
        ]
        if conditional and isinstance(found, ObjectShape):
            found = self._extended(path, found, conditional)
        elif conditional and isinstance(found, Anything):
            found = self._extended(path, ObjectShape({}, is_nullable=True), conditional)
        return found

    def _parts(self, node: Mapping[str, Any], key: str, path: str, depth: int) -> list[tuple[Shape, Any]]:
        """The shape of each schema in a list, and the schema."""
        given = node.get(key, [])
        if not isinstance(given, list):
            raise _wrong(f"{path}/{key}", f"expected a list of schemas, got {_shown(given)}")
        return [
            (self.shape(each, f"{path}/{key}/{number}", depth + 1), each) for number, each in enumerate(given)
        ]

    def _own(self, node: Mapping[str, Any], path: str, depth: int) -> Shape:
        """The shape by the keywords that are not about other schemas for the same value."""
        values = [node["const"]] if "const" in node else node.get("enum")
        if values is not None and not isinstance(values, list):
            raise _wrong(f"{path}/enum", f"expected a list of values, got {_shown(values)}")
        kinds = node.get("type")
        if kinds is None and values is not None:
            return self._either(path, [self._of_value(value, path, 1) for value in values])
        if kinds is None:
            kinds = next(
                (kind for kind, words in _NAMED_BY.items() if not node.keys().isdisjoint(words)), "any"
            )
        given = kinds if isinstance(kinds, list) else [kinds]
        shapes = [self._of_kind(kind, node, path, depth) for kind in given]
        found = self._either(path, shapes)
        if node.get("nullable") is True:
            found = self._either(path, [found, NoValue(is_nullable=True)])
        return found

    def _of_kind(self, kind: Any, node: Mapping[str, Any], path: str, depth: int) -> Shape:
        if isinstance(kind, Mapping):  # a schema among types, of draft 3
            return self.shape(kind, f"{path}/type", depth + 1)
        read: dict[str, Callable[[], Shape]] = {
            "null": lambda: NoValue(is_nullable=True),
            "any": Anything,
            "boolean": lambda: scalar(pa.bool_()),
            "string": lambda: _string(node),
            "integer": lambda: _number(node, is_integer=True),
            "number": lambda: _number(node, is_integer=False),
            "object": lambda: self._object(node, path, depth),
            "array": lambda: self._array(node, path, depth),
        }
        if not isinstance(kind, str) or kind not in read:
            raise _wrong(f"{path}/type", f"expected one of {', '.join(read)}, got {_shown(kind)}")
        return read[kind]()

    def _object(self, node: Mapping[str, Any], path: str, depth: int) -> Shape:
        named, patterns = (_object_at(node, key, path) for key in ("properties", "patternProperties"))
        fields = {
            name: self.shape(part, f"{path}/properties/{_escaped(name)}", depth + 1)
            for name, part in sorted(named.items(), key=_index)
        }
        given = node.get("required")
        required = {name for name in given if isinstance(name, str)} if isinstance(given, list) else ()
        rest = node.get("additionalProperties", node.get("unevaluatedProperties"))
        others = None if rest is None else self.shape(rest, f"{path}/additionalProperties", depth + 1)
        if patterns and not fields:
            by_pattern = [
                self.shape(part, f"{path}/patternProperties/{_escaped(name)}", depth + 1)
                for name, part in patterns.items()
            ]
            others = self._either(path, [*by_pattern, others or NoValue()])
        if rest is True and not patterns:
            others = None
        return ObjectShape(fields, frozenset(required), others, is_map=node.get("connect.type") == "map")

    def _array(self, node: Mapping[str, Any], path: str, depth: int) -> Shape:
        items, first = node.get("items"), node.get("prefixItems")
        is_listed = isinstance(items, list)
        if is_listed:
            first, items = items, node.get("additionalItems")
        if first is None and items is None:
            return ArrayShape(Anything(), node.get("connect.type") == "map")
        if first is not None and not isinstance(first, list):
            raise _wrong(f"{path}/prefixItems", f"expected a list of schemas, got {_shown(first)}")
        at = f"{path}/{'items' if is_listed else 'prefixItems'}"
        shapes = [self.shape(part, f"{at}/{number}", depth + 1) for number, part in enumerate(first or [])]
        if items not in (None, True) or not shapes:
            shapes.append(self.shape(items, f"{path}/items", depth + 1))
        return ArrayShape(self._either(path, shapes), node.get("connect.type") == "map")

    def _of_value(self, value: Any, path: str, depth: int) -> Shape:
        """The shape of a value that a schema names."""
        if value is None:
            return NoValue(is_nullable=True)
        if isinstance(value, bool):
            return scalar(pa.bool_())
        if isinstance(value, int):
            return scalar(pa.int64() if _LEAST_LONG <= value <= _MOST_LONG else pa.decimal128(MOST_DIGITS, 0))
        if isinstance(value, float):
            return scalar(pa.float64())
        if isinstance(value, str):
            return scalar(pa.string())
        self._look(path)
        if depth > DEEPEST:
            return Anything()
        if isinstance(value, list):
            return ArrayShape(self._either(path, [self._of_value(each, path, depth + 1) for each in value]))
        fields = {name: self._of_value(each, path, depth + 1) for name, each in value.items()}
        return ObjectShape(fields, frozenset(value))

    def _look(self, path: str) -> None:
        self._count += 1
        if self._count > _MOST_SCHEMAS:
            raise _none(path, f"it has more than {_MOST_SCHEMAS} schemas in one another")

    def _both(self, path: str, one: Shape, other: Shape) -> Shape:
        self._merge(path, [one, other])
        return both(one, other)

    def _either(self, path: str, shapes: list[Shape]) -> Shape:
        self._merge(path, shapes)
        return is_either(shapes)

    def _extended(self, path: str, base: ObjectShape, branches: list[Shape]) -> ObjectShape:
        self._merge(path, branches)
        return extended(base, branches)

    def _merge(self, path: str, shapes: list[Shape]) -> None:
        """Count what it takes to merge shapes; a small schema may refer to the same parts again and again."""
        sizes = [shape.size for shape in shapes]
        self._merged += sum(sizes) - max(sizes, default=0)
        if self._merged > _MOST_MERGED:
            raise _none(path, f"it has mixtures of more than {_MOST_MERGED} schemas")


def _escaped(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _index(each: tuple[str, Any]) -> int:
    """The place of a field in a struct of Connect's; those without one stay where they are."""
    place = each[1].get("connect.index") if isinstance(each[1], dict) else None
    return place if type(place) is int else -1


def _string(node: Mapping[str, Any]) -> Shape:
    if node.get("connect.type") == "bytes":
        decimal = _decimal(node)
        return scalar(pa.binary() if decimal is None else decimal, pa.string())
    form = node.get("format")
    return scalar(_OF_FORMAT.get(form, pa.string()) if isinstance(form, str) else pa.string())


def _number(node: Mapping[str, Any], *, is_integer: bool) -> Shape:
    title, hint = node.get("title"), node.get("connect.type")
    if hint == "bytes":
        return scalar(_decimal(node) or pa.decimal128(MOST_DIGITS, 18))
    kind = _OF_CONNECT.get(hint) if isinstance(hint, str) else None
    if isinstance(title, str) and title in _OF_TITLE and kind in (None, _OF_TITLE[title].read_as):
        return _OF_TITLE[title]
    if kind is not None:
        return scalar(kind)
    if not is_integer:
        return scalar(pa.float64())
    ends = [node.get("minimum"), node.get("maximum")]
    is_long = all(_LEAST_LONG <= end <= _MOST_LONG for end in ends if type(end) is int)
    return scalar(pa.int64() if is_long else pa.decimal128(MOST_DIGITS, 0))


def _decimal(node: Mapping[str, Any]) -> pa.DataType | None:
    """The type of Connect's Decimal, if it is one that Spark has."""
    given = node.get("connect.parameters")
    if node.get("title") != f"{CONNECT}Decimal" or not isinstance(given, Mapping):
        return None
    scale = _whole(given.get("scale", "0"))
    precision = _whole(given.get("connect.decimal.precision", str(MOST_DIGITS)))
    if scale is None or precision is None or not 0 <= scale <= precision <= MOST_DIGITS or not precision:
        return None
    return pa.decimal128(precision, scale)


def _whole(text: Any) -> int | None:
    return int(text) if isinstance(text, str | int) and str(text).isdecimal() and len(str(text)) < 4 else None


def _object_at(node: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    found = node.get(key, {})
    if not isinstance(found, Mapping):
        raise _wrong(f"{path}/{key}", f"expected an object of schemas, got {_shown(found)}")
    return found


def _shown(value: Any) -> str:
    return repr(value)[:100]


def _wrong(path: str, what: str) -> SchemaError:
    return SchemaError(f"A JSON Schema is not valid at {path[:1000]}: {what}")


def _none(path: str, why: str) -> SchemaError:
    return SchemaError(
        f"Spark has no type for a JSON Schema at {path[:1000]}: {why}",
        hint="Give the fields that you want as value.schema (key.schema), in Spark's DDL.",
    )
