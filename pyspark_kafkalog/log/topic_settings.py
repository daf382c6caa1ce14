"""The settings that the topics' configurations give writes to a directory, and those that it can't obey.

A topic's own configurations are those of a broker's topic, and an option of a write is said for this write:

- ``compression.type`` of a topic is that of its records, unless it is ``producer``: the option's then.
- Limits add up: ``max.message.bytes`` is the lower of the two, and one ``compact`` is enough to need keys.
- For the rest the option takes precedence.

Sources: Kafka's ``LogConfig``, ``LogValidator``, ``UnifiedLog.analyzeAndValidateRecords``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from pyspark_kafkalog.codec.format import COMPRESSION_NAMES
from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import EncodeSettings, LogSettings
from pyspark_kafkalog.model.topics import cleanup_policies
from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS

_COMPRESSION, _MAX_BYTES = "compression.type", "max.message.bytes"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_DIFFERENCE = "message.timestamp.difference.max.ms"
"""The one configuration for both limits, before Kafka 3.6; since then it counts where they are not set."""
_TIMESTAMP_TYPE = "message.timestamp.type"
_LIMITS = (_BEFORE, _AFTER, _DIFFERENCE)
_LONGS = range(-(2**63), 2**63)

_NO_REPLICAS = "a log directory has one replica"
_NOT_REMOTE = "a log directory has no remote storage"
_CANNOT_OBEY = {
    "file.delete.delay.ms": ("0", "files of old segments are deleted at once, and who reads them may finish"),
    "follower.replication.throttled.replicas": ("", _NO_REPLICAS),
    "leader.replication.throttled.replicas": ("", _NO_REPLICAS),
    "local.retention.bytes": ("-2", _NOT_REMOTE),
    "local.retention.ms": ("-2", _NOT_REMOTE),
    "message.downconversion.enable": ("false", "no consumer asks a log directory for older formats"),
    "message.format.version": ("3.0-IV1", "a log directory is written with record batches v2"),
    "min.insync.replicas": ("1", _NO_REPLICAS),
    "preallocate": ("false", "segments of a log directory grow as they are written"),
    "remote.log.copy.disable": ("false", _NOT_REMOTE),
    "remote.log.delete.on.disable": ("false", _NOT_REMOTE),
    "remote.storage.enable": ("false", _NOT_REMOTE),
    "segment.jitter.ms": ("0", "no clock begins segments in a log directory, only writes do"),
    "unclean.leader.election.enable": ("false", _NO_REPLICAS),
}
"""Configurations that no directory can obey: the one value that is true of a directory, and why.

``flush.messages`` and ``flush.ms`` are obeyed whatever they are: what is visible is on disk.
"""
OBEYED = tuple(name for name in TOPIC_CONFIGS if name not in _CANNOT_OBEY)
"""The configurations that a directory obeys."""


def check_obeyed(configs: Mapping[str, str | None], changed: Collection[str] | None = None) -> None:
    """Refuse what a directory could only store.

    :param configs: those that a topic is to have. None as a value stands for one that is dropped.
    :param changed: those that it does not have yet; all, if None.
    :raises OptionError: naming the configuration, and why it can't be obeyed.
    """
    for name, value in configs.items():
        if changed is not None and name not in changed:
            continue
        if value is not None and (reason := _why_not(name, value)):
            raise OptionError(
                f"Topic configuration {name!r} can't be {value!r}: {reason}",
                hint="Leave it out. A backup keeps it for its source. A log directory obeys"
                f" {', '.join(OBEYED)}.",
            )
    lags = [configs.get(name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")]
    least, most = (None if lag is None else int(lag) for lag in lags)
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"Topic configuration 'min.compaction.lag.ms': expected at most 'max.compaction.lag.ms' = {most},"
            f" got {least}"
        )


def not_obeyed(configs: Mapping[str, str]) -> dict[str, str]:
    """Configurations that no directory obeys, by name, each with why it has no effect.

    A backup has those of its source's brokers, which may know more of them than this version.
    """
    return {name: reason for name, value in configs.items() if (reason := _why_not(name, value))}


def _why_not(name: str, value: str) -> str | None:
    """The reason why a directory does not obey a configuration; None if it does, or is so anyway."""
    if name not in TOPIC_CONFIGS:
        return "this version does not know it"
    as_it_is, reason = _CANNOT_OBEY.get(name, (value, ""))
    return None if value == as_it_is else reason


def log_settings(topic: str, configs: Mapping[str, str]) -> LogSettings:
    """The layout of segments by these configurations, and by Kafka's defaults for the rest.

    :raises LogDirectoryError: if a value is invalid.
    """
    default = LogSettings()
    return LogSettings(
        number(topic, configs, "segment.bytes", default.segment_bytes),
        number(topic, configs, "segment.ms", default.segment_ms),
        number(topic, configs, "index.interval.bytes", default.index_interval_bytes),
        number(topic, configs, "segment.index.bytes", default.segment_index_bytes),
        configs.get(_TIMESTAMP_TYPE, "").lower() == "logappendtime",
    )


def read_log_settings(
    root: str, topics: Iterable[str], configs: Mapping[str, str] = MappingProxyType({})
) -> dict[str, LogSettings]:
    """The layout of the segments of each topic of a directory; ``configs`` take precedence over its own.

    :raises LogDirectoryError: if a value is invalid, or the file can't be understood.
    """
    own = read_topic_configs(open_folder(root))
    return {topic: log_settings(topic, {**own.get(topic, {}), **configs}) for topic in topics}


def encode_settings(
    topic: str, write: EncodeSettings, own: Mapping[str, str], given: Mapping[str, str]
) -> EncodeSettings:
    """The encoding of the record batches of a topic, as its configurations are now.

    :param write: by the options of the write, with their defaults.
    :param own: the topic's configurations.
    :param given: options that were given under the names of configurations.
    :raises LogDirectoryError: if a value of ``own`` is invalid.
    """
    log = log_settings(topic, {**own, **given})
    size, limit = write.max_message_bytes, write.limit
    of_topic = number(topic, own, _MAX_BYTES, size)
    if of_topic < size or (_MAX_BYTES in own and _MAX_BYTES not in given):
        size, limit = of_topic, "the topic's max.message.bytes"
    if log.segment_bytes < size:
        size, limit = log.segment_bytes, "segment.bytes"
    compression, level = _compression(topic, write, own)
    is_compacted = any("compact" in cleanup_policies(configs) for configs in (own, given))
    return replace(
        write,
        compression=compression,
        level=level,
        batch_size=min(write.batch_size, size),
        max_message_bytes=size,
        limit=limit,
        is_compacted=is_compacted,
        needs_keys=is_compacted,
        timestamps=None if log.log_append_time else _timestamps(topic, own),
    )


def _compression(topic: str, write: EncodeSettings, own: Mapping[str, str]) -> tuple[str, int | None]:
    name = own.get(_COMPRESSION, "producer")
    if name == "producer":
        return write.compression, write.level
    level = f"compression.{name}.level"
    if name == "uncompressed":
        name = "none"
    if name not in COMPRESSION_NAMES:
        raise invalid(topic, _COMPRESSION, name)
    if level not in own or level not in TOPIC_CONFIGS or (name == "gzip" and own[level] == "-1"):
        return name, None
    _, is_valid = TOPIC_CONFIGS[level]
    if not is_valid(own[level]):
        raise invalid(topic, level, own[level])
    return name, int(own[level])


def _timestamps(topic: str, own: Mapping[str, str]) -> tuple[int, int] | None:
    """The least and the greatest timestamp (ms) that the topic takes now; None without a limit."""
    if not any(name in own for name in _LIMITS):
        return None
    now, both = time.time_ns() // 1_000_000, number(topic, own, _DIFFERENCE, _LONGS[-1])
    limits = (number(topic, own, name, _LONGS[-1]) for name in (_BEFORE, _AFTER))
    before, after = (both if limit == _LONGS[-1] else limit for limit in limits)
    return max(now - before, _LONGS[0]), min(now + after, _LONGS[-1])


def number(topic: str, configs: Mapping[str, str], name: str, default: int) -> int:
    """A configuration that is a whole number.

    :raises LogDirectoryError: if it is invalid.
    """
    text = configs.get(name)
    if text is None:
        return default
    with suppress(ValueError):
        if int(text) in _LONGS:
            return int(text)
    raise invalid(topic, name, text)


def invalid(topic: str, name: str, text: str) -> LogDirectoryError:
    """The error for a configuration that is stored, and makes no sense."""
    return LogDirectoryError(
        f"The configuration {name} of topic {topic!r} is invalid: {text[:50]!r}",
        hint="Set it again with kafkalog topics alter.",
    )
