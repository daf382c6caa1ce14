"""The parameters that several commands have: the place that they work on, and what of it."""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
from click.shell_completion import CompletionItem

from pyspark_kafkalog.client.kafka import Kafka, names_brokers, options_of
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import (
    KafkaLogError,
    LogDirectoryError,
    OptionError,
    UnknownTopicOrPartitionError,
    no_such_partition,
)
from pyspark_kafkalog.model import Place, TopicPartition, check_topic
from pyspark_kafkalog.options.properties import parse_properties
from pyspark_kafkalog.options.settings import Selection
from pyspark_kafkalog.options.table import BY_NAME, SERVERS
from pyspark_kafkalog.options.times import point_in_time
from pyspark_kafkalog.options.topic_configs import in_kafkas_units
from pyspark_kafkalog.options.user_options import partitions_like, with_kafka
from pyspark_kafkalog.options.values import REGISTRY_LOGIN, ZOOKEEPER_LOGIN, patterns, size_in_bytes
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import as_typed
from pyspark_kafkalog.tools.groups.consumer_groups import GroupOffset

_COMPLETE_MS = 1500
"""The time in which brokers answer a shell that completes, or else don't."""
_PLACES = ("source", "place", "directory")
"""The arguments whose topics and groups a command is about, the first that it has."""


def _names(look: Callable[[Kafka], Sequence[str]]) -> Callable[..., list[CompletionItem]]:
    """Lets a shell complete names that the place has; it completes nothing where that does not answer."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Behind an option that lacks its value, click has not parsed the words before it.
        words = [*(ctx.params.get(name) for name in _PLACES), *ctx.args]
        place = next(filter(None, words), None)
        with suppress(Exception):
            config = ctx.params.get("config")
            properties = {} if config is None else parse_properties(config.read())
            properties.setdefault("request.timeout.ms", str(_COMPLETE_MS))
            options = options_for(str(place), ctx.params.get("given") or (), properties)
            if SERVERS not in options:
                options.pop("kafka.request.timeout.ms")
            found = look(Kafka(options)) if place is not None else ()
            return [CompletionItem(name) for name in found if name.startswith(incomplete)]
        return []

    return complete


topic_names = _names(lambda kafka: sorted(kafka.report_place.topics()))
group_names = _names(lambda kafka: [group.group for group in kafka.groups.describe() if group.group])

topics_argument = click.argument("topics", metavar="[TOPIC]...", nargs=-1, shell_complete=topic_names)
"""The topics that a command is about; all of the place without one."""
exclude_option = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERNS",
    callback=lambda ctx, param, given: tuple(each for text in given for each in patterns("--exclude", text)),
    help="Leave out topics whose whole names match a regular expression. Repeatable, or with commas.",
)
group_option = click.option(
    "--group",
    "groups",
    multiple=True,
    help="Only this consumer group. Repeatable.",
    shell_complete=group_names,
)
partitions_argument = click.argument(
    "topics", metavar="[TOPIC[:PARTITIONS]]...", nargs=-1, shell_complete=topic_names
)
"""The topics, or partitions such as ``orders:0,1``, that a command is about."""

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


class PlaceArgument(click.Argument):
    """The argument PLACE, which refuses words that are exchanged, with the command turned around."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Refuse a word that can't be a place if a later one can."""
        place = opts.get(self.name or "")
        if isinstance(place, str) and not ctx.resilient_parsing and _is_no_place(place):
            for param in ctx.command.get_params(ctx):
                is_name = isinstance(param, click.Argument) and "TOPIC" in (param.metavar or "").upper()
                given = opts.get(param.name or "") if isinstance(param, click.Argument) else None
                words = [given] if isinstance(given, str) else given
                for word in words if isinstance(words, list | tuple) else ():
                    if _is_surely_brokers(word) or (is_name and "/" in word):
                        raise OptionError(
                            f"PLACE comes first, got {place!r}",
                            hint=f"Write {as_typed({place: (word,), word: (place,)})}",
                        )
        return super().handle_parse_result(ctx, opts, args)


def _is_surely_brokers(word: str) -> bool:
    """Whether a word names brokers: a topic with a partition, such as ``orders:0``, has a low number."""
    if word.startswith("zk://"):
        return True
    return names_brokers(word) and all(len(each.rpartition(":")[2]) > 3 for each in word.split(","))


def _is_no_place(word: str) -> bool:
    """Whether a word is like a name and not like a place: no path, no URI, no brokers and no folder."""
    return "/" not in word and not _is_surely_brokers(word) and not os.path.isdir(word)


def no_brokers(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse brokers where a folder has to be, as when two words are exchanged."""
    if _is_surely_brokers(value):
        words = " ".join(ctx.command.collect_usage_pieces(ctx)[1:])
        raise OptionError(
            f"{param.metavar} is a folder, got brokers: {value!r}", hint=f"Write {ctx.command_path} {words}"
        )
    return value


def on_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument PLACE and the options ``-o`` and ``--config``; the command gets a :class:`Kafka`."""
    place = click.argument("place", metavar="PLACE", shell_complete=_folders, cls=PlaceArgument)
    return place(_of_place(command))


def on_optional_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, where PLACE can be left out; the command gets None then."""
    place = click.argument("place", metavar="[PLACE]", required=False, shell_complete=_folders)
    return place(_of_place(command))


def _of_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options of a place, which gets a :class:`Kafka`."""

    @click.option(
        "-o",
        "--option",
        "given",
        metavar="NAME=VALUE",
        multiple=True,
        help="A client setting, such as security.protocol=SSL. Repeatable.",
    )
    @click.option(
        "--config",
        metavar="FILE",
        type=PropertiesFile(encoding="utf-8-sig"),
        help="A file of client properties, like --command-config of Kafka's tools.",
    )
    @functools.wraps(command)
    def with_place(place: str | None, given: tuple[str, ...], config: Any, **rest: Any) -> Any:
        if place is None:
            if given or config is not None:
                raise click.UsageError("-o and --config are settings of a place: give PLACE.")
            return command(None, **rest)
        properties = parse_properties(text_of(config)) if config is not None else {}
        level = properties.pop("isolation.level", "read_uncommitted")
        if "read_committed" in rest:  # of a command that reads records
            rest["read_committed"] |= BY_NAME["kafka.isolation.level"].parser("isolation.level", level)
        if "offset" in rest:  # of a command that reads records
            for text in given:
                rest.update({} if "=" in text else _as_kcat(text))
            given = tuple(text for text in given if "=" in text)
        try:
            return command(Kafka(options_for(place, given, properties)), **rest)
        except LogDirectoryError as e:
            if not re.fullmatch(r"[\w-]+", place) or os.path.lexists(place):
                raise
            raise e.with_hint(
                f"If {place} is a host: brokers need a port, such as {place}:9092. A new log directory begins"
                f" with a write to it, or with mkdir {place}."
            ) from e

    return with_place


def execute_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--execute`` and ``--dry-run``; the command gets whether to execute."""

    @click.option("--execute", is_flag=True, help="Apply the change. Without this it is only shown.")
    @click.option("--dry-run", is_flag=True, help="Only show the change, which is the default.")
    @functools.wraps(command)
    def with_execute(*args: Any, execute: bool, dry_run: bool, **rest: Any) -> Any:
        if execute and dry_run:
            raise click.UsageError("Give only one of --execute and --dry-run.")
        return command(*args, execute=execute, **rest)

    return with_execute


def _folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Lets a shell complete the name of a folder."""
    return [CompletionItem(incomplete, type="dir")]


_EXAMPLES = {"-o": "security.protocol=SSL", "--set": "retention.ms=7d", "--rename": "orders=again"}
"""A value of each option that takes a pair; what was given may be a secret."""
_WHERE_EXPANDED = {"~": "without quotes around it", "$": "without single quotes around it"}


class PropertiesFile(click.File):
    """A file of client properties."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and "=" in value and not os.path.exists(value):
            self.fail(
                "expected a file. Give settings of clients by -o, and those of topics by --set.", param, ctx
            )
        return super().convert(value, param, ctx)


def _as_kcat(text: str) -> dict[str, int]:
    """The ``-o`` of kcat and rpk: where to begin, or to end."""
    if text in ("beginning", "start", "earliest"):
        return {"offset": 0}
    if text in ("end", "latest"):
        return {"tail": 0}
    match = re.fullmatch(r"(?P<at>[se]@)?(?P<number>-?[0-9]{1,19})", text, re.ASCII)
    if match is None:
        raise click.BadParameter(
            "expected NAME=VALUE, or as in kcat beginning, end, an offset, s@MS or e@MS", param_hint="'-o'"
        )
    at, number = match["at"], match["number"]
    if at is None:
        return {"offset": int(number)}
    return {
        "since" if at == "s@" else "until": point_in_time(f"-o {at}", number, time.time_ns() // 1_000_000)
    }


def options_for(place: str, given: tuple[str, ...], properties: dict[str, str]) -> dict[str, str]:
    """The reader options for the place that a command names; ``given`` takes precedence over properties.

    :raises OptionError: if an option names a place, too, and see :func:`.kafka.options_of`.
    """
    options = {
        name if name.startswith((*ZOOKEEPER_LOGIN, *REGISTRY_LOGIN)) else f"kafka.{name}": text
        for name, text in properties.items()
        if name not in _UNUSED_PROPERTIES
    }
    values: dict[str, str] = {}
    for item in given:
        name, text = _pair("-o", item)
        if values.setdefault(with_kafka(name).lower(), text) != text:
            raise click.BadParameter(f"{name} is given twice, with two values", param_hint="'-o'")
        options[with_kafka(name)] = text
    if place.startswith(("~", "$")):
        sign = place[0]
        raise OptionError(
            f"Expected a path without {sign}",
            hint=f"The shell expands {sign} only {_WHERE_EXPANDED[sign]}. If a name begins with {sign}, write"
            f" ./{sign}.",
        )
    (named,) = options_of(place).items()
    if again := [name for name in options if name.lower() in (named[0], "path", "paths", SERVERS)]:
        raise OptionError(f"PLACE and option {again[0]!r} both name a place", hint="Leave the option out.")
    return dict([*options.items(), named])


def pairs(option: str, given: Sequence[str], form: str = "NAME=VALUE") -> dict[str, str]:
    """The values of an option that takes NAME=VALUE, or what ``form`` calls so, by name."""
    values = {}
    for item in given:
        name, text = _pair(option, item, form)
        if name in values:
            raise click.BadParameter(f"{name} is named twice", param_hint=f"'{option}'")
        values[name] = text.strip()
    return values


def set_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--set`` for configurations of topics; ``about`` says of which, and what for."""
    return click.option(
        "--set",
        "configs",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parse_configs,
        help=f"{about} Repeatable.",
    )


def parse_configs(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """The callback of an option that takes a topic configuration, which may have a unit: retention.ms=7d."""
    return in_kafkas_units(pairs(param.opts[0], given))


def _pair(option: str, given: str, form: str = "NAME=VALUE") -> tuple[str, str]:
    name, equals, text = given.partition("=")
    if not equals or not name.strip():
        example = _EXAMPLES.get(option, "")
        raise click.BadParameter(
            f"expected {form}{example and f', such as {example}'}", param_hint=f"'{option}'"
        )
    return name.strip(), text


@contextmanager
def in_file(file: Any) -> Iterator[None]:
    """Name the file in the errors of what it holds."""
    try:
        yield
    except UnicodeDecodeError as e:
        raise OptionError(
            f"The file is not valid UTF-8: {e.reason} at byte {e.start}",
            file=name_of(file),
            hint="Save it as UTF-8.",
        ) from None
    except OptionError as e:
        raise OptionError(
            e.message, topic_partition=e.topic_partition, file=name_of(file), hint=e.hint
        ) from None


def name_of(file: Any) -> str:
    """The name of a file that is named on the command line; standard input may have none."""
    return str(getattr(file, "name", "<stdin>"))


def text_of(file: Any) -> str:
    """The text of a file that is named on the command line.

    :raises OptionError: if it is not UTF-8.
    """
    with in_file(file):
        text: str = file.read()
    return text


def parse_time(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """The callback of an option that takes a time: milliseconds since 1970."""
    return None if text is None else point_in_time(param.opts[0], text, time.time_ns() // 1_000_000)


def _parse_rate(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    return None if text is None else size_in_bytes(param.opts[0], text)


rate_option = click.option(
    "--rate", metavar="BYTES", callback=_parse_rate, help="Bytes a second at most, such as 500k, 20m or 1g."
)


def selection(topics: tuple[str, ...], exclude: tuple[str, ...]) -> Selection:
    """The named topics; all topics if none is named, except those of ``--exclude``."""
    return Selection(topics=named_topics(topics, exclude) or None, exclude=exclude or None)


def named_topics(topics: tuple[str, ...], exclude: tuple[str, ...]) -> tuple[str, ...]:
    """The named topics, each once.

    :raises click.UsageError: if there are topics to exclude, too.
    """
    if topics and exclude:
        raise click.UsageError("Topics are named, so there is nothing to leave out: drop --exclude.")
    return tuple(dict.fromkeys(map(check_topic, topics)))


def offsets_of(
    kafka: Kafka, groups: tuple[str, ...], chosen: Selection, *, read_committed: bool = False
) -> list[GroupOffset]:
    """The committed offsets of these groups; of all groups if none is named."""
    with said("Looking up committed offsets"), groups_as_options(kafka, chosen):
        return kafka.groups.offsets(groups or None, chosen, read_committed=read_committed)


@contextmanager
def groups_as_options(kafka: Kafka, chosen: Selection) -> Iterator[None]:
    """Say how a group is named if a topic that is not there has the name of one."""
    try:
        yield
    except UnknownTopicOrPartitionError as e:
        groups = [name for name in chosen.topics or () if _is_group(kafka, name)]
        if not groups:
            raise
        written = as_typed({name: ("--group", name) for name in groups})
        verb = "is a consumer group" if len(groups) == 1 else "are consumer groups"
        raise e.with_hint(f"{', '.join(groups)} {verb}. Write {written}") from e


def _is_group(kafka: Kafka, name: str) -> bool:
    try:
        return bool(kafka.groups.describe([name]))
    except KafkaLogError:
        return False


def named_partitions(place: Place, names: tuple[str, ...]) -> list[TopicPartition]:
    """The partitions of ``topic`` or ``topic:0,1``, sorted, as kafka-consumer-groups takes them."""
    found: set[TopicPartition] = set()
    for name in names:
        topic, numbers = topic_and_numbers(name)
        found |= {TopicPartition(topic, number) for number in numbers} or {
            *partitions_of(place, Selection(topics=(topic,)))
        }
    return sorted(found)


def topic_and_numbers(name: str) -> tuple[str, tuple[int, ...]]:
    """The topic of ``orders`` or ``orders:0,1``, and the numbers of the partitions, if it has any.

    :raises OptionError: for anything else.
    """
    topic, colon, numbers = name.partition(":")
    found = numbers.split(",") if colon else []
    if not all(re.fullmatch("[0-9]{1,9}", number.strip(), re.ASCII) for number in found):
        raise OptionError(f"Expected a topic, or a topic and partitions such as orders:0,1, got {name!r}")
    return check_topic(topic), tuple(map(int, found))


def one_partition(place: Place, name: str | None) -> TopicPartition:
    """The partition ``orders:0``, or ``orders-0`` as its folder is called; the only one if none is named.

    :raises UnknownTopicOrPartitionError: if there is no such topic or partition.
    """
    if name is None:
        partitions = partitions_of(place)
        if not partitions:
            raise UnknownTopicOrPartitionError("There is no partition", hint="See kafkalog topics PLACE.")
        if len(partitions) > 1:
            first = partitions[0]
            raise click.UsageError(
                f"Name one of the {len(partitions)} partitions, such as {first.topic}:{first.partition}."
            )
        return partitions[0]
    partition = parse_partition(name)
    existing = partitions_of(place, Selection(topics=(partition.topic,)))
    if partition not in existing:
        raise no_such_partition([partition], hint=partitions_like([partition], existing))
    return partition


def parse_partition(name: str) -> TopicPartition:
    """The partition ``orders:0``, or ``orders-0`` as its folder is called."""
    match = _PARTITION.fullmatch(name)
    if match is None:
        example = f"{name}:0" if re.fullmatch(r"[\w.-]+", name) else "orders:0"
        raise click.UsageError(f"Expected a partition such as {example}, got {name!r}.")
    return TopicPartition(check_topic(match["topic"]), int(match["partition"]))


def parse_partitions(names: Sequence[str]) -> list[TopicPartition]:
    """The partitions ``orders:0,1``, or ``orders-0`` as a folder is called."""
    found: dict[TopicPartition, None] = {}
    for name in names:
        if ":" in name:
            topic, numbers = topic_and_numbers(name)
            found.update(dict.fromkeys(TopicPartition(topic, number) for number in numbers))
        else:
            found[parse_partition(name)] = None
    return list(found)
