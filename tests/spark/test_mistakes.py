"""What a new user sees of a mistake in a notebook: two lines, and in them what to do."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from tests.kafka import Broker
from tests.spark.mistakes import MISTAKES, Given, Mistake

pytestmark = pytest.mark.broker

_ONE_FOR_EACH_CALL = {
    "bootstrap.servers",
    "value is a struct",
    "schema: value string",
    "slip in a topic, brokers",
    "slip in a topic, stream",
    "value of 5 MB",
    "headers from a map",
    "INSERT INTO a view that subscribes",
}
"""Options, writer, reader, plan, stream and task. What the other errors say is tested without Spark."""


@pytest.fixture(scope="module")
def given(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given.make(spark, tmp_path_factory.mktemp("mistakes"), broker)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(
            mistake, id=mistake.name, marks=() if mistake.name in _ONE_FOR_EACH_CALL else pytest.mark.soak
        )
        for mistake in MISTAKES
    ],
)
def test_a_mistake(given: Given, mistake: Mistake) -> None:
    with pytest.raises(Exception, match=mistake.says) as caught:
        mistake.make(given)
    text = str(caught.value)
    assert "Traceback" not in text
    assert "File " not in text
    ours, _, _ = text.partition("=== Streaming Query ===")
    assert len([line for line in ours.splitlines() if not re.fullmatch(r"\s*SQLSTATE: .*|\s*", line)]) <= 2
