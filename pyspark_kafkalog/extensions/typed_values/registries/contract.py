"""The contract of schema registries, of which formats need no more."""

from __future__ import annotations

import uuid
from typing import NamedTuple, Protocol, TypeAlias

from pyspark_kafkalog.extensions.typed_values.schema_registry import RegisteredSchema


class ApicurioId(NamedTuple):
    """A number that Apicurio's headers name: ``globalId`` or ``contentId``."""

    name: str
    number: int


Key: TypeAlias = int | uuid.UUID | ApicurioId
"""The key of a schema, as records have it: it never changes its meaning."""


def number_of(key: Key) -> int | None:
    """The number that a key is; None for a GUID."""
    if isinstance(key, ApicurioId):
        return key.number
    return key if isinstance(key, int) else None


def shown(key: Key) -> str:
    """A key, for people."""
    if isinstance(key, ApicurioId):
        return f"{key.name} {key.number}"
    return f"{'id' if isinstance(key, int) else 'GUID'} {key}"


class SchemaSource(Protocol):
    """A schema registry."""

    def by_key(self, key: Key) -> RegisteredSchema:
        """The schema with this key, which is asked for once.

        :raises SchemaRegistryError: if the registry does not know it, or does not answer.
        """

    def knows(self, key: Key) -> bool:
        """Whether there is a schema with this key now.

        :raises SchemaRegistryError: if the registry does not answer.
        """

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject. It is asked for each time.

        :raises SchemaRegistryError: if there is none, or the registry does not answer.
        """

    def find(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """A schema among those of a subject, with its key.

        :raises SchemaRegistryError: if it isn't one of them.
        """

    def register(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Make a schema the newest one of a subject, unless it has it; gives it with its key.

        :raises SchemaRegistryError: if the registry refuses it, in its words.
        """
