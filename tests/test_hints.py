"""What messages tell users to type is tried: by the parser of kafkalog, the table of options, and Spark."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import HEADERS_FIELD, ROW_FIELDS
from pyspark_kafkalog.options.client_settings import REFUSED_READING, REFUSED_WRITING, WITHOUT_EFFECT
from pyspark_kafkalog.options.columns import (
    IN_SPARK,
    RECORD_FIELDS,
    SINK_FIELDS,
    check_written_columns,
    read_columns,
)
from pyspark_kafkalog.options.table import BY_NAME
from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS, check_topic_configs, in_kafkas_units
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.write.columns import IN_ARROW
from tests.messages import PACKAGE, messages_of


@pytest.fixture(scope="module")
def hints() -> list[str]:
    """The messages of the package."""
    return [
        message
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.name
        not in ("table.py", "page.py", "well_known.py")  # a page is made of the first; .proto files
        for message in messages_of(file.read_text(encoding="utf-8"))
    ]


_ROOT = click.Context(kafkalog, **kafkalog.context_settings)
_COMMAND = re.compile(r"(?<![-\w.'/])kafkalog (?=[a-z])([^;:()]*)")
_NO_COMMANDS = ("kafkalog member of", "kafkalog demo")
"""Names of a thread, and of a session."""
_ARGUMENT = re.compile(r"\{…\}|[A-Z]+|(\{…\}|[a-z]+)=VALUE|--[a-z-]+")
_FLAG = re.compile(r"(?<![-\w])--[a-z][a-z0-9-]+")
_OTHER_FLAGS = {"--help", "--version", "--start-offset", "--topic"}
"""Of click, and of kafka-transactions.sh."""

_NAME = re.compile(
    r"(?<![\w./{}:'-])(?=[a-z0-9]+(?:\.[a-z0-9]|[A-Z]))[a-z][A-Za-z0-9]*(?:\.[a-z][A-Za-z0-9]*)*(?!\.?[\w(/{])"
)
_VALUE = re.compile(r"(?<![\w.-])([a-zA-Z][\w.]*)=([\w'-]+)")
_KNOWN = {*(option.name for option in BY_NAME.values()), *TOPIC_CONFIGS}
_CLIENT_SETTINGS = {*REFUSED_READING, *REFUSED_WRITING, *WITHOUT_EFFECT}
_OF_BROKERS = {
    *("advertised.listeners", "alter.config.policy.class.name", "auto.create.topics.enable"),
    *("create.topic.policy.class.name", "delete.topic.enable", "group.consumer.assignors"),
    *("group.consumer.session.timeout.ms", "group.max.session.timeout.ms", "group.max.size", "log.dirs"),
    *("group.min.session.timeout.ms", "message.max.bytes", "num.partitions", "offset.metadata.max.bytes"),
    *("transaction.max.timeout.ms", "transactional.id.expiration.ms", "zookeeper.connect"),
}
_OTHERS = {
    *("addPyFile", "availableNow", "foreachBatch", "fs.defaultFS", "macOS", "spark.read", "topicA", "xHH"),
    *("readStream", "writeStream", "spark.archives", "spark.sql.session.timeZone"),
    "spark.sql.shuffle.partitions",
    *("clientId", "clientSecret", "awsRoleArn", "awsProfileName", "oauth.access.token"),  # of JAAS
    *("endTxnMarker", "leaderEpoch"),  # of kafka-dump-log and of offsets as JSON
    *("h.key", "h.value", "datetime.timezone.utc", "os.path.expanduser", "os.path.expandvars"),
    *("package.module", "offsets.json", "key.pem"),
    *("key8.pem", "keystore.jks", "keystore.p12", "keystore.pem", "truststore.jks", "truststore.pem"),
    *("sasl.jaas.config", "request.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms"),
    "zookeeper.session.timeout.ms",
}
"""Words of Spark, Python and files, and Kafka's names where errors quote them without the prefix."""


def commands(hints: list[str]) -> Iterator[tuple[click.Command, list[str], str]]:
    """What hints name of ``kafkalog``: the command, its arguments as far as they are given, and the hint."""
    for hint in hints:
        for found in _COMMAND.finditer(hint):
            if found[0].startswith(_NO_COMMANDS):
                continue
            words = re.split(r"[,.](?:\s|$)|\s", found[1])
            command: click.Command = kafkalog
            while isinstance(command, click.Group) and words:
                inner = command.get_command(_ROOT, words[0])
                if inner is None:
                    break
                command, words = inner, words[1:]
            arguments = []
            for word in words:
                if not _ARGUMENT.fullmatch(word):
                    break
                arguments.append(word)
            yield command, arguments, hint


def test_commands_of_hints_are_commands(hints: list[str]) -> None:
    named = set()
    for command, arguments, hint in commands(hints):
        assert command is not kafkalog, f"no such command: {hint}"
        options = {name: p for p in command.params for name in p.opts if isinstance(p, click.Option)}
        if arguments and arguments[-1] in options and not options[arguments[-1]].is_flag:
            arguments.append("1")
        context = click.Context(command, parent=_ROOT)
        command.make_parser(context).parse_args(shlex.split(" ".join(arguments)))
        named.add(command.name)
    assert named >= {"alter", "backup", "create", "export", "lag", "repair", "reset", "verify"}


def _all_commands(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(_ROOT):
        command = group.get_command(_ROOT, name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from _all_commands(command)


def test_flags_of_hints_are_flags(hints: list[str]) -> None:
    known = {flag for command in _all_commands(kafkalog) for p in command.params for flag in p.opts}
    named = {flag: hint for hint in hints for flag in _FLAG.findall(hint)}
    assert len(named) > 30
    assert {flag: hint for flag, hint in named.items() if flag not in known | _OTHER_FLAGS} == {}


def test_options_of_hints_are_options(hints: list[str]) -> None:
    named = {name: hint for hint in hints for name in _NAME.findall(hint)}
    known = _KNOWN | _CLIENT_SETTINGS | _OF_BROKERS | _OTHERS
    prefixes = ("kafka.ssl.keystore", "kafka.ssl.truststore")
    assert len(named.keys() & _KNOWN) > 60
    assert {
        name: hint for name, hint in named.items() if name not in known and not name.startswith(prefixes)
    } == {}
    assert named.keys() >= _OTHERS | _OF_BROKERS, "some are named no longer"


def test_values_of_hints_are_values(hints: list[str]) -> None:
    tried = set()
    for hint in hints:
        for name, value in _VALUE.findall(hint):
            value = value.strip("'")
            if name in TOPIC_CONFIGS and value != "VALUE":
                check_topic_configs(in_kafkas_units({name: value}))  # as --set takes them
                tried.add(name)
            elif (option := BY_NAME.get(name.lower())) is not None:
                option.parser(option.name, value)
                tried.add(name)
    assert len(tried) > 15


def test_packages_of_hints_are_those_that_are_required(hints: list[str]) -> None:
    """The package itself is not among them, as an index may not have it."""
    setup = ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg")
    text = "\n".join([setup["options"]["install_requires"], *setup["options.extras_require"].values()])
    known = {line.split()[0].partition("[")[0] for line in text.splitlines() if line and line[0] != "#"}
    of_logins = {"cryptography", "gssapi"}  # required by nothing else
    named = {
        name
        for hint in hints
        for found in re.findall(r"pip install ([a-z -]+[a-z])", hint)
        for name in found.split()
    }
    assert "matplotlib" in named
    assert named <= known | of_logins


_KINDS = [
    *("string", "binary", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double"),
    *("decimal(10,2)", "date", "timestamp", "timestamp_ntz", "struct<a:int>", "array<int>", "array<string>"),
    *("map<string,string>", "map<string,binary>", "map<string,int>", "map<string,struct<a:int>>", "variant"),
    *("array<struct<k:string,v:string>>", "array<struct<key:string,value:binary>>", "array<struct<a:int>>"),
    *("interval day to second", "interval year to month"),
]
_EXPRESSION = re.compile(r"for example with (.+?)\.$")


def _expression(refusing: Any, *arguments: Any, **options: Any) -> str | None:
    """The SQL that the hint of an error has; None if there is no error, or none in it."""
    try:
        refusing(*arguments, **options)
    except OptionError as e:
        found = _EXPRESSION.search(str(e))
        return None if found is None else found[1]
    return None


@pytest.mark.long
def test_sql_of_hints_makes_columns_that_can_be_written(spark: SparkSession) -> None:
    for name in SINK_FIELDS:
        for kind in _KINDS:
            columns = {"value": "binary", name: kind}
            expression = _expression(check_written_columns, columns, topic="t")
            if expression is None:
                assert kind in SINK_FIELDS[name]
                continue
            rows = spark.sql(f"SELECT CAST(NULL AS {kind}) AS {name}").selectExpr(f"{expression} AS {name}")
            check_written_columns({"value": "binary", **dict(rows.dtypes)}, topic="t")
            rows.collect()


def test_sql_of_hints_makes_columns_of_the_types_that_were_asked_for(spark: SparkSession) -> None:
    schema = ", ".join(f"{name} {kind}" for name, kind in {**ROW_FIELDS, **dict([HEADERS_FIELD])}.items())
    rows = spark.createDataFrame([], schema)
    advised = []
    for name in RECORD_FIELDS:
        for kind in _KINDS:
            expression = _expression(read_columns, [(name, kind, True)])
            if expression is None:
                continue
            found = rows.selectExpr(expression.replace("'...'", f"'{kind}'")).schema[0].dataType
            is_text = (name, kind) == ("headers", "string")
            same = found.simpleString().replace(" not null", "") == kind
            assert same or is_text or kind.startswith(("map", "interval")), (name, kind, expression)
            advised.append((name, kind))
    assert {name for name, _ in advised} == set(RECORD_FIELDS)
    assert ("timestamp", "bigint") in advised


def test_python_of_hints_runs(spark: SparkSession, hints: list[str]) -> None:
    tried = [call for hint in hints for call in re.findall(r"\bdf\.\w+\((?:\{…\}|'[^']*'|[, ])*\)", hint)]
    tried.append(IN_SPARK.rename.format("id", "value"))
    assert len(tried) >= 3
    for call in tried:
        df = spark.range(1).toDF("id")
        assert "value" in eval(call.replace("{…}", "id"), {"df": df}).columns
    df, table = spark.range(1).selectExpr("id", "id AS value"), pa.table({"id": [1], "value": [2]})
    assert eval(IN_SPARK.drop.format("id"), {"df": df}).columns == ["value"]
    assert eval(IN_ARROW.drop.format("id"), {"table": table}).column_names == ["value"]
    assert eval(IN_ARROW.rename.format("id", "key"), {"table": table}).column_names == ["key", "value"]
    options = [given for hint in hints for given in re.findall(r"\.option\('[^']*', '[^']*'\)", hint)]
    assert len(options) >= 3
    for given in options:
        eval(f"reader.format('kafkalog'){given}", {"reader": spark.read})


def test_a_configuration_without_a_value_has_no_unit() -> None:
    """A restore leaves it out; others refuse it later."""
    given = {"retention.ms": "", "segment.bytes": "-1", "index.interval.bytes": "1k", "cleanup.policy": ""}
    assert in_kafkas_units(given) == {**given, "index.interval.bytes": "1024"}
