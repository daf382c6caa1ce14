"""What users may set, what it means, and what is refused before any work starts."""

from __future__ import annotations

import contextlib
import logging
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import EARLIEST, LATEST, TopicPartition
from pyspark_kafkalog.options.columns import check_written_columns, read_columns
from pyspark_kafkalog.options.settings import (
    OffsetsOption,
    ReadOptions,
    Selection,
    TriggerLimits,
    WriteOptions,
    common_read_options,
    place_options,
    read_options,
    write_options,
)
from pyspark_kafkalog.options.table import BY_NAME, SERVERS, Option, Where
from pyspark_kafkalog.options.times import Ago
from pyspark_kafkalog.options.user_options import log_once_for

NOW = 1_600_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**options: str) -> ReadOptions:
    return read_options(as_spark_gives(options), batch=True)


def stream(**options: str) -> ReadOptions:
    return read_options(as_spark_gives(options), batch=False)


def as_spark_gives(options: dict[str, str]) -> dict[str, str]:
    """As Spark hands options over: in lower case, the path among them; ``a__b`` stands for ``a.b``."""
    return {name.replace("__", ".").lower(): value for name, value in {"path": "/log", **options}.items()}


HARD_TEXTS = [
    '{"t":{"0":%s}}' % ("1" * 5000),
    '{"t":{"%s":1}}' % ("1" * 5000),
    "[" * 2000,
    "(" * 2000,
    "1" * 5000,
    "file://[",
    "\0",
    "\ud800",
]


@pytest.mark.parametrize("option", BY_NAME.values(), ids=lambda option: option.name)
@settings(max_examples=20)
@given(value=st.text(max_size=30) | st.sampled_from(HARD_TEXTS), encrypted=st.booleans())
def test_any_text_is_accepted_or_an_option_error(option: Option, value: str, encrypted: bool) -> None:
    place = {"path": "/log"}
    if option.where is Where.BROKERS:
        security = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
        place = {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **(security if encrypted else {})}
    options = {**place, option.name: value}
    for use in (
        place_options,
        common_read_options,
        write_options,
        lambda options: read_options(options, batch=True),
        lambda options: read_options(options, batch=False),
    ):
        with contextlib.suppress(OptionError):
            use(options)


class TestPlace:
    @pytest.mark.parametrize(
        ("options", "paths"),
        [
            ({"path": " /log "}, ("/log",)),
            ({"PATH": "s3://bucket/log"}, ("s3://bucket/log",)),
            ({"path": "/a, /b"}, ("/a", "/b")),
            ({"path": '["/a,b", "/c"]'}, ("/a,b", "/c")),
            ({"paths": '["/a","/b"]'}, ("/a", "/b")),
        ],
    )
    def test_one_or_several_paths(self, options: dict[str, str], paths: tuple[str, ...]) -> None:
        assert place_options(options).paths == paths

    @pytest.mark.parametrize("text", ["", " ", "/a,,/b", "[]", "[1]", '["/a"', '[""]'])
    def test_bad_paths(self, text: str) -> None:
        with pytest.raises(OptionError, match="'path'"):
            place_options({"path": text})

    @pytest.mark.parametrize("path", ["~", "~/logs", " ~kafka/logs", "/a,~/b", '["~/a"]'])
    def test_no_path_of_a_home_directory(self, path: str) -> None:
        with pytest.raises(OptionError, match=r"'path': expected a path without ~\. Spark does not expand ~"):
            place_options({"path": path})
        assert place_options({"path": "./~,/a/~b"}).paths == ("./~", "/a/~b")

    @pytest.mark.parametrize("path", ["host:9092", " 127.0.0.1:9092", "a.b:1, [::1]:2"])
    def test_no_path_is_brokers(self, path: str) -> None:
        with pytest.raises(
            OptionError, match=r"'path': expected a log directory, got brokers\. Give brokers as"
        ):
            place_options({"path": path})
        for folder in ("./host:9092", "hdfs://host:8020", '["host:9092"]', "host:x", "host:9092,logs"):
            assert place_options({"path": folder}).paths

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("checkpointLocation", {"path": "/log"}),
            ("auditLocation", {"path": "/log"}),
            ("stagingLocation", {SERVERS: "host:9092", "delivery.guarantee": "exactly-once"}),
            ("kafka.ssl.truststore.location", {SERVERS: "host:9092", "kafka.security.protocol": "SSL"}),
        ],
    )
    def test_no_location_in_a_home_directory(self, name: str, options: dict[str, str]) -> None:
        with pytest.raises(OptionError, match=f"'{name}': expected a path without ~"):
            write_options({**options, name: "~/x"})

    def test_neither_or_both(self) -> None:
        with pytest.raises(
            OptionError,
            match=r"Expected option 'path' or 'kafka.bootstrap.servers', got neither.*TEMPORARY VIEW",
        ):
            place_options({"subscribe": "t"})
        with pytest.raises(OptionError, match=r"Only one of 'path' and 'kafka.bootstrap.servers'"):
            place_options({"path": "/log", "kafka.bootstrap.servers": "host:9092"})

    def test_a_secret_in_a_uri_is_not_shown(self) -> None:
        assert "secret" not in repr(place_options({"path": "s3://key:secret@bucket/log"}))


class TestNames:
    @pytest.mark.parametrize(
        ("name", "suggested"),
        [
            ("startingOffset", "startingOffsets"),
            ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
            ("isolation.level", "kafka.isolation.level"),
            ("failsOnDataLoss", "failOnDataLoss"),
        ],
    )
    def test_unknown_names_get_near_ones(self, name: str, suggested: str) -> None:
        for written in (name, name.lower()):  # Spark passes names in lower case
            with pytest.raises(OptionError, match=f"Unknown option {name!r}.*{re.escape(suggested)}"):
                read_options({"path": "/log", written: "1"}, batch=True)

    @pytest.mark.parametrize(
        "name", ["bootstrap.servers", "kafka.bootstrap.server", "bootstrapServers", "kafka.bootstrapServers"]
    )
    def test_brokers_under_another_name(self, name: str) -> None:
        options = {"kafka.security.protocol": "SSL", "subscribe": "t", name: "host:9092"}
        with pytest.raises(OptionError, match=f"option {name!r}. Did you mean kafka.bootstrap.servers"):
            place_options(options)

    def test_a_setting_of_kafkas_that_is_like_another_one_is_not_taken_for_it(self) -> None:
        with pytest.raises(OptionError, match=r"'bootstrap\.controllers' is not supported"):
            place_options({"kafka.bootstrap.controllers": "host:9092"})

    def test_values_of_unknown_options_are_not_shown(self) -> None:
        with pytest.raises(OptionError) as caught:
            batch(kafka__sasl__jaas__config="secret")
        assert "secret" not in str(caught.value)

    def test_unknown_names_with_no_near_one_get_the_page_that_has_them_all(self) -> None:
        with pytest.raises(OptionError, match=r"'qqq'. Leave it out. docs/options.md lists all options.$"):
            write_options({"path": "/log", "qqq": "1"})

    def test_options_for_the_other_direction(self) -> None:
        with pytest.raises(OptionError, match=r"'topic' is for writing only\. Did you mean subscribe\?"):
            batch(topic="t")
        with pytest.raises(OptionError, match=r"Unknown option 'topics'\. Did you mean subscribe\?"):
            batch(topics="t")
        with pytest.raises(OptionError, match=r"'subscribe' is for reading only\. Did you mean topic\?"):
            write_options(as_spark_gives({"subscribe": "t"}))
        with pytest.raises(OptionError, match=r"'txnVersion' is for writing only\. Leave it out"):
            batch(txnVersion="1")

    @pytest.mark.parametrize("text", ["['a', 'b']", ' ["a","b"] ', "['a' ,'b',]"])
    def test_a_list_in_brackets(self, text: str) -> None:
        with pytest.raises(OptionError, match=r"'subscribe': .* got a list in brackets\. Write 'a,b'\."):
            batch(subscribe=text)
        with pytest.raises(OptionError, match=r"got a list in brackets\. Write 'broker1:9092,broker2:9092'"):
            place_options({"kafka.bootstrap.servers": text})
        with pytest.raises(OptionError, match=r"not a JSON array\. Write paths in double quotes"):
            place_options({"path": "['/a', '/b']"})

    @pytest.mark.parametrize(
        "name",
        [
            "auto.offset.reset",
            "key.deserializer",
            "value.deserializer",
            "enable.auto.commit",
            "interceptor.classes",
        ],
    )
    def test_kafka_options_that_spark_refuses(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"Kafka option '{re.escape(name)}' is not supported"):
            read_options({"path": "/log", f"kafka.{name}": "x"}, batch=False)

    @pytest.mark.parametrize("name", ["key.serializer", "value.serializer"])
    def test_kafka_options_that_sparks_sink_refuses(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"Kafka option '{re.escape(name)}' is not supported"):
            write_options({"path": "/log", f"kafka.{name}": "x"})

    def test_other_kafka_options_concern_brokers(self) -> None:
        with pytest.raises(OptionError, match=r"'kafka\.sasl\.mechanism' is for brokers"):
            batch(kafka__sasl__mechanism="PLAIN")
        with pytest.raises(OptionError, match=r"Write 'compression\.type' instead"):
            write_options(as_spark_gives({"kafka__compression__type": "lz4"}))

    def test_broker_options_of_sparks_source_do_not_trip_a_directory(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
            options = batch(
                kafkaConsumer__pollTimeoutMs="512",
                fetchOffset__numRetries="3",
                fetchOffset__retryIntervalMs="10",
            )
        assert options == batch()
        assert len(caplog.records) == 3

    def test_what_spark_adds_itself_is_let_pass(self) -> None:
        added = {
            "location": "file:/log",
            "owner": "me",
            "provider": "kafkalog",
            "option.subscribe": "t",
            "comment": "",
        }
        named = {"path": "/log", "subscribe": "t"}
        assert common_read_options({**named, **added}) == common_read_options(named)
        assert write_options({"path": "/log", "queryname": "q"}) == write_options({"path": "/log"})


class TestSelection:
    def test_nothing_means_all_topics(self) -> None:
        assert batch().selection == Selection()

    def test_subscribe(self) -> None:
        assert batch(subscribe=" a, b,,a ").selection == Selection(topics=("a", "b"))

    def test_subscribe_pattern(self) -> None:
        assert batch(subscribePattern=" test.* ").selection == Selection(pattern="test.*")

    def test_exclude(self) -> None:
        assert batch(topics__exclude=" a.*,, b ").selection == Selection(exclude=("a.*", "b"))
        both = stream(subscribePattern="t", topics__exclude=r"\Qt.1\E").selection
        assert both == Selection(pattern="t", exclude=(r"t\.1",))
        brokers = {"kafka.bootstrap.servers": "host:9092", "topics.exclude": "a"}
        assert read_options(as_spark_gives(brokers), batch=True).selection == Selection(exclude=("a",))

    def test_a_comma_in_a_pattern(self) -> None:
        with pytest.raises(OptionError, match=r"'topics\.exclude': .* Commas separate patterns"):
            batch(topics__exclude="a{1,2}")

    def test_assign(self) -> None:
        assert batch(assign=' {"t":[1,0]} ').selection == Selection(partitions=(T0, T1))

    @pytest.mark.parametrize(
        "options",
        [
            {"subscribe": "a", "subscribePattern": "b"},
            {"subscribe": "a", "assign": '{"t":[0]}'},
            {"subscribePattern": "a", "assign": '{"t":[0]}'},
            {"subscribe": ""},
            {"subscribe": " , "},
            {"subscribe": "a/b"},
            {"subscribe": "a", "topics.exclude": "b"},
            {"assign": '{"t":[0]}', "topics.exclude": "b"},
            {"topics.exclude": " , "},
            {"topics.exclude": "a,("},
            {"topics.exclude": "['tmp']"},
            {"subscribePattern": " "},
            {"subscribePattern": "("},
            {"assign": ""},
            {"assign": "t"},
            {"assign": "{}"},
            {"assign": '{"t":0}'},
        ],
    )
    def test_bad_selections(self, options: dict[str, str]) -> None:
        for read in (batch, stream):
            with pytest.raises(OptionError):
                read(**options)


class TestOffsets:
    def test_defaults(self) -> None:
        assert batch().starting == OffsetsOption("startingOffsets", EARLIEST)
        assert stream().starting == OffsetsOption("startingOffsets", LATEST)
        assert batch().ending == OffsetsOption("endingOffsets", LATEST)

    def test_words_and_json(self) -> None:
        assert batch(startingOffsets=" Earliest ").starting.values == EARLIEST
        assert stream(startingOffsets="LATEST").starting.values == LATEST
        assert stream(startingOffsets='{"t":{"1":-1,"0":-2}}').starting.values == {T0: EARLIEST, T1: LATEST}
        assert batch(endingOffsets='{"t":{"0":7,"1":-1}}').ending.values == {T0: 7, T1: LATEST}

    def test_the_first_of_three_ranks_wins_and_the_rest_is_not_looked_at(self) -> None:
        for side in ("starting", "ending"):
            options = {f"{side}Offsets": "nonsense", f"{side}OffsetsByTimestamp": f'{{"t":{{"0":{NOW}}}}}'}
            second = getattr(batch(**options), side)
            assert second == OffsetsOption(f"{side}OffsetsByTimestamp", {T0: NOW}, are_timestamps=True)
            options = {**options, f"{side}OffsetsByTimestamp": "nonsense", f"{side}Timestamp": " 0 "}
            first = getattr(batch(**options), side)
            assert first == OffsetsOption(f"{side}Timestamp", 0, are_timestamps=True)

    def test_strategy(self) -> None:
        assert batch().no_match_is_latest is False
        assert batch(startingOffsetsByTimestampStrategy="Error").no_match_is_latest is False
        assert stream(startingOffsetsByTimestampStrategy="LATEST").no_match_is_latest is True
        with pytest.raises(OptionError, match="expected one of error, latest"):
            batch(startingOffsetsByTimestampStrategy="earliest")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"startingOffsets": "latest"}, "'startingOffsets' can't be latest"),
            ({"startingOffsets": '{"t":{"0":-1}}'}, "'startingOffsets' for t-0 can't be -1 \\(latest\\)"),
            ({"endingOffsets": "earliest"}, "'endingOffsets' can't be earliest"),
            ({"endingOffsets": '{"t":{"0":-2}}'}, "'endingOffsets' for t-0 can't be -2 \\(earliest\\)"),
            ({"startingOffsets": ""}, "'startingOffsets'.*not JSON"),
            ({"startingOffsets": '{"t":{"0":-3}}'}, "expected a whole number of at least -2 for t-0, got -3"),
            ({"startingTimestamp": "1.5"}, "'startingTimestamp': expected a time"),
            ({"startingTimestamp": "-1"}, "'startingTimestamp': expected a time"),
            ({"endingTimestamp": "now"}, "'endingTimestamp': expected a time, got 'now'"),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":-2}}'},
                "'startingOffsetsByTimestamp': expected a time, got '-2'",
            ),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":1.5}}'},
                r"'startingOffsetsByTimestamp': expected a time, got 1.5 \(partition t-0\)",
            ),
            ({"endingOffsetsByTimestamp": "latest"}, "'endingOffsetsByTimestamp'.*not JSON"),
            (
                {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":1,"1":1}}'},
                "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET.*t-1",
            ),
            (
                {"startingOffsetsByTimestamp": '{"t":{"0":0}}', "endingOffsetsByTimestamp": '{"t":{"1":0}}'},
                "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET.*t-0, t-1",
            ),
            (
                {"startingOffsets": '{"t":{"0":3}}', "endingOffsets": '{"t":{"0":2}}'},
                "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*t-0",
            ),
            (
                {
                    "startingOffsetsByTimestamp": f'{{"t":{{"0":{NOW}}}}}',
                    "endingOffsetsByTimestamp": '{"t":{"0":0}}',
                },
                "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET.*t-0",
            ),
        ],
    )
    def test_bad_batch_options(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            batch(**options)

    def test_times_as_people_write_them(self) -> None:
        read = batch(startingTimestamp="2020-09-13T12:26:40Z", endingTimestamp="-1h")
        assert (read.starting.values, read.ending.values) == (1_600_000_000_000, Ago(3_600_000))
        text = '{"t":{"0":0,"1":"-2d","2":"2020-09-13T12:26:40Z"}}'
        starting = stream(startingOffsetsByTimestamp=text).starting
        two_days, now = 2 * 86_400_000, 1_700_000_000_000
        assert starting.at(now) == {T0: 0, T1: now - two_days, TopicPartition("t", 2): 1_600_000_000_000}
        assert batch(startingTimestamp="-9999999d").starting.at(now) == 0

    def test_start_and_end_that_only_meet_when_looked_up_are_fine_here(self) -> None:
        batch(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":-1}}')
        batch(startingOffsets='{"t":{"0":3}}', endingOffsets='{"t":{"0":3}}')
        batch(startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":0}}')
        batch(startingOffsetsByTimestamp=f'{{"t":{{"0":{NOW}}}}}', endingOffsets='{"t":{"0":2}}')

    @pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
    def test_a_stream_has_no_end(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"'{name}' is not valid in streaming queries"):
            stream(**{name: "1"})


class TestLimits:
    def test_defaults(self) -> None:
        assert stream().limits == TriggerLimits(None, None, None, 15 * 60 * 1000)
        assert batch().min_partitions is None
        assert batch().max_records_per_partition is None
        assert batch().max_partitions is None

    def test_values(self) -> None:
        options = stream(
            maxOffsetsPerTrigger=str(2**63 - 1),
            minOffsetsPerTrigger="5",
            maxTriggerDelay="5s",
            maxBytesPerTrigger="64m",
            minPartitions="7",
            maxRecordsPerPartition="9",
        )
        assert options.limits == TriggerLimits(2**63 - 1, 64 << 20, 5, 5000)
        assert (options.min_partitions, options.max_records_per_partition) == (7, 9)

    @pytest.mark.parametrize(
        "name",
        [
            "maxOffsetsPerTrigger",
            "minOffsetsPerTrigger",
            "minPartitions",
            "maxPartitions",
            "maxRecordsPerPartition",
        ],
    )
    @pytest.mark.parametrize("value", ["0", "-1", "a", "1.0", ""])
    def test_limits_are_positive_numbers(self, name: str, value: str) -> None:
        with pytest.raises(OptionError, match=f"'{name}': expected a whole number from 1"):
            stream(**{name: value})

    def test_most_tasks(self) -> None:
        """Spark gives option names in lower case."""
        both = {"minPartitions": "5", "maxPartitions": "5"}
        for read in (stream, batch):
            options = read(**both)
            assert (options.min_partitions, options.max_partitions) == (5, 5)
            with pytest.raises(OptionError, match=r"minPartitions \(6\) is higher than maxPartitions \(5\)"):
                read(**{**both, "minPartitions": "6"})
            with pytest.raises(OptionError, match="Only one of 'maxPartitions' and 'maxRecordsPerPartition'"):
                read(maxPartitions="5", maxRecordsPerPartition="100")

    def test_bytes_are_positive(self) -> None:
        with pytest.raises(OptionError, match="'maxBytesPerTrigger': expected a size above 0"):
            stream(maxBytesPerTrigger="0")

    def test_min_above_max(self) -> None:
        stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
        with pytest.raises(OptionError, match=r"minOffsetsPerTrigger \(6\) is higher"):
            stream(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")

    def test_a_batch_warns_of_options_for_streams(self, caplog: pytest.LogCaptureFixture) -> None:
        names = ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay"]
        batch(**dict.fromkeys(names, "1"))
        assert sorted(record.getMessage().split()[1] for record in caplog.records) == sorted(names)


class TestOthers:
    def test_defaults(self) -> None:
        options = batch()
        assert options.fail_on_data_loss is True
        assert options.include_headers is False
        assert options.read_committed is False
        assert options.check_crcs is True
        assert options.checkpoint_location is None

    def test_values(self) -> None:
        options = stream(
            failOnDataLoss="False",
            includeHeaders="true",
            kafka__isolation__level="READ_COMMITTED",
            checkCrcs="false",
            checkpointLocation="/checkpoint",
        )
        assert options.fail_on_data_loss is False
        assert options.include_headers is True
        assert options.read_committed is True
        assert options.check_crcs is False
        assert options.checkpoint_location == "/checkpoint"

    @pytest.mark.parametrize(
        "options",
        [
            {"failOnDataLoss": "1"},
            {"includeHeaders": "yes"},
            {"checkCrcs": ""},
            {"kafka__isolation__level": "none"},
        ],
    )
    def test_bad_values(self, options: dict[str, str]) -> None:
        with pytest.raises(OptionError):
            batch(**options)

    def test_options_cross_to_workers(self) -> None:
        for options in (
            batch(subscribePattern="a.*", startingOffsets='{"t":{"0":1}}'),
            stream(assign='{"t":[0]}'),
            write_options(as_spark_gives({"topic": "t"})),
            place_options({"path": "/log"}),
        ):
            assert pickle.loads(pickle.dumps(options)) == options


class TestColumns:
    def test_the_columns_without_a_schema(self) -> None:
        names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
        assert list(common_read_options(as_spark_gives({})).record_fields) == names
        assert list(common_read_options(as_spark_gives({"includeHeaders": "true"})).record_fields) == [
            *names,
            "headers",
        ]

    @pytest.mark.parametrize(
        "options",
        [
            {"nonsense": "1"},
            {"includeHeaders": "1"},
            {"minPartitions": "0"},
            {"subscribe": "a", "assign": "{}"},
        ],
    )
    def test_options_wrong_in_any_mode_are_refused_at_load(self, options: dict[str, str]) -> None:
        with pytest.raises(OptionError):
            common_read_options(as_spark_gives(options))

    def test_a_subset_in_any_order(self) -> None:
        headers = "array<struct<key:string,value:binary>>"
        fields = [("offset", "bigint", False), ("headers", headers, True), ("value", "binary", True)]
        assert read_columns(fields) == ("offset", "headers", "value")

    def test_a_view_has_no_columns_of_records(self) -> None:
        for name, said in (("topic", "must be nullable"), ("dropped", "Expected one of topic")):
            with pytest.raises(OptionError, match=said):
                read_columns([(name, "string", False)], {"topic": "string"}, of_records=False)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ([("val", "binary", True)], "Unknown column 'val'.*Did you mean value"),
            ([("Value", "binary", True)], "Unknown column 'Value'.*Did you mean value"),
            (
                [("Value", "binary", True), ("OFFSET", "bigint", True)],
                r"Unknown column 'Value'\. Did you mean value\?",
            ),
            ([("dropped", "string", True)], "column 'dropped'.*option large.message.dead.letters=true"),
            (
                [("value", "string", True)],
                r"'value' has type string, expected binary\. Read it as binary, .*CAST\(value AS string\)",
            ),
            (
                [("value", "struct<a:int>", True)],
                r"example with from_json\(CAST\(value AS string\), '\.\.\.'\)",
            ),
            ([("key", "int", True)], r"with CAST\(CAST\(key AS string\) AS int\)"),
            (
                [("offset", "int", True)],
                r"Column 'offset' has type int, expected bigint\. .* CAST\(offset AS int\)",
            ),
            ([("value", "binary", False)], "Column 'value' must be nullable"),
            ([("topic", "string", True), ("topic", "string", True)], "'topic' occurs twice"),
            ([], "has no column"),
        ],
    )
    def test_other_columns_are_refused(self, fields: list[tuple[str, str, bool]], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            read_columns(fields)


class TestWriting:
    def test_defaults_are_kafkas(self) -> None:
        assert write_options({"path": "/log"}) == WriteOptions(
            root="/log",
            topic=None,
            partitioner=None,
            num_partitions=1,
            compression="none",
            batch_size=16_384,
            max_message_bytes=1_048_588,
        )

    def test_values(self) -> None:
        values = {
            "topic": " t ",
            "partitioner": "package.module:callable",
            "numPartitions": "4",
            "compression.type": "ZSTD",
            "batch.size": "0",
            "max.message.bytes": "100",
            "message.timestamp.type": "logAppendTime",
            "segment.bytes": "14",
            "segment.ms": "1",
            "index.interval.bytes": "0",
            "checkpointLocation": "/checkpoint",
            "includeHeaders": "true",
        }
        assert write_options({"path": "/log", **values}) == WriteOptions(
            root="/log",
            topic="t",
            partitioner="package.module:callable",
            num_partitions=4,
            compression="zstd",
            batch_size=0,
            max_message_bytes=100,
            topic_configs={
                "segment.bytes": "14",
                "segment.ms": "1",
                "index.interval.bytes": "0",
                "max.message.bytes": "100",
                "message.timestamp.type": "logAppendTime",
            },
            checkpoint_location="/checkpoint",
        )

    @pytest.mark.parametrize(
        ("compression", "level", "used"),
        [("gzip", "-1", 6), ("gzip", "9", 9), ("lz4", "12", 12), ("zstd", "-7", -7)],
    )
    @pytest.mark.parametrize("place", [{"path": "/log"}, {"kafka.bootstrap.servers": "host:9092"}])
    def test_levels_of_compressions(
        self, place: dict[str, str], compression: str, level: str, used: int
    ) -> None:
        prefix = "" if "path" in place else "kafka."
        levels = {f"{prefix}compression.{compression}.level": level}
        for name, expected in ((compression, used), ("snappy", None)):
            options = write_options({**place, f"{prefix}compression.type": name, **levels})
            assert options.encode_settings.level == expected

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("topic", ""),
            ("topic", "a/b"),
            ("topic", ".."),
            ("numPartitions", "0"),
            ("compression.type", "brotli"),
            ("compression.gzip.level", "10"),
            ("compression.lz4.level", "0"),
            ("compression.zstd.level", "-131073"),
            ("batch.size", "-1"),
            ("max.message.bytes", "-1"),
            ("message.timestamp.type", "none"),
            ("segment.bytes", "13"),
            ("segment.bytes", str(2**31)),
            ("segment.ms", "0"),
            ("index.interval.bytes", "-1"),
            ("includeHeaders", "maybe"),
        ],
    )
    def test_bad_values(self, name: str, value: str) -> None:
        with pytest.raises(OptionError):
            write_options({"path": "/log", name: value})

    @pytest.mark.parametrize("text", ["module.callable", "module:callable"])
    def test_a_partitioner_has_two_spellings(self, text: str) -> None:
        assert write_options({"path": "/log", "partitioner": text}).partitioner == "module:callable"

    @pytest.mark.parametrize(
        "text", ["", "callable", ":callable", "module:", "a.b:c.d", "a b:c", "a:b:c", ".a:b", "m:f()"]
    )
    def test_a_partitioner_is_an_import_path(self, text: str) -> None:
        with pytest.raises(OptionError, match="expected an import path"):
            write_options({"path": "/log", "partitioner": text})

    @pytest.mark.parametrize(
        ("path", "root"),
        [
            ("/log", "/log"),
            ("relative/log", "relative/log"),
            ("file:/log", "/log"),
            ("file:///log%20a", "/log a"),
            ("file://localhost/log", "/log"),
        ],
    )
    def test_the_root_is_local(self, path: str, root: str) -> None:
        assert write_options({"path": path}).root == root

    @pytest.mark.parametrize("path", ["s3://key:secret@b/log", "hdfs:/log", "dbfs://log", "file://host/log"])
    def test_filesystems_that_cannot_append_are_refused(self, path: str) -> None:
        with pytest.raises(OptionError, match="can be read but not written") as caught:
            write_options({"path": path})
        assert "secret" not in str(caught.value)

    def test_one_root_only(self) -> None:
        with pytest.raises(OptionError, match="one path to write to, got 2"):
            write_options({"path": "/a,/b"})


class TestSlips:
    """Common mistakes are named as such."""

    def test_a_server_without_the_prefix(self) -> None:
        for use in (lambda options: read_options(options, batch=True), write_options):
            with pytest.raises(
                OptionError, match=r"'bootstrap\.servers'.*Did you mean kafka\.bootstrap\.servers"
            ):
                use({"bootstrap.servers": "host:9092", "subscribe": "t"})

    @pytest.mark.parametrize(
        ("word", "hint"),
        [
            ("begining", "Write JSON as"),
            ("-2", "Write JSON as"),
            ("none", "Write JSON as"),
            ("commited", "Write committed"),
            ("earlist", "Write earliest"),
        ],
    )
    def test_a_word_for_offsets(self, word: str, hint: str) -> None:
        options = {"path": "/a", "startingOffsets": word}
        expected = f"expected earliest, latest, committed or JSON, got '{word}'. {hint}"
        with pytest.raises(OptionError, match=re.escape(expected)):
            read_options(options, batch=False)

    def test_latest_as_the_start_of_a_batch(self) -> None:
        with pytest.raises(OptionError, match=r"can't be latest for batch queries.*starts at earliest or"):
            read_options({"path": "/a", "startingOffsets": "latest"}, batch=True)

    @pytest.mark.parametrize(
        ("columns", "hint"),
        [
            ({"value": "int"}, "CAST(value AS string)"),
            (
                {"value": "struct<a:int>"},
                "Give value.format, such as json. Or convert it, for example with to_json(value)",
            ),
            ({"value": "binary", "key": "array<int>"}, "to_json(key)"),
            ({"value": "binary", "partition": "bigint"}, "CAST(partition AS int)"),
            ({"value": "binary", "timestamp": "string"}, "CAST(timestamp AS timestamp)"),
            (
                {"value": "binary", "timestamp": "timestamp_ntz"},
                "It has no time zone. Convert it, for example with CAST(timestamp AS timestamp_ltz).",
            ),
            ({"ID no": "int"}, "'CAST(`ID no` AS string) AS value'"),
            (
                {"id": "int", "Value": "string"},
                "Did you mean 'Value'? Rename it: df.withColumnRenamed('Value',",
            ),
            ({"id": "int"}, "'struct(*) AS value') and the option value.format=json."),
        ],
    )
    def test_what_to_do_with_columns_that_cannot_be_written(self, columns: dict[str, str], hint: str) -> None:
        with pytest.raises(OptionError, match=re.escape(hint)):
            check_written_columns(columns, topic="t")

    def test_a_missing_value_is_to_be_of_the_format_that_is_given(self) -> None:
        with pytest.raises(OptionError, match=r"Add one for value\.format=confluent-avro, ") as caught:
            check_written_columns({"id": "int"}, topic="t", value_format="confluent-avro")
        assert "json" not in str(caught.value)


@pytest.mark.parametrize("value", ["at-most-once", "exactly_once"])
def test_a_guarantee_is_checked_where_it_has_no_effect(value: str) -> None:
    with pytest.raises(OptionError, match=f"expected one of at-least-once, exactly-once, got {value!r}"):
        write_options({"path": "/log", "delivery.guarantee": value})
    assert write_options({"path": "/log", "delivery.guarantee": "exactly-once"}) == write_options(
        {"path": "/log"}
    )


def test_only_what_topics_have_is_to_be_set_on_a_topic() -> None:
    with pytest.raises(OptionError, match=r"'segment.bytes' is for log dir.*alter --set segment.bytes=VALUE"):
        write_options({SERVERS: "host:9092", "segment.bytes": "100"})
    with pytest.raises(OptionError, match=r"'deletePolicy' is for log directories, .*brokers. Leave it out"):
        write_options({SERVERS: "host:9092", "deletePolicy": "a:b"})


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("auditTopic", "audits", None),
        ("commitSourceOffsets", "transaction", "false"),
        ("dual.commit.enabled", "true", "false"),
        ("groupMembership", "true", "false"),
        ("offsets.storage", "zookeeper", "kafka"),
        ("stagingLocation", "/staging", None),
    ],
)
def test_a_directory_refuses_what_only_brokers_can_do(name: str, value: str, default: str | None) -> None:
    for use in (batch, stream, lambda **options: write_options({"path": "/log", **options})):
        with pytest.raises(OptionError, match=f"'{name}' is for brokers, but 'path' names a log directory"):
            use(**{name: value})
        if default is not None:
            use(**{name: default})
    stream(**{"kafkaConsumer.pollTimeoutMs": "5000"})


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("maxTriggerDelay", "5s", {"minOffsetsPerTrigger": "5"}),
        ("limitFirstTrigger", "true", {"maxBytesPerTrigger": "5k"}),
        ("startingOffsetsByTimestampStrategy", "latest", {"startingTimestamp": "-1h"}),
        (
            "startingOffsetsByCommittedStrategy",
            "latest",
            {"startingOffsets": "committed", "kafka.group.id": "g"},
        ),
    ],
)
def test_an_option_that_needs_another_is_warned_of_alone(
    name: str, value: str, needed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    log_once_for.cache_clear()
    stream(**{name: value}, **needed)
    assert not caplog.messages
    stream(**{name: value})
    (message,) = caplog.messages
    assert message.startswith(f"Option {name} has no effect without ")
    assert next(iter(needed)) in message


def test_an_option_over_which_another_takes_precedence_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    stream(startingOffsets="committed", startingTimestamp="-1h", kafka__group__id="g")
    assert caplog.messages == [
        "Option startingOffsets is ignored, because startingTimestamp takes precedence"
    ]


def test_seconds_in_place_of_milliseconds_are_asked_about(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.fetch.max.wait.ms": "100"}
    read_options({**given, "kafka.request.timeout.ms": "30", "kafka.metadata.max.age.ms": "5000"}, batch=True)
    assert caplog.messages == ["Option kafka.request.timeout.ms is 30 ms. If that means seconds, write 30000"]
    caplog.clear()
    for delay in ("5", "5s"):
        read_options({**given, "minOffsetsPerTrigger": "10", "maxTriggerDelay": delay}, batch=False)
    assert caplog.messages == ["Option maxTriggerDelay is 5 ms. If that means seconds, write 5000"]


def test_a_retention_of_less_than_an_hour_is_asked_about(caplog: pytest.LogCaptureFixture) -> None:
    log_once_for.cache_clear()
    for value in ("7", "3600000", "-1"):
        write_options({"path": "/logs", "topic": "t", "retention.ms": value})
    assert caplog.messages == ["retention.ms=7 is in ms: records older than 0.007 s are deleted"]


def test_an_option_with_two_values_in_two_spellings_is_refused() -> None:
    one = {"path": "/logs", "subscribe": "a"}
    with pytest.raises(OptionError, match="'subscribe' and 'Subscribe' are the same one, with two values"):
        read_options({**one, "Subscribe": "b"}, batch=True)
    assert read_options({**one, "Subscribe": "a"}, batch=True)
