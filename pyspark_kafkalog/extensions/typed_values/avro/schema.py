"""Avro schemas, parsed from their JSON (Avro's specification 1.12, "Schema Declaration").

Logical types that this package does not know, or that are not valid, are ignored, as the specification says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_kafkalog.errors import UNREADABLE, SchemaError
from pyspark_kafkalog.options.offsets_json import where_not_json

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL = {
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
}
"""The logical types that decide a value's type, each with what it may annotate."""
NAME = re.compile(r"[^\W\d]\w*")
"""A name as Java takes it: namespaces may be anything."""
DEEPEST = 100
"""Schemas in one another."""
_MOST, _MOST_BRANCHES = 200_000, 1000
"""Schemas in one text, and types in a union."""
LONGEST_NAME = 1000
"""Characters."""


@dataclass(eq=False)
class Schema:
    """A type. ``kind`` is its name in Avro: one of :data:`PRIMITIVES`, ``record``, ``enum`` and so on.

    ``logical`` is its logical type; ``precision`` and ``scale`` are those of a decimal.
    """

    kind: str
    logical: str | None = field(default=None, kw_only=True)
    precision: int = field(default=0, kw_only=True)
    scale: int = field(default=0, kw_only=True)

    def __str__(self) -> str:
        """The type in a few words."""
        if self.logical == "decimal":
            return f"{self.kind} decimal({self.precision},{self.scale})"
        return f"{self.kind} {self.logical}" if self.logical else self.kind


@dataclass(eq=False)
class Named(Schema):
    """A type with a full name, and others that it had."""

    name: str
    aliases: tuple[str, ...]

    def __str__(self) -> str:
        return f"{super().__str__()} {self.name}"

    def is_named_as(self, other: Named) -> bool:
        """Whether ``other`` has this name, of which the last part counts, or an alias of this."""
        return _last(other.name) == _last(self.name) or other.name in self.aliases


@dataclass(eq=False)
class Field:
    """A field of a record. ``default`` counts only if ``has_default``, and is JSON's."""

    name: str
    aliases: tuple[str, ...]
    schema: Schema
    has_default: bool
    default: Any


@dataclass(eq=False)
class Record(Named):
    """A record; its fields may lead back to itself."""

    fields: list[Field]


@dataclass(eq=False)
class Enum(Named):
    """An enum; ``default`` stands for symbols that it doesn't have."""

    symbols: tuple[str, ...]
    default: str | None


@dataclass(eq=False)
class Fixed(Named):
    """``size`` bytes."""

    size: int

    def __str__(self) -> str:
        return f"{super().__str__()}({self.size})"


@dataclass(eq=False)
class Array(Schema):
    """Items of one type."""

    items: Schema


@dataclass(eq=False)
class Map(Schema):
    """Values of one type, by strings."""

    values: Schema


@dataclass(eq=False)
class Union(Schema):
    """A value of one of several types."""

    branches: tuple[Schema, ...]

    def __str__(self) -> str:
        return f"union of {', '.join(map(str, self.branches))}"

    @property
    def is_nullable(self) -> bool:
        """Whether null is a branch."""
        return any(branch.kind == "null" for branch in self.branches)

    @property
    def others(self) -> list[Schema]:
        """The branches but null."""
        return [branch for branch in self.branches if branch.kind != "null"]


def parse(text: str, references: Iterable[str] = ()) -> Schema:
    """The schema of a JSON text.

    :param references: texts of the schemas that it names, each after those that it names itself.
    :raises SchemaError: if one is not valid; it names the place.
    """
    parser = _Parser()
    for each in references:
        parser.parsed(each)
    return parser.parsed(text)


class _Parser:
    """``path`` is where a schema stands, as fields in one another; ``space`` is the namespace around it."""

    def __init__(self) -> None:
        self._count = 0
        self._names: dict[str, Named] = {}
        self._written: dict[str, Mapping[str, Any]] = {}
        """The JSON of each named type: it may be repeated."""

    def parsed(self, text: str) -> Schema:
        try:
            written = json.loads(text)
            json.dumps(written, ensure_ascii=False).encode()  # refuses halves of surrogate pairs
        except UNREADABLE as e:
            raise SchemaError(
                f"An Avro schema is not JSON{where_not_json(text, e)}",
                hint="Give the text of an Avro schema, such as "
                '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}, not DDL or a file.',
            ) from None
        return self.schema(written, "", "", 0)

    def schema(self, written: Any, path: str, space: str, depth: int) -> Schema:
        self._count += 1
        if self._count > _MOST:
            raise _wrong(path, f"expected at most {_MOST} schemas")
        if depth > DEEPEST:
            raise _wrong(path, f"expected at most {DEEPEST} schemas in one another")
        if isinstance(written, str):
            return self._of_name(written, path, space)
        if isinstance(written, list):
            return self._union(written, path, space, depth)
        if not isinstance(written, Mapping):
            raise _wrong(path, f"expected a schema, got {_shown(written)}")
        kind = written.get("type")
        if isinstance(kind, Mapping | list):
            return self.schema(kind, path, space, depth + 1)
        name = written.get("name")
        if isinstance(name, str) and written == self._written.get(_full(name, _space(written, space))):
            return self._names[_full(name, _space(written, space))]
        if kind in ("record", "error"):
            return self._record(written, path, space, depth)
        if kind == "enum":
            return self._enum(written, path, space)
        if kind == "fixed":
            return self._fixed(written, path, space)
        if kind == "array":
            return Array(
                "array", self.schema(_of(written, "items", path), f"{path}.element", space, depth + 1)
            )
        if kind == "map":
            return Map("map", self.schema(_of(written, "values", path), f"{path}.value", space, depth + 1))
        if kind in PRIMITIVES:
            return Schema(kind, **_logical(written, kind, _LONGEST))
        if isinstance(kind, str):
            return self._of_name(kind, path, space)
        raise _wrong(path, f"expected a type, got {_shown(kind)}")

    def _of_name(self, name: str, path: str, space: str) -> Schema:
        if name in PRIMITIVES:
            return Schema(name)
        found = self._names.get(_full(name, space)) or self._names.get(name)
        if found is None:
            raise _wrong(
                path, f"there is no type {name!r}", f"Use {', '.join(PRIMITIVES)}, or define it before."
            )
        return found

    def _union(self, written: list[Any], path: str, space: str, depth: int) -> Schema:
        if len(written) > _MOST_BRANCHES:
            raise _wrong(path, f"expected at most {_MOST_BRANCHES} types in a union")
        branches = tuple(self.schema(branch, path, space, depth + 1) for branch in written)
        seen = [branch.name if isinstance(branch, Named) else branch.kind for branch in branches]
        if "union" in seen:
            raise _wrong(path, "a union may not be right in a union")
        if len({*seen}) < len(seen):
            raise _wrong(path, f"expected each type once in a union, got {', '.join(seen)}")
        return Union("union", branches)

    def _record(self, written: Mapping[str, Any], path: str, space: str, depth: int) -> Schema:
        name, aliases, inner = self._name(written, path, space)
        record = Record("record", name, aliases, [])
        self._names[name] = record
        fields = _of(written, "fields", path)
        if not isinstance(fields, list):
            raise _wrong(path, f"expected fields in a list, got {_shown(fields)}")
        for each in fields:
            record.fields.append(self._field(each, path, inner, depth))
        names = [each.name for each in record.fields]
        if len({*names}) < len(names):
            raise _wrong(path, f"expected each field of {name} once, got {', '.join(names)}")
        return record

    def _field(self, written: Any, path: str, space: str, depth: int) -> Field:
        if not isinstance(written, Mapping):
            raise _wrong(path, f"expected a field, got {_shown(written)}")
        name = _of(written, "name", path)
        if not (isinstance(name, str) and NAME.fullmatch(name) and len(name) <= LONGEST_NAME):
            raise _wrong(path, f"expected the name of a field, got {_shown(name)}")
        at = f"{path}.{name}"
        schema = self.schema(_of(written, "type", at), at, space, depth + 1)
        aliases = _strings(written.get("aliases", []), at)
        return Field(name, aliases, schema, "default" in written, written.get("default"))

    def _enum(self, written: Mapping[str, Any], path: str, space: str) -> Schema:
        name, aliases, _ = self._name(written, path, space)
        symbols = _strings(_of(written, "symbols", path), path)
        default = written.get("default")
        if len({*symbols}) < len(symbols):
            raise _wrong(path, f"expected each symbol of {name} once, got {', '.join(symbols)}")
        if default is not None and default not in symbols:
            raise _wrong(path, f"expected one of the symbols as default of {name}, got {_shown(default)}")
        self._names[name] = found = Enum("enum", name, aliases, symbols, default)
        return found

    def _fixed(self, written: Mapping[str, Any], path: str, space: str) -> Schema:
        name, aliases, _ = self._name(written, path, space)
        size = _of(written, "size", path)
        if type(size) is not int or not 0 <= size < 1 << 31:
            raise _wrong(path, f"expected the size of {name}, got {_shown(size)}")
        most_digits = len(str(2 ** (8 * size - 1) - 1)) - 1 if 0 < size <= 16 else _LONGEST if size else 0
        self._names[name] = found = Fixed(
            "fixed", name, aliases, size, **_logical(written, "fixed", most_digits)
        )
        return found

    def _name(self, written: Mapping[str, Any], path: str, space: str) -> tuple[str, tuple[str, ...], str]:
        """Full name and aliases of a type, and the namespace for what is in it."""
        name = _of(written, "name", path)
        if not isinstance(name, str):
            raise _wrong(path, f"expected a name, got {_shown(name)}")
        name = _full(name, _space(written, space))
        if not NAME.fullmatch(_last(name)) or name in PRIMITIVES or len(name) > LONGEST_NAME:
            raise _wrong(path, f"expected a name, got {name[:100]!r}")
        if name in self._names:
            raise _wrong(path, f"the type {name!r} is defined twice, and not in the same way")
        self._written[name] = written
        inner = name.rpartition(".")[0]
        aliases = _strings(written.get("aliases", []), path)
        return name, tuple(_full(alias, inner) for alias in aliases), inner


_LONGEST = 1 << 31
"""The most digits of a number in a schema: no decimal has more."""


def _logical(written: Mapping[str, Any], kind: str, most_digits: int) -> dict[str, Any]:
    """The logical type, as parameters of a schema; nothing if it is unknown or not valid."""
    logical = written.get("logicalType")
    if not isinstance(logical, str) or kind not in _LOGICAL.get(logical, ()):
        return {}
    if logical != "decimal":
        return {"logical": logical}
    precision, scale = written.get("precision"), written.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return {}
    if not (0 < precision <= most_digits and 0 <= scale <= precision):
        return {}
    return {"logical": logical, "precision": precision, "scale": scale}


def _space(written: Mapping[str, Any], around: str) -> str:
    given = written.get("namespace")
    return given if isinstance(given, str) else around


def _full(name: str, space: str) -> str:
    if "." in name:
        return name.removeprefix(".")
    return f"{space}.{name}" if space else name


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _of(written: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in written:
        raise _wrong(path, f"{key!r} is missing in {_shown(written)}", f"Add {key!r} there.")
    return written[key]


def _strings(written: Any, path: str) -> tuple[str, ...]:
    if not (isinstance(written, list) and all(isinstance(each, str) for each in written)):
        raise _wrong(path, f"expected a list of strings, got {_shown(written)}")
    return tuple(written)


def _shown(written: Any) -> str:
    return json.dumps(written)[:100]


def _wrong(path: str, what: str, hint: str | None = None) -> SchemaError:
    place = f" at {path[:LONGEST_NAME].removeprefix('.')}" if path else ""
    return SchemaError(f"An Avro schema is not valid{place}: {what}", hint=hint)
