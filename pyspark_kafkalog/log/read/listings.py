"""The age up to which a listing of a partition's folder is believed while the folder seems unchanged.

A folder's time of change shows each change, except on file systems that don't keep it. So it is listed again
now and then: as often as one budget of time allows for all folders of a directory.
"""

from __future__ import annotations

import time

from pyspark_kafkalog.model import TopicPartition

_AT_REST_NS = 2_000_000_000
"""Age from which a folder's time of change shows every later change, on all file systems."""
_SHARE = 0.02
"""Share of the time that may go into listing folders that seem unchanged."""
_SHORTEST, _LONGEST = 0.1, 30.0
"""Seconds for which a listing is believed at least, and at most."""


def was_at_rest(changed: tuple[int, ...] | None, now_ns: int) -> bool:
    """Whether a folder with this time of change was at rest when it was listed at ``now_ns``.

    :param changed: see :meth:`pyspark_kafkalog.filesystem.folder.Folder.changed`.
    """
    return changed is not None and now_ns - changed[-1] > _AT_REST_NS


class Listings:
    """The listings of one root and its partitions' folders: how long it takes to make them all."""

    def __init__(self) -> None:
        self._took: dict[TopicPartition | None, float] = {}
        self._all_take = 0.0

    def made(self, partition: TopicPartition | None, seconds: float) -> None:
        """Note how long the last listing of a partition's folder took; None stands for the root."""
        self._all_take += seconds - self._took.get(partition, 0.0)
        self._took[partition] = seconds

    def is_believed(self, listed_at: float) -> bool:
        """Whether a listing of that time, by the monotonic clock, need not be made again yet."""
        believed = min(max(_SHORTEST, self._all_take / _SHARE), _LONGEST)
        return time.monotonic() - listed_at < believed
