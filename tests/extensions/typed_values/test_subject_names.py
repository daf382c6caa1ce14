"""The subjects of schemas, as Confluent's strategies name them."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.subject_names import record_of, subject_of


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
    ],
)
def test_subjects(strategy: str, subject: str) -> None:
    assert subject_of(strategy, "orders", "value", "shop.Order") == subject


def test_what_a_strategy_needs() -> None:
    assert subject_of("TopicNameStrategy", "orders", "key", None) == "orders-key"
    assert subject_of("RecordNameStrategy", None, "key", "Id") == "Id"
    for strategy in ("TopicNameStrategy", "TopicRecordNameStrategy"):
        with pytest.raises(OptionError, match=rf"'key\.subject\.name\.strategy' is {strategy}, which needs"):
            subject_of(strategy, None, "key", "Id")
    for strategy in ("RecordNameStrategy", "TopicRecordNameStrategy"):
        with pytest.raises(OptionError, match=f"is {strategy}, which needs a schema with a name"):
            subject_of(strategy, "orders", "key", None)


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("AVRO", '{"type": "record", "name": "Order", "namespace": "shop", "fields": []}', "shop.Order"),
        ("AVRO", '{"type": "record", "name": "shop.Order", "namespace": "x", "fields": []}', "shop.Order"),
        ("AVRO", '{"type": "record", "name": "Order", "fields": []}', "Order"),
        ("AVRO", '{"type": "enum", "name": "Order", "symbols": []}', None),
        ("AVRO", '"string"', None),
        ("AVRO", "[" * 100_000, None),
        ("JSON", '{"title": "Order", "type": "object"}', "Order"),
        ("JSON", "true", None),
        ("JSON", '{"title": 7}', None),
    ],
)
def test_names_of_records(kind: str, text: str, name: str | None) -> None:
    assert record_of(kind, text) == name
