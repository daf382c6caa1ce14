"""The registry of some options; the modules of one are loaded only where it is used."""

from __future__ import annotations

from pyspark_kafkalog.extensions.typed_values.registries.contract import SchemaSource
from pyspark_kafkalog.extensions.typed_values.registry_options import APICURIO, AZURE, GLUE, RegistryOptions
from pyspark_kafkalog.extensions.typed_values.schema_registry import SchemaRegistry

_registries: dict[RegistryOptions, SchemaSource] = {}


def registry_of(options: RegistryOptions) -> SchemaSource:
    """The registry of these options, with all that this process has found in it."""
    found = _registries.get(options)
    return _registries.setdefault(options, _opened(options)) if found is None else found


def _opened(options: RegistryOptions) -> SchemaSource:
    if options.registry == GLUE:
        from pyspark_kafkalog.extensions.typed_values.registries.glue import GlueRegistry

        return GlueRegistry(options)
    if options.registry == APICURIO:
        from pyspark_kafkalog.extensions.typed_values.registries.apicurio import ApicurioRegistry

        return ApicurioRegistry(options)
    if options.registry == AZURE:
        from pyspark_kafkalog.extensions.typed_values.registries.azure import AzureRegistry

        return AzureRegistry(options)
    return SchemaRegistry(options)
