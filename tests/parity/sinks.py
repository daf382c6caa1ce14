"""KafkaSinkSuite: what streams and batches write; all is read back by Spark's own connector."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr, lit
from pyspark.sql.streaming.query import StreamingQuery

from tests.parity.case import Outcome, case
from tests.parity.lab import Lab, Options, attempt, error_of
from tests.parity.suites import BATCH_SINK, STREAM_SINK


class _Input:
    """A stream of lines of text, in the column ``value``."""

    def __init__(self, lab: Lab) -> None:
        self._folder = lab.folder()
        self._folder.mkdir()
        self._files = 0
        self.frame: DataFrame = lab.spark.readStream.text(str(self._folder))

    def add(self, *lines: object) -> None:
        self._files += 1
        hidden = Path(self._folder, f".{self._files}")
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self._folder / f"{self._files}.txt")


@contextlib.contextmanager
def _writing(lab: Lab, frame: DataFrame, options: Options, mode: str = "append") -> Iterator[StreamingQuery]:
    settings = {
        "kafka.bootstrap.servers": lab.broker.bootstrap,
        "kafka.max.block.ms": "3000",
        "checkpointLocation": str(lab.folder()),
        **{name: str(value) for name, value in options.items()},
    }
    query = frame.writeStream.format(lab.format).outputMode(mode).options(**settings).start()
    try:
        yield query
    finally:
        query.stop()


def _written(lab: Lab, topic: str) -> list[int]:
    return sorted(int(value) for (value,) in lab.read_back(topic, "value"))


def _streamed(lab: Lab, topic: str, columns: list[str], options: Options) -> Outcome:
    """What is in the topic after each of two micro-batches."""
    lines = _Input(lab)
    with _writing(lab, lines.frame.selectExpr(*columns), options) as query:
        lines.add(1, 2, 3, 4, 5)
        query.processAllAvailable()
        first = _written(lab, topic)
        lines.add(6, 7, 8, 9, 10)
        query.processAllAvailable()
        return {"first": first, "then": _written(lab, topic)}


_STREAMED = {"first": [*range(1, 6)], "then": [*range(1, 11)]}


@case(STREAM_SINK, "streaming - write to kafka with topic field", peer=_STREAMED)
def topic_field(lab: Lab) -> Outcome:
    topic = lab.topic()
    return _streamed(lab, topic, [f"'{topic}' AS topic", "value"], {})


@case(STREAM_SINK, "streaming - write w/o topic field, with topic option", peer=_STREAMED)
def topic_option(lab: Lab) -> Outcome:
    topic = lab.topic()
    return _streamed(lab, topic, ["value"], {"topic": topic})


@case(STREAM_SINK, "streaming - topic field and topic option", peer=_STREAMED)
def topic_field_and_option(lab: Lab) -> Outcome:
    topic = lab.topic()
    return _streamed(lab, topic, ["'foo' AS topic", "value"], {"topic": topic})


def _refused(lab: Lab, columns: list[str], options: Options, **kinds: str) -> str:
    """The kind of the error that a write with such columns or options ends with."""
    lines = _Input(lab)
    lines.add(1, 2, 3, 4, 5)

    def run() -> None:
        with _writing(lab, lines.frame.selectExpr(*columns), options) as query:
            query.processAllAvailable()

    return error_of(run, **kinds)


@case(
    STREAM_SINK,
    "streaming - write data with bad schema",
    peer={"no topic": "topic required", "no value": "value required"},
)
def bad_schema(lab: Lab) -> Outcome:
    topic = lab.topic()
    no_topic = {"topic required": "topic option required|no topic|'topic'"}
    no_value = {"value required": "required (attribute|column) 'value' not found"}
    return {
        "no topic": _refused(lab, ["value AS key", "value"], {}, **no_topic),
        "no value": _refused(lab, [f"'{topic}' AS topic", "value AS key"], {}, **no_value),
    }


@case(
    STREAM_SINK,
    "streaming - write data with valid schema but wrong types",
    peer={name: f"{name} has a wrong type" for name in ("topic", "value", "key", "partition")},
)
def wrong_types(lab: Lab) -> Outcome:
    topic = f"'{lab.topic()}' AS topic"
    columns = {
        "topic": ["CAST('1' AS INT) AS topic", "value"],
        "value": [topic, "CAST(value AS INT) AS value"],
        "key": [topic, "CAST(value AS INT) AS key", "value"],
        "partition": [topic, "value", "value AS partition"],
    }
    return {
        name: _refused(
            lab,
            chosen,
            {},
            **{f"{name} has a wrong type": rf"{name} must be a\(n\)|column '?{name}'? (has|is|must)"},
        )
        for name, chosen in columns.items()
    }


@case(STREAM_SINK, "streaming - write to non-existing topic", peer={"error": "unknown topic"})
def no_such_topic(lab: Lab) -> Outcome:
    topic = lab.new_name()
    kinds = {"unknown topic": f"not present in metadata|Unknown.?Topic.*{topic}|{topic}.*Unknown.?Topic"}
    return {"error": _refused(lab, ["value"], {"topic": topic}, **kinds)}


@case(
    STREAM_SINK,
    "streaming - exception on config serializer",
    peer={"key.serializer": "not supported", "value.serializer": "not supported"},
)
def serializers(lab: Lab) -> Outcome:
    return {
        name: _refused(
            lab,
            ["value"],
            {f"kafka.{name}": "foo", "topic": "t"},
            **{"not supported": f"Kafka option '{name}' is not supported"},
        )
        for name in ("key.serializer", "value.serializer")
    }


@case(
    STREAM_SINK,
    "micro-batch only: streaming - sink progress is produced",
    peer={"update": 3, "append": 3},
    ours={"update": "refused"},
    note="PySpark refuses update mode for every Python sink; use `foreachBatch` with the batch writer.",
)
def sink_progress(lab: Lab) -> Outcome:
    topic = lab.topic()

    def rows(mode: str) -> int:
        lines = _Input(lab)
        lines.add(1, 2, 3)
        with _writing(lab, lines.frame, {"topic": topic}, mode) as query:
            query.processAllAvailable()
            return max(progress.sink.numOutputRows for progress in query.recentProgress)

    refused = "does not support Update mode"
    return {mode: attempt(functools.partial(rows, mode), refused=refused) for mode in ("update", "append")}


def _frame(lab: Lab, rows: list[tuple[object, ...]], schema: str) -> DataFrame:
    return lab.spark.createDataFrame(rows, schema).coalesce(1)


HEADERS = "array<struct<key:string,value:binary>>"


@case(
    BATCH_SINK,
    "batch - write to kafka",
    peer={
        "rows": [
            ("1", [("a", "b")]),
            ("2", [("c", "d"), ("e", "f")]),
            ("3", [("g", "h"), ("g", "i")]),
            ("4", None),
            ("5", [("j", "k"), ("j", "l"), ("m", "n")]),
        ]
    },
)
def batch(lab: Lab) -> Outcome:
    topic = lab.topic()
    rows: list[tuple[object, ...]] = [
        (topic, "1", [("a", b"b")]),
        (topic, "2", [("c", b"d"), ("e", b"f")]),
        (topic, "3", [("g", b"h"), ("g", b"i")]),
        (topic, "4", None),
        (topic, "5", [("j", b"k"), ("j", b"l"), ("m", b"n")]),
    ]
    lab.write(_frame(lab, rows, f"topic string, value string, headers {HEADERS}"), {"topic": topic})
    return {"rows": lab.read_back(topic, "value", "headers")}


ROUND_ROBIN = {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"}


@case(
    BATCH_SINK,
    "batch - partition column and partitioner priorities",
    peer={
        "by key": [(0, "0"), (0, "2"), (1, "4"), (3, "1"), (3, "3")],
        "round robin: partitions of one key": 4,
        "partition column": {2},
        "null in the partition column": True,
    },
    note="The partitioner of Spark's test is a Java class of its own; here it is Kafka's round robin.",
)
def partitioner_priorities(lab: Lab) -> Outcome:
    topics = [lab.topic(4) for _ in range(4)]
    frame = _frame(lab, [(str(number), str(number)) for number in range(5)], "key string, value string")
    one_key = _frame(lab, [("k", str(number)) for number in range(40)], "key string, value string")
    lab.write(frame, {"topic": topics[0]})
    lab.write(one_key, {"topic": topics[1], **ROUND_ROBIN})
    lab.write(one_key.withColumn("partition", lit(2)), {"topic": topics[2], **ROUND_ROBIN})
    lab.write(frame.withColumn("partition", expr("CAST(NULL AS INT)")), {"topic": topics[3]})
    by_key = lab.read_back(topics[0], "partition", "key")
    return {
        "by key": by_key,
        "round robin: partitions of one key": len(set(lab.read_back(topics[1], "partition"))),
        "partition column": {partition for (partition,) in lab.read_back(topics[2], "partition")},
        "null in the partition column": lab.read_back(topics[3], "partition", "key") == by_key,
    }


@case(
    BATCH_SINK,
    "batch - null topic field value, and no topic option",
    peer={"error": "KAFKA_NULL_TOPIC_IN_DATA"},
)
def null_topic(lab: Lab) -> Outcome:
    frame = _frame(lab, [(None, "1")], "topic string, value string")
    kinds = {"KAFKA_NULL_TOPIC_IN_DATA": "KAFKA_NULL_TOPIC_IN_DATA|contains a null topic"}
    return {"error": error_of(lambda: lab.write(frame, {}), **kinds)}


@case(BATCH_SINK, "SPARK-20496: batch - enforce analyzed plans", peer={"rows": 999})
def enforce_analyzed(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.write(lab.spark.range(1, 1000).select(expr("to_json(struct(*)) AS value")), {"topic": topic})
    return {"rows": len(lab.read_back(topic, "value"))}


@case(
    BATCH_SINK,
    "batch - unsupported save modes",
    peer={"append": [1], "the default": [1, 1], "overwrite": "refused", "ignore": "refused"},
    ours={"the default": "refused"},
    note='PySpark refuses the default mode, `error`, for every Python source: write `.mode("append")`.',
)
def save_modes(lab: Lab) -> Outcome:
    topic = lab.topic()
    frame = _frame(lab, [("1",)], "value string")
    settings = {"kafka.bootstrap.servers": lab.broker.bootstrap, "topic": topic}
    refused = "save mode .* not allowed|cannot be written|does not support truncate|overwrite"

    def written(mode: str | None) -> list[int]:
        writer = frame.write.format(lab.format).options(**settings)
        (writer if mode is None else writer.mode(mode)).save()
        return _written(lab, topic)

    return {
        mode or "the default": attempt(functools.partial(written, mode), refused=refused)
        for mode in ("append", None, "overwrite", "ignore")
    }


@case(
    BATCH_SINK,
    "V2 only: generic - write big data with small producer buffer",
    peer={"rows": 300, "bytes": 300 * 15_000},
    note="Shown by a batch write.",
)
def small_buffer(lab: Lab) -> Outcome:
    topic = lab.topic()
    frame = lab.spark.range(0, 300, 1, 1).selectExpr("CAST(repeat('x', 15000) AS BINARY) AS value")
    lab.write(frame, {"topic": topic, "kafka.buffer.memory": 16_384})
    values = [value for (value,) in lab.read_back(topic, "value")]
    return {"rows": len(values), "bytes": sum(map(len, values))}
