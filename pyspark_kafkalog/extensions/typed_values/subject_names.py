"""The subjects of a registry's schemas: the strategies of Confluent's serializers."""

from __future__ import annotations

import json

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.table import RECORD_STRATEGY, TOPIC_STRATEGY


def subject_of(strategy: str, topic: str | None, column: str, record: str | None) -> str:
    """The subject of the schemas of a column.

    :param strategy: the name of the strategy's class.
    :param topic: the topic of all rows, if there is one.
    :param column: ``key`` or ``value``.
    :param record: the full name of an Avro record or a Protobuf message, or the title of a JSON Schema, if
        the schema is known.
    :raises OptionError: if the strategy needs one of them that is not known.
    """
    option = f"{column}.subject.name.strategy"
    if strategy != RECORD_STRATEGY and topic is None:
        raise OptionError(
            f"Option {option!r} is {strategy}, which needs one topic",
            hint=f"Give one topic, or {RECORD_STRATEGY}, or the schema as {column}.schema.",
        )
    if strategy == TOPIC_STRATEGY:
        return f"{topic}-{column}"
    if not record:
        raise OptionError(
            f"Option {option!r} is {strategy}, which needs a schema with a name",
            hint=f"Give it as {column}.schema, with the name of the record or the title of the JSON Schema.",
        )
    return record if strategy == RECORD_STRATEGY else f"{topic}-{record}"


def record_of(kind: str, text: str) -> str | None:
    """The full name of a schema's record, or the title of a JSON Schema; None if it has none.

    :param kind: ``AVRO`` or ``JSON``.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_named = isinstance(schema, dict) and (kind == "JSON" or schema.get("type") in ("record", "error"))
    name = schema.get("title" if kind == "JSON" else "name") if is_named else None
    if not isinstance(name, str):
        return None
    space = schema.get("namespace") if kind == "AVRO" and "." not in name else None
    return f"{space}.{name}" if isinstance(space, str) and space else name
