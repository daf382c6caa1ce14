"""The options that the user gave: each name checked, with the defaults of the option tables behind them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options import values as option_values
from pyspark_kafkalog.options.kafka_names import (
    KAFKA_OPTIONS,
    REFUSED_READING,
    REFUSED_WRITING,
    SERVERS,
    STORE_PASSWORDS,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.names import OPTIONS, Option, Use, Where, near_names, suggestion
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG

_log = logging.getLogger("pyspark_kafkalog")

_BY_NAME = {option.name.lower(): option for option in (*OPTIONS, *KAFKA_OPTIONS)}

_ADDED_BY_SPARK = re.compile(r"paths|queryname|location|owner|provider|comment|option\..*")
"""Names that Spark adds: ``load([..])``, ``queryName``, and ``CREATE TABLE`` (observed with PySpark 4.2)."""


class UserOptions:
    """The options that the user gave for one use; what holds the records follows from them."""

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._use = use
        self.where = Where.BROKERS if SERVERS in self._values else Where.DIRECTORY

    def names(self, *prefixes: str) -> list[str]:
        """What was given with a name that begins so, in lower case and in order."""
        return sorted(name for name in self._values if name.startswith(prefixes))

    def check_names(self) -> None:
        """Refuse, or warn of, what is no option of this use.

        :raises OptionError: naming the option, with what to do instead.
        """
        for name in self._values:
            _check_name(name, self._use, self.where)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        option = _BY_NAME.get(name.lower())
        return self._values.get(name.lower(), option.default if option else None)

    def boolean(self, name: str) -> bool:
        return option_values.boolean(name, self.text(name) or "")

    def choice(self, name: str, *allowed: str) -> str:
        return option_values.choice(name, self.text(name) or "", allowed)

    def integer(self, name: str, lowest: int, highest: int = MAX_INT) -> int:
        return option_values.integer(name, self.text(name) or "", lowest, highest)

    def limit(self, name: str, highest: int = MAX_LONG) -> int | None:
        return self.integer(name, 1, highest) if name in self else None

    def trimmed(self, name: str) -> str | None:
        """The text without white space around it; None for none and for an empty one."""
        return (self.text(name) or "").strip() or None


def _check_name(name: str, use: Use, where: Where) -> None:
    option = _BY_NAME.get(name)
    if option is not None and option.use & use and option.where & where:
        return
    if _ADDED_BY_SPARK.fullmatch(name) or (name in STORE_PASSWORDS and where is Where.BROKERS):
        return
    refused = REFUSED_WRITING if use is Use.WRITE else REFUSED_READING
    if name in refused:
        raise OptionError(
            f"Kafka option {name.removeprefix('kafka.')!r} is not supported", hint=refused[name]
        )
    if where is Where.DIRECTORY:
        _check_directory_name(name, use, option)
    else:
        _check_brokers_name(name, use, option)


def _check_directory_name(name: str, use: Use, option: Option | None) -> None:
    usable = _usable(use, Where.DIRECTORY)
    of_brokers = option is not None and option.where is Where.BROKERS
    if of_brokers and not name.startswith("kafka."):
        log_once(logging.DEBUG, "Option %s concerns brokers, and is ignored for a log directory", name)
    elif option is not None and option.where & Where.DIRECTORY:
        raise _other_use(option, use)
    elif name.startswith("kafka."):
        bare = name.removeprefix("kafka.")
        hint = f"Write {bare!r} instead." if bare in usable else "Leave it out."
        raise OptionError(f"Option {name!r} concerns brokers, and 'path' is a log directory", hint=hint)
    elif f"kafka.{name}" == SERVERS:
        raise OptionError(f"Unknown option {name!r}", hint=f"Write {SERVERS!r}.")
    else:
        raise OptionError(f"Unknown option {name!r}", hint=suggestion(name, usable))


def _check_brokers_name(name: str, use: Use, option: Option | None) -> None:
    usable = _usable(use, Where.BROKERS)
    if name.startswith("kafka."):
        if option is not None or name in WITHOUT_EFFECT or name in {**REFUSED_READING, **REFUSED_WRITING}:
            log_once(logging.DEBUG, "Option %s is a Kafka client's, and has no effect here", name)
        else:
            near = near_names(name, [*usable, *WITHOUT_EFFECT])
            hint = f". Did you mean {' or '.join(near)}?" if near else ""
            log_once(
                logging.WARNING, "Option %s is unknown to Kafka's clients, and has no effect%s", name, hint
            )
    elif option is not None and option.where is Where.DIRECTORY:
        if name == "path":
            return
        full = f"kafka.{name}"
        hint = f"Write {full!r} instead." if full in usable else "Set it on the topic, by Kafka's own tools."
        raise OptionError(f"Option {option.name!r} concerns log directories, not brokers", hint=hint)
    elif option is not None:
        raise _other_use(option, use)
    else:
        raise OptionError(f"Unknown option {name!r}", hint=suggestion(name, usable))


def _usable(use: Use, where: Where) -> set[str]:
    return {option.name for option in _BY_NAME.values() if option.use & use and option.where & where}


def _other_use(option: Option, use: Use) -> OptionError:
    return OptionError(f"Option {option.name!r} is for {'reading' if use is Use.WRITE else 'writing'} only")


_logged: set[str] = set()


def log_once(level: int, message: str, *values: object) -> None:
    """Log a message unless this process has logged it before: Spark makes a reader for every micro-batch."""
    text = message % values
    if text not in _logged:
        _logged.add(text)
        _log.log(level, message, *values)


def forget_logged() -> None:
    """Log everything again, as a new process would."""
    _logged.clear()
