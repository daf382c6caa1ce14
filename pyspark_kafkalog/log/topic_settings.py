"""The settings that the topics' configurations give writes to a directory.

A topic's own configurations are those of a broker's topic, and an option of a write is said for this write:

- ``compression.type`` of a topic is that of its records, unless it is ``producer``: the option's then.
- Limits add up: ``max.message.bytes`` is the lower of the two, and one ``compact`` is enough to need keys.
- For the rest the option takes precedence.

Sources: Kafka's ``LogConfig``, ``LogValidator``, ``UnifiedLog.analyzeAndValidateRecords``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from pyspark_kafkalog.codec.format import COMPRESSION_NAMES
from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.topic_configs import read_topic_configs
from pyspark_kafkalog.model import EncodeSettings, LogSettings
from pyspark_kafkalog.model.topics import cleanup_policies

_COMPRESSION, _MAX_BYTES = "compression.type", "max.message.bytes"
_BEFORE, _AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
_DIFFERENCE = "message.timestamp.difference.max.ms"
"""The one configuration for both limits, before Kafka 3.6; since then it counts where they are not set."""
_TIMESTAMP_TYPE = "message.timestamp.type"
_LIMITS = (_BEFORE, _AFTER, _DIFFERENCE)
_LONGS = range(-(2**63), 2**63)


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
    if level not in own:
        return name, None
    from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS

    if level not in TOPIC_CONFIGS or (name == "gzip" and own[level] == "-1"):
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
