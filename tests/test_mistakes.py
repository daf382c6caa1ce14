"""What people type by habit, of Spark, Kafka and their other clients, and what they read then.

Each mistake is found where a query is planned, without Spark and brokers, and each error is one line that
names what was wrong and the way out. :mod:`tests.spark.mistakes` has those that only Spark's tasks find.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pyspark_kafkalog import (
    CommittedOffset,
    DefaultSource,
    LagListener,
    LocalBroker,
    NewTopic,
    QueryCheckpoint,
    RecordSelection,
    ResetTo,
    connect,
    dead_letters,
    doctor,
    reassemble,
    register,
)
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.user_options import log_once_for
from tests.log.writing import values, write
from tests.tools.cli.running import run

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
SASL = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SESSION: Any = SimpleNamespace(version="4.2.0")
BYTES = StructType().add("key", BinaryType()).add("value", BinaryType())


class Given:
    """A log directory with a topic ``orders`` of two partitions, beside a file and a table of Parquet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "log"
        self.root.mkdir()
        write(self.root, {TopicPartition("orders", 0): values(10), TopicPartition("orders", 1): values(4)})
        (folder / "file.txt").write_text("text")
        (folder / "parquet").mkdir()
        (folder / "parquet" / "part-0.parquet").write_bytes(b"PAR1")
        (folder / "parquet" / ".part-0.parquet.crc").write_bytes(b"crc")

        (folder / "binary").write_bytes(b"\xff\xfe")
        (folder / "utf-8-sig").write_text('{"orders":{"0":3}}', encoding="utf-8-sig")
        (folder / "offsets.json").write_text('{"orders":{"0":3}}')
        (folder / "empty").mkdir()

    @property
    def words(self) -> dict[object, object]:
        """The words of a command that stand for a path."""
        files = {"{file}": "file.txt", "{binary}": "binary", "{json}": "offsets.json", "{empty}": "empty"}
        files["{marked}"] = "utf-8-sig"
        return {"{}": self.root, **{word: self.folder / name for word, name in files.items()}}

    def _source(self, options: dict[str, object], **more: object) -> DefaultSource:
        """With the options as Spark hands them over; the log directory is the place if they name none."""
        given = {name.lower(): str(value) for name, value in {**options, **more}.items()}
        if not {"path", "kafka.bootstrap.servers", "kafkabootstrapservers"} & given.keys():
            given["path"] = str(self.root)
        return DefaultSource(given)

    def read(self, options: dict[str, object], schema: StructType = BYTES) -> None:
        source = self._source(options)
        source.schema()
        source.reader(schema).partitions()

    def stream(self, options: dict[str, object]) -> None:
        source = self._source(options)
        source.schema()
        source.streamReader(BYTES).initialOffset()

    def write(self, options: dict[str, object], **columns: DataType) -> None:
        source = self._source({"topic": "orders", **options})
        source.writer(_struct({"value": BinaryType(), **columns}), overwrite=False)

    def write_stream(self, options: dict[str, object]) -> None:
        self._source({"topic": "orders", **options}).streamWriter(BYTES, overwrite=False)

    def below(self, name: str) -> dict[str, object]:
        return {"path": str(self.folder / name)}


def _struct(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


Mistake = tuple[str, Callable[[Given], Any], str]


def reading(*mistakes: tuple[dict[str, object], str]) -> list[Mistake]:
    return [_named("read", options, lambda g, o=options: g.read(o), says) for options, says in mistakes]


def streaming(*mistakes: tuple[dict[str, object], str]) -> list[Mistake]:
    return [_named("stream", options, lambda g, o=options: g.stream(o), says) for options, says in mistakes]


def writing(*mistakes: tuple[dict[str, object], str]) -> list[Mistake]:
    return [_named("write", options, lambda g, o=options: g.write(o), says) for options, says in mistakes]


def _named(verb: str, options: dict[str, object], make: Callable[[Given], Any], says: str) -> Mistake:
    name, value = next(reversed(options.items()))
    return f"{verb} {name}={value}"[:70], make, says


def brokers(**options: object) -> dict[str, object]:
    return {**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}}


MISTAKES: list[Mistake] = [
    # Names.
    *reading(
        ({"kafkaBootstrapServers": "h:1"}, r"Did you mean kafka\.bootstrap\.servers\?"),
        (
            {"starting_offsets": "earliest"},
            r"^Unknown option 'starting_offsets'. Did you mean startingOffsets\?",
        ),
        ({"failOnDataloss ": "false"}, r"Did you mean failOnDataLoss\?"),
        (brokers(subscribe="orders", group__id="g"), r"Did you mean kafka\.group\.id\?"),
        (brokers(subscribe="orders", kafka__groupId="g"), r"Did you mean kafka\.group\.id\?"),
        (brokers(subscribe="orders", kafka__metadata__broker__list="h:1"), r"Write kafka\.bootstrap"),
        (brokers(subscribe="orders", kafka__sasl__username="me"), r"Write kafka\.sasl\.jaas\.config as "),
        (brokers(subscribe="orders", sasl_plain_password="x"), r"Write kafka\.sasl\.jaas\.config as "),
        (
            brokers(subscribe="orders", kafka__sasl__mechanisms="PLAIN"),
            r"Did you mean kafka\.sasl\.mechanism\?",
        ),
        (
            brokers(subscribe="orders", kafka__ssl__ca__location="/ca"),
            r"Give .*kafka\.ssl\.truststore\.location",
        ),
        (brokers(subscribe="orders", auto_offset_reset="earliest"), "Set startingOffsets to earliest or"),
        (
            brokers(subscribe="orders", max__poll__records="5"),
            "Leave it out. Rows come in larger batches: see maxOffsetsPerTrigger.$",
        ),
        ({"topics": "orders"}, r"Did you mean subscribe\?"),
        ({"topics.regex": "ord.*"}, r"Did you mean subscribePattern\?"),
        ({"value.converter": "io.confluent.connect.avro.AvroConverter"}, r"Did you mean value\.format\?"),
        ({"errors.tolerance": "all"}, "includeCorrupt=true for dead letters"),
        ({"avroSchema": "{}"}, r"Did you mean value\.schema"),
        (
            {"transform": "<function f at 0x1>"},
            r"For a function of a notebook, write \.option\('transform', by_value\(function\)\)\.$",
        ),
        ({"maxRatePerPartition": "5"}, "Set maxOffsetsPerTrigger to limit"),
        (
            {"numPartitions": "5"},
            r"'numPartitions' is for writing only\. Leave it out\. For more tasks, set minPartitions\.$",
        ),
        (brokers(subscribe="orders", debug="all"), r"Leave it out\. docs/options\.md lists all options\.$"),
    ),
    *streaming(
        ({"availableNow": "true"}, r"such as \.trigger\(availableNow=True\)"),
        ({"outputMode": "append"}, r"Call outputMode\(\) of writeStream"),
        (
            {"endingOffsets": "latest"},
            r"Leave it out, or use spark\.read\. .*availableNow=True\) a stream ends",
        ),
        ({"view": "topics"}, r"Leave it out, or use spark\.read\.$"),
        (
            brokers(subscribe="orders", kafka__enable__auto__commit="true"),
            "Leave it out: Spark's checkpoint has the offsets. .*set commitOffsets",
        ),
        (brokers(subscribe="orders", kafka__value__deserializer="x"), "give key.format or value.format"),
    ),
    *writing(
        ({"subscribe": "orders"}, r"for reading only\. Did you mean topic\?"),
        ({"startingOffsets": "earliest"}, r"for reading only\. Leave it out"),
        (brokers(numPartitions="3"), "kafkalog topics create --partitions"),
        (brokers(retention__ms="3"), r"kafkalog topics alter --set retention\.ms=VALUE"),
        (brokers(kafka__transactional__id="x"), "set delivery.guarantee to exactly-once"),
        (brokers(kafka__compresion__type="lz4"), r"Did you mean kafka\.compression\.type\?"),
    ),
    # Places and paths.
    *reading(
        (
            {"kafka.bootstrap.servers": "host"},
            "expected host:port as server 1 .*Write, for example, broker1:9092,",
        ),
        ({"kafka.bootstrap.servers": "host:abc"}, "expected host:port as server 1"),
        ({"kafka.bootstrap.servers": "a:9092;b:9092"}, "expected host:port as server 1"),
        (
            {"kafka.bootstrap.servers": "h:1", "path": "/log"},
            "Only one of .* can be given. load.. and save.. take no topic",
        ),
        ({"path": ""}, "expected a path, got nothing. Write, for example, /data/kafka-logs,"),
        ({"path": "['/a', '/b']"}, r'Write paths in double quotes, such as \["/data/1","/data/2"\]\.$'),
        ({"path": "~/logs"}, r"use os\.path\.expanduser"),
        ({"path": "$HOME/logs"}, r"use os\.path\.expandvars"),
        ({"path": "dbfs:/logs"}, "Write /dbfs/.* /Volumes/"),
        *(
            ({"path": path}, "expected a path of this machine, got one of Windows.*/mnt/c/")
            for path in ("C:\\kafka\\logs", "c:/kafka/logs", r"\\server\logs", "file:///C:/kafka/logs")
        ),
        ({"path": "'/data/kafka-logs'"}, "expected a path without quotes around it. Leave the quotes out"),
        ({"path": "minio:/logs"}, "expected minio:// .*Give a path, or a URI such as s3://"),
        ({"path": "file://tmp/logs"}, "Unsupported hostname .*absolute path: file:///data"),
        ({"path": "nowhere/logs"}, r"does not exist \(file /.*nowhere/logs\)"),
        ({"path": "/nowhere/logs-*"}, "Globs are not expanded"),
    ),
    ("load a file", lambda g: g.read(g.below("file.txt")), "is not a folder .*Give the folder that"),
    ("load Parquet", lambda g: g.read(g.below("parquet")), "The folder holds no partitions"),
    (
        "load a topic",
        lambda g: g.read(g.below("log/orders")),
        "a topic's name: give the folder above.*subscribe",
    ),
    ("load .log", lambda g: g.read(g.below("log/orders-0/00000000000000000000.log")), "is not a folder"),
    ("save to a file", lambda g: g.write(g.below("file.txt")), "A file is in its place: give a folder"),
    ("save below a file", lambda g: g.write(g.below("file.txt/x")), "Move away the file"),
    (
        "save to Parquet",
        lambda g: g.write(g.below("parquet")),
        "holds no partitions.*to write, an empty or a new folder",
    ),
    (
        "save to a partition",
        lambda g: g.write(g.below("log/orders-0")),
        "not a log directory .*Give the folder above it.$",
    ),
    *writing(
        ({"path": "~/logs"}, r"use os\.path\.expanduser"),
        ({"path": "${HOME}/logs"}, r"use os\.path\.expandvars"),
        ({"path": "dbfs:/logs"}, "Write /dbfs/"),
        ({"path": r"C:\kafka\logs"}, "'path': expected a path of this machine, got one of Windows"),
        ({"path": "C:/kafka/logs"}, "'path': expected a path of this machine, got one of Windows"),
        ({"checkpointLocation": r"D:\ck"}, "'checkpointLocation': expected a path of this machine"),
        ({"path": '"/data/kafka-logs"'}, "expected a path without quotes around it. Leave the quotes out"),
        ({"path": "s3://bucket/logs"}, "can be read but not written.*Write to a local or mounted folder"),
    ),
    # Which partitions, from where to where.
    *reading(
        (
            {"subscribe": "ord*"},
            r"Illegal topic name 'ord\*'\. Give a pattern as subscribePattern, in which \.\* stands for",
        ),
        ({"subscribe": ["orders", "x"]}, "expected text with commas, .*Write 'orders,x'"),
        ({"subscribe": "ordres"}, r"No such topic: ordres\. Did you mean orders\?"),
        (
            {"subscribe": "orders", "assign": '{"orders":[0]}'},
            "Only one of 'subscribe' and 'assign' can be given. Leave one out",
        ),
        ({"assign": "orders:0"}, r'it is not JSON. Write it as, for example, {"topicA":\[0,1\]'),
        ({"assign": '["orders"]'}, r'not a JSON object. Write it as, for example, {"topicA":\[0,1\]'),
        ({"assign": '{"orders":0}'}, "expected a list of partition numbers for topic 'orders'"),
        (
            {"subscribePattern": "*orders"},
            r"'\*orders' cannot be used: .*Java's regular expressions, in which \.\* stands for",
        ),
        ({"startingOffsets": "beginning"}, "expected earliest, latest, committed or JSON, got 'beginning'"),
        (
            {"startingOffsets": "latest"},
            "can't be latest for batch.*Leave it out. A batch starts at earliest or",
        ),
        ({"startingOffsets": "5"}, 'Write JSON as, for example, {"topicA":{"0":23'),
        (
            {"startingOffsets": {"orders": {0: 1}}},
            "it is not JSON: it has single quotes, at character 2. Write",
        ),
        ({"startingOffsets": '{"orders":{"0":"1"}}'}, "expected a whole number .*for orders-0, got '1'"),
        ({"startingOffsets": '{"orders":{"0":1.5,"1":0}}'}, "expected a whole number .*got 1.5"),
        ({"startingOffsets": '{"orders":{"0":-5,"1":0}}'}, "of at least -2 for orders-0, got -5"),
        (
            {"startingOffsets": '{"orders":{"0":0}}'},
            r"assigned orders-0, orders-1\. Add orders-1 with an offset, or -2 for its beginning\.$",
        ),
        (
            {"startingOffsets": '{"payments":{"0":0}}'},
            r"Add orders-0, orders-1 with .*, and leave out payments-0\.$",
        ),
        (
            {"startingOffsets": '{"orders":{"0":99,"1":0}}'},
            "startingOffsets gives 99, endingOffsets gives 10",
        ),
        ({"endingOffsets": "earliest"}, "can't be earliest for batch"),
        (
            {"endingOffsets": '{"orders":{"0":-2,"1":-1}}'},
            r"for orders-0 can't be -2 \(earliest\) in a batch\. Write an offset, or -1 for the end",
        ),
        *(
            ({"startingTimestamp": time}, "expected a time, got .*Write 2026-01-31T12:00:00Z, 1h or -2d")
            for time in (
                "yesterday",
                "now()",
                "1 hour ago",
                "31.01.2026",
                "12:00",
                "2026-01-31 Europe/Berlin",
            )
        ),
        (
            {"startingTimestamp": "1600000000"},
            "before 1980. Expected ms, .*Write 1600000000000, or 2020-09-13T",
        ),
        ({"endingTimestamp": "1600000000000000"}, "after 2200. Expected ms, .*Write 1600000000000, or 2020"),
        (
            {"startingTimestamp": "-1h"},
            r"after \d+ \(20.*Z\), .*Set startingOffsetsByTimestampStrategy=latest",
        ),
        (
            {"startingOffsetsByTimestamp": "2026-01-31"},
            r'not JSON.*for example, {"topicA":{"0":1700000000000',
        ),
        (
            {"startingTimestamp": "-1h", "endingTimestamp": "-2h"},
            "No record can match: startingTimestamp is later than endingTimestamp. Exchange them",
        ),
        (
            {"endingTimestamp": "2026-01-01T00:00:00Z", "startingTimestamp": "2026-02-01T00:00:00Z"},
            "No record can match: startingTimestamp is later",
        ),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "expected one of error, latest, got 'earliest'"),
    ),
    # Values.
    *reading(
        ({"failOnDataLoss": "no"}, "expected true or false, got 'no'. Write false.$"),
        ({"includeHeaders": "1"}, "expected true or false, got '1'. Write true.$"),
        ({"minPartitions": "2.5"}, "expected a whole number from 1 on, got '2.5'$"),
        (
            {"view": "group_offsets"},
            "expected one of group-offsets, .*got 'group_offsets'. Write group-offsets.$",
        ),
    ),
    *streaming(
        ({"maxOffsetsPerTrigger": "1e5"}, r"expected a whole number from 1 on, got '1e5'\. Write 100000\.$"),
        ({"maxOffsetsPerTrigger": "10k"}, r"expected a whole number from 1 on, got '10k'\. Write 10000\.$"),
        ({"maxOffsetsPerTrigger": "0"}, "expected a whole number from 1 on, got '0'$"),
        ({"maxBytesPerTrigger": "10MiB"}, "expected a size such as 1048576, 64m or 1g, got '10MiB'"),
        ({"mode": "DROPMALFORMED"}, "To drop such values, set includeCorrupt=true, and keep the rows where"),
        ({"maxTriggerDelay": "a while"}, "expected a time such as 500ms, 30s, 15m or 1h"),
        (
            {"minOffsetsPerTrigger": 9, "maxOffsetsPerTrigger": 5},
            r"\(9\) is higher than maxOffsetsPerTrigger \(5\)\. Lower the first",
        ),
        (
            {"value.format": "thrift"},
            "got 'thrift'. Others are read as bytes: a cast makes them text, and a transform",
        ),
        ({"startingOffsets": "none"}, "expected earliest, latest, committed or JSON, got 'none'"),
        (
            brokers(subscribe="orders", kafka__group__id=""),
            r"'kafka\.group\.id' is empty. Give the name of a group, or leave it out",
        ),
        (
            brokers(subscribe="orders", startingOffsets="committed"),
            "Give the group as option 'kafka.group.id'",
        ),
        (brokers(subscribe="orders", commitOffsets="true"), "Give 'kafka.group.id', or give 'queryName'"),
        (
            brokers(subscribe="orders", kafka__isolation__level="committed"),
            "read_uncommitted, read_committed, got",
        ),
    ),
    *writing(
        ({"topic": "my topic"}, "Illegal topic name 'my topic'"),
        ({"topic": "a,b"}, "Illegal topic name 'a,b'"),
        ({"topic": "__consumer_offsets"}, "internal topic.*Name another topic"),
        ({"compression.type": "lz5"}, "expected one of none, gzip, snappy, lz4, zstd, got 'lz5'"),
        ({"retention.ms": "7d"}, r"expected a whole number from -1 on, got '7d'\. Write 604800000\.$"),
        ({"cleanup.policy": "compact,remove"}, "expected some of delete, compact, .*got 'compact,remove'"),
        ({"txnAppId": "etl"}, r"'txnAppId' needs 'txnVersion'. Give both"),
        ({"txnAppId": "etl", "txnVersion": "v1"}, "expected a whole number from 0 on, got 'v1'$"),
        (
            brokers(delivery__guarantee="exactly_once"),
            "expected one of at-least-once, exactly-once, got .*Write exactly-once.$",
        ),
        (brokers(kafka__acks="2"), "expected one of all, -1, 0, 1, got '2'"),
        (
            brokers(kafka__request__timeout__ms="30s"),
            r"expected a whole number from 1 on, got '30s'\. Write 30000\.$",
        ),
    ),
    (
        "exactly once, no checkpoint",
        lambda g: g.write_stream(brokers(delivery__guarantee="exactly-once")),
        "Give the checkpoint as an option of writeStream",
    ),
    (
        "txnAppId in a stream",
        lambda g: g.write_stream({"txnAppId": "a", "txnVersion": "1"}),
        "Leave it out: the checkpoint names the micro-batches",
    ),
    # Columns.
    (
        "VALUE",
        lambda g: g._source({"topic": "t"}).writer(_struct({"VALUE": BinaryType()}), overwrite=False),
        "Rename it",
    ),
    ("value of int", lambda g: g.write({}, value=IntegerType()), r"CAST\(value AS string\)"),
    (
        "value of structs",
        lambda g: g.write({}, value=BYTES),
        r"Give value\.format, such as json\. Or convert it, .*to_json\(value\)",
    ),
    ("key of bigint", lambda g: g.write({}, key=LongType()), r"CAST\(key AS string\)"),
    ("partition of bigint", lambda g: g.write({}, partition=LongType()), r"CAST\(partition AS int\)"),
    ("time of ms", lambda g: g.write({}, timestamp=LongType()), r"with timestamp_millis\(timestamp\)"),
    (
        "time of a double",
        lambda g: g.write({}, timestamp=DoubleType()),
        r"with timestamp_seconds\(timestamp\)\.$",
    ),
    (
        "headers with their fields exchanged",
        lambda g: g.write(
            {}, headers=ArrayType(StructType().add("value", BinaryType()).add("key", StringType()))
        ),
        r"with transform\(headers, h -> struct\(CAST\(h\.key AS string\) AS key",
    ),
    (
        "rows that can't be decoded",
        lambda g: g.write({}, corrupt=StructType().add("reason", StringType())),
        r"Give the rows to dead_letters\(\), or leave out .*df\.drop\('corrupt'\)",
    ),
    (
        "messages that were dropped",
        lambda g: g.write({}, dropped=StructType().add("reason", StringType())),
        r"Leave out the rows where it is not null, .*df\.drop\('dropped'\)",
    ),
    (
        "headers of maps",
        lambda g: g.write({}, headers=MapType(StringType(), StringType())),
        r"with transform\(map_entries\(headers\), ",
    ),
    (
        "schema: value string",
        lambda g: g.read({}, _struct({"value": StringType()})),
        r"CAST\(value AS string\)",
    ),
    (
        "schema: payload",
        lambda g: g.read({}, _struct({"payload": BinaryType()})),
        "Expected one of .*value",
    ),
    (
        "schema: time of ms",
        lambda g: g.read({}, _struct({"timestamp": LongType()})),
        r"unix_millis\(timestamp\)",
    ),
    # Formats and registries.
    *reading(
        (
            {"value.format": "avro"},
            "needs 'value.schema'. Give the Avro schema, as JSON. If they come from Confluent",
        ),
        ({"value.format": "thrift"}, "expected one of avro, confluent-avro, .*got 'thrift'"),
        ({"value.format": "protobuf"}, "needs 'value.schema'. Give the text of the .proto file"),
        ({"value.format": "json"}, 'Give value.schema="id bigint, name string"'),
        (
            {"value.format": "json", "value.schema": "id:bigint name"},
            "a comma or the end, .* Give fields as in Spark's DDL",
        ),
        (
            {"value.format": "json", "value.schema": '{"type": "object"}'},
            "without naming any field. Give the fields as value.schema",
        ),
        (
            {"value.format": "avro", "value.schema": "id bigint"},
            "An Avro schema is not JSON. Give the text of an Avro schema, such as {.*, not DDL",
        ),
        (
            {"value.format": "avro", "value.schema": "/order.avsc"},
            "An Avro schema is not JSON. Give the text of an Avro schema, such as {.*, not DDL",
        ),
        (
            {"value.format": "json", "value.schema": "id int", "mode": "DROPMALFORMED"},
            "one of PERMISSIVE, FAILFAST",
        ),
        (
            {"value.format": "json", "value.schema": "id int", "dateFormat": "d"},
            "'dateFormat' of from_json is not",
        ),
        ({"value.format": "confluent-avro"}, "Give the URL of the schema registry"),
        (
            {"value.format": "confluent-avro", "schema.registry.url": "host:8081"},
            "begins with http:// or https://. Write, for example, https://host:8081",
        ),
        ({"schema.registry.url": "https://host:8081"}, "Leave it out, or give the format"),
    ),
    # Logins.
    *reading(
        (
            brokers(subscribe="o", kafka__security__protocol="TLS"),
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({**brokers(subscribe="o"), **SASL}, rf"Write it as {PLAIN} username="),
        (
            {**brokers(subscribe="o"), **SASL, "kafka.sasl.jaas.config": f"{PLAIN} username=u"},
            "a semicolon at the end",
        ),
        (
            {**brokers(subscribe="o"), **SASL, "kafka.sasl.jaas.config": "a.ScramLoginModule required;"},
            "expected the login module plain.PlainLoginModule of .*Write it with org",
        ),
        (
            {
                **brokers(subscribe="o", kafka__security__protocol="SASL_SSL"),
                "kafka.sasl.jaas.config": f"{PLAIN} username='u' password='p';",
            },
            "'kafka.sasl.mechanism' is not set, so GSSAPI is taken, but .* has the login module of PLAIN. Set"
            r" kafka\.sasl\.mechanism to PLAIN\.$",
        ),
        (
            {
                **brokers(subscribe="o"),
                **SASL,
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": f"{PLAIN} username='u' password='p';",
            },
            "is SCRAM-SHA-512, but .* the login module of PLAIN. Set kafka.sasl.mechanism to PLAIN, or give"
            " the login module org.apache.kafka.common.security.scram.ScramLoginModule",
        ),
        ({**brokers(subscribe="o"), **SASL, "kafka.sasl.mechanism": "SCRAM"}, "SCRAM-SHA-256, SCRAM-SHA-512"),
        (
            {**brokers(subscribe="o"), **SASL, "kafka.sasl.mechanism": "OAUTHBEARER"},
            "expected one source of tokens",
        ),
        (
            brokers(
                subscribe="o", kafka__security__protocol="SSL", kafka__ssl__truststore__location="/ca.jks"
            ),
            "Convert it once with: keytool",
        ),
        (
            brokers(
                subscribe="o",
                kafka__security__protocol="SSL",
                kafka__ssl__truststore__type="PEM",
                kafka__ssl__truststore__location="/nowhere.pem",
            ),
            r"Option 'kafka\.ssl\.truststore\.location': No such file or directory\. Give the path of a PEM",
        ),
    ),
    # Without Spark.
    ("read columns", lambda g: connect(str(g.root)).read("orders", columns=["val"]), r"Did you mean value\?"),
    (
        "read filters",
        lambda g: connect(str(g.root)).read("orders", filters=[("offset", "=>", 3)]),
        r'expected one of .*Write, for example, filters=\[\("offset", ">=", 100\)\]',
    ),
    (
        "read filters of pyarrow",
        lambda g: connect(str(g.root)).read("orders", filters=pc.field("offset") > 1),
        r'expected a list of conditions, got Expression. Write, for example, filters=\[\("offset", ">=",',
    ),
    (
        "read filters of SQL",
        lambda g: connect(str(g.root)).read("orders", filters="offset > 1"),  # type: ignore[arg-type]
        r"expected a list of conditions, got str. Write, for example, filters=\[",
    ),
    (
        "read one filter",
        lambda g: connect(str(g.root)).read("orders", filters=("offset", ">", 1)),  # type: ignore[arg-type]
        r"expected a list of conditions, got one. Write, for example, filters=\[",
    ),
    (
        "read filters without a zone",
        lambda g: connect(str(g.root)).read("orders", filters=[("timestamp", ">=", datetime(2026, 1, 1))]),
        r"If it is UTC, write datetime\.datetime\(2026, 1, 1, 0, 0, tzinfo=datetime\.timezone\.utc\)",
    ),
    (
        "connect to a list of brokers",
        lambda g: connect(["h1:9092", "h2:9092"]),  # type: ignore[arg-type]
        r'Expected a place as text or as options, got list. Brokers are one text: connect\("h1:9092,h2',
    ),
    (
        "connect to a list of folders",
        lambda g: connect(["/data/1", "/data/2"]),  # type: ignore[arg-type]
        r"""got list. Several folders are options: connect\({"path": '\["/data/1", "/data/2"\]'}\)""",
    ),
    (
        "connect to nothing",
        lambda g: connect(None),  # type: ignore[arg-type]
        r'got NoneType. Write connect\("host:9092"\), connect\("/data/kafka-logs"\)',
    ),
    (
        "read behind the end",
        lambda g: connect(str(g.root)).read(
            "orders", options={"startingOffsets": '{"orders":{"0":99,"1":0}}'}
        ),
        "startingOffsets gives 99, endingOffsets gives 10 .*The log ends at 10: start at 10 or before",
    ),
    (
        "write numbers",
        lambda g: connect(str(g.root)).write(pa.table({"value": [1, 2]}), "orders"),
        r'has type int, expected binary or string. .*rows\["value"\]\.cast\(pa\.string\(\)\)',
    ),
    (
        "write(topic, rows)",
        lambda g: connect(str(g.root)).write("orders", pa.table({"value": [b"x"]})),  # type: ignore[arg-type]
        r"Expected the name of a topic, got Table. Rows come first: write\(rows, topic\)",
    ),
    (
        "write rows of Python",
        lambda g: connect(str(g.root)).write([{"value": b"x"}], "orders"),  # type: ignore[list-item]
        "Expected rows as an Arrow table or record batches, got dict. Make a table, for example",
    ),
    (
        "write seconds",
        lambda g: connect(str(g.root)).write(pa.table({"value": ["x"], "timestamp": [1]}), "orders"),
        r'timestamp"\]\.cast\(pa\.timestamp\("ms", "UTC"\)\) if it counts milliseconds, or "s" if seconds',
    ),
    (
        "write a dict",
        lambda g: connect(str(g.root)).write({"value": ["x"]}, "orders"),  # type: ignore[arg-type]
        r"rows as an Arrow table or record batches, got dict. Make a table, for example with pyarrow\.table",
    ),
    (
        "write without a topic",
        lambda g: connect(str(g.root)).write(pa.table({"value": ["x"]})),
        r"no column 'topic'. Name it: write\(rows, 'orders'\), or add a string column",
    ),
    (
        "create names",
        lambda g: connect(str(g.root)).topics.create(["new"]),  # type: ignore[list-item]
        r"Expected a list of NewTopic, got 'new' in it. Write kafka.topics.create\(\[NewTopic",
    ),
    (
        "delete names",
        lambda g: connect(str(g.root)).topics.delete(["orders"]),  # type: ignore[list-item]
        r"Expected a list of TopicToDelete, got 'orders' in it. Write kafka.topics.delete\(kafka.topics",
    ),
    (
        "alter names",
        lambda g: connect(str(g.root)).topics.alter(["orders"]),  # type: ignore[list-item]
        r"Expected a list of TopicChange, got 'orders' in it. Write kafka.topics.alter\(kafka.topics.plan_",
    ),
    ("lag of brokers", lambda g: LagListener("h:1"), r'Give a dict, such as \{"kafka'),  # type: ignore[arg-type]
    ("doctor of brokers", lambda g: doctor(SESSION, "h:1"), r'Give a dict, such as \{"kafka'),
    (
        "doctor of options",
        lambda g: doctor(SERVERS),  # type: ignore[arg-type]
        "Expected a Spark session, got dict. It comes first",
    ),
    (
        "register a class",
        lambda g: register(type(SESSION)),  # type: ignore[arg-type]
        "Expected a Spark session, got the class SimpleNamespace. It comes first",
    ),
    (
        "register a Spark context",
        lambda g: register(SimpleNamespace(version="4.2.0", parallelize=None)),  # type: ignore[arg-type]
        "Expected a Spark session, got SimpleNamespace. It comes first",
    ),
    (
        "register nothing",
        lambda g: register(None),  # type: ignore[arg-type]
        "Expected a Spark session, got NoneType. It comes first",
    ),
    (
        "null header",
        lambda g: connect(str(g.root)).write(
            pa.table({"value": [b"x"], "headers": [[{"key": None, "value": b"v"}]]}), "orders"
        ),
        r"header that is null or whose key is null .* with filter\(headers, h -> h\.key IS NOT NULL\)",
    ),
    ("read no topic", lambda g: connect("h:1").read(), r'^No topic is named\. Write read\("orders"\)\.'),
    ("plan no topic", lambda g: connect("h:1").plan(), r'^No topic is named\. Write plan\("orders"\)\.'),
    (
        "changes of no topic",
        lambda g: connect("h:1").changes(group="etl"),
        r'^No topic is named\. Write changes\("orders", group="etl"\)\.',
    ),
    ("connect nothing", lambda g: connect({}), r'^The options name no place\. Write connect\(\{"kafka'),
    (
        "connect two places",
        lambda g: connect({"path": "/log", "kafka.bootstrap.servers": "h:1"}),
        r"can be given\. Leave one out\.$",
    ),
    (
        "write null topics",
        lambda g: connect(str(g.root)).write(pa.table({"value": ["x"], "topic": pa.array([None], "string")})),
        "Filter such rows out, or give the option 'topic', by which all rows go to one topic",
    ),
    *(
        (
            f"writeStream.{name}",
            lambda g, name=name: getattr(QueryCheckpoint(SESSION, "/c").writeStream, name),
            rf"is called with the rows before \.{name}\. Write checkpoint\.writeStream\(rows\)\.format\(",
        )
        for name in ("format", "outputMode", "foreachBatch", "start", "toTable")
    ),
    (
        "writeStream of a table's name",
        lambda g: QueryCheckpoint(SESSION, "/c").writeStream("orders"),  # type: ignore[arg-type]
        r"^Expected the rows as a DataFrame, got 'orders'\. Write checkpoint\.writeStream\(rows\)",
    ),
    (
        "schema of values",
        lambda g: g.read({"subscribe": "orders"}, _struct({"id": IntegerType(), "full name": StringType()})),
        r"^Unknown column 'id'\. .* leave out the schema, and set value\.format=json with value\.schema:"
        r' \.option\("value\.format", "json"\)'
        r'\.option\("value\.schema", "id int, `full name` string"\)\.$',
    ),
    # Other kinds of arguments than a call takes.
    (
        "brokers with semicolons",
        lambda g: connect("h1:9092;h2:9092"),
        r"^Brokers are separated by commas, got 'h1:9092;h2:9092'\. Write h1:9092,h2:9092\.$",
    ),
    *(
        (name, lambda g, call=call: call(connect(str(g.root))), rf"^Expected {says}\.$")
        for name, call, says in (
            (
                "partitions of a name",
                lambda k: k.topics.partitions("orders"),
                r"""Selection, got 'orders'\. Write Selection\(topics=\("orders",\)\)""",
            ),
            ("segments of names", lambda k: k.topics.segments(["orders"]), "Selection, got list\\. Write .*"),
            ("lags of a name", lambda k: k.groups.lags(["etl"], "orders"), "Selection, got 'orders'.*"),
            ("batches of a name", lambda k: k.records.batches("orders"), "Selection, got 'orders'.*"),
            (
                "create with text",
                lambda k: k.topics.create([NewTopic("new", "3")]),
                r"a whole number, got '3'\. Write NewTopic\('orders', partitions=3\)",
            ),
            (
                "commit a number",
                lambda k: k.groups.commit("etl", {TopicPartition("orders", 0): 5}),
                r'CommittedOffset, got int\. Write {TopicPartition\("orders", 0\): CommittedOffset\(23\)}',
            ),
            (
                "commit by names",
                lambda k: k.groups.commit("etl", {"orders": CommittedOffset(5)}),
                r"a list of TopicPartition, got 'orders' in it\. Write {TopicPartition\(.*",
            ),
            (
                "reset a name",
                lambda k: k.groups.plan_reset("etl", "orders", ResetTo.LATEST),
                r"""a list of TopicPartition, got 'orders'\. Write \[TopicPartition\("orders", 0\)\]""",
            ),
            (
                "reset without a plan",
                lambda k: k.groups.reset(["etl"]),
                r"a list of ResetStep, .*plan_reset\(.*",
            ),
            (
                "delete by names",
                lambda k: k.groups.delete_offsets("etl", ["orders"]),
                "a list of TopicPart.*",
            ),
            (
                "verify names",
                lambda k: k.records.verify(["orders"]),
                "a list of TopicPartition, got 'orders'.*",
            ),
            (
                "repair folders",
                lambda k: k.logs.repair(["orders-0"]),
                "a list of TopicPartition, got 'orders-0'.*",
            ),
            (
                "dump a folder",
                lambda k: k.records.dump("orders-0"),
                r"TopicPartition, got 'orders-0'\. Write dump.*",
            ),
            (
                "dump a pair",
                lambda k: k.records.dump(TopicPartition("orders", 0), (0, 5)),
                r"OffsetRange, got tuple\. Write dump\(TopicPartition\(.*, OffsetRange\(0, 100\)\)",
            ),
            (
                "select by a dict",
                lambda k: k.records.select("orders", {"tail": 3}),
                r"RecordSelection, got dict\. Write RecordSelection\(tail=10\)",
            ),
            (
                "count topics",
                lambda k: k.records.count(["orders"]),
                r"a text, got list\. Write the name of one.*",
            ),
            (
                "delete records by text",
                lambda k: k.logs.delete_records({TopicPartition("orders", 0): "5"}),
                r"a whole number, got '5'\. Write {TopicPartition\(\"orders\", 0\): 5000}",
            ),
            (
                "select since a datetime",
                lambda k: k.records.select("orders", RecordSelection(since=datetime(2026, 1, 31))),
                r"a whole number, got datetime\. Write milliseconds since 1970: since=int\(when\.timestamp.*",
            ),
            (
                "forget by text",
                lambda k: k.logs.forget_queries("365d"),
                "a whole number, got '365d'.*milliseconds.*",
            ),
            (
                "restore to a name",
                lambda k: k.logs.restore("h:1"),
                r"Kafka, got 'h:1'\. .*restore\(connect\(.*",
            ),
            (
                "retain by a function",
                lambda k: k.logs.retain(delete_policy=len),
                r"a text, .*by_value\(function\)",
            ),
            (
                "options in a list",
                lambda k: k.read("orders", options=[("a", "b")]),
                "options as a dict, got list.*",
            ),
        )
    ),
    (
        "dead letters of text",
        lambda g: dead_letters("rows", "dead"),
        r"Write dead_letters\(rows, 'orders-dead'\)",
    ),  # type: ignore[arg-type]
    (
        "reassemble text",
        lambda g: reassemble("rows"),
        r"as a DataFrame, got 'rows'\. Write reassemble\(rows\)",
    ),  # type: ignore[arg-type]
    (
        "settings of a broker",
        lambda g: LocalBroker(settings=["a"]),  # type: ignore[arg-type]
        r'Expected a dict, got list\. Write LocalBroker\(settings={"num\.partitions": 3}\)\.$',
    ),
    (
        "reset a partition",
        lambda g: connect(str(g.root)).groups.plan_reset(
            "etl", [TopicPartition("orders", 9)], ResetTo.LATEST
        ),
        r"^No such partition: orders-9\. Topic orders has 2 partitions, 0 to 1\.$",
    ),
    (
        "read one partition",
        lambda g: connect(str(g.root)).read("orders:0"),
        "Leave out the partition: orders\\.$",
    ),
    ("a column twice", lambda g: connect(str(g.root)).read("orders", columns=["value"] * 2), "Name it once"),
    ("connect options", lambda g: connect({"path": "/log", "sbscribe": "x"}), r"Did you mean subscribe"),
]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("mistakes"))


@pytest.mark.parametrize(
    ("make", "says"), [pytest.param(make, says, id=name) for name, make, says in MISTAKES]
)
def test_a_mistake_is_an_error_of_one_line(given: Given, make: Callable[[Given], Any], says: str) -> None:
    before = [*given.folder.iterdir(), *Path.cwd().iterdir()]
    with pytest.raises(KafkaLogError, match=says) as caught:
        make(given)
    assert "\n" not in str(caught.value)
    assert {*given.folder.iterdir(), *Path.cwd().iterdir()} == set(before), "it made something"


ALLOWED = [
    ({"startingTimestamp": "2020-01-01 12:00:00"}, "12:00:00 has no time zone, and is taken as UTC. Write Z"),
    ({"assign": '{"orders":[7]}'}, r"No such partition: orders-7\. Topic orders has 2 partitions, 0 to 1\."),
    (
        {"subscribePattern": "payments"},
        "No topic matches subscribePattern 'payments', .*There is 1 topic: orders",
    ),
    ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is ignored, because it applies to streams only"),
    (
        {"checkpointLocation": "/checkpoint"},
        "checkpointLocation is ignored, because it applies to streams only",
    ),
]


@pytest.mark.parametrize(("options", "says"), ALLOWED, ids=[str(options) for options, _ in ALLOWED])
def test_what_spark_allows_is_warned_of(
    given: Given, options: dict[str, object], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_once_for.cache_clear()
    given.read(options)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.search(says, record.getMessage())


COMMANDS = [
    (["cat", "{}", "ordres"], 3, r"Did you mean orders\?"),
    (
        ["cat", "{}", "orders", "-p", 9],
        3,
        "No such partition: orders-9. Topic orders has 2 partitions, 0 to 1.$",
    ),
    (
        ["cat", "{}", "orders", "--since", "yesterday"],
        2,
        "expected a time, got 'yesterday'. Write 2026-01-31T",
    ),
    (
        ["repair", "{}", "orders:9"],
        3,
        r"No such partition: orders-9 .*Topic orders has 2 partitions, 0 to 1\.$",
    ),
    (
        ["repair", "{}", "ordres:0"],
        3,
        r"No such partition: ordres-0 .*Did you mean orders\? There is 1 topic",
    ),
    (["cat", "{}", "orders", "--value-format", "thrift"], 2, "Leave it out: values are shown as text, and"),
    (["import", "{}", "orders"], 2, "Write kafkalog produce"),
    (
        ["groups", "zk1:2181/kafka"],
        2,
        r"without a path, .* is zk://zk1:2181/kafka\. A folder would be \./zk1",
    ),
    (["topics", "h:9092", "-o", "security.protocol=TLS"], 2, "TLS is SSL here, and SASL_SSL with a login"),
    (["topics", "create", "./gone", "orders"], 3, "A new one begins with a write to it, or with mkdir"),
    (["topics", "file://host/logs"], 3, "names no host, and has an absolute path: file:///data"),
    (["lag", "{}", "--group", "nosuch"], 3, "No such consumer group: 'nosuch'"),
    (["topics", "create", "{}", "a b"], 2, "Illegal topic name 'a b'"),
    (["topics", "alter", "{}", "orders", "--set", "retention=5"], 2, r"Did you mean retention\.ms"),
    (["topic", "{}"], 2, "Write kafkalog topics"),
    (["cat", "~/logs", "orders"], 2, "Expected a path without ~. The shell expands ~ only without quotes"),
    (["cat", "$HOME/logs", "orders"], 2, r"Expected a path without \$\. The shell expands \$ only without"),
    (["cat", "/no/such/folder", "orders"], 3, "folder, by its path on this machine"),
    (
        ["repair", "host:9092"],
        2,
        "got brokers. Brokers mend theirs when they start. Give a folder, such as /data",
    ),
    (["adopt", "host:9092", "out"], 2, "got brokers. Give a folder, such as /data"),
    (["copy", "{}", "host:9092"], 2, "Brokers are written to by kafkalog restore"),
    (["export", "{}", "orders", "out"], 2, r"no suffix. End it in one of \.parquet .*, or give --format"),
    (["export", "{}", "orders", "out.xml"], 2, r"the suffix \.xml. End it in one of"),
    (
        ["topics", "create", "{}", "orders"],
        3,
        "orders exists already. .*give --if-not-exists to leave what exists",
    ),
    (["topics", "delete", "{}", "gone"], 3, "No such topic: gone. Leave it out, or give --if-exists.$"),
    (
        ["topics", "alter", "{}", "orders", "--set", "retention.ms=abc"],
        2,
        "expected milliseconds such as 604800000, or a time such as 7d, got 'abc'",
    ),
    (
        ["topics", "alter", "{}", "orders", "--set", "segment.bytes=1x5"],
        2,
        "expected bytes such as 1073741824, or a size such as 1g, got '1x5'",
    ),
    (["cat", r"C:\kafka\logs", "orders"], 2, "Expected a path of this machine, got one of Windows"),
    (["topics", "C:/kafka/logs"], 2, "Expected a path of this machine, got one of Windows"),
    (["repair", r"\\server\logs"], 2, "of this machine, got one of Windows"),
    (["adopt", "{}", "C:/kafka/logs"], 2, "of this machine, got one of Windows"),
    (["copy", "{}", "C:/kafka/logs"], 2, "of this machine, got one of Windows"),
    (["export", "{}", "orders", "/nowhere/o.csv"], 2, r"no folder '/nowhere' .* Make it: mkdir -p /nowhere$"),
    *(
        (words.split(), 2, f"PLACE comes first, got '{name}'. Write kafkalog {turned}$")
        for words, name, turned in (
            ("cat orders host:9092 -c 1", "orders", "cat host:9092 orders -c 1"),
            ("cat orders:0 {}", "orders:0", r"cat /.*/log orders:0"),
            ("export orders {} o.csv", "orders", r"export /.*/log orders o\.csv"),
            ("produce orders host:9092", "orders", "produce host:9092 orders"),
            ("dump orders:0 zk://h:2181/kafka", "orders:0", "dump zk://h:2181/kafka orders:0"),
            (
                "delete-records orders=5 h1:9092,h2:9092",
                "orders=5",
                "delete-records h1:9092,h2:9092 orders=5",
            ),
            ("redrive orders host:9092", "orders", "redrive host:9092 orders"),
            ("lag orders host:9092", "orders", "lag host:9092 orders"),
            ("topics create new host:9092", "new", "topics create host:9092 new"),
            ("offsets reset orders {} --group g", "orders", "offsets reset /.*/log orders --group g"),
            ("backup folder host:9092", "folder", "backup host:9092 folder"),
            ("verify orders {}", "orders", "verify /.*/log orders"),
            ("repair orders:0 {}", "orders:0", "repair /.*/log orders:0"),
            ("compact orders {}", "orders", "compact /.*/log orders"),
            ("retain orders {}", "orders", "retain /.*/log orders"),
        )
    ),
    (
        ["backup", "{}", "host:9092"],
        2,
        "Expected brokers as PLACE, got a log directory. Write kafkalog backup host:9092 BACKUP.$",
    ),
    *(
        (["checkpoint", command, "host:9092", "{}"], 2, f"Write kafkalog checkpoint {command} CHECKPOINT")
        for command in ("show", "rewind", "move")
    ),
    (
        ["restore", "host:9092", "{}", "orders"],
        2,
        "got a log directory. The backup comes first, and the brokers behind it. kafkalog backup copies",
    ),
    (
        ["topics", "orders", "host:9092"],
        2,
        "If orders is a name, PLACE comes first: kafkalog topics host:9092 orders$",
    ),
    (
        ["groups", "etl", "host:9092"],
        2,
        "If etl is a name, PLACE comes first: kafkalog groups host:9092 --group etl$",
    ),
    (["cat", "{}"], 2, r"Missing argument .*\. Write kafkalog cat PLACE TOPIC\[:PARTITIONS\]\.$"),
    (
        ["offsets", "reset", "{}", "orders", "--to-latest"],
        2,
        r"Missing option '--group'\. Write kafkalog offsets reset PLACE --group GROUP \[TOPIC",
    ),
    (["cat", "{}", "orders", "--limit", -1], 2, "expected 0 or more, got -1. Try "),
    (["lag", "{}", "--watch", 0], 2, "expected more than 0 and at most 86400, got 0.0. Try "),
    (["cat", "{}", "orders", "-p", "x"], 2, "expected a whole number, got 'x'. Try "),
    (["cat", "{}", "orders", "--grep", "("], 2, r"missing \).*Write a backslash before a sign"),
    (["cat", "{}", "orders", "--key", "zz", "--key-as", "hex"], 2, "got 'zz'. .* 6b657931 for key1.$"),
    (["backup", "{}", "out"], 2, "got a log directory. Directories are copied by kafkalog copy.$"),
    (["topics", "create", "{}", "a,b"], 2, "Illegal topic name 'a,b'. Name one topic, without commas"),
    (["cat", "nosuch", "orders:0"], 3, "The log directory does not exist"),
    (["compact", "C:/kafka/logs"], 2, "of this machine, got one of Windows"),
    # What the parser of options says.
    (
        ["topics", "create", "{}", "new", "--partitions"],
        2,
        r"requires an argument\. Write --partitions NUMBER\.$",
    ),
    (["cat", "{}", "orders", "--header"], 2, r"requires an argument\. Write --header KEY\[=VALUE\]\.$"),
    (["lag", "{}", "--sort"], 2, r"requires an argument\. Write --sort group\|lag\.$"),
    (["redrive", "{}", "orders", "--group"], 2, r"Write --group GROUP\.$"),
    (["lag", "{}", "--sort", "name"], 2, "expected one of group, lag, got 'name'"),
    (["lag", "{}", "--watch", "x"], 2, "expected a number, got 'x'"),
    (["topics", "{}", "-o", "secret"], 2, "expected NAME=VALUE, such as security.protocol=SSL. Try "),
    (
        ["topics", "create", "{}", "new", "--set", "a"],
        2,
        r"expected NAME=VALUE, such as retention\.ms=7d\. Try ",
    ),
    (
        ["cat", "{}", "orders", "--frmat", "x"],
        2,
        "Did you mean '--format' or '--key-format' or '--value-format'?",
    ),
    (["offsets", "reset", "{}", "--group", "g", "--to", 5], 2, r"Write --to-offset N, --to-earliest"),
    (["verify", "{}", "--execute"], 2, r"Write kafkalog repair PLACE\.$"),
    (["copy", "{}", "out", "--execute"], 2, "only commands that can lose something have it"),
    (["{}"], 2, r"A place comes after the command, such as kafkalog topics /.*/log$"),
    (["host:9092", "topics"], 2, "A place comes after the command, such as kafkalog topics host:9092$"),
    (["topics", "list"], 2, r"Missing argument 'PLACE'\. Write kafkalog topics show PLACE"),
    (["help", "cat"], 2, "Write --help, alone or after a command"),
    (["topics", "rename", "{}", "orders", "new"], 2, "kafkalog restore --rename OLD=NEW"),
    (["cat", "{}", "orders", "--consumer-property", "a=b"], 2, r"Write -o NAME=VALUE\.$"),
    (["cat", "{}", "orders", "--consumer.config", "f"], 2, r"Write --config FILE\.$"),
    (["cat", "{}", "orders", "--offset", "earliest"], 2, "Or write -o beginning or -o end"),
    (
        ["redrive", "{}", "orders", "--to", "other"],
        2,
        "Leave it out: each dead letter goes back to the topic",
    ),
    (["verify", "{}", "--to", "x"], 2, "No such option '--to'. Try "),
    (["forget-queries", "{}", "--older-than", 5], 2, "expected an age with its unit, such as 365d, got '5'"),
    (["cat", "'/data/logs'", "orders"], 2, "Expected a path without quotes around it. Leave the quotes out"),
    # Files.
    (["offsets", "import", "{}", "{marked}"], 2, "names no group"),
    (["checkpoint", "show", "{file}"], 3, "The checkpoint is a file, or a link to nowhere"),
    (["export", "{}", "orders", "/dev/null", "--format", "csv", "--force"], 2, "is a device, a pipe or the"),
    (
        ["topics", "{}", "--config", "nosuch.properties"],
        2,
        r"expected a file, got 'nosuch\.properties', and /.*/nosuch\.properties does not exist\. Try ",
    ),
    (
        ["produce", "{}", "orders", "{}"],
        2,
        "Invalid value for 'FILE': expected a file, got the folder '/.*/log'",
    ),
    (
        ["copy", "{}", "{file}"],
        2,
        r"Invalid value for 'BACKUP': expected a folder, got the file '/.*/file\.txt'",
    ),
    (
        ["topics", "{}", "--config", "{binary}"],
        2,
        r"not valid UTF-8: .* \(file /.*/binary\)\. Save it as UTF-8\.$",
    ),
    (
        ["offsets", "import", "{}", "{json}"],
        2,
        r"names no group \(file /.*/offsets\.json\)\. Name it: --group GROUP",
    ),
    (
        ["offsets", "import", "{}", "{file}", "--group", "g"],
        2,
        r"expected topic,partition,.*\(file /.*/file\.txt\)",
    ),
    (
        ["delete-records", "{}", "--offset-json-file", "{file}"],
        2,
        r"not JSON.* \(file /.*/file\.txt\)\. Write",
    ),
    (["restore", "{}", "h:1", "--to-offsets", "{file}"], 2, r"\(file /.*/file\.txt\)"),
    (
        ["produce", "{}", "orders", "--json", "{json}"],
        3,
        r"Line 1: expected .*, got one with 'orders' \(file /",
    ),
    (["export", "{}", "orders", "s3://bucket/o.csv"], 2, "Expected a file of this machine, got one of s3:"),
    (["export", "{}", "orders", "-"], 2, "To print records, write kafkalog cat --json"),
    # Names and places.
    (["topics", "{}", "orders:0"], 2, r"Illegal topic name 'orders:0'\. Leave out the partition: orders\.$"),
    (["topics", "delete", "{}", "ord.*"], 2, "Patterns are not taken here: write each name out"),
    (
        ["topics", "delete", "{}", "ordres"],
        3,
        r"Did you mean orders\? Otherwise leave it out, or give --if-exists\.$",
    ),
    (["cat", "{}", "orders", "-o", "bootstrap.servers=h:1"], 2, "both name a place. Leave the option out.$"),
    (["dump", "{empty}"], 3, "There is no partition. See kafkalog topics PLACE.$"),
    (["dump", "{}"], 2, "Name one of the 2 partitions, such as orders:0"),
    (["delete-records", "{}", "orders"], 2, "got 'orders'. Write, for example, orders=5000, "),
    (
        ["delete-records", "{}", "orders:0=1", "orders:0=2"],
        2,
        r"Two offsets .*\(partition orders-0\)\. Give one",
    ),
    (
        ["offsets", "reset", "{}", "--group", "g", "orders:9", "--to-latest"],
        3,
        "orders-9. Topic orders has 2 part",
    ),
    (["retain", "host:9092"], 2, r"kafkalog topics alter --set retention\.ms=7d\.$"),
    (["produce", "s3://bucket/logs", "orders", "{file}"], 2, "can be read but not written"),
    (
        ["cat", "{}", "orders", "--value-format", "json"],
        2,
        'Give -o value.schema="id bigint, name string"',
    ),
]


@pytest.mark.parametrize(
    ("words", "code", "says"), COMMANDS, ids=[" ".join(map(str, words)) for words, _, _ in COMMANDS]
)
def test_a_wrong_command_is_an_error_of_one_line(
    given: Given, words: list[object], code: int, says: str
) -> None:
    done = run(*(given.words.get(word, word) for word in words))
    assert (done.code, done.out) == (code, "")
    (line,) = [line for line in done.err.splitlines() if not line.endswith(" …")]
    assert re.search(says, line)
