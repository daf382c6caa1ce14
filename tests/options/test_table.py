"""The table of options: each row is complete, applies where it says, and has Kafka's default.

Every setting of Kafka's clients is known: it is an option, has no effect, or is refused.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

import pyspark_kafkalog
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit.options import AuditOptions
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings, SplitterSettings
from pyspark_kafkalog.extensions.membership.options import MembershipOptions
from pyspark_kafkalog.extensions.typed_values.registry_options import RegistryOptions
from pyspark_kafkalog.extensions.views.options import view_options
from pyspark_kafkalog.model import EncodeSettings, LogSettings
from pyspark_kafkalog.options import brokers
from pyspark_kafkalog.options.brokers import (
    ConnectionOptions,
    FetchOptions,
    ProduceOptions,
)
from pyspark_kafkalog.options.client_settings import (
    HARMLESS,
    OF_OTHERS,
    REFUSED_READING,
    REFUSED_WRITING,
    STORE_PASSWORDS,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.old_settings import CHANGED, RENAMED
from pyspark_kafkalog.options.page import page
from pyspark_kafkalog.options.security import oauth, tls
from pyspark_kafkalog.options.security.assertion import AssertionOptions
from pyspark_kafkalog.options.security.oauth import OAuthOptions
from pyspark_kafkalog.options.security.protocol import SecurityOptions
from pyspark_kafkalog.options.security.tls import TlsOptions
from pyspark_kafkalog.options.settings import (
    PlaceOptions,
    ReadOptions,
    Selection,
    TriggerLimits,
    WriteOptions,
    common_read_options,
    place_options,
    read_options,
    write_options,
)
from pyspark_kafkalog.options.table import BY_NAME, DEFAULTS, SECTIONS, SERVERS, Option, Use, Where
from pyspark_kafkalog.options.user_options import near_names
from tests.options.readers import fields_read
from tests.options.security.test_pem import CERTIFICATE, KEY

OPTIONS = tuple(option for section in SECTIONS for option in section.options)
FILLED = (
    AssertionOptions,
    AuditOptions,
    ConnectionOptions,
    FetchOptions,
    LargeMessageOptions,
    MembershipOptions,
    OAuthOptions,
    PlaceOptions,
    ProduceOptions,
    ReadOptions,
    RegistryOptions,
    SecurityOptions,
    Selection,
    TlsOptions,
    TriggerLimits,
    WriteOptions,
)
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CONFIGS = [
    line.split("\t")
    for line in (Path(__file__).parent / "client_configs.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
NAMES = sorted({f"kafka.{name}" for name, _, _ in CONFIGS})
USED = {option.name for option in OPTIONS}
BROKERS = {SERVERS: "host:9092"}
READ = {**BROKERS, "subscribe": "t"}

OWN_DEFAULTS = {
    "kafka.client.id",
    "kafka.batch.size",  # a task has its rows at hand
    "kafka.max.partition.fetch.bytes",
    "kafka.partition.assignment.strategy",  # names of the classes
    "kafka.sasl.oauthbearer.jwt.retriever.class",  # the name of the class
    "kafka.receive.buffer.bytes",  # the system tunes them as it goes
    "kafka.send.buffer.bytes",
    "kafka.ssl.truststore.type",  # Java's is JKS
    "kafka.ssl.keystore.type",
    "kafka.sasl.login.connect.timeout.ms",  # Java waits for ever
    "kafka.sasl.login.read.timeout.ms",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_kafkas_clients_is_known_in_one_way(name: str) -> None:
    refused = {**REFUSED_READING, **REFUSED_WRITING}
    ways = [name in known for known in (USED, WITHOUT_EFFECT, refused, STORE_PASSWORDS)]
    assert sum(ways) == 1


def test_every_name_known_is_one_of_kafkas_clients() -> None:
    """Except those of logins for which Java's clients need another library."""
    ours = {"kafka.sasl.oauthbearer.provider", "kafka.sasl.aws.region"}
    known = {*USED, *WITHOUT_EFFECT, *REFUSED_READING, *REFUSED_WRITING, *STORE_PASSWORDS} - ours
    assert {name for name in known if name.startswith("kafka.")} == set(NAMES)


def _kafkas_defaults(*, ours: bool) -> list[tuple[str, str]]:
    """The options that have a default of Kafka's clients, or one of ours."""
    return [
        (f"kafka.{name}", default)
        for name, clients, default in CONFIGS
        if f"kafka.{name}" in USED
        and (f"kafka.{name}" in OWN_DEFAULTS) is ours
        and (clients, name) != ("admin", "connections.max.idle.ms")
    ]


@pytest.mark.parametrize(("name", "default"), _kafkas_defaults(ours=False))
def test_defaults_are_kafkas(name: str, default: str) -> None:
    assert (BY_NAME[name].default or "null") == (default or "null")


def test_other_defaults_differ_indeed() -> None:
    for name, default in _kafkas_defaults(ours=True):
        assert (BY_NAME[name].default or "null") != (default or "null"), name


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.default is not None], ids=lambda option: option.name
)
def test_a_default_can_be_given_where_the_option_applies(option: Option) -> None:
    compared = 0
    for where, place in ((Where.DIRECTORY, {"path": "/log"}), (Where.BROKERS, dict(BROKERS))):
        if not option.where & where:
            continue
        options = {**place, option.name.upper(): str(option.default)}
        if option.use & Use.WRITE:
            assert write_options(options) == write_options(place)
            compared += 1
        place["subscribe"] = options["subscribe"] = "t"
        if option.use & Use.READ:
            assert place_options(options) == place_options(place)
        for batch, use in ((True, Use.BATCH_READ), (False, Use.STREAM_READ)):
            if option.use & use:
                given = read_options(options, batch=batch)
                if option.name == "large.message.enabled":  # false, if given, silences a warning
                    given = replace(given, extensions=())
                assert given == read_options(place, batch=batch)
                compared += 1
        if option.use & Use.BATCHES_VIEW and option.name != "view":
            view = {**place, "view": "batches"}
            assert view_options({**options, **view}) == view_options(view)
            compared += 1
    assert compared


ONLY_AN_EFFECT_ON_BROKERS = {"delivery.guarantee"}
"""A directory always gives the best."""
_SASL = {"kafka.security.protocol": "SASL_PLAINTEXT"}
_OAUTH = {**_SASL, "kafka.sasl.mechanism": "OAUTHBEARER"}
_CLIENT = "kafka.sasl.oauthbearer.client.credentials.client"
_ENDPOINT = {
    **_OAUTH,
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    f"{_CLIENT}.id": "me",
    f"{_CLIENT}.secret": "p",
}
_ASSERTION = "kafka.sasl.oauthbearer.assertion"
_SPLIT = {"large.message.enabled": "true"}
_STORED = {"zookeeper.connect": "zk:2181", "kafka.group.id": "g"}
_ZOOKEEPER = {**_STORED, "offsets.storage": "zookeeper"}
_REGISTRY = {"value.format": "confluent-avro", "schema.registry.url": "https://h"}
_APICURIO = {"value.format": "apicurio-avro", "apicurio.registry.url": "https://h"}
_GLUE = {"value.format": "glue-avro"}
_GROUP = {"kafka.group.id": "g", "checkpointLocation": "/c"}
_MEMBER = {**_GROUP, "groupMembership": "true"}
NEEDED = {
    "offsets.storage": _STORED,
    "dual.commit.enabled": _STORED,
    "queryName": {"commitOffsets": "true"},
    "groupMembership": _GROUP,
    "groupMembershipLost": _MEMBER,
    "kafka.partition.assignment.strategy": _MEMBER,
    "kafka.group.instance.id": _MEMBER,
    "kafka.group.protocol": _MEMBER,
    "kafka.group.remote.assignor": {**_MEMBER, "kafka.group.protocol": "consumer"},
    "kafka.session.timeout.ms": _MEMBER,
    "kafka.heartbeat.interval.ms": {**_MEMBER, "kafka.session.timeout.ms": "12345678"},
    "kafka.max.poll.interval.ms": _MEMBER,
    "kafka.transaction": {"delivery.guarantee": "exactly-once"},
    "groupIdPrefix": {"commitOffsets": "true", "queryName": "q"},
    "large.message.dead.letters": _SPLIT,
    "message.assembler.": _SPLIT,
    "exception.on.message.dropped": _SPLIT,
    "max.message.segment.bytes": _SPLIT,
    "header.timestamp.enabled": _SPLIT,
    "li.": _SPLIT,
    "segment.serializer": _SPLIT,
    "segment.deserializer.class": _SPLIT,
    "auditor.bucket.ms": {"auditLocation": "/a"},
    "auditor.class": {"auditLocation": "/a"},
    "kafka.ssl.": {"kafka.security.protocol": "SSL"},
    "kafka.ssl.keystore.key": {"kafka.ssl.keystore.certificate.chain": CERTIFICATE},
    "kafka.ssl.keystore.certificate.chain": {"kafka.ssl.keystore.key": KEY},
    "kafka.sasl.": _SASL,
    "kafka.sasl.login.callback.handler.class": _OAUTH,
    "kafka.sasl.oauthbearer.": _ENDPOINT,
    "kafka.sasl.oauthbearer.token.endpoint.url": _OAUTH,
    "kafka.sasl.oauthbearer.jwt.retriever.class": {f"{_ASSERTION}.file": "/jwt"},
    f"{_ASSERTION}.": {f"{_ASSERTION}.claim.iss": "me", f"{_ASSERTION}.private.key.file": "/key"},
    "kafka.sasl.oauthbearer.provider": _OAUTH,
    "kafka.sasl.aws.region": {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM"},
    "kafka.sasl.login.read": _ENDPOINT,
    "kafka.sasl.login.connect": _ENDPOINT,
    "kafka.sasl.login.retry": _ENDPOINT,
    "org.apache.": _ENDPOINT,
    "value.schema": {"value.format": "avro"},
    "key.schema": {"key.format": "avro"},
    "value.subject.": _REGISTRY,
    "key.subject.": {**_REGISTRY, "key.format": "confluent-avro"},
    "apicurio.": _APICURIO,
    **dict.fromkeys(("region", "endpoint", "registry.name", "schemaName", "compatibility"), _GLUE),
    "includeSchemaId": _REGISTRY,
    "mode": {"value.format": "avro", "value.schema": "{}"},
    "columnNameOfCorruptRecord": {"value.format": "json"},
    "timeZone": {"value.format": "json"},
    "schema.registry.": _REGISTRY,
    "basic.auth.": _REGISTRY,
    "bearer.auth.": _REGISTRY,
    "http.read.": _REGISTRY,
    "zookeeper.": _ZOOKEEPER,
    "zookeeper.connect": _ZOOKEEPER,
    "zookeeper.ssl.": {**_ZOOKEEPER, "zookeeper.ssl.client.enable": "true"},
    "zookeeper.ssl.client.enable": _ZOOKEEPER,
}
"""Without these an option, or those that begin so, has no effect."""

VALUES = [
    "rejoin",
    "aws",
    "us-east-1",
    "JwtBearerJwtRetriever",
    "ES256",
    "consumer",
    "roundrobin",
    "true",
    "false",
    "1234567",
    "1",
    "read_committed",
    "latest",
    "committed",
    "lz4",
    "a.b:c",
    '{"t":[0]}',
    '{"t":{"0":5}}',
    '{"t":{"0":1600000000000}}',
    "groups",
    "LogAppendTime",
    "measured",
    "compact",
    "exactly-once",
    "transaction",
    "zookeeper",
    "resolve_canonical_bootstrap_servers_only",
    "SSL",
    "PLAIN",
    f"{LOGIN_MODULE} required username=u password=p;",
    "org.apache.zookeeper.server.auth.DigestLoginModule required username=u password=p;",
    "digest u:p",
    "avro",
    "FAILFAST",
    "USER_INFO",
    "STATIC_TOKEN",
    "",
    "other:1",
    CERTIFICATE,
    KEY,
    "TLSv1.2",
    "0",
    "HeaderSchemaIdSerializer",
    "RecordNameStrategy",
    "globalId",
    "FULL",
]


def _made_of(options: dict[str, str], use: Use) -> list[object]:
    """What readers, writers and views make of options that apply to them: dataclasses, or errors."""
    reading = {**options, "subscribe": "t"} if SERVERS in options else options
    made: list[object] = []
    for applies, make in (
        (Use.READ, lambda: place_options(options)),
        (Use.WRITE, lambda: write_options(options)),
        (Use.VIEWS, lambda: view_options(options)),
        (Use.BATCH_READ, lambda: read_options(reading, batch=True)),
        (Use.STREAM_READ, lambda: read_options(reading, batch=False)),
    ):
        if applies & use:
            try:
                made.append(make())
            except OptionError as e:
                made.append(str(e))
    return made


def _other_value(option: Option) -> str:
    """A text that means something else than the default."""
    for text in VALUES:
        with contextlib.suppress(OptionError):
            if option.parser(option.name, text) != DEFAULTS[option.name.lower()]:
                return text
    raise AssertionError(f"no value of {option.name}")


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_has_an_effect(option: Option) -> None:
    """The row fills a field that code reads, or is asked for by name."""
    for_directories = option.where & Where.DIRECTORY and option.name not in ONLY_AN_EFFECT_ON_BROKERS
    options: dict[str, str] = {"path": "/log"} if for_directories else dict(BROKERS)
    for start, needed in NEEDED.items():
        if option.name.startswith(start):
            options.update(needed)
    options.pop(option.name, None)
    changed = {**options, option.name: _other_value(option)}
    different = {
        field
        for before, after in zip(_made_of(options, option.use), _made_of(changed, option.use), strict=True)
        for field in _different_fields(before, after)
    }
    assert different & (_reads() | {_REFUSAL}), different


_REFUSAL = ("OptionError", "message")
"""Stands for a difference that is an error."""


def _different_fields(before: object, after: object) -> Iterator[tuple[str, str]]:
    """The fields with different values, as deep as classes and fields go."""
    if before == after:
        return
    if isinstance(before, str) or isinstance(after, str):
        yield _REFUSAL
    elif isinstance(before, tuple) and isinstance(after, tuple):
        for one, other in zip_longest(before, after):
            yield from _different_fields(one, other)
    else:
        present = after if before is None else before
        assert is_dataclass(present), present
        for field in fields(present):
            values = [getattr(each, field.name, None) for each in (before, after)]
            inner = list(_different_fields(*values)) if any(map(_has_fields, values)) else []
            if values[0] != values[1]:
                yield from inner or [(type(present).__name__, field.name)]


def _has_fields(value: object) -> bool:
    return is_dataclass(value) or (isinstance(value, tuple) and any(map(is_dataclass, value)))


@functools.cache
def _sources() -> tuple[str, ...]:
    """The package's modules but the table, which shows the defaults."""
    files = sorted(Path(pyspark_kafkalog.__file__).parent.rglob("*.py"))
    return tuple(file.read_text(encoding="utf-8") for file in files if file.name != "table.py")


@functools.cache
def _reads() -> set[tuple[str, str]]:
    return fields_read(_sources())


def test_a_field_that_options_fill_is_read() -> None:
    """By code that has an object of its class, which is more than to read a field of this name."""
    kinds = {*FILLED, AssemblerSettings, SplitterSettings, EncodeSettings, LogSettings}
    filled = {(kind.__name__, field.name) for kind in kinds for field in fields(kind)}
    assert filled - _reads() == set()


UNREAD = """
@dataclass(frozen=True)
class Options:
    used: int
    limit: int
    nested: Nested | None
    def __post_init__(self) -> None:
        check(self.limit)
class Nested:
    inner: int
    other: int
class Other:
    limit: int
class Holder:
    def __init__(self, options: Options, other: Other) -> None:
        self.options, self.other = options, other
        self.nested = options.nested
    def run(self, options: Options, other: Other) -> int:
        copied = replace(options)
        options.limit = 5
        return copied.used + other.limit + self.nested.inner
"""


def test_a_field_is_not_read_where_only_its_name_is() -> None:
    """Nor where it is only checked or set."""
    of_options = {(kind, name) for kind, name in fields_read([UNREAD]) if kind in ("Options", "Nested")}
    assert of_options == {("Options", "used"), ("Options", "nested"), ("Nested", "inner")}


def test_names_are_told_apart() -> None:
    assert len(BY_NAME) == len(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_row_is_complete(option: Option) -> None:
    assert option.use
    assert option.where
    assert re.fullmatch(r"[A-Z`].*\.", option.meaning)


@pytest.mark.parametrize("kind", FILLED, ids=lambda kind: kind.__name__)
def test_defaults_have_the_types_of_their_fields(kind: type) -> None:
    types = get_type_hints(kind, localns={**vars(brokers), **vars(oauth), **vars(tls)})
    filled = [field for field in fields(kind) if "options" in field.metadata]
    assert filled
    for field in filled:
        expected = types[field.name]
        parts = (expected,) if get_origin(expected) is tuple else get_args(expected) or (expected,)
        simple = tuple(get_origin(part) or part for part in parts)
        assert type(field.default) in simple, field.name
        for name in field.metadata["options"]:
            default = DEFAULTS[name.lower()]
            assert type(default) in simple, name


OPTIONS_PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_of_the_docs_is_made_from_the_table() -> None:
    committed = OPTIONS_PAGE.read_text(encoding="utf-8")
    assert committed == page(), "run python -m pyspark_kafkalog.options.page > docs/options.md"


def test_every_option_has_an_entry_with_an_address_and_its_meaning_first() -> None:
    committed = OPTIONS_PAGE.read_text(encoding="utf-8")
    for option in OPTIONS:
        name = option.name
        assert committed.count(f'### <a id="{name}"></a>`{name}`\n\n{option.meaning}\n') == 1, name
    for name in {*REFUSED_READING, *REFUSED_WRITING, *WITHOUT_EFFECT}:
        assert committed.count(f'<a id="{name}"></a>`{name}`') == 1, name


def test_entries_say_what_takes_an_option_unless_their_section_does() -> None:
    committed = OPTIONS_PAGE.read_text(encoding="utf-8")
    sections = re.findall(
        r"^## (.+)\n\n(?:<small>Unless an option says otherwise: (.+)</small>)?", committed, re.M
    )
    common = dict(sections)
    for section in SECTIONS:
        for option in section.options:
            _, _, entry = committed.partition(f'### <a id="{option.name}"></a>')
            entry = entry.partition("\n#")[0]
            small = entry.partition("<small>")[2]
            assert common[section.title] or small, option.name
            assert (f"`{option.default}`" in small) == bool(option.default), option.name


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_is_told_to_who_debugs(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "pyspark_kafkalog"):
        assert read_options({**READ, name: "x"}, batch=True) == read_options(READ, batch=True)
        assert write_options({**BROKERS, name: "x"}) == write_options(BROKERS)
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert name in record.getMessage()


@pytest.mark.parametrize("name", sorted(REFUSED_READING))
def test_a_reader_refuses(name: str) -> None:
    bare = re.escape(name.removeprefix("kafka."))
    for read in (common_read_options, lambda options: read_options(options, batch=False)):
        with pytest.raises(OptionError, match=f"Kafka option '{bare}' is not supported\\. .+"):
            read({**READ, name: "x"})


@pytest.mark.parametrize("name", sorted(REFUSED_WRITING))
def test_a_writer_refuses(name: str) -> None:
    bare = re.escape(name.removeprefix("kafka."))
    with pytest.raises(OptionError, match=f"Kafka option '{bare}' is not supported\\. .+"):
        write_options({**BROKERS, name: "x"})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in HARMLESS for value in HARMLESS[name]])
def test_a_value_that_changes_nothing_is_accepted(name: str, value: str) -> None:
    assert read_options({**READ, name: value}, batch=True) == read_options(READ, batch=True)
    assert write_options({**BROKERS, name: value}) == write_options(BROKERS)


def test_each_setting_without_effect_says_why() -> None:
    assert all(re.fullmatch(r"[A-Z].*\.", reason) for reason in WITHOUT_EFFECT.values())
    assert HARMLESS.keys() <= {*REFUSED_READING, *REFUSED_WRITING}


def test_settings_of_the_other_client_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """So that one set of settings serves both directions, as it does with Java's clients."""
    reading = {"kafka.group.id": "g", "kafka.auto.offset.reset": "latest", "kafka.isolation.level": "x"}
    writing = {"kafka.acks": "x", "kafka.key.serializer": "x", "kafka.transactional.id": "x"}
    assert write_options({**BROKERS, **reading}) == write_options(BROKERS)
    assert read_options({**READ, **writing}, batch=True) == read_options(READ, batch=True)
    assert not caplog.records


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("kafka.groupId", "kafka.group.id"),
        ("kafka.group_id", "kafka.group.id"),
        ("kafka.consumer.group.id", "kafka.group.id"),
        ("kafka.session.timeout", "kafka.session.timeout.ms"),
        ("kafka.securty.protocol", "kafka.security.protocol"),
        ("starting_offsets", "startingOffsets"),
        ("failOnDataLoss ", "failOnDataLoss"),
        ("group_id", "kafka.group.id"),
    ],
)
def test_a_slip_of_an_option_is_an_error(slip: str, meant: str) -> None:
    for written in (slip, slip.lower()):  # as users write it, and as Spark passes it
        for batch in (True, False):
            with pytest.raises(OptionError) as caught:
                read_options({**READ, written: "secret"}, batch=batch)
            assert str(caught.value) == f"Unknown option {written!r}. Did you mean {meant}?"
    with pytest.raises(OptionError, match=r"Did you mean kafka\.compression\.type\?"):
        write_options({**BROKERS, "kafka.compresion.type": "lz4"})


def test_an_option_is_like_another_by_more_than_its_prefix() -> None:
    names = [option.name for option in BY_NAME.values()]
    assert near_names("kafka.nonsense", names) == []
    assert near_names("KAFKA.acknowledgements", [*names, "kafka.acknowledgement"]) == [
        "kafka.acknowledgement"
    ]
    assert near_names("batch.size", ["kafka.batch.size", "batchSize"]) == ["kafka.batch.size", "batchSize"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("startingoffset", "startingOffset"),
        ("starting_offsets", "starting_offsets"),
        ("header", "header"),
        ("maxfilespertrigger", "maxfilespertrigger"),
    ],
)
def test_a_name_is_shown_with_capitals_only_where_they_can_be_guessed(name: str, shown: str) -> None:
    with pytest.raises(OptionError, match=f"^Unknown option '{shown}'"):
        read_options({**READ, name: "x"}, batch=True)


@pytest.mark.parametrize("name", sorted(REFUSED_READING.keys() - REFUSED_WRITING.keys()))
def test_a_consumers_settings_have_no_effect_on_a_write(name: str) -> None:
    write_options({**BROKERS, name: "x"})


@pytest.mark.parametrize(
    "given",
    sorted(
        {name for bare in (*OF_OTHERS, *RENAMED, *CHANGED) for name in (bare, f"kafka.{bare}")}
        - {*REFUSED_READING, *REFUSED_WRITING, *BY_NAME}
    ),
)
@pytest.mark.parametrize("place", [BROKERS, {"path": "/log"}])
def test_settings_of_other_clients_say_what_to_do(given: str, place: dict[str, str]) -> None:
    reading = {**place, "subscribe": "t"}
    for use in (
        lambda: read_options({**reading, given: "x"}, batch=True),
        lambda: write_options({**place, given: "x"}),
    ):
        with pytest.raises(OptionError, match=f"^Option '{re.escape(given)}' is not supported\\. .+"):
            use()


DIRECTORY = {"path": "/log"}
OLD_NAMES: list[tuple[dict[str, str], str, str, str]] = [
    (BROKERS, "metadata.broker.list", "Write kafka.bootstrap.servers instead.", "the same"),
    ({}, "metadata.broker.list", "Write kafka.bootstrap.servers instead.", "the same"),
    (
        BROKERS,
        "request.required.acks",
        "is kafka.acks now, which is for writing: leave",
        "Write kafka.acks i",
    ),
    (DIRECTORY, "request.required.acks", "which is for brokers", "is kafka.acks now, which is for brokers"),
    (BROKERS, "serializer.class", "key.format or value.format", "the same"),
    (BROKERS, "message.send.max.retries", "for writing", "Write kafka.retries instead"),
    (BROKERS, "topic.metadata.refresh.interval.ms", "Write kafka.metadata.max.age.ms instead", "the same"),
    (BROKERS, "compression.codec", "for writing", "Write kafka.compression.type instead"),
    (DIRECTORY, "compression.codec", "for brokers", "Write compression.type instead"),
    (BROKERS, "producer.type", "kafka.acks", "the same"),
    (BROKERS, "fetch.message.max.bytes", "Write kafka.max.partition.fetch.bytes instead", "is for reading"),
    (BROKERS, "zk.connect", "Write zookeeper.connect instead", "zookeeper.connect now, which is for reading"),
    (BROKERS, "auto.commit.enable", "commitOffsets", "commitOffsets now, which is for reading"),
    (BROKERS, "num.consumer.fetchers", "maxPartitions", "the same"),
]


@pytest.mark.parametrize(("place", "name", "reading", "writing"), OLD_NAMES)
@pytest.mark.parametrize("prefix", ["", "kafka."])
def test_old_names_tell_the_new_one(
    place: dict[str, str], name: str, reading: str, writing: str, prefix: str
) -> None:
    """With and without ``kafka.``, for what it is given to."""
    given = {**place, f"{prefix}{name}": "x"}
    with pytest.raises(OptionError, match=f"'{prefix}{name}' is not supported.*{reading}"):
        read_options({**given, "subscribe": "t"}, batch=True)
    with pytest.raises(OptionError, match=reading if writing == "the same" else writing):
        write_options({**given, "topic": "t"})


def test_what_took_the_place_of_old_names_is_there() -> None:
    assert {name.lower() for name in RENAMED.values()} <= BY_NAME.keys()
    assert not RENAMED.keys() & CHANGED.keys()
    assert not (RENAMED.keys() | CHANGED.keys()) & OF_OTHERS.keys()
    for name, hint in CHANGED.items():
        named = {word.strip(":,.") for word in hint.split() if word.startswith("kafka.")}
        assert {each.lower() for each in named} <= BY_NAME.keys(), name


@pytest.mark.parametrize(
    ("name", "reading", "writing"),
    [
        (
            "partitioner.class",
            "kafka.partitioner.class is for writing",
            "Did you mean kafka.partitioner.class",
        ),
        ("auto.offset.reset", "startingOffsets", "Leave it out: it is for reading"),
        ("fetch.min.bytes", "Did you mean kafka.fetch.min.bytes", "kafka.fetch.min.bytes is for reading"),
    ],
)
def test_bare_names_of_the_other_direction(name: str, reading: str, writing: str) -> None:
    with pytest.raises(OptionError, match=reading):
        read_options({**BROKERS, "subscribe": "t", name: "x"}, batch=True)
    with pytest.raises(OptionError, match=writing):
        write_options({**BROKERS, "topic": "t", name: "x"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("auto.offset.reset", "Set startingOffsets to earliest or latest instead: once smallest or largest."),
        ("auto_offset_reset", "Set startingOffsets to earliest or latest instead: once smallest or largest."),
        ("max.poll.records", "Leave it out. Rows come in larger batches: see maxOffsetsPerTrigger."),
    ],
)
def test_settings_of_kafka_say_the_same_without_the_prefix(name: str, hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**READ, name: "x"}, batch=True)
    assert str(caught.value) == f"Unknown option {name!r}. {hint}"


def test_an_unknown_name_is_warned_of_with_near_ones(caplog: pytest.LogCaptureFixture) -> None:
    read_options({**READ, "kafka.fetch.bytes": "secret"}, batch=True)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "Did you mean kafka.fetch.min.bytes or" in record.getMessage()
    assert "secret" not in caplog.text


def test_the_same_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes a writer for every micro-batch."""
    for name in ("kafka.qqqq", "kafka.qqqq", "kafka.wwww"):
        write_options({**BROKERS, name: "x"})
    assert [record.getMessage().split()[1] for record in caplog.records] == ["kafka.qqqq", "kafka.wwww"]


def test_an_unknown_name_with_none_near_gets_no_list(caplog: pytest.LogCaptureFixture) -> None:
    write_options({**BROKERS, "kafka.qqqqqqqq": "x"})
    assert caplog.records[0].getMessage() == (
        "Option kafka.qqqqqqqq is unknown to Kafka's clients and has no effect"
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("compression.type", "Write 'kafka.compression.type' instead"),
        ("batch.size", "Write 'kafka.batch.size' instead"),
        ("segment.bytes", "kafkalog topics alter --set segment.bytes=VALUE"),
        ("numPartitions", "kafkalog topics create --partitions"),
    ],
)
def test_options_of_log_directories_are_refused(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"'{re.escape(name)}' is for log directories.*{hint}"):
        write_options({**BROKERS, name: "1"})


def test_other_unknown_options_are_refused_as_for_directories() -> None:
    with pytest.raises(OptionError, match=r"Unknown option 'acks'.*Did you mean kafka\.acks"):
        write_options({**BROKERS, "acks": "1"})
    with pytest.raises(OptionError, match="'subscribe' is for reading only"):
        write_options({**BROKERS, "subscribe": "t"})
    with pytest.raises(OptionError, match="'topic' is for writing only"):
        read_options({**READ, "topic": "t"}, batch=True)
