"""Types as Spark writes and reads them in DDL."""

from __future__ import annotations

import re

import pyarrow as pa

from pyspark_kafkalog.errors import SchemaError

_NAMES = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.duration("us"): "interval day to second",
}

_TYPES = {
    **{name: kind for kind, name in _NAMES.items()},
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
}
_DECIMALS = ("decimal", "dec", "numeric")
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|(\w+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))\s*")
_MOST_DEPTH = 100


def ddl(kind: pa.DataType) -> str:
    """Spark's type for an Arrow type, of which all parts are nullable; Arrow's name where Spark has none."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        quoted = [f"`{field.name.replace('`', '``')}`: {ddl(field.type)}" for field in fields]
        return f"struct<{', '.join(quoted)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind, str(kind))


def is_in_list_or_map(path: str) -> bool:
    """Whether the path of a value may lead into an array or a map, where no cast by name gets."""
    return not {"element", "key", "value"}.isdisjoint(path.split(".")[1:])


def way_to_convert(path: str, kind: pa.DataType) -> str:
    """The advice about a column to write, or a field in it, that needs this type."""
    column, *inner = path.split(".")
    name = inner[-1] if inner else column
    cast = f"CAST({name} AS {ddl(kind)})"
    if not inner:
        return f"Convert it: {cast}."
    if is_in_list_or_map(path):
        return f"Convert it to {ddl(kind)}."
    return f"Convert it where the struct is made: {cast} AS {name}."


def differs(path: str, expected: object, kind: pa.DataType, fitting: pa.DataType | None) -> SchemaError:
    """The error for a column, or a field in it, whose type is not that of the schema.

    :param expected: the type in the schema, in the schema's words.
    :param fitting: a type that can be written so; None if no cast gives it.
    """
    hint = None if fitting is None or pa.types.is_nested(kind) else way_to_convert(path, fitting)
    return SchemaError(f"{path}: the schema expects {expected}, the column is {ddl(kind)}", hint=hint)


def parse_ddl(text: str) -> pa.DataType:
    """The Arrow type of a type in Spark's DDL, or of the fields of a struct: ``id bigint, name string``.

    A ``timestamp`` is one with a zone. All is nullable: NOT NULL and comments are read over.

    :raises SchemaError: if it isn't such a type, naming the character.
    """
    parser = _Parser(text)
    kind = parser.fields("") if parser.has_fields() else parser.type(1)
    parser.expect("")
    return kind


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or not found.group().strip():
                raise SchemaError(f"unexpected {text[at]!r}, at character {at + 1}")
            self._tokens.append((found.group().strip(), at))
            at = found.end()
        self._tokens.append(("", len(text)))
        self._next = 0

    def has_fields(self) -> bool:
        """Whether a field's name comes first, and not a type."""
        (first, _), (second, _) = self._tokens[0], self._tokens[min(1, len(self._tokens) - 1)]
        return bool(first) and second not in ("", "<", "(")

    def expect(self, token: str) -> None:
        found, at = self._tokens[self._next]
        if found.lower() != token:
            raise _unexpected(repr(token) if token else "a comma or the end", found, at)
        self._next += 1

    def take(self, *tokens: str) -> bool:
        """Whether these come next, which are skipped then."""
        following = [found.lower() for found, _ in self._tokens[self._next : self._next + len(tokens)]]
        if following != list(tokens):
            return False
        self._next += len(tokens)
        return True

    def fields(self, end: str, depth: int = 1) -> pa.StructType:
        found: list[pa.Field] = []
        while True:
            name, at = self._tokens[self._next]
            if not re.fullmatch(r"`.*`|\w+", name, re.DOTALL):
                raise _unexpected("the name of a field", name, at)
            self._next += 1
            self.take(":")
            kind = self.type(depth + 1)
            self.take("not", "null")
            if self.take("comment"):
                self._next += 1
            found.append(pa.field(name[1:-1].replace("``", "`") if name[0] == "`" else name, kind))
            if not self.take(","):
                break
        if end:
            self.expect(end)
        return pa.struct(found)

    def type(self, depth: int) -> pa.DataType:
        name, at = self._tokens[self._next]
        self._next += 1
        word = name.lower()
        if depth > _MOST_DEPTH:
            raise SchemaError(f"expected at most {_MOST_DEPTH} types in one another, at character {at + 1}")
        if word == "struct":
            self.expect("<")
            return self.fields(">", depth)
        if word == "array":
            self.expect("<")
            kind = pa.list_(pa.field("element", self.type(depth + 1)))
            self.expect(">")
            return kind
        if word == "map":
            self.expect("<")
            key = self.type(depth + 1)
            self.expect(",")
            kind = pa.map_(key, self.type(depth + 1))
            self.expect(">")
            return kind
        if word in _DECIMALS:
            return self._decimal(at)
        if word not in _TYPES:
            raise _unexpected("a type such as bigint or string", name, at)
        return _TYPES[word]

    def _decimal(self, at: int) -> pa.DataType:
        numbers = [10, 0]
        if self.take("("):
            numbers = [self._number()]
            if self.take(","):
                numbers.append(self._number())
            self.expect(")")
        precision, scale = (*numbers, 0)[:2]
        if not 1 <= precision <= 38 or scale > precision:
            raise SchemaError(f"expected a decimal of at most 38 digits, at character {at + 1}")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        found, at = self._tokens[self._next]
        self._next += 1
        if not re.fullmatch(r"[0-9]{1,3}", found):
            raise _unexpected("a number", found, at)
        return int(found)


def _unexpected(expected: str, found: str, at: int) -> SchemaError:
    return SchemaError(
        f"expected {expected}, got {repr(found) if found else 'the end'}, at character {at + 1}"
    )
