"""Schemas of Azure's Schema Registry for Event Hubs, by their ids: its REST API 2022-10, for reading.

``schema.registry.url`` is that of the namespace, ``https://NAMESPACE.servicebus.windows.net``.
"""

from __future__ import annotations

import time
import uuid

from pyspark_kafkalog.extensions.typed_values.registries.contract import Key
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import WAIT, RegisteredSchema, SchemaRegistry

_VERSION = "2022-10"
_ACCEPTED = "application/json; serialization=Avro, application/json; serialization=json"


class AzureRegistry(SchemaRegistry):
    """A namespace's registry, of which records have ids in the header ``content-type``."""

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__(options)
        self._by_key: dict[uuid.UUID, RegisteredSchema] = {}

    def by_key(self, key: Key, *, wait: float = WAIT) -> RegisteredSchema:
        """See :meth:`.contract.SchemaSource.by_key`; it may become known while this waits."""
        assert isinstance(key, uuid.UUID), "Azure's ids are such"
        found = self._by_key.get(key)
        if found is None:
            path = f"/$schemaGroups/$schemas/{key.hex}?api-version={_VERSION}"
            text = self._content(path, f"schema {key.hex}", time.monotonic() + wait, waits_for_it=True)
            # The header that has the id says that it is Avro.
            found = self._by_key[key] = RegisteredSchema(text.decode(errors="replace"), guid=key)
        return found

    def _headers(self) -> dict[str, str]:
        return {**super()._headers(), "Accept": _ACCEPTED}
