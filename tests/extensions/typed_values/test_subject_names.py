"""The subjects of schemas, as Confluent's strategies name them."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.subject_names import subject_of


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "orders-value"),
        ("RecordNameStrategy", "shop.Order"),
        ("TopicRecordNameStrategy", "orders-shop.Order"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "orders-shop.Order"),
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
