"""The configurations of topics that a log directory obeys, and why it can't obey others."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS

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
LEAST_SEGMENT_BYTES = 1 << 20
"""The least ``segment.bytes`` of a broker since Kafka 4.0."""
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


def refused_by_brokers(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Configurations with values that only a directory takes, by name, each with why (KIP-1030)."""
    size = configs.get("segment.bytes")
    if size is None or int(size) >= LEAST_SEGMENT_BYTES:
        return {}
    return {"segment.bytes": f"brokers since Kafka 4.0 take {LEAST_SEGMENT_BYTES} or more"}


def _why_not(name: str, value: str) -> str | None:
    """The reason why a directory does not obey a configuration; None if it does, or is so anyway."""
    if name not in TOPIC_CONFIGS:
        return "this version does not know it"
    as_it_is, reason = _CANNOT_OBEY.get(name, (value, ""))
    return None if value == as_it_is else reason
