"""The options of Protobuf's types: the names and defaults of Spark's ``from_protobuf``."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_kafkalog.options.table import from_option


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """The options by which messages are columns.

    :ivar max_depth: how deep a message that contains itself is read, at most 10; 0: it is refused.
    :ivar emits_defaults: whether there are zeros instead of null where zeros are not written.
    :ivar upcasts_unsigned: whether unsigned numbers have a type that holds them all.
    :ivar unwraps: whether a wrapper such as ``Int64Value`` is its value.
    :ivar keeps_empty: whether a message without fields is a struct, and not left out.
    :ivar any_as_json: whether an ``Any`` is its JSON.
    """

    max_depth: int = from_option("recursive.fields.max.depth")
    enums_as_ints: bool = from_option("enums.as.ints")
    emits_defaults: bool = from_option("emit.default.values")
    upcasts_unsigned: bool = from_option("upcast.unsigned.ints")
    unwraps: bool = from_option("unwrap.primitive.wrapper.types")
    keeps_empty: bool = from_option("retain.empty.message.types")
    any_as_json: bool = from_option("convert.any.fields.to.json")
