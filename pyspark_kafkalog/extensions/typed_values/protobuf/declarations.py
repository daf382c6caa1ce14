"""Declarations of a .proto file, whether from its text or from a descriptor: names are not looked up yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
"""The types that need no declaration, with their numbers in descriptors."""
MOST_NUMBER = (1 << 29) - 1
"""The largest number of a field."""
DEEPEST = 100
"""Messages in one another."""


@dataclass
class FieldDeclaration:
    """A field. ``kind`` is one of :data:`SCALARS`, ``group`` or "", if only ``type_name`` says what it is."""

    name: str
    number: int
    label: str = ""
    """``optional``, ``required``, ``repeated`` or none."""
    kind: str = ""
    type_name: str = ""
    oneof: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Options by their names, such as ``features.field_presence``; those of extensions are left out."""


@dataclass
class EnumDeclaration:
    """An enum, with its names and numbers in the order of the file."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class MessageDeclaration:
    """A message, with what is declared in it. The entries of a map are one, too."""

    name: str
    fields: list[FieldDeclaration] = field(default_factory=list)
    messages: list[MessageDeclaration] = field(default_factory=list)
    enums: list[EnumDeclaration] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    oneofs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The options of each."""
    is_map_entry: bool = False


@dataclass
class FileDeclaration:
    """A file. ``syntax`` is ``proto2``, ``proto3`` or an edition such as ``2023``."""

    syntax: str = "proto2"
    package: str = ""
    name: str = ""
    imports: list[str] = field(default_factory=list)
    messages: list[MessageDeclaration] = field(default_factory=list)
    enums: list[EnumDeclaration] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)


def entry_name(field_name: str) -> str:
    """The name of the message for the entries of a map, as protoc makes it."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"
