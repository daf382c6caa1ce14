"""The place that a command works on, and the options to reach it."""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import click

from pyspark_kafkalog.admin import groups_of, place_of, topics_of
from pyspark_kafkalog.admin.partitions import partitions_of
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.groups import GroupOffsets
from pyspark_kafkalog.model import Place, TopicPartition, check_topic
from pyspark_kafkalog.options.properties import parse_properties
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.table import SERVERS
from pyspark_kafkalog.options.times import point_in_time
from pyspark_kafkalog.options.values import size_in_bytes
from pyspark_kafkalog.topics import Topics

_LISTENER = r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?"
_HOST = _LISTENER + r"(?:\[[0-9a-fA-F:.%\w-]+\]|[\w.-]+):[0-9]{1,5}"
_BROKERS = re.compile(rf"{_HOST}(?:,{_HOST})*", re.ASCII)
_LOGIN = re.compile(rf"{_LISTENER}(?![/.~]|\w+://).*@{_HOST}(?:,.*)?", re.ASCII | re.DOTALL)
"""Brokers with a login before one of them, which no client of Kafka takes."""
_UNUSED_PROPERTIES = {
    "bootstrap.servers",
    "group.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "interceptor.classes",
    "key.deserializer",
    "value.deserializer",
}
"""Properties of consumers that have no use here and do no harm."""
_PARTITION = re.compile(r"(?P<topic>.+)[-:](?P<partition>[0-9]{1,9})", re.DOTALL)


class Target:
    """The place that a command names, opened on first use."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    @cached_property
    def place(self) -> Place:
        return place_of(self.options)

    @cached_property
    def groups(self) -> GroupOffsets:
        return groups_of(self.options)

    @cached_property
    def topics(self) -> Topics:
        return topics_of(self.options)


def on_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument PLACE and the options ``-o`` and ``--config``; the command gets a :class:`Target`."""

    @click.argument("place", metavar="PLACE")
    @click.option(
        "-o",
        "--option",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        help="A client setting, such as kafka.security.protocol=SSL. Repeatable.",
    )
    @click.option(
        "--config",
        type=click.File(encoding="utf-8"),
        help="A file of client properties, like --command-config of Kafka's tools.",
    )
    @functools.wraps(command)
    def with_target(place: str, given: tuple[str, ...], config: Any, **rest: Any) -> Any:
        properties = parse_properties(config.read()) if config is not None else {}
        return command(Target(options_for(place, given, properties)), **rest)

    return with_target


def options_for(place: str, given: tuple[str, ...], properties: dict[str, str]) -> dict[str, str]:
    """The reader options for the place that a command names; ``given`` takes precedence over properties.

    :raises OptionError: for brokers with a login, without quoting it.
    """
    options = {f"kafka.{name}": text for name, text in properties.items() if name not in _UNUSED_PROPERTIES}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter("expected NAME=VALUE", param_hint="'-o'")
        options[name.strip()] = text
    if not _is_folder(place) and _LOGIN.fullmatch(place):
        raise OptionError(
            "Expected brokers as host:port, got something before an @, which may be a secret",
            hint="Give a login as client properties, such as sasl.jaas.config, in a file: --config FILE.",
        )
    if _is_folder(place):
        options["path"] = json.dumps([place])  # its name may have commas
    else:
        options[SERVERS if names_brokers(place) else "path"] = place
    return options


def names_brokers(place: str) -> bool:
    """Whether a place has the form of brokers: host:port[,host:port]."""
    return _BROKERS.fullmatch(place) is not None


def _is_folder(place: str) -> bool:
    try:
        return os.path.isdir(place)
    except ValueError:
        return False


def parse_time(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that takes a time: milliseconds since 1970."""
    return None if text is None else point_in_time(param.opts[0], text, time.time_ns() // 1_000_000)


def _parse_rate(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    return None if text is None else size_in_bytes(param.opts[0], text)


rate_option = click.option(
    "--rate", metavar="BYTES", callback=_parse_rate, help="Bytes a second at most, such as 500k, 20m or 1g."
)


def selection(topics: tuple[str, ...]) -> Selection:
    """The topics of ``--topic``; all topics without it."""
    named = dict.fromkeys(check_topic(topic) for topic in topics)
    return Selection(topics=tuple(named)) if named else Selection()


def named_partitions(place: Place, names: tuple[str, ...]) -> list[TopicPartition]:
    """The partitions of ``topic`` or ``topic:0,1``, as kafka-consumer-groups takes them."""
    found: dict[TopicPartition, None] = {}
    for name in names:
        topic, colon, numbers = name.partition(":")
        check_topic(topic)
        if not colon:
            found.update(dict.fromkeys(partitions_of(place, Selection(topics=(topic,)))))
            continue
        for number in numbers.split(","):
            if not re.fullmatch("[0-9]{1,9}", number.strip(), re.ASCII):
                raise OptionError(
                    f"Expected a topic, or a topic and partitions such as orders:0,1, got {name!r}"
                )
            found[TopicPartition(topic, int(number))] = None
    return sorted(found)


def one_partition(place: Place, name: str | None) -> TopicPartition:
    """The partition ``orders-0`` or ``orders:0``; without a name, the only partition there is."""
    if name is None:
        partitions = partitions_of(place)
        if len(partitions) != 1:
            raise click.UsageError(f"Name one of the {len(partitions)} partitions, such as orders-0.")
        return partitions[0]
    return parse_partition(name)


def parse_partition(name: str) -> TopicPartition:
    """The partition ``orders-0`` or ``orders:0``."""
    match = _PARTITION.fullmatch(name)
    if match is None:
        raise click.UsageError(f"Expected a partition such as orders-0, got {name!r}.")
    return TopicPartition(check_topic(match["topic"]), int(match["partition"]))
