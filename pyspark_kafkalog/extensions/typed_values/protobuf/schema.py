"""Protobuf schemas: messages with their fields, from texts of .proto files or from descriptors.

No library is needed for it. Those that compile .proto text ask for one release of ``protobuf`` (grpcio-tools,
protoxy) or of ANTLR's runtime (proto-schema-parser), which shared runtimes pin at another one.

Names are looked up among all files that are given, whichever of them a file imports: registries give the
texts that a schema refers to, and not always by the names that its imports have. Options and extensions do
not matter, so files that only declare them may be missing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias

from pyspark_kafkalog.errors import SchemaError, listed
from pyspark_kafkalog.extensions.typed_values.protobuf.declarations import (
    MOST_NUMBER,
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    MessageDeclaration,
)
from pyspark_kafkalog.extensions.typed_values.protobuf.descriptors import parse_descriptors
from pyspark_kafkalog.extensions.typed_values.protobuf.text import parse_text
from pyspark_kafkalog.extensions.typed_values.protobuf.well_known import TEXTS

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_LARGEST = 16 << 20
_UNSIGNED = ("uint32", "uint64", "fixed32", "fixed64")
"""Characters of a text."""
_NEW = {
    "field_presence": "EXPLICIT",
    "enum_type": "OPEN",
    "repeated_field_encoding": "PACKED",
    "utf8_validation": "VERIFY",
    "message_encoding": "LENGTH_PREFIXED",
}
_FEATURES: Mapping[str, Mapping[str, str]] = {
    "proto2": {
        **_NEW,
        "enum_type": "CLOSED",
        "repeated_field_encoding": "EXPANDED",
        "utf8_validation": "NONE",
    },
    "proto3": {**_NEW, "field_presence": "IMPLICIT"},
}
"""Features of a file without options; an edition has :data:`_NEW`."""


@dataclass(eq=False)
class EnumType:
    """An enum. A closed one has no other numbers: they are unknown fields."""

    name: str
    values: tuple[tuple[str, int], ...]
    is_closed: bool

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The name of each number, the first one if it has several."""
        return {number: name for name, number in reversed(self.values)}

    def __str__(self) -> str:
        return f"enum {self.name}"


@dataclass(eq=False)
class MessageField:
    """A field of a message.

    :ivar kind: the name of its type: ``int32`` and so on, ``enum``, or ``message``, whose ``message`` it is.
    :ivar has_presence: whether a zero differs from nothing.
    :ivar default: what it has if it is not written, if the schema says so.
    :ivar oneof: the name of the group of which a message has one field.
    :ivar is_group: whether it ends with a tag, and has no length.
    """

    name: str
    number: int
    kind: str
    message: MessageType | None = None
    enum: EnumType | None = None
    is_repeated: bool = False
    is_required: bool = False
    is_packed: bool = False
    has_presence: bool = False
    checks_utf8: bool = False
    is_group: bool = False
    default: Any = None
    oneof: str | None = None

    @property
    def is_map(self) -> bool:
        """Whether it is a map, whose ``message`` has a key and a value."""
        return self.is_repeated and self.message is not None and self.message.is_map_entry

    def __str__(self) -> str:
        """The type in a few words."""
        if self.is_map and self.message is not None:
            key, value = self.message.fields
            return f"map<{key}, {value}>"
        of = self.enum or self.message or self.kind
        return f"repeated {of}" if self.is_repeated else f"{of}"


@dataclass(eq=False)
class MessageType:
    """A message type. ``name`` has those of its package and of the messages around it."""

    name: str
    is_map_entry: bool = False
    fields: list[MessageField] = field(default_factory=list)
    messages: list[MessageType] = field(default_factory=list)

    def __str__(self) -> str:
        return f"message {self.name}"


@dataclass(eq=False)
class ProtoFile:
    """The messages that a file declares. ``others`` are those of the files that were given with it."""

    messages: list[MessageType]
    others: list[MessageType]

    def message(self, name: str) -> MessageType:
        """The message with this name, of which the package may be missing.

        :raises SchemaError: if there is none, or more than one.
        """
        known = self._by_end.get(name, [])
        found = [each for each in known if each.name == name] or known
        if len(found) != 1:
            why = "has no" if not found else "has more than one"
            raise SchemaError(
                f"The schema {why} message {name!r}",
                hint=f"It has {listed([each.name for each in self.all()], 20)}.",
            )
        return found[0]

    def at(self, indexes: Iterable[int]) -> MessageType:
        """The message with these indexes, as Confluent's serializers write them before a value.

        :raises SchemaError: if there is none.
        """
        indexes = tuple(indexes)
        messages, found = self.messages, None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise SchemaError(f"The schema has no message with the indexes {list(indexes)}")
            found = messages[index]
            messages = _declared(found)
        if found is None:
            raise SchemaError("Expected the indexes of a message, got none")
        return found

    def keyed(self, key: tuple[int, ...] | int | str) -> MessageType:
        """The message that a registry's serializers name before a value: see :data:`.framing.MessageKey`.

        :raises SchemaError: if there is none.
        """
        if isinstance(key, tuple):
            return self.at(key)
        if isinstance(key, int):
            found = self._by_name
            if key >= len(found):
                raise SchemaError(f"The schema has {len(found)} messages, and none with the number {key}")
            return found[key]
        # Apicurio's serializers leave out the messages around one: its readers find the outer ones only.
        return next((each for each in self.messages if each.name.rpartition(".")[2] == key), None) or (
            self.message(key)
        )

    def number(self, message: MessageType) -> int:
        """The place of one of the messages of this file among all names."""
        for number, each in enumerate(self._by_name):
            if each is message:
                return number
        raise SchemaError(f"The {message} is not declared in the schema's own file")

    @cached_property
    def _by_end(self) -> Mapping[str, list[MessageType]]:
        """All messages by their names, and by these without the first words: of the package, and so on."""
        found: dict[str, list[MessageType]] = {}
        for each in (*self.all(), *_within(self.others)):
            rest, dot = each.name, "."
            while dot:
                found.setdefault(rest, []).append(each)
                _, dot, rest = rest.partition(".")
        return found

    @cached_property
    def _by_name(self) -> list[MessageType]:
        """All messages of this file by their names, the entries of maps too (Glue's MessageIndexFinder)."""
        due, found = list(self.messages), list[MessageType]()
        while due:
            found.append(due.pop())
            due += found[-1].messages
        return sorted(found, key=lambda each: each.name)

    def indexes(self, message: MessageType) -> tuple[int, ...]:
        """The indexes of one of the messages of this file."""
        for path, each in _numbered(self.messages, ()):
            if each is message:
                return path
        raise SchemaError(f"The {message} is not declared in the schema's own file")

    def types(self) -> dict[str, MessageType]:
        """All messages that are known here, by their names; the file's own count before others."""
        known = {name: each for name, each in _well_known().items() if isinstance(each, MessageType)}
        given = (*_within(self.others), *self.all())
        return {**known, **{each.name: each for each in given}}

    def all(self) -> list[MessageType]:
        """All messages of this file, those within others too."""
        return list(_within(self.messages))


def _declared(message: MessageType) -> list[MessageType]:
    return [each for each in message.messages if not each.is_map_entry]


def _within(messages: Iterable[MessageType]) -> Iterator[MessageType]:
    for each in messages:
        if not each.is_map_entry:
            yield each
            yield from _within(each.messages)


def _numbered(
    messages: list[MessageType], path: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], MessageType]]:
    for index, each in enumerate(messages):
        yield (*path, index), each
        yield from _numbered(_declared(each), (*path, index))


def parse(text: str, references: Iterable[str] = ()) -> ProtoFile:
    """The messages of a schema.

    :param text: that of a .proto file, or a descriptor or several in base64: the last one is the file.
    :param references: those of the files that it imports, in any order. What comes with protoc is known.
    :raises SchemaError: if one is not valid, or names a type that is in none of them.
    """
    *others, own = [each for given in (*references, text) for each in _files(given)]
    return _Linker(own, others, _well_known()).file()


def parse_descriptor_set(data: bytes) -> ProtoFile:
    """The messages of a FileDescriptorSet, as ``protoc --include_imports --descriptor_set_out`` writes it.

    :raises SchemaError: see :func:`parse`.
    """
    *others, own = parse_descriptors(data)
    return _Linker(own, others, _well_known()).file()


def _files(text: str) -> list[FileDeclaration]:
    if len(text) > _LARGEST:
        raise SchemaError(f"it has more than {_LARGEST} characters")
    if _BASE64.fullmatch(text):
        try:
            return parse_descriptors(base64.b64decode("".join(text.split()), validate=True))
        except binascii.Error:
            raise SchemaError("it is neither the text of a .proto file nor base64") from None
    return [parse_text(text)]


_Types: TypeAlias = Mapping[str, "MessageType | EnumType"]


@dataclass
class _Due:
    """A field whose type is to be looked up."""

    field: MessageField
    declaration: FieldDeclaration
    scope: str
    features: Mapping[str, str]


class _Linker:
    """Makes messages of declarations.

    :param known: the types of files that are there without being given, by their names.
    """

    def __init__(self, own: FileDeclaration, others: list[FileDeclaration], known: _Types) -> None:
        self._own, self._others, self._known = own, others, known
        self._messages: dict[str, MessageType] = {}
        self._enums: dict[str, EnumType] = {}
        self._due: list[_Due] = []

    def types(self) -> _Types:
        """All types of the files, by their names."""
        self.file()
        return {**self._enums, **self._messages}

    def file(self) -> ProtoFile:
        own = self._add(self._own)
        others = [message for each in self._others for message in self._add(each)]
        for due in self._due:
            self._link(due)
        for message in self._messages.values():
            if message.is_map_entry:
                _check_entry(message)
        return ProtoFile(own, others)

    def _add(self, file: FileDeclaration) -> list[MessageType]:
        features = _featured(_FEATURES.get(file.syntax, _NEW), file.options)
        for each in file.enums:
            self._enum(each, file.package, features)
        return [self._message(each, file.package, file, features) for each in file.messages]

    def _enum(self, given: EnumDeclaration, scope: str, features: Mapping[str, str]) -> None:
        name = f"{scope}.{given.name}" if scope else given.name
        closed = _featured(features, given.options)["enum_type"] == "CLOSED"
        if not given.values:
            raise SchemaError(f"enum {name} has no values")
        for value, number in given.values:
            if not -(1 << 31) <= number < 1 << 31:
                raise SchemaError(f"enum {name}: {value} has a number beyond 32 bits")
        self._enums.setdefault(name, EnumType(name, tuple(given.values), closed))

    def _message(
        self, given: MessageDeclaration, scope: str, file: FileDeclaration, features: Mapping[str, str]
    ) -> MessageType:
        name = f"{scope}.{given.name}" if scope else given.name
        made = MessageType(name, given.is_map_entry)
        # The schema's own file comes first: of a name that is there twice, its message counts.
        is_new = self._messages.setdefault(name, made) is made
        features = _featured(features, given.options)
        for enum in given.enums:
            self._enum(enum, name, features)
        made.messages = [self._message(each, name, file, features) for each in given.messages]
        if not is_new:
            return self._messages[name]
        names: set[str] = set()
        numbers: set[int] = set()
        for each in given.fields:
            if each.name in names or each.number in numbers:
                raise SchemaError(f"message {name} has field {each.name} or its number {each.number} twice")
            if not 0 < each.number <= MOST_NUMBER:
                raise SchemaError(f"message {name}: field {each.name} has the number {each.number}")
            names.add(each.name)
            numbers.add(each.number)
            oneof = given.oneofs.get(each.oneof, {}) if each.oneof else {}
            of_field = _featured(_featured(features, oneof), each.options)
            field = MessageField(each.name, each.number, each.kind, oneof=each.oneof)
            field.is_repeated = each.label == "repeated"
            made.fields.append(field)
            self._due.append(_Due(field, each, name, {**of_field, "syntax": file.syntax}))
        return made

    def _link(self, due: _Due) -> None:
        field, given, features = due.field, due.declaration, due.features
        if given.kind in ("", "group"):
            found = self._find(given.type_name, due.scope)
            if found is None:
                raise SchemaError(
                    f"{due.scope}.{field.name}: there is no type {given.type_name}",
                    hint=_missing([self._own, *self._others]),
                )
            field.kind = "enum" if isinstance(found, EnumType) else "message"
            field.enum = found if isinstance(found, EnumType) else None
            field.message = found if isinstance(found, MessageType) else None
            is_entry = field.is_map or self._messages[due.scope].is_map_entry
            is_delimited = features["message_encoding"] == "DELIMITED" and not is_entry
            field.is_group = field.kind == "message" and (given.kind == "group" or is_delimited)
        legacy = features["syntax"] in ("proto2", "proto3")
        field.is_required = given.label == "required" or (
            not legacy and features["field_presence"] == "LEGACY_REQUIRED"
        )
        explicit = given.label == "optional" or "proto3_optional" in given.options
        field.has_presence = not field.is_repeated and (
            field.message is not None
            or field.oneof is not None
            or features["field_presence"] != "IMPLICIT"
            or explicit
        )
        # Java checks the text of maps whatever the syntax is.
        is_checked = features["utf8_validation"] == "VERIFY" or self._messages[due.scope].is_map_entry
        field.checks_utf8 = field.kind == "string" and is_checked
        packable = field.is_repeated and field.kind not in ("string", "bytes", "message")
        packed = {"true": True, "false": False}.get(str(given.options.get("packed")))
        field.is_packed = packable and (
            features["repeated_field_encoding"] == "PACKED" if packed is None else packed
        )
        if "default" in given.options:
            field.default = _default(field, given.options["default"])

    def _find(self, name: str, scope: str) -> MessageType | EnumType | None:
        """The type with this name, from the inside to the outside."""
        if name.startswith("."):
            name, scope = name[1:], ""
        while True:
            full = f"{scope}.{name}" if scope else name
            found = self._messages.get(full) or self._enums.get(full) or self._known.get(full)
            if found is not None or not scope:
                return found
            scope = scope.rpartition(".")[0]


@cache
def _well_known() -> _Types:
    first, *others = [parse_text(text) for text in TEXTS]
    return _Linker(first, others, {}).types()


def _check_entry(message: MessageType) -> None:
    """Refuse entries of a map that protoc would refuse."""
    fields = {field.number: field for field in message.fields}
    has_both = list(fields) == [1, 2] and not any(field.is_repeated for field in message.fields)
    if not has_both or fields[1].kind in ("float", "double", "bytes", "enum", "message"):
        raise SchemaError(f"the entries {message.name} of a map have no key or no value of their types")


def _featured(features: Mapping[str, str], options: Mapping[str, Any]) -> Mapping[str, str]:
    """Features as options change them."""
    given = {name.partition(".")[2]: value for name, value in options.items() if name.startswith("features.")}
    return {**features, **given} if given else features


def _missing(files: list[FileDeclaration]) -> str | None:
    imports = {each for file in files for each in file.imports}
    return f"It may be in a file that was not given: {listed(imports, 10)}." if imports else None


def _default(field: MessageField, given: Any) -> Any:
    """A default as a Python value, from a text or from a descriptor; None if it isn't one."""
    if field.message is not None or field.is_repeated:
        return None
    text = given if isinstance(given, bytes) else str(given).encode()
    try:
        if field.kind == "string":
            return text.decode(errors="replace")
        if field.kind == "bytes":
            return text
        word = text.decode()
        if field.kind == "bool":
            return word == "true"
        if field.enum is not None:
            return dict(field.enum.values).get(word)
        if field.kind in ("float", "double"):
            return float(given) if isinstance(given, int | float) else float(word)
        number = int(word, 0) if not isinstance(given, int) else given
        bits = 32 if field.kind.endswith("32") else 64
        least, most = (0, 1 << bits) if field.kind in _UNSIGNED else (-1 << bits - 1, 1 << bits - 1)
        return number if least <= number < most else None
    except (ValueError, OverflowError):
        return None


def default_of(enum: EnumType) -> int:
    """The number that a field of this enum has where nothing is written: that of its first value."""
    return enum.values[0][1]
