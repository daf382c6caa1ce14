"""How brokers are reached, read and written to."""

from __future__ import annotations

import pickle

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions, ProduceOptions
from pyspark_kafkalog.options.settings import (
    PlaceOptions,
    ReadOptions,
    WriteOptions,
    common_read_options,
    place_options,
    read_options,
    write_options,
)

BROKERS = {"kafka.bootstrap.servers": "host:9092"}
READ = {**BROKERS, "subscribe": "t"}
CONNECTION = ConnectionOptions(("host:9092",))
MAX_LONG = 2**63 - 1


def connection(**values: str) -> ConnectionOptions:
    place = place_options({**READ, **_dotted(values)})
    assert place.brokers is not None
    return place.brokers


def fetching(**values: str) -> FetchOptions:
    place = place_options({**READ, **_dotted(values)})
    assert place.fetch is not None
    return place.fetch


def writing(**values: str) -> WriteOptions:
    return write_options({**BROKERS, **_dotted(values)})


def producing(**values: str) -> ProduceOptions:
    options = writing(**values)
    assert options.produce is not None
    return options.produce


def reading(**values: str) -> ReadOptions:
    return read_options({**READ, **_dotted(values)}, batch=False)


def _dotted(values: dict[str, str]) -> dict[str, str]:
    """``a__b`` stands for ``a.b``, in lower case as Spark hands options over."""
    return {name.replace("__", ".").lower(): value for name, value in values.items()}


class TestServers:
    @pytest.mark.parametrize(
        ("text", "servers"),
        [
            ("host:9092", ("host:9092",)),
            (" a.b-c:1 , d_e:65535,", ("a.b-c:1", "d_e:65535")),
            ("[::1]:9092,10.0.0.1:9092", ("[::1]:9092", "10.0.0.1:9092")),
            ("[fe80::1%eth0]:9092", ("[fe80::1%eth0]:9092",)),
            ("PLAINTEXT://host:9092,SASL_SSL://host:9093", ("host:9092", "host:9093")),
            ("host:9092,host:09092", ("host:9092",)),
        ],
    )
    def test_a_list_of_host_and_port(self, text: str, servers: tuple[str, ...]) -> None:
        assert place_options({"kafka.bootstrap.servers": text}).brokers == ConnectionOptions(servers)

    @pytest.mark.parametrize(
        "text",
        ["host", "host:", ":9092", "host:x", "::1:9092", "[::1]", "[x]:1", "a b:1", "user:pw@host:0"],
    )
    def test_other_forms_are_refused(self, text: str) -> None:
        with pytest.raises(
            OptionError, match=r"'kafka\.bootstrap\.servers': expected host:port as server 2 in the list"
        ):
            place_options({"kafka.bootstrap.servers": f"a:1,{text}"})

    @pytest.mark.parametrize("text", ["host:0", "host:65536"])
    def test_a_port_out_of_range_is_shown(self, text: str) -> None:
        with pytest.raises(OptionError, match=f"expected a port from 1 to 65535, got '{text}'"):
            place_options({"kafka.bootstrap.servers": f"a:1,{text}"})

    @pytest.mark.parametrize("text", ["", " ", ",", " , "])
    def test_at_least_one(self, text: str) -> None:
        with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers' is empty"):
            place_options({"kafka.bootstrap.servers": text})

    def test_what_may_be_a_password_is_not_shown(self) -> None:
        with pytest.raises(OptionError) as caught:
            place_options({"kafka.bootstrap.servers": "SASL_SSL://user:secret@host:9092"})
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("path", ["path", "paths"])
    def test_brokers_or_a_directory(self, path: str) -> None:
        for use in (place_options, write_options, common_read_options):
            with pytest.raises(OptionError, match="Only one of"):
                use({**BROKERS, path: "/log"})

    @pytest.mark.parametrize("use", [place_options, write_options, common_read_options])
    def test_neither(self, use: object) -> None:
        with pytest.raises(OptionError, match=r"'kafka\.bootstrap\.servers'"):
            use({})  # type: ignore[operator]


class TestConnecting:
    def test_defaults(self) -> None:
        assert place_options(READ) == PlaceOptions(brokers=CONNECTION, fetch=FetchOptions())
        assert writing().brokers == CONNECTION

    def test_values(self) -> None:
        assert connection(
            kafka__client__id="me",
            kafka__request__timeout__ms="1",
            kafka__connections__max__idle__ms="2",
            kafka__metadata__max__age__ms="3",
            kafka__retry__backoff__ms="4",
            kafka__retry__backoff__max__ms="5",
            kafka__reconnect__backoff__ms="6",
            kafka__reconnect__backoff__max__ms="7",
            kafka__socket__connection__setup__timeout__ms="8",
            kafka__receive__buffer__bytes="9",
            kafka__send__buffer__bytes="10",
            kafka__client__dns__lookup="resolve_canonical_bootstrap_servers_only",
        ) == ConnectionOptions(
            ("host:9092",),
            client_id="me",
            request_timeout_ms=1,
            connections_max_idle_ms=2,
            metadata_max_age_ms=3,
            retry_backoff_ms=4,
            retry_backoff_max_ms=5,
            reconnect_backoff_ms=6,
            reconnect_backoff_max_ms=7,
            socket_connection_setup_timeout_ms=8,
            receive_buffer_bytes=9,
            send_buffer_bytes=10,
            client_dns_lookup="resolve_canonical_bootstrap_servers_only",
        )

    def test_connections_may_be_kept_for_ever(self) -> None:
        assert connection(kafka__connections__max__idle__ms="-1").connections_max_idle_ms == MAX_LONG

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("kafka.request.timeout.ms", "0"),
            ("kafka.request.timeout.ms", "30s"),
            ("kafka.metadata.max.age.ms", "-1"),
            ("kafka.receive.buffer.bytes", "-2"),
            ("kafka.client.dns.lookup", "default"),
            ("kafka.security.protocol", "TLS"),
        ],
    )
    def test_bad_values_are_refused_at_load(self, name: str, value: str) -> None:
        for use in (place_options, write_options, common_read_options):
            with pytest.raises(OptionError, match=f"'{name}'"):
                use({**BROKERS, name: value})

    def test_they_are_the_key_of_a_cache_and_cross_to_tasks(self) -> None:
        options = connection(kafka__client__id="me")
        assert {options: 1}[connection(kafka__client__id="me")] == 1
        assert options != CONNECTION
        for whole in (place_options(READ), reading(), writing()):
            assert pickle.loads(pickle.dumps(whole)) == whole


class TestReading:
    def test_values(self) -> None:
        assert fetching(
            kafka__client__rack=" eu ",
            kafka__fetch__min__bytes="2",
            kafka__fetch__max__wait__ms="3",
            kafka__max__partition__fetch__bytes="4",
            kafka__fetch__max__bytes="5",
            kafkaConsumer__pollTimeoutMs="512",
            fetchOffset__numRetries="7",
            fetchOffset__retryIntervalMs="0",
        ) == FetchOptions("eu", 2, 3, 4, 5, 512, 7, 0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("kafkaConsumer.pollTimeoutMs", "1s"),
            ("fetchOffset.numRetries", "0"),
            ("fetchOffset.retryIntervalMs", "-1"),
            ("kafka.fetch.max.bytes", "x"),
        ],
    )
    def test_bad_values_are_refused_at_load(self, name: str, value: str) -> None:
        for use in (place_options, common_read_options):
            with pytest.raises(OptionError, match=f"'{name}'"):
                use({**READ, name.lower(): value})

    def test_brokers_are_read_only_by_name(self) -> None:
        for use in (common_read_options, lambda options: read_options(options, batch=True)):
            with pytest.raises(OptionError, match="One of 'subscribe', 'subscribePattern' and 'assign'"):
                use(BROKERS)

    @pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
    def test_broken_offsets_are_refused_at_load(self, name: str) -> None:
        with pytest.raises(OptionError, match=f"'{name}'"):
            common_read_options({**READ, name.lower(): '{"t":'})

    def test_checksums_have_two_names(self) -> None:
        assert reading(kafka__check__crcs="false").check_crcs is False
        assert reading(kafka__check__crcs="false", checkCrcs="true").check_crcs is True


class TestWriting:
    def test_defaults_are_kafkas_but_for_the_batch_size(self) -> None:
        options = writing()
        assert options.produce == ProduceOptions()
        assert (options.root, options.compression, options.batch_size) == ("", "none", 256 << 10)
        assert (options.distribution, options.partitioner) == ("key", None)

    def test_values(self) -> None:
        options = writing(
            kafka__acks="1",
            kafka__max__in__flight__requests__per__connection="9",
            kafka__max__request__size="100",
            kafka__delivery__timeout__ms="60000",
            kafka__request__timeout__ms="20000",
            kafka__retries="0",
            kafka__linger__ms="40000",
            kafka__buffer__memory="7",
            kafka__compression__type="ZSTD",
            kafka__batch__size="0",
            topic=" t ",
            partitioner="package.module:callable",
        )
        assert options.produce == ProduceOptions(1, False, 9, 100, 60_000, 20_000, 0, 40_000, 7)
        assert (options.compression, options.batch_size, options.max_message_bytes) == ("zstd", 0, 100)
        assert (options.topic, options.partitioner) == ("t", "package.module:callable")

    @pytest.mark.parametrize(("text", "acks"), [("all", -1), ("-1", -1), ("0", 0), ("1", 1), ("ALL", -1)])
    def test_acks(self, text: str, acks: int) -> None:
        assert producing(kafka__acks=text).acks == acks

    @pytest.mark.parametrize(
        "values",
        [
            {"kafka__acks": "1"},
            {"kafka__acks": "0"},
            {"kafka__retries": "0"},
            {"kafka__max__in__flight__requests__per__connection": "6"},
        ],
    )
    def test_idempotence_gives_way_unless_it_was_asked_for(self, values: dict[str, str]) -> None:
        assert producing(**values).enable_idempotence is False
        (name,) = _dotted(values)
        with pytest.raises(OptionError, match=rf"'kafka\.enable\.idempotence' needs {name}"):
            producing(**values, kafka__enable__idempotence="true")
        assert producing(**values, kafka__enable__idempotence="false").enable_idempotence is False

    def test_the_delivery_timeout_covers_a_request(self) -> None:
        assert producing(kafka__request__timeout__ms="200000").delivery_timeout_ms == 200_000
        assert producing(kafka__linger__ms=str(MAX_LONG)).delivery_timeout_ms == 2**31 - 1
        with pytest.raises(
            OptionError, match=r"'kafka\.delivery\.timeout\.ms': expected at least .* 30000, got 29999"
        ):
            producing(kafka__delivery__timeout__ms="29999")
        assert producing(kafka__delivery__timeout__ms="30000").delivery_timeout_ms == 30_000

    @pytest.mark.parametrize(
        ("name", "distribution"),
        [
            ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", "key"),
            ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky"),
            ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin"),
            ("kafkashaded.org.apache.kafka.clients.producer.RoundRobinPartitioner", "round-robin"),
            ("", "key"),
        ],
    )
    def test_kafkas_partitioners(self, name: str, distribution: str) -> None:
        assert writing(kafka__partitioner__class=name).distribution == distribution

    def test_other_partitioners_are_pythons(self) -> None:
        with pytest.raises(OptionError, match=r"Java class, which cannot be run here.*'partitioner'"):
            writing(kafka__partitioner__class="com.example.MyPartitioner")
        with pytest.raises(OptionError, match="Only one of 'partitioner'"):
            writing(
                kafka__partitioner__class="org.apache.kafka.clients.producer.RoundRobinPartitioner",
                partitioner="a:b",
            )

    def test_keys_may_be_ignored(self) -> None:
        assert writing(kafka__partitioner__ignore__keys="true").distribution == "sticky"

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("kafka.acks", "2"),
            ("kafka.enable.idempotence", "yes"),
            ("kafka.compression.type", "brotli"),
            ("kafka.compression.gzip.level", "0"),
            ("kafka.compression.lz4.level", "18"),
            ("kafka.compression.zstd.level", "23"),
            ("kafka.batch.size", "-1"),
            ("kafka.max.in.flight.requests.per.connection", "0"),
            ("kafka.retries", "-1"),
        ],
    )
    def test_bad_values(self, name: str, value: str) -> None:
        with pytest.raises(OptionError, match=f"'{name}'"):
            write_options({**BROKERS, name: value})
