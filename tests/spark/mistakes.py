"""The mistakes that a new user makes, as calls in a session, each with what its error has to say.

``python -m tests.spark.mistakes`` makes them all, and prints how long each error took and how long it is.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import LagListener, dead_letters, doctor, reassemble
from tests.kafka import Broker
from tests.kafka_service import running
from tests.sessions import local_session


@dataclass(frozen=True)
class Given:
    """A session, a log directory with a topic ``orders`` of 10 records, and a broker with an empty one."""

    spark: SparkSession
    folder: Path
    broker: Broker

    @classmethod
    def make(cls, spark: SparkSession, folder: Path, broker: Broker) -> Given:
        given = cls(spark, folder, broker)
        given.write(given.rows.selectExpr("CAST(id AS string) AS value"), topic="orders").save(given.path)
        with broker.admin() as admin:
            if "orders" in admin.list_topics():  # of another test
                broker.delete_topic("orders")
        broker.create_topic("orders", 1)
        return given

    @property
    def path(self) -> str:
        return str(self.folder / "log")

    @property
    def rows(self) -> DataFrame:
        return self.spark.range(10)

    @property
    def values(self) -> DataFrame:
        return self.rows.selectExpr("CAST(id AS string) AS value")

    def read(self, path: str | None = None, schema: str | None = None, **options: Any) -> None:
        """Read and count; double underscores in names stand for dots."""
        reader = self.spark.read.format("kafkalog").options(**_dotted(options))
        if schema is not None:
            reader = reader.schema(schema)
        (reader.load() if path is None else reader.load(path)).collect()

    def read_brokers(self, **options: Any) -> None:
        self.read(**{"kafka__bootstrap__servers": self.broker.bootstrap, "subscribe": "orders", **options})

    def read_table(self) -> None:
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS mistake USING kafkalog OPTIONS (path '{self.path}')")
        self.spark.table("mistake").collect()

    def read_table_of_stream(self) -> None:
        """Write a stream by toTable: its rows are in the topic, and its table gives none."""
        rows = self.spark.readStream.format("kafkalog").option("startingOffsets", "earliest").load(self.path)
        into = {"path": str(self.folder / "of table"), "topic": "orders"}
        writer = rows.select("value").writeStream.format("kafkalog").options(**into)
        writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir=self.folder))
        writer.trigger(availableNow=True).toTable("of_stream").awaitTermination()
        assert self.spark.read.format("kafkalog").load(into["path"]).count() >= 10
        self.spark.table("of_stream").collect()

    def write(self, rows: DataFrame, **options: Any) -> Any:
        return rows.write.format("kafkalog").mode("append").options(**_dotted(options))

    def write_brokers(self, rows: DataFrame, **options: Any) -> None:
        self.write(rows, **{"kafka__bootstrap__servers": self.broker.bootstrap, **options}).save()

    def write_row(self, row: str, **options: Any) -> None:
        """Write one row, a list of SQL expressions, to the directory."""
        given = {name: value for name, value in {"topic": "orders", **options}.items() if value is not None}
        self.write(self.spark.sql(f"SELECT {row}"), **given).save(self.path)

    def insert(self) -> None:
        self.spark.sql(
            "CREATE OR REPLACE TEMPORARY VIEW subscribing USING kafkalog"
            f" OPTIONS (path '{self.path}', subscribe 'orders')"
        )
        self.spark.sql("INSERT INTO subscribing SELECT * FROM subscribing")

    def change_subscription(self) -> None:
        """Run a stream, and another one of another topic with the same checkpoint."""
        where = tempfile.mkdtemp(dir=self.folder)
        self.write(self.values, topic="payments").save(self.path)
        for topic in ("orders", "payments"):
            options = {"subscribe": topic, "startingOffsets": "earliest"}
            rows = self.spark.readStream.format("kafkalog").options(**options).load(self.path)
            writer = rows.writeStream.format("noop").option("checkpointLocation", where)
            writer.trigger(availableNow=True).start().awaitTermination()

    def stream(self, path: str, mode: str = "append", checkpoint: str | None = None, **options: Any) -> None:
        """A stream from a directory that copies to another one, until it ends."""
        rows = self.spark.readStream.format("kafkalog").options(**_dotted(options)).load(path)
        writer = rows.writeStream.format("kafkalog").option("topic", "copy").outputMode(mode)
        where = checkpoint or tempfile.mkdtemp(dir=self.folder)
        writer = writer.option("checkpointLocation", where).trigger(availableNow=True)
        writer.start(str(self.folder / "copy")).awaitTermination()


def _dotted(options: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in options.items()}


@dataclass(frozen=True)
class Mistake:
    """``make`` fails with an error whose text matches ``says``, a regular expression."""

    name: str
    make: Callable[[Given], Any]
    says: str
    by_spark: bool = False
    """Whether Spark refuses it before this package is asked."""

    def __str__(self) -> str:
        return self.name


def _closed_port() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


MISTAKES = [
    Mistake(
        "wrong port",
        lambda given: given.read_brokers(kafka__bootstrap__servers=_closed_port()),
        r"Cannot connect to the broker: .*Connection refused \(broker 127.0.0.1:\d+\)\. Check that it runs",
    ),
    Mistake(
        "wrong path",
        lambda given: given.read(str(given.folder / "nowhere")),
        r"The log directory does not exist \(file .*nowhere\)\. Give Kafka's log.dirs",
    ),
    Mistake(
        "path of a .log file",
        lambda given: given.read(str(given.folder / "log/orders-0/00000000000000000000.log")),
        "is not a folder .* Give the folder that holds the <topic>-<partition> folders",
    ),
    Mistake(
        "glob in a path",
        lambda given: given.read(str(given.folder / "log/orders-*")),
        "does not exist .* Globs are not expanded: give a list, or the folder above",
    ),
    Mistake(
        "neither path nor brokers",
        lambda given: given.read(),
        "Expected option 'path' or 'kafka.bootstrap.servers', got neither",
    ),
    Mistake(
        "bootstrap.servers",
        lambda given: given.read(**{"bootstrap.servers": given.broker.bootstrap}, subscribe="orders"),
        "Unknown option 'bootstrap.servers'. Did you mean kafka.bootstrap.servers?",
    ),
    Mistake(
        "brokers without subscribe",
        lambda given: given.read(kafka__bootstrap__servers=given.broker.bootstrap),
        r"One of 'subscribe'.* must be given for brokers\. Write, for example, .option\('subscribe'",
    ),
    Mistake(
        "slip in a topic, brokers",
        lambda given: given.read_brokers(subscribe="ordres"),
        "No such topic: ordres. Did you mean orders?",
    ),
    Mistake(
        "slip in a topic, directory",
        lambda given: given.read(given.path, subscribe="ordres"),
        "No such topic: ordres. Did you mean orders?",
    ),
    Mistake(
        "startingOffset",
        lambda given: given.read(given.path, startingOffset="earliest"),
        "Unknown option 'startingOffset'. Did you mean startingOffsets",
    ),
    Mistake(
        "bad JSON in startingOffsets",
        lambda given: given.read(given.path, startingOffsets='{"orders":{"0":1}'),
        "'startingOffsets'.* not JSON: it ends before its last bracket. .*for example",
    ),
    Mistake(
        "topic for subscribe",
        lambda given: given.read_brokers(topic="orders"),
        "Option 'topic' is for writing only. Did you mean subscribe?",
    ),
    Mistake(
        "save() without a mode",
        lambda given: given.values.write.format("kafkalog").option("topic", "orders").save(given.path),
        'Please use .*"Append" or "Overwrite"',
        by_spark=True,
    ),
    Mistake(
        "mode overwrite",
        lambda given: given.write(given.values, topic="orders").mode("overwrite").save(given.path),
        r"a log can only be appended to\. Use mode\('append'\)",
    ),
    Mistake(
        "no column value",
        lambda given: given.write(given.rows, topic="orders").save(given.path),
        r"Required column 'value' not found\. Add one, .*'struct\(\*\) AS value'\) and the option value",
    ),
    Mistake(
        "value is a number",
        lambda given: given.write(given.rows.selectExpr("id AS value"), topic="orders").save(given.path),
        r"Column 'value' has type bigint, expected binary or string\. Convert it, .*CAST\(value AS string\)",
    ),
    Mistake(
        "value is a struct",
        lambda given: given.write_brokers(given.rows.selectExpr("struct(id) AS value"), topic="orders"),
        r"Column 'value' has type struct<id:bigint>.*Or convert it, .*to_json\(value\)",
    ),
    Mistake(
        "no topic on write",
        lambda given: given.write(given.values).save(given.path),
        r"'topic' is required .* Add .option\('topic', 'name'\)",
    ),
    Mistake(
        "write into a running broker's directory",
        lambda given: given.write(given.values, topic="orders").save(str(given.broker.log_dir)),
        "Stop the broker that uses it, or give the broker instead of its folder",
    ),
    Mistake(
        "value of 5 MB",
        lambda given: given.write_brokers(
            given.spark.sql("SELECT repeat('x', 5000000) AS value"), topic="orders"
        ),
        "Or split large values: set large.message.enabled=true",
    ),
    Mistake(
        "offset beyond the end",
        lambda given: given.read(given.path, startingOffsets='{"orders":{"0":999999}}', subscribe="orders"),
        "startingOffsets gives 999999, endingOffsets gives 10",
    ),
    Mistake(
        "update mode",
        lambda given: given.stream(given.path, "update", startingOffsets="earliest"),
        "does not support Update mode",
        by_spark=True,
    ),
    Mistake(
        "CREATE TABLE",
        lambda given: given.read_table(),
        "CREATE OR REPLACE TEMPORARY VIEW",
    ),
    Mistake(
        "checkpoint in the log directory",
        lambda given: given.stream(
            given.path, checkpoint=str(given.folder / "copy/checkpoint"), startingOffsets="earliest"
        ),
        "'checkpointLocation' is inside the log directory that 'path' names",
    ),
    Mistake(
        "toTable",
        lambda given: given.read_table_of_stream(),
        "A table in the catalog passes no options",
    ),
    Mistake(
        "schema: value string",
        lambda given: given.read(given.path, "value string"),
        r"Column 'value' has type string, expected binary\. Read it as binary.*CAST\(value AS string\)",
    ),
    Mistake(
        "schema: val",
        lambda given: given.read(given.path, "val binary"),
        "Unknown column 'val'. Did you mean value?",
    ),
    Mistake(
        "TLS to a port without it",
        lambda given: given.read_brokers(kafka__security__protocol="SSL"),
        "The listener does not seem to speak TLS",
    ),
    Mistake(
        "JKS store",
        lambda given: given.read_brokers(
            kafka__security__protocol="SSL", kafka__ssl__truststore__location="/etc/truststore.jks"
        ),
        "keytool",
    ),
    Mistake(
        "kafka.compression.type for a directory",
        lambda given: given.write(given.values, topic="orders", kafka__compression__type="lz4").save(
            given.path
        ),
        "Write 'compression.type' instead",
    ),
    Mistake(
        "subscribe=['a', 'b']",
        lambda given: given.read(given.path, subscribe=["orders", "payments"]),
        "expected text with commas, got a list in brackets. Write 'orders,payments'",
    ),
    Mistake(
        "checkpoint of another topic",
        lambda given: given.change_subscription(),
        "The checkpoint has offsets of orders-0, to which this query does not subscribe. A checkpoint is",
    ),
    Mistake(
        "partition -1",
        lambda given: given.write_row("'x' AS value, -1 AS partition"),
        "partition -1, but topic 'orders' has 1, counted from 0. Give null where the key",
    ),
    Mistake(
        "partition 99",
        lambda given: given.write_row("'x' AS value, 99 AS partition"),
        "has partition 99, but topic 'orders' has 1, counted from 0. Give a partition that it has, or null",
    ),
    Mistake(
        "no topic in a row",
        lambda given: given.write_row("'x' AS value, CAST(NULL AS string) AS topic", topic=None),
        r"KAFKA_NULL_TOPIC_IN_DATA.*Filter such rows out, or add .option\('topic', 'name'\)",
    ),
    Mistake(
        "blank in a row's topic",
        lambda given: given.write_row("'x' AS value, 'a b' AS topic", topic=None),
        "Illegal topic name 'a b'. Topic names have 1 to 249 of",
    ),
    Mistake(
        "headers from a map",
        lambda given: given.write_row("'x' AS value, map('a', 'b') AS headers"),
        r"Convert it, for example with transform\(map_entries\(headers\)",
    ),
    Mistake(
        "Java's partitioner",
        lambda given: given.write_row("'x' AS value", partitioner="com.acme.Partitioner"),
        "cannot be imported: there is no such module. Give package.module:callable",
    ),
    Mistake(
        "key.format, no key",
        lambda given: given.write_row("'x' AS value", key__format="json"),
        "'key.format' is json, and there is no column 'key'. Leave it out, or add the column",
    ),
    Mistake(
        "transform of a cell",
        lambda given: given.read(given.path, transform=lambda rows: rows),
        r"For a function of a notebook, write \.option\('transform', by_value\(function\)\)\.",
    ),
    Mistake(
        "a number for JSON's object",
        lambda given: given.read(
            given.path,
            subscribe="orders",
            value__format="json",
            value__schema="id bigint",
            mode="FAILFAST",
        ),
        r"an object, at byte 0 \(partition orders-0, offset 0\)\. Correct the writer\. With mode=PERM",
    ),
    Mistake(
        "StructType as value.schema",
        lambda given: given.read(given.path, value__format="json", value__schema=given.rows.schema),
        "Give fields as in Spark's DDL: .*StructType gives it by simpleString",
    ),
    Mistake(
        "load(topic) with brokers",
        lambda given: given.read("orders", kafka__bootstrap__servers=given.broker.bootstrap),
        r"Only one of .* load\(\) and save\(\) take no topic",
    ),
    Mistake(
        "unknown host",
        lambda given: given.read_brokers(kafka__bootstrap__servers="nosuch.invalid:9092"),
        r"host name cannot be resolved.*nosuch.invalid:9092\). Check kafka.bootstrap.servers",
    ),
    Mistake(
        "SASL to a port without it",
        lambda given: given.read_brokers(
            kafka__security__protocol="SASL_PLAINTEXT",
            kafka__sasl__mechanism="PLAIN",
            kafka__sasl__jaas__config="org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="u" password="p";',
        ),
        "The listener does not use SASL .*Set kafka.security.protocol to PLAINTEXT or SSL, or check the port",
    ),
    Mistake(
        "exactly once with acks=1",
        lambda given: given.write_brokers(
            given.values, topic="orders", delivery__guarantee="exactly-once", kafka__acks="1"
        ),
        "exactly-once needs kafka.acks=all.*Leave these out: they are the defaults",
    ),
    Mistake(
        "endingTimestamp in a stream",
        lambda given: given.stream(given.path, endingTimestamp="-1h"),
        "'endingTimestamp' is not valid in streaming queries. Leave it out, or use spark.read.",
    ),
    Mistake(
        "slip in a view's topic",
        lambda given: given.read(given.path, view="topics", subscribe="ordres"),
        "No such topic: ordres. Did you mean orders?",
    ),
    Mistake(
        "INSERT INTO a view that subscribes",
        lambda given: given.insert(),
        "Option 'subscribe' is for reading only",
    ),
    Mistake(
        "saveAsTable",
        lambda given: given.write(given.values, topic="orders").saveAsTable("no_table"),
        "A table in the catalog passes no options to a Python data source: use CREATE OR REPLACE",
    ),
    Mistake(
        "dead letters of any reader",
        lambda given: dead_letters(given.spark.read.format("kafkalog").load(given.path), "dead"),
        r"Give .option\('includeCorrupt', 'true'\) to the reader",
    ),
    Mistake(
        "reassemble without offsets",
        lambda given: reassemble(given.values),
        "Pass the rows as the source reads them, with topic, partition, offset and value",
    ),
    Mistake(
        "slip in the options of a listener",
        lambda given: LagListener({"kafka.bootsrap.servers": "h:1"}),
        "Did you mean kafka.bootstrap.servers?",
    ),
    Mistake(
        "slip in the options of the doctor",
        lambda given: doctor(given.spark, {"kafka.bootstrap.servers": "h:1", "kafka.groupId": "g"}),
        r"Unknown option 'kafka.groupId'. Did you mean kafka.group.id\?",
    ),
    Mistake(
        "slip in a topic, stream",
        lambda given: given.stream(given.path, subscribe="ordres"),
        "No such topic: ordres. Did you mean orders?",
    ),
]


def main() -> None:
    """Make all mistakes and print a table."""
    with tempfile.TemporaryDirectory() as scratch, running(Broker(Path(scratch, "broker"))) as broker:
        spark = local_session("mistakes", Path(scratch))
        try:
            given = Given.make(spark, Path(scratch), broker)
            given.read(given.path)  # the first query of a session takes longer
            print("| mistake | s | lines | error |\n|---|---|---|---|")
            for mistake in MISTAKES:
                began = time.monotonic()
                try:
                    mistake.make(given)
                    text = "NO ERROR"
                except Exception as e:
                    text = str(e)
                lines = [line for line in text.splitlines() if line.strip()]
                took = time.monotonic() - began
                print(f"| {mistake} | {took:.1f} | {len(lines)} | {' ⏎ '.join(lines)[:700]} |", flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
