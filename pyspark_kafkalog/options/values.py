"""Parsers of option values: each takes the option's name, for errors, and its text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import EARLIEST, TopicPartition, check_topic
from pyspark_kafkalog.model.topics import check_writable
from pyspark_kafkalog.options.java_pattern import java_pattern
from pyspark_kafkalog.options.offsets_json import MAX_INT, Offsets, parse_offsets, parse_partitions

_T = TypeVar("_T")
Parser = Callable[[str, str], Any]
"""A parser of an option: from its name and text to its value.

:raises OptionError: naming the option, and showing the text unless it may be a secret.
"""

ZOOKEEPER_LOGIN = ("zookeeper.sasl.", "zookeeper.addauth", "zookeeper.ssl.")
"""The prefixes of options for the login to ZooKeeper, and for TLS there."""
REGISTRY_LOGIN = ("schema.registry.", "apicurio.registry.", "basic.auth.", "bearer.auth.")
"""The prefixes of options for the login to a schema registry, whose URL may have one in it, too."""
_LINKEDIN = "com.linkedin.kafka.clients"
"""The package of LinkedIn's classes."""
COUNTING, LOGGING = "counting", "logging"
"""The built-in auditors."""
METRICS = "metrics"
"""The value of ``callback.class`` for metrics without a callback."""

_TRUTH = {"true": True, "false": False}
_TRUTH_OF_OTHERS = {
    **dict.fromkeys(("1", "yes", "y", "on", "t"), "true"),
    **dict.fromkeys(("0", "no", "n", "off", "f"), "false"),
}
_MILLISECONDS = {
    name: factor
    for names, factor in (
        ("ms msec msecs millisecond milliseconds", 1),
        ("s sec secs second seconds", 1000),
        ("m min mins minute minutes", 60_000),
        ("h hr hrs hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for name in names.split()
}
_BYTES = {
    name: 1 << 10 * power
    for power, letter in enumerate(["", "k", "m", "g", "t", "p"])
    for name in (letter, f"{letter}b")
}
_COUNTS = {"k": 1000, "m": 1_000_000}
MAY_BE_SECRET = ("kafka.sasl.", "kafka.ssl.", "kafka.security.", *ZOOKEEPER_LOGIN, *REGISTRY_LOGIN)
"""The prefixes of options whose values nothing shows."""
_LOOKS_SECRET = re.compile("loginmodule|password|secret|token|-----begin", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d{1,18})\s*([a-z]*)", re.ASCII)
_SERVER = re.compile(
    r"(?:\w+://)?(?P<host>\[(?P<ipv6>[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%[\w.-]+)?)\]|[\w.-]+):(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_ZOOKEEPER_SERVER = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*\]|[\w.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)
_ZOOKEEPER_PORT = 2181
_ALMOST = 0.8
"""The likeness of words, by difflib's ratio, from which on one is taken for a slip of the other."""
_BEGINS_WITH_VARIABLE = re.compile(r"\s*\$(\w+|\{\w+\})(/|\s*\Z)")
_OF_SPARK_ALONE = re.compile(r"\s*dbfs:/(?!/)")
_IN_QUOTES = re.compile(r"""(['"]).*\1""", re.DOTALL)
_OF_WINDOWS = re.compile(r"\s*(?:(?:file:/*)?[A-Za-z]:[\\/]|\\\\)")
"""A drive and a slash, also as a URI, or a share."""
_OF_PATTERNS = re.compile(r"[*?+|\[\](){}^$\\]")
_LIST = re.compile(r"""\s*\[\s*['"].*\]\s*""", re.DOTALL)
_LONGEST_GROUP_ID = 32767
"""Bytes: requests give the length of a group id in 16 bits."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_BY_VALUE = re.compile(r"by-value:\w+:\d+\.\d+:[A-Za-z0-9+/]+=*")
_SHOWN = 200
"""The characters of a value that an error shows."""
_INSTANCE_ID = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ASSIGNORS_PACKAGE = "org.apache.kafka.clients.consumer."
_ASSIGNORS = {
    "range": "range",
    "roundrobin": "roundrobin",
    "cooperative-sticky": "cooperative-sticky",
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def shown(name: str, text: str) -> str:
    """The value, to follow "expected ..." in an error, unless it may be a secret.

    Values of login options are not shown, nor values of other options that look like
    them.
    """
    if name.lower().startswith(MAY_BE_SECRET) or _LOOKS_SECRET.search(text):
        return ""
    return f", got {text!r}" if len(text) <= _SHOWN else f", got {text[:_SHOWN]!r} and more"


def as_given(name: str, text: str) -> str:
    """The text itself."""
    return text


def stripped(name: str, text: str) -> str:
    """The text without white space around it."""
    return text.strip()


def unless_blank(parser: Parser) -> Parser:
    """Applies ``parser`` to the stripped text; None if it is blank."""
    return lambda name, text: parser(name, text.strip()) if text.strip() else None


def not_blank(parser: Parser) -> Parser:
    """Applies ``parser`` to the stripped text, and refuses blank text."""

    def parse(name: str, text: str) -> Any:
        if not text.strip():
            raise OptionError(f"Option {name!r} is empty", hint="Give it a value, or leave it out.")
        return parser(name, text.strip())

    return parse


def check_system(expected: str, path: str) -> None:
    """Refuse a path of Windows, which is a relative one here: a write would make a folder ``C:``.

    So is one in quotes, as a line of a shell or of SQL has it.

    :param expected: the beginning of the error.
    :raises OptionError: for such a path.
    """
    if _OF_WINDOWS.match(path):
        raise OptionError(
            f"{expected} a path of this machine, got one of Windows",
            hint="Give the path that this machine has, such as /mnt/c/kafka-logs for C:\\kafka-logs in WSL.",
        )
    if _IN_QUOTES.fullmatch(path.strip()):
        raise OptionError(f"{expected} a path without quotes around it", hint="Leave the quotes out.")


def location(name: str, text: str) -> str:
    """A path or URI; one of Windows, a leading ``~`` or variable is refused.

    Errors do not show it: URIs hold secrets.
    """
    check_system(f"Option {name!r}: expected", text)
    if text.lstrip().startswith("~"):
        raise OptionError(
            f"Option {name!r}: expected a path without ~",
            hint="Spark does not expand ~: use os.path.expanduser. If a name begins with ~, write ./~.",
        )
    if _BEGINS_WITH_VARIABLE.match(text):
        raise OptionError(
            f"Option {name!r}: expected a path without a variable",
            hint="Spark does not expand $NAME: use os.path.expandvars. If a name begins with $, write ./$.",
        )
    return text


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false`` in any case."""
    try:
        return _TRUTH[text.strip().lower()]
    except KeyError:
        meant = _TRUTH_OF_OTHERS.get(text.strip().lower())
        raise OptionError(
            f"Option {name!r}: expected true or false{shown(name, text)}",
            hint=None if meant is None else f"Write {meant}.",
        ) from None


def integer(lowest: int, highest: int = MAX_INT, meaning: Mapping[int, Any] | None = None) -> Parser:
    """A decimal whole number in ``lowest..highest``; ``meaning`` maps special numbers to other values."""

    def parse(name: str, text: str) -> Any:
        digits = text.strip()
        if re.fullmatch(r"[+-]?[0-9]{1,19}", digits) and lowest <= int(digits) <= highest:
            return (meaning or {}).get(int(digits), int(digits))
        # The greatest number of 32 or 64 bits helps only who gave a greater one.
        is_number = re.fullmatch(r"[+]?[0-9]+", digits) is not None
        most = (
            " on"
            if highest >= MAX_INT and not (is_number and int(digits[:20]) > highest)
            else f" to {highest}"
        )
        got = shown(name, text)
        meant = _meant(name, digits) if got else None
        raise OptionError(
            f"Option {name!r}: expected a whole number from {lowest}{most}{got}",
            hint=None if meant is None or not lowest <= meant <= highest else f"Write {meant}.",
        )

    return parse


def _meant(name: str, text: str) -> int | None:
    """The number that was probably meant by one with a unit, an exponent or separators."""
    match = _AMOUNT.fullmatch(text.lower())
    if match is not None:
        is_time = name.endswith((".ms", "Ms"))
        units = _MILLISECONDS if is_time else _BYTES if "bytes" in name.lower() else _COUNTS
        return int(match[1]) * units[match[2]] if match[2] in units else None
    if re.fullmatch(r"[0-9]{1,3}([_,' ][0-9]{3})+", text):
        return int(re.sub("[^0-9]", "", text))
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?([eE][+]?[0-9]{1,2})?", text) and float(text).is_integer():
        return int(float(text))
    return None


def one_of(*words: str, hint: str | None = None) -> Parser:
    """A parser of one of these words, in any case; it returns the word as spelled here."""
    return one_of_these({word: word for word in words}, hint)


def java_class(*names: str) -> Parser:
    """A parser of one of these classes of Kafka's, with its package or without it."""

    def parse(name: str, text: str) -> str:
        found = text.strip().rpartition(".")[2]
        if found not in names:
            raise OptionError(
                f"Option {name!r}: expected a class of Kafka's, {' or '.join(names)}",
                hint="Another Java class cannot be run here: leave it out.",
            )
        return found

    return parse


def one_of_these(values: Mapping[str, _T], hint: str | None = None) -> Callable[[str, str], _T]:
    """The value of one of these words, in any case."""
    by_lower = {word.lower(): value for word, value in values.items()}

    def parse(name: str, text: str) -> _T:
        try:
            return by_lower[text.strip().lower()]
        except KeyError:
            meant = _word_meant(text, values)
            raise OptionError(
                f"Option {name!r}: expected one of"
                f" {', '.join(word or 'an empty text' for word in values)}{shown(name, text)}",
                hint=hint if meant is None else f"Write {meant}.",
            ) from None

    return parse


def _word_meant(text: str, words: Iterable[str]) -> str | None:
    """The one of these words that was probably meant."""
    by_letters = {letters(word): word for word in words if re.search("[A-Za-z]", word)}
    near = get_close_matches(letters(text), by_letters, n=1, cutoff=_ALMOST)
    return by_letters[near[0]] if near else None


def letters(word: str) -> str:
    """The letters and digits of a word, in lower case: words that differ only in separators have the same."""
    return re.sub(r"[\W_]", "", word.lower())


compression = one_of("none", "gzip", "snappy", "lz4", "zstd")
"""A compression by Kafka's name."""


def gzip_level(name: str, text: str) -> int:
    """A level of Kafka's GzipCompression: 1 to 9, or -1 for the usual 6."""
    return 6 if text.strip() == "-1" else int(integer(1, 9)(name, text))


lz4_level = integer(1, 17)
zstd_level = integer(-131072, 22)
"""A level of Kafka's Lz4Compression or ZstdCompression."""


def some_of(*words: str) -> Parser:
    """A parser of some of these words, separated by commas, at least one."""

    def parse(name: str, text: str) -> tuple[str, ...]:
        found = separated(name, text)
        if not found or not set(found) <= set(words):
            raise OptionError(
                f"Option {name!r}: expected some of {', '.join(words)}, separated by commas"
                f"{shown(name, text)}"
            )
        return found

    return parse


def separated(name: str, text: str) -> tuple[str, ...]:
    """The items between the commas, stripped, without empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def milliseconds(name: str, text: str) -> int:
    """A Spark time string such as ``15m`` or ``interval 10 minutes``; a bare number is milliseconds."""
    time = text.strip().lower().removeprefix("interval ")
    return _amount(name, time, {"": 1, **_MILLISECONDS}, "a time such as 500ms, 30s, 15m or 1h")


def size_in_bytes(name: str, text: str) -> int:
    """A Spark byte string such as ``64m`` or ``1gb`` (powers of 1024); a bare number is bytes. Not 0."""
    size = _amount(name, text, _BYTES, "a size such as 1048576, 64m or 1g")
    if size == 0:
        raise OptionError(f"Option {name!r}: expected a size above 0{shown(name, text)}")
    return size


def _amount(name: str, text: str, units: Mapping[str, int], expected: str) -> int:
    match = _AMOUNT.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        raise OptionError(f"Option {name!r}: expected {expected}{shown(name, text)}")
    return int(match[1]) * units[match[2]]


def import_path(name: str, text: str) -> str:
    """``package.module:callable``, or with a dot instead of the colon; or what ``by_value()`` made."""
    if _BY_VALUE.fullmatch(text.strip()):
        return text.strip()
    if text.strip().startswith("by-value:"):
        raise OptionError(
            f"Option {name!r} has what by_value() made, but not as it made it",
            hint="Give it to the option as it is returned, by this release.",
        )
    module, _, last = text.strip().partition(":") if ":" in text else text.strip().rpartition(".")
    if not last.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise OptionError(
            f"Option {name!r}: expected an import path such as package.module:callable{shown(name, text)}",
            hint=f"For a function of a notebook, write .option({name!r}, by_value(function))."
            if text.startswith("<")
            else None,
        )
    return f"{module}:{last}"


def rack(name: str, text: str) -> str:
    """A rack, ``env:NAME``, or with another colon an import path.

    See :mod:`pyspark_kafkalog.broker.fetch.rack`.
    """
    before, colon, after = text.strip().partition(":")
    if not colon or (before == "env" and _VARIABLE.fullmatch(after)):
        return text.strip()
    if before == "env":
        raise OptionError(f"Option {name!r}: expected the name of a variable after env:, got {after!r}")
    return import_path(name, text)


def auditor(name: str, text: str) -> str | None:
    """:data:`COUNTING` or :data:`LOGGING` in any case, or an import path.

    LinkedIn's auditors have these names, too; its ``NoOpAuditor`` is None.
    """
    given = text.strip()
    if given.startswith(f"{_LINKEDIN}.auditing."):
        known = {"LoggingAuditor": LOGGING, "NoOpAuditor": None}
        if (last := given.rpartition(".")[2]) in known:
            return known[last]
    built_in = given.lower()
    return built_in if built_in in (COUNTING, LOGGING) else import_path(name, text)


def segment_function(default: str) -> Parser:
    """A parser of an import path; for LinkedIn's class ``default``, which needs no function, None."""

    def parse(name: str, text: str) -> str | None:
        if text.strip() == f"{_LINKEDIN}.largemessage.{default}":
            return None
        return import_path(name, text)

    return parse


def callback(name: str, text: str) -> str:
    """:data:`METRICS` in any case, or an import path."""
    return METRICS if text.strip().lower() == METRICS else import_path(name, text)


def paths(name: str, text: str) -> tuple[str, ...]:
    """A path or URI, several separated by commas, or a JSON array of them. Errors show none of them."""
    found: Any = text.strip().split(",")
    if text.strip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise OptionError(
                f"Option {name!r} starts with '[' but is not a JSON array",
                hint='Write paths in double quotes, such as ["/data/1","/data/2"].',
            ) from None
    if not all(isinstance(path, str) and path.strip() for path in found) or not found:
        raise OptionError(
            f"Option {name!r}: expected a path, {'got an empty one' if any(found) else 'got nothing'}",
            hint="Write, for example, /data/kafka-logs, or several with commas between them.",
        )
    if not text.strip().startswith("[") and all(
        "/" not in path and _SERVER.fullmatch(path.strip()) for path in found
    ):
        raise OptionError(
            f"Option {name!r}: expected a log directory, got brokers",
            hint="Give brokers as option kafka.bootstrap.servers, and leave load() or save() empty. A folder"
            " of such a name would be ./host:9092.",
        )
    if any(_OF_SPARK_ALONE.match(path) for path in found):
        raise OptionError(
            f"Option {name!r}: expected a path that Python sees, got one of dbfs:",
            hint="Write /dbfs/... instead, or use a volume: /Volumes/catalog/schema/volume/...",
        )
    return tuple(location(name, path.strip()) for path in found)


def servers(name: str, text: str) -> tuple[str, ...]:
    """``host:port``, several separated by commas, as in Kafka's ClientUtils; without duplicates."""
    _refuse_list(name, text, "broker1:9092,broker2:9092")
    found: dict[str, None] = {}
    for number, item in enumerate((part.strip() for part in text.split(",")), 1):
        if not item:
            continue
        match = _SERVER.fullmatch(item)
        # The text before an @ may be a password.
        got = "" if "@" in item else shown(name, item)
        if match is not None and not 0 < int(match["port"]) < 1 << 16:
            raise OptionError(
                f"Option {name!r}: expected a port from 1 to 65535{got}",
                hint=f"Write, for example, {match['host']}:9092.",
            )
        if match is None:
            raise OptionError(
                f"Option {name!r}: expected host:port as server {number} in the list{got}",
                hint="Write, for example, broker1:9092,broker2:9092 or [::1]:9092.",
            )
        found[f"{match['host']}:{int(match['port'])}"] = None
    if not found:
        raise OptionError(f"Option {name!r} is empty", hint="Write, for example, broker1:9092.")
    return tuple(found)


class ZooKeeperAddress(NamedTuple):
    """Servers of one ZooKeeper, each ``host:port``, and the chroot, such as ``/kafka``; empty for none."""

    servers: tuple[str, ...]
    chroot: str

    def __str__(self) -> str:
        return f"zk://{','.join(self.servers)}{self.chroot}"


def zookeeper_connect(name: str, text: str) -> ZooKeeperAddress:
    """``host:port[,host:port][/chroot]``, as ZooKeeper's ConnectStringParser takes it; 2181 by default.

    The chroot is a path as ZooKeeper's PathUtils allows it. Errors don't show what may be a login.
    """
    hosts, slash, rest = text.strip().partition("/")
    parts = rest.rstrip("/").split("/") if rest.strip("/") else []
    items = [item.strip() for item in hosts.split(",") if item.strip()]
    matches = [_ZOOKEEPER_SERVER.fullmatch(item) for item in items]
    if not items or not all(
        match is not None and 0 < int(match["port"] or _ZOOKEEPER_PORT) < 1 << 16 for match in matches
    ):
        raise OptionError(
            f"Option {name!r}: expected servers of ZooKeeper{'' if '@' in text else shown(name, text)}",
            hint="Write, for example, zk1:2181,zk2:2181/kafka.",
        )
    if not all(part not in ("", ".", "..") and part.isprintable() for part in parts):
        raise OptionError(
            f"Option {name!r}: expected a chroot such as /kafka after the servers{shown(name, slash + rest)}"
        )
    found = dict.fromkeys(
        f"{match['host']}:{int(match['port'] or _ZOOKEEPER_PORT)}" for match in matches if match is not None
    )
    return ZooKeeperAddress(tuple(found), "".join(f"/{part}" for part in parts))


def _refuse_list(name: str, text: str, write: str) -> None:
    """Refuse a list of Python's, which Spark passes on as its text, and JSON."""
    if _LIST.fullmatch(text):
        raise OptionError(
            f"Option {name!r}: expected text with commas, got a list in brackets", hint=f"Write {write!r}."
        )


def group_id(name: str, text: str) -> str:
    """A group id that Kafka accepts: 1 to 32,767 bytes of UTF-8."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    if not text:
        raise OptionError(f"Option {name!r} is empty", hint="Give the name of a group, or leave it out.")
    if not 0 < size <= _LONGEST_GROUP_ID:
        raise OptionError(f"Option {name!r}: expected 1 to {_LONGEST_GROUP_ID} bytes of UTF-8")
    return text


def group_instance_id(name: str, text: str) -> str:
    """The name of a static member (KIP-345), which has the letters of topics' names."""
    if not _INSTANCE_ID.fullmatch(text) or text in (".", ".."):
        raise OptionError(
            f"Option {name!r}: expected 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
            f"{shown(name, text)}"
        )
    return text


def assignors(name: str, text: str) -> tuple[str, ...]:
    """Names of assignors of consumer groups, or Kafka's classes of them, each once."""
    _refuse_list(name, text, ",".join(separated(name, re.sub(r"[\[\]'\"]", "", text))))
    found: dict[str, None] = {}
    for item in separated(name, text):
        known = _ASSIGNORS.get(item.removeprefix(_ASSIGNORS_PACKAGE))
        if known is None:
            raise OptionError(
                f"Option {name!r}: expected some of {', '.join(dict.fromkeys(_ASSIGNORS.values()))}, or the"
                f" names of these classes of Kafka's, separated by commas{shown(name, item)}"
            )
        found[known] = None
    if not found:
        raise OptionError(f"Option {name!r}: expected the name of an assignor")
    return tuple(found)


def topic(name: str, text: str) -> str:
    """A topic that users may write to."""
    return check_writable(text.strip())


def topics(name: str, text: str) -> tuple[str, ...]:
    """Topics separated by commas, each once."""
    _refuse_list(name, text, ",".join(separated(name, re.sub(r"[\[\]'\"]", "", text))))
    found = separated(name, text)
    if not found:
        raise OptionError(f"Option {name!r} names no topic", hint="Write, for example, orders,payments.")
    try:
        return tuple(dict.fromkeys(check_topic(item) for item in found))
    except OptionError as e:
        raise e.with_hint(
            "Give a pattern as subscribePattern, in which .* stands for any text."
            if _OF_PATTERNS.search(text)
            else e.hint
        ) from None


def patterns(name: str, text: str) -> tuple[str, ...]:
    """Java's patterns, separated by commas, for ``re.fullmatch`` with ``re.ASCII``.

    To Java, too, a list in brackets is a class of characters; but no topic has quotation marks.
    """
    _refuse_list(name, text, ",".join(separated(name, re.sub(r"[\[\]'\"]", "", text))))
    try:
        found = tuple(java_pattern(name, item) for item in separated(name, text))
    except OptionError as e:
        raise e.with_hint("Commas separate patterns, also in braces." if "," in text else e.hint) from None
    if not found:
        raise OptionError(f"Option {name!r} has no pattern", hint="Write, for example, .*-test,tmp-.*")
    return found


def partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Spark's JSON of partitions, at least one."""
    found = parse_partitions(text, option=name)
    if not found:
        raise OptionError(f"Option {name!r} names no partition", hint='Write, for example, {"topicA":[0,1]}.')
    return found


def offsets_or(words: Mapping[str, int]) -> Callable[[str, str], int | Offsets]:
    """The offset of one of these words, or Spark's JSON of an offset, -1 or -2 for each partition."""

    def parse(name: str, text: str) -> int | Offsets:
        word = text.strip().lower()
        if word in words:
            return words[word]
        if word and not word.startswith(("{", "[", '"')):
            meant = _word_meant(text, words)
            raise OptionError(
                f"Option {name!r}: expected {', '.join(words)} or JSON{shown(name, text)}",
                hint=f"Write {meant}."
                if meant
                else 'Write JSON as, for example, {"topicA":{"0":23,"1":-1}}.',
            )
        return parse_offsets(text, option=name, lowest=EARLIEST)

    return parse
