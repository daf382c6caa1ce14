"""The options that a user gave: checks names, and parses values as the table says."""

from __future__ import annotations

import difflib
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark_kafkalog.errors import OptionError, numbered
from pyspark_kafkalog.options.client_settings import (
    HARMLESS,
    OF_OTHERS,
    REFUSED_READING,
    REFUSED_WRITING,
    STORE_PASSWORDS,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.table import (
    BY_NAME,
    DEFAULTS,
    SERVERS,
    VIEW_USES,
    ZOOKEEPER,
    Option,
    Use,
    Where,
)
from pyspark_kafkalog.options.values import letters, milliseconds
from pyspark_kafkalog.saying import named_work

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pyspark_kafkalog.model import TopicPartition

_Filled = TypeVar("_Filled", bound="DataclassInstance")

_log = logging.getLogger("pyspark_kafkalog")

_ADDED_BY_SPARK = re.compile(r"paths|queryname|location|owner|provider|comment|external|option\..*")
"""Names that Spark adds: ``load([..])``, ``queryName``, tables of its catalog (observed with PySpark 4.2)."""
_CLIENT_SETTINGS = {*WITHOUT_EFFECT, *REFUSED_READING, *REFUSED_WRITING}
_OF_FROM_JSON = {
    name.lower(): name
    for name in (
        *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers"),
        *("allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars"),
        *("allowUnquotedFieldNames", "dateFormat", "dropFieldIfAllNull", "encoding", "lineSep", "locale"),
        *("multiLine", "prefersDecimal", "primitivesAsString", "samplingRatio", "timestampFormat"),
        "timestampNTZFormat",
    )
}
"""The options of Spark's JSON that decoding does not have."""
_TOPICS_OPTIONS = ("subscribe", "topic")
"""The option that names the topics: of readers, and of writers."""
_OF_A_CLIENT = re.compile(r"(?<=^kafka\.)(?:consumer|producer)\.")
"""The part of an option's name that says whose client it is for, as other libraries write it."""
_PATIENCE = "kafkaconsumer.", "fetchoffset."
"""The beginnings of options that say how long to ask brokers, and change no result."""
_SHORT = re.compile("[0-9]{1,3}")
"""A time in milliseconds that could be one in seconds."""
_RETENTIONS = "retention.ms", "local.retention.ms"
_AN_HOUR = 3_600_000
"""Milliseconds. A shorter retention without a unit may be meant in seconds, or in days."""
SHORT_RETENTION = "%s=%s is in ms: records older than %.3g s are deleted"
_SEPARATORS = re.compile("[ ._-]")
_FLAGS = {
    "kafka.isolation.level": "--read-committed",
    "large.message.enabled": "--large-messages",
    "failOnDataLoss": "--skip-damaged",
    "startingOffsets": "--offset",
    "startingTimestamp": "--since",
    "endingTimestamp": "--until",
}
"""The flags of the command line that do what an option of readers does."""
_MANY = 40
"""The number of names beyond which an error does not list them: no one looks through more."""
_ALMOST = 0.9
"""The likeness of names, by difflib's ratio, from which on one counts as a slip of the other."""
_LISTED = 10
"""The most names that an error lists."""


def check_is_mapping(options: Mapping[str, object]) -> None:
    """Check the value that a caller gives as options.

    :raises OptionError: for anything else, such as brokers alone.
    """
    if not isinstance(options, Mapping):
        raise OptionError(
            f"Expected options, got {type(options).__name__}",
            hint='Give a dict, such as {"kafka.bootstrap.servers": "host:9092"}.',
        )


class UserOptions:
    """The options that the user gave for one use; they also say whether the place is brokers."""

    def __init__(self, options: Mapping[str, object], use: Use) -> None:
        check_is_mapping(options)
        self._values = {name.lower(): str(value) for name, value in options.items() if value is not None}
        self._written = {name.lower(): name for name in options}
        for name, value in options.items():
            if value is not None and str(value) != self._values[name.lower()]:
                raise OptionError(
                    f"Options {name!r} and {self._written[name.lower()]!r} are the same one, with two values",
                    hint="Leave one out: case makes no difference in names.",
                )
        self._use = use
        self.is_zookeeper = ZOOKEEPER in self and not any(name in self for name in ("path", "paths", SERVERS))
        """Whether ZooKeeper is the only place that is named: with brokers it is where they keep offsets."""
        self.where = Where.BROKERS if SERVERS in self or self.is_zookeeper else Where.DIRECTORY

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def of_extension(self, name: str) -> list[str]:
        """The given options of an extension, as the table writes them."""
        given = (BY_NAME.get(each) for each in self._values)
        return [option.name for option in given if option is not None and option.extension == name]

    @property
    def are_of_stream(self) -> bool:
        """Whether they are those of a stream's reader."""
        return self._use is Use.STREAM_READ

    def names(self, *prefixes: str) -> list[str]:
        """The given names that begin with one of these prefixes, in lower case, sorted."""
        return sorted(name for name in self._values if name.startswith(prefixes))

    def text(self, name: str) -> str | None:
        """The given text, unparsed; None if the option was not given."""
        return self._values.get(name.lower())

    def value(self, name: str) -> Any:
        """The parsed value, or else the option's default.

        :raises OptionError: if the option's parser refuses the text.
        """
        text = self.text(name)
        if text is None:
            return DEFAULTS[name.lower()]
        option = BY_NAME[name.lower()]
        return option.parser(option.name, text)

    def given(self, *names: str) -> dict[str, str]:
        """The texts of those of these options that were given, stripped.

        :raises OptionError: if an option's parser refuses one.
        """
        found = {name: text.strip() for name in names if (text := self.text(name)) is not None}
        for name in found:
            self.value(name)
        return found

    def fill(self, kind: type[_Filled], **others: Any) -> _Filled:
        """A dataclass whose fields from :func:`.from_option` have the options' values.

        A field keeps its default if none of its options applies to the place.

        :param others: the values of the other fields.
        """
        for field, options in _options_of(kind):
            names = [option.name for option in options if option.where & self.where]
            if names and field not in others:
                others[field] = self.value(next((name for name in names if name in self), names[0]))
        return kind(**others)

    def refuse_without(self, needed: str, *prefixes: str) -> None:
        """Refuse options whose names begin so, unless they have their defaults: without ``needed`` they have
        no effect.

        :raises OptionError: naming the first of them.
        """
        for name in self.names(*prefixes):
            if name in BY_NAME and self.value(name) != DEFAULTS[name]:
                raise OptionError(
                    f"Option {BY_NAME[name].name!r} needs {needed!r}", hint="Give both, or leave both out."
                )

    def warn_without(self, name: str, *needed: str) -> None:
        """Warn of an option that has no effect, because none of those that it needs is given."""
        if name in self and BY_NAME[name.lower()].use & self._use and not any(one in self for one in needed):
            log_once(logging.WARNING, "Option %s has no effect without %s", name, " or ".join(needed))

    def check_servers_name(self) -> None:
        """Refuse a name that was probably meant to be :data:`.SERVERS`, where no place is given.

        :raises OptionError: naming the option.
        """
        for name in self._values.keys() - BY_NAME.keys() - _CLIENT_SETTINGS:
            if near_names(name, [SERVERS]):
                raise OptionError(f"Unknown option {self._written[name]!r}", hint=f"Did you mean {SERVERS}?")

    def check_names(self) -> None:
        """Refuse or log options that do not apply to this use or place.

        :raises OptionError: naming the option, with what to do instead.
        """
        if self._use is Use.ADMIN and ZOOKEEPER in self and not self.is_zookeeper:
            raise OptionError(
                f"Option {ZOOKEEPER!r} can't be set beside another place, except for queries",
                hint="Leave it out, or give ZooKeeper as the only place, such as zk://zk1:2181/kafka.",
            )
        for name in self._values:
            option = BY_NAME.get(name)
            if option is not None and option.where & self.where and option.use & self._use:
                self._warn_of_seconds(option)
                continue
            self._check_other(name, option)

    def _warn_of_seconds(self, option: Option) -> None:
        """Warn of a time in milliseconds that is a small part of the default: Python counts seconds."""
        given, default = self._values[option.name.lower()].strip(), option.default or ""
        if is_short_retention(option.name, given):
            log_once(logging.WARNING, SHORT_RETENTION, option.name, given, int(given) / 1000)
        is_time = option.parser is milliseconds or (
            option.name.lower().endswith("ms") and default.isdecimal()
        )
        if not (is_time and _SHORT.fullmatch(given)):
            return
        if 0 < int(given) * 250 <= milliseconds(option.name, default):
            log_once(
                logging.WARNING,
                "Option %s is %s ms. If that means seconds, write %s000",
                option.name,
                given,
                given,
            )

    def _check_other(self, name: str, option: Option | None) -> None:
        if self._use is Use.REASSEMBLE:
            if name in OF_OTHERS:
                raise OptionError(f"Option {self._written[name]!r} is not supported", hint=OF_OTHERS[name])
            raise self._unknown(name)
        reads = Use.READ | Use.VIEWS
        if option and option.where & self.where and option.use & reads and self._use is not Use.WRITE:
            self._check_read_option(option)
            return
        if _ADDED_BY_SPARK.fullmatch(name) or (name in STORE_PASSWORDS and self.where is Where.BROKERS):
            return
        refused = self._refused()
        if name in refused and self._values[name].strip() not in HARMLESS.get(name, ()):
            kafka_name = name.removeprefix("kafka.")
            raise OptionError(f"Kafka option {kafka_name!r} is not supported", hint=refused[name])
        is_known = option is not None or name in _CLIENT_SETTINGS
        if not is_known and (hint := self._hint_to_other(_dotted(name).removeprefix("kafka."))):
            raise OptionError(f"Option {self._written[name]!r} is not supported", hint=hint)
        if self.where is Where.DIRECTORY:
            self._check_for_directory(name, option)
        else:
            self._check_for_brokers(name, option)

    def _hint_to_other(self, bare: str) -> str | None:
        """The hint for a setting of other clients, or of Kafka's old ones; None for others."""
        from pyspark_kafkalog.options.old_settings import CHANGED, RENAMED

        if (new := RENAMED.get(bare)) is None:
            return OF_OTHERS.get(bare) or CHANGED.get(bare)
        known = self._applicable()
        for name in (new, new.removeprefix("kafka.")):
            if name in known or (name == SERVERS and not {"path", "paths"} & self._values.keys()):
                return f"Write {name} instead."
        return f"Its name is {new} now, which is for {self._scope(BY_NAME[new.lower()])}: leave it out."

    def _scope(self, option: Option) -> str:
        """The use or the place of an option that does not apply here."""
        if not option.where & self.where:
            return "brokers" if option.where is Where.BROKERS else "log directories"
        return "reading" if option.use & Use.READ else "writing"

    def _check_read_option(self, option: Option) -> None:
        """Refuse or log an option for another way of reading."""
        if not option.use & Use.READ:
            views = " and ".join(f"view={name}" for name, use in VIEW_USES.items() if option.use & use)
            raise OptionError(f"Option {option.name!r} applies only to {views}", hint="Leave it out.")
        if self._use is Use.BATCH_READ:
            log_once(logging.WARNING, "Option %s is ignored, because it applies to streams only", option.name)
            return
        if self._use is Use.STREAM_READ:
            is_end = option.name.startswith("ending")
            raise OptionError(
                f"Option {option.name!r} is not valid in streaming queries",
                hint="Leave it out, or use spark.read."
                + (" With .trigger(availableNow=True) a stream ends where its topics end." if is_end else ""),
            )
        if self._use is Use.ADMIN:
            flag = _FLAGS.get(option.name)
            to_command = f", and {flag} to a command that reads records" if flag else ""
            raise OptionError(
                f"Option {option.name!r} belongs to a read of records, not to the place",
                hint=f"Leave it out here. Give it to spark.read or connect().read{to_command}.",
            )
        view = next(name for name, use in VIEW_USES.items() if use is self._use)
        narrowing = [
            other.name
            for other in BY_NAME.values()
            if other.use & self._use and other.where is Where.ANY and other.name != "view"
        ]
        raise OptionError(
            f"Option {option.name!r} does not apply to view={view}",
            hint=f"Leave it out. To narrow this view, use {', '.join(narrowing)}." if narrowing else None,
        )

    def _check_for_directory(self, name: str, option: Option | None) -> None:
        if option is not None and option.where & Where.DIRECTORY:
            raise self._other_direction(option)
        is_ours = option is not None and not name.startswith("kafka.")
        if is_ours and (name.startswith(_PATIENCE) or self.value(name) == DEFAULTS[name]):
            log_once(
                logging.DEBUG, "Option %s is ignored for a log directory, because it is for brokers", name
            )
        elif option is not None or name.startswith("kafka."):
            bare = name.removeprefix("kafka.")
            shown = option.name if option is not None and is_ours else name
            hint = option.beside_path if option is not None and is_ours else "Leave it out."
            if bare in self._applicable():
                hint = f"Write {bare!r} instead."
            raise OptionError(f"Option {shown!r} is for brokers, but 'path' names a log directory", hint=hint)
        elif f"kafka.{_dotted(name)}" == SERVERS:
            raise OptionError(f"Unknown option {name!r}", hint=f"Did you mean {SERVERS}?")
        else:
            raise self._unknown(name)

    def _check_for_brokers(self, name: str, option: Option | None) -> None:
        if name.startswith("kafka."):
            if option is not None or name in _CLIENT_SETTINGS:
                log_once(logging.DEBUG, "Option %s of Kafka's clients has no effect here", name)
            else:
                known = self._applicable()
                if meant := [other for other in near_names(name, known) if is_slip(name, other)]:
                    raise OptionError(
                        f"Unknown option {self._written[name]!r}", hint=f"Did you mean {meant[0]}?"
                    )
                near = near_names(name, [*known, *WITHOUT_EFFECT])
                log_once(
                    logging.WARNING,
                    "Option %s is unknown to Kafka's clients and has no effect%s",
                    name,
                    f". Did you mean {' or '.join(near)}?" if near else "",
                )
        elif option is None:
            raise self._unknown(name)
        elif option.where & Where.BROKERS:
            raise self._other_direction(option)
        elif name != "path":  # together with brokers it is refused elsewhere, with its own error
            from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS  # which needs this module

            full = f"kafka.{name}"
            if full in self._applicable():
                hint = f"Write {full!r} instead."
            elif option.name == "numPartitions":
                hint = "Set it on the topic: kafkalog topics create --partitions."
            elif option.name in TOPIC_CONFIGS:
                hint = f"Set it on the topic: kafkalog topics alter --set {option.name}=VALUE."
            else:
                hint = "Leave it out."
            raise OptionError(f"Option {option.name!r} is for log directories, not for brokers", hint=hint)

    def _other_direction(self, option: Option) -> OptionError:
        direction = "reading" if self._use is Use.WRITE else "writing"
        other = self._topics_option()
        hint = f"Did you mean {other}?" if option.name in _TOPICS_OPTIONS else "Leave it out."
        if option.name == "numPartitions" and self._use & Use.READ:
            hint = "Leave it out. For more tasks, set minPartitions."
        return OptionError(f"Option {option.name!r} is for {direction} only", hint=hint)

    def _unknown(self, name: str) -> OptionError:
        if name in _OF_FROM_JSON:
            return OptionError(
                f"Option {_OF_FROM_JSON[name]!r} of from_json is not supported",
                hint="Leave it out, or read without value.format, and call from_json.",
            )
        known, near = self._applicable(), self._topics_option()
        of_kafka = f"kafka.{_dotted(name)}"
        if name == "topics" and near in known:
            hint = f"Did you mean {near}?"
        elif of_kafka in self._refused():
            hint = self._refused()[of_kafka]
        elif of_kafka in WITHOUT_EFFECT:
            hint = f"Leave it out. {WITHOUT_EFFECT[of_kafka].replace('`', '')}"
        elif of_kafka in BY_NAME and BY_NAME[of_kafka].name not in known:
            hint = f"Leave it out: {of_kafka} is for {self._scope(BY_NAME[of_kafka])}."
        elif of_kafka in _CLIENT_SETTINGS:
            hint = f"Leave it out: it is for {'reading' if self._use is Use.WRITE else 'writing'}."
        else:
            hint = suggestion(name, known)
        written = self._written[name]
        if written == name:
            written = _as_written(name, near_names(name, known)[:1])
        return OptionError(f"Unknown option {written!r}", hint=hint)

    def _refused(self) -> Mapping[str, str]:
        """The settings of Kafka's clients that are refused here."""
        return REFUSED_WRITING if self._use is Use.WRITE else REFUSED_READING

    def _topics_option(self) -> str:
        return "topic" if self._use is Use.WRITE else "subscribe"

    def _applicable(self) -> set[str]:
        """The names that could be given; for a batch also those of streams, and vice versa."""
        use = Use.READ if self._use & Use.READ else self._use
        return {option.name for option in BY_NAME.values() if option.use & use and option.where & self.where}


def with_kafka(name: str) -> str:
    """The option that a name means, even if it is that of a setting of Kafka's clients without ``kafka.``."""
    full = f"kafka.{name}"
    is_setting = full.lower() in BY_NAME or full.lower() in _CLIENT_SETTINGS
    return full if is_setting and name.lower() not in BY_NAME else name


@cache
def _options_of(kind: type[DataclassInstance]) -> list[tuple[str, list[Option]]]:
    """The fields from :func:`.from_option`, each with its options."""
    return [
        (field.name, [BY_NAME[name.lower()] for name in field.metadata["options"]])
        for field in fields(kind)
        if "options" in field.metadata
    ]


def suggestion(name: str, known: Iterable[str]) -> str:
    """The names that the user may have meant: similar ones, or all without a prefix if they are few."""
    names = sorted(known)
    if near := near_names(name, names):
        return f"Did you mean {' or '.join(near)}?"
    names = [other for other in names if not other.startswith("kafka.")]
    if len(names) > _MANY:
        return "Leave it out. docs/options.md lists all options."
    return f"Expected one of {', '.join(names)}."


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names that differ from this one in case, separators and ``kafka.``, or else in some letters."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    wanted = _compared(name)
    same = [candidate for candidate in by_lower if _compared(candidate) in (wanted, f"kafka{wanted}")]
    # Such a prefix makes names alike that have nothing else in common.
    prefix = "kafka." if name.lower().startswith("kafka.") else ""
    rest = {other.removeprefix(prefix): other for other in by_lower if other.startswith(prefix)}
    near = same or [rest[each] for each in difflib.get_close_matches(name.lower()[len(prefix) :], rest, n=3)]
    return [by_lower[match] for match in near]


def names_like(wanted: Iterable[str], known: Collection[str], kind: str) -> str:
    """The hint of an error: the names that are near the ``wanted`` ones, and which there are.

    :param kind: what they are names of, such as ``topic``.
    """
    near = dict.fromkeys(name for given in wanted for name in near_names(given, known))
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    if not known:
        return f"There are no {kind}s."
    number = f"is 1 {kind}" if len(known) == 1 else f"are {len(known)} {kind}s"
    before = ":" if len(known) <= _LISTED else ", such as"
    return f"{meant}There {number}{before} {', '.join(sorted(known)[:_LISTED])}."


def partitions_like(wanted: Collection[TopicPartition], known: Iterable[TopicPartition]) -> str:
    """The hint of an error: the partitions that the first one's topic has, or else the topics that there are.

    :param known: all partitions of the place, or those of the topic.
    """
    first, topics = min(wanted), Counter(partition.topic for partition in known)
    if first.topic in topics:
        return f"Topic {first.topic} has {numbered(topics[first.topic])}."
    return names_like([first.topic], topics, "topic")


def is_short_retention(name: str, text: str) -> bool:
    """Whether a time without a unit is so short a retention that seconds or days may be meant."""
    return name in _RETENTIONS and re.fullmatch("[0-9]{1,7}", text) is not None and 0 < int(text) < _AN_HOUR


def is_slip(name: str, known: str) -> bool:
    """Whether a name is another one with other separators, or a letter or two more, fewer or exchanged."""
    name, known = name.lower(), known.lower()
    return (
        _compared(name) == _compared(known) or difflib.SequenceMatcher(None, known, name).ratio() >= _ALMOST
    )


def _compared(name: str) -> str:
    """The letters of a name, without whose client it is for."""
    return letters(_OF_A_CLIENT.sub("", name.lower()))


def _dotted(name: str) -> str:
    """A name as Kafka writes it, which kafka-python writes with ``_``."""
    return name.replace("_", ".")


def _as_written(name: str, like: Sequence[str]) -> str:
    """A name as the user probably wrote it: Spark passes it in lower case."""
    if (
        not like
        or not is_slip(name, like[0])
        or len(_SEPARATORS.findall(name)) != len(_SEPARATORS.findall(like[0]))
    ):
        return name
    letters = list(name)
    matcher = difflib.SequenceMatcher(None, name, like[0].lower(), autojunk=False)
    for here, there, size in matcher.get_matching_blocks():
        letters[here : here + size] = like[0][there : there + size]
    return "".join(letters)


def log_once(level: int, message: str, *values: object) -> None:
    """Log a message once for each work of the process, since Spark creates a reader for every micro-batch."""
    log_once_for(named_work(), level, message, *values)


@cache
def log_once_for(work: str, level: int, message: str, *values: object) -> None:
    """Log a message, once for each ``work``: Spark's processes work for one query after another."""
    _log.log(level, message, *values)
