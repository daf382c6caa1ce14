"""Objects of connect in a notebook: their text names the place, without secrets, and rows are a table."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pyspark_kafkalog import connect


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("host:9092,other:9092", "host:9092,other:9092"),
        ("/data/kafka-logs", "/data/kafka-logs"),
        ("zk://host:2181/kafka", "zk://host:2181/kafka"),
        ("s3://key:hush@bucket/logs?secret=hush", "s3://bucket/logs"),
        ({"path": '["/a", "s3://key:hush@bucket/b"]'}, "/a, s3://bucket/b"),
        ({"kafka.bootstrap.servers": "host:9093", "kafka.sasl.jaas.config": "hush"}, "host:9093"),
    ],
)
def test_the_text_of_a_place(place: str | dict[str, str], name: str) -> None:
    kafka = connect(place)
    assert repr(kafka) == f"Kafka({name})"
    shown = [repr(one) for one in (kafka.topics, kafka.groups, kafka.records, kafka.logs)]
    assert shown == [f"{kind}({name})" for kind in ("TopicAdmin", "GroupAdmin", "Records", "LogCare")]


def test_rows_are_a_list_and_a_table(root: Path) -> None:
    rows = connect(root).groups.lags()
    assert isinstance(rows, list)
    assert rows == list(rows) == pickle.loads(pickle.dumps(rows))
    shown = rows._repr_html_()
    assert shown.startswith("<table><thead><tr><th>GROUP</th><th>LAG</th>")
    assert "<td>g</td><td>6</td>" in shown
    assert connect(root).topics.partitions()._repr_html_().count("<tr>") == 4
    assert connect(root).groups.offsets()._repr_html_().count("<tr>") == 4
