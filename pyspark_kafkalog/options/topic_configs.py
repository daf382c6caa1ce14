"""The configurations of topics by Kafka's names, and which values they take (Kafka's TopicConfig)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.user_options import SHORT_RETENTION, is_short_retention, near_names
from pyspark_kafkalog.options.values import milliseconds, size_in_bytes

_log = logging.getLogger("pyspark_kafkalog")

_INT, _LONG = 2**31 - 1, 2**63 - 1
_UNITS = {".ms": milliseconds, ".bytes": size_in_bytes}
_EXAMPLES = {
    ".ms": "milliseconds such as 604800000, or a time such as 7d",
    ".bytes": "bytes such as 1073741824, or a size such as 1g",
}
_WITH_UNIT = re.compile(r"[0-9]+\s*[a-zA-Z]+", re.ASCII)


def _number(least: int, most: int = _LONG) -> tuple[str, Callable[[str], bool]]:
    def is_valid(text: str) -> bool:
        return re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) is not None and least <= int(text) <= most

    return f"a whole number from {least} {'on' if most == _LONG else f'to {most}'}", is_valid


def _one_of(*names: str) -> tuple[str, Callable[[str], bool]]:
    return f"one of {', '.join(names)}", lambda text: text in names


def _policies(text: str) -> bool:
    return not text or {part.strip() for part in text.split(",")} <= {"compact", "delete"}


def _ratio(text: str) -> bool:
    number = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
    return re.fullmatch(number, text, re.ASCII) is not None and float(text) <= 1


_BOOL = _one_of("true", "false")
_ANY = "any text", lambda text: True

TOPIC_CONFIGS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "cleanup.policy": ("delete, compact or compact,delete", _policies),
    "compression.gzip.level": _one_of("-1", *map(str, range(1, 10))),
    "compression.lz4.level": _number(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _number(-131072, 22),
    "delete.retention.ms": _number(0),
    "file.delete.delay.ms": _number(0),
    "flush.messages": _number(1),
    "flush.ms": _number(0),
    "follower.replication.throttled.replicas": _ANY,
    "index.interval.bytes": _number(0, _INT),
    "leader.replication.throttled.replicas": _ANY,
    "local.retention.bytes": _number(-2),
    "local.retention.ms": _number(-2),
    "max.compaction.lag.ms": _number(1),
    "max.message.bytes": _number(0, _INT),
    "message.downconversion.enable": _BOOL,
    "message.format.version": _ANY,
    "message.timestamp.after.max.ms": _number(0),
    "message.timestamp.before.max.ms": _number(0),
    "message.timestamp.difference.max.ms": _number(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("a number from 0 to 1", _ratio),
    "min.compaction.lag.ms": _number(0),
    "min.insync.replicas": _number(1, _INT),
    "preallocate": _BOOL,
    "remote.log.copy.disable": _BOOL,
    "remote.log.delete.on.disable": _BOOL,
    "remote.storage.enable": _BOOL,
    "retention.bytes": _number(-1),
    "retention.ms": _number(-1),
    "segment.bytes": _number(14, _INT),
    "segment.index.bytes": _number(4, _INT),
    "segment.jitter.ms": _number(0),
    "segment.ms": _number(1),
    "unclean.leader.election.enable": _BOOL,
}
"""The test of each configuration's value, and its words. Some are older than Kafka 4, which lacks them."""


def in_kafkas_units(configs: Mapping[str, str]) -> dict[str, str]:
    """The configurations with times such as ``7d`` in milliseconds and sizes such as ``1g`` in bytes.

    :raises OptionError: for what is neither a number nor has such a unit.
    """

    def value(name: str, text: str) -> str:
        end = next((end for end in _UNITS if name.endswith(end)), None)
        # Without a value a restored topic leaves it out.
        if end is None or name not in TOPIC_CONFIGS or re.fullmatch(r"-?[0-9]+|", text, re.ASCII):
            if is_short_retention(name, text):
                _log.warning(f"{SHORT_RETENTION}. Give a unit, such as 7d", name, text, int(text) / 1000)
            return text
        if not _WITH_UNIT.fullmatch(text):
            raise OptionError(f"Topic configuration {name!r}: expected {_EXAMPLES[end]}, got {text!r}")
        return str(_UNITS[end](name, text))

    return {name: value(name, text) for name, text in configs.items()}


def check_topic_configs(configs: Mapping[str, str | None], names: Collection[str] = ()) -> None:
    """Refuse a name that topics don't have, and a value that Kafka would refuse.

    :param configs: None as a value stands for a configuration that is dropped.
    :param names: those that the place knows; empty if it does not say.
    :raises OptionError: naming the configuration.
    """
    known = names or TOPIC_CONFIGS.keys()
    for name, value in configs.items():
        if name not in known:
            near = near_names(name, known)
            hint = (
                f"Did you mean {' or '.join(near)}?"
                if near
                else "Names are Kafka's, such as retention.ms or cleanup.policy."
            )
            raise OptionError(f"Unknown topic configuration {name!r}", hint=hint)
        expected, is_valid = TOPIC_CONFIGS.get(name, _ANY)
        if value is not None and not (isinstance(value, str) and is_valid(value)):
            raise OptionError(f"Topic configuration {name!r}: expected {expected}, got {value!r}")
