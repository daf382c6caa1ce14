"""The subjects of a registry's schemas: the strategies of Confluent's serializers."""

from __future__ import annotations

from pyspark_kafkalog.errors import OptionError

TOPIC, RECORD, TOPIC_RECORD = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
STRATEGIES = (TOPIC, RECORD, TOPIC_RECORD)
PACKAGE = "io.confluent.kafka.serializers.subject."
"""Begins the names of Java's classes of this kind, which options may have in full."""


def subject_of(strategy: str, topic: str | None, column: str, record: str | None) -> str:
    """The subject of the schemas of a column.

    :param strategy: one of :data:`STRATEGIES`, or such a class of Java's.
    :param topic: the topic of all rows, if there is one.
    :param column: ``key`` or ``value``.
    :param record: the full name of an Avro record or a Protobuf message, or the title of a JSON Schema, if
        the schema is known.
    :raises OptionError: if the strategy needs one of them that is not known.
    """
    name, option = strategy.removeprefix(PACKAGE), f"{column}.subject.name.strategy"
    if name != RECORD and topic is None:
        raise OptionError(
            f"Option {option!r} is {name}, which needs one topic",
            hint=f"Give one topic, or {RECORD}, or the schema as {column}.schema.",
        )
    if name != TOPIC and not record:
        raise OptionError(
            f"Option {option!r} is {name}, which needs a schema with a name",
            hint=f"Give it as {column}.schema, with the name of the record or the title of the JSON Schema.",
        )
    if name == TOPIC:
        return f"{topic}-{column}"
    return str(record) if name == RECORD else f"{topic}-{record}"
