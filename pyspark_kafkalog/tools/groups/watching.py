"""The movement of groups' lags: rates between two looks, and the time to catch up. Knows no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pyspark_kafkalog.model.rows import BIGINT, NOTE, STRING, Kind, column
from pyspark_kafkalog.tools.groups.consumer_groups import OK, GroupOffset, lags

_KEPT = 20
"""The number of looks in the history."""
_BARS = "▁▂▃▄▅▆▇█"
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


def sparkline(values: Sequence[int]) -> str:
    """A bar for each value, the greatest at full height; one of 0 has the lowest."""
    top = max(values, default=0)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // top) if top else 0] for value in values)


def duration(seconds: float) -> str:
    """Seconds in the two largest units that there are."""
    left = round(seconds)
    for (name, size), (smaller, small) in pairwise(_UNITS):
        if left >= size:
            return f"{left // size}{name} {left % size // small}{smaller}"
    return f"{left}s"


_RATE = Kind("double", text=lambda per_second: f"{per_second:,.1f}")


@dataclass(frozen=True, slots=True)
class GroupPace:
    """The lag of a group and how it moves, since the previous look and over all its partitions.

    Offsets per second: ``consumed`` is how fast the group commits, ``produced`` how fast its logs grow; None
    at the first look. ``seconds_to_catch_up`` is 0 without lag, and None if the lag does not shrink.
    ``history`` has the lags of up to 20 looks, the last one included. ``state`` and ``note`` are those of
    :class:`.consumer_groups.GroupLag`.
    """

    group: str = field(metadata=column(STRING, "GROUP"))
    lag: int | None = field(metadata=column(BIGINT, "LAG"))
    max_lag: int | None = field(metadata=column(BIGINT, "MAX LAG", wide=True))
    consumed_per_second: float | None = field(metadata=column(_RATE, "CONSUMED/S"))
    produced_per_second: float | None = field(metadata=column(_RATE, "PRODUCED/S"))
    seconds_to_catch_up: float | None = field(metadata=column(Kind("double", text=duration), "CATCH UP"))
    history: tuple[int, ...] = field(metadata=column(Kind("array<bigint>", text=sparkline), "LAGS"))
    state: str = field(default=OK, metadata=column(STRING))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))


class LagWatch:
    """Compares each look at the offsets of groups with the one before."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: Mapping[str, Mapping[tuple[str, int], tuple[int, int]]] = {}
        self._history: dict[str, deque[int]] = {}

    def look(self, offsets: Iterable[GroupOffset], at: float) -> list[GroupPace]:
        """The pace of each group, sorted.

        :param offsets: as :func:`.consumer_groups.group_offsets` gives them.
        :param at: when that was, in seconds by any clock that never goes back.
        """
        offsets = list(offsets)
        now: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        for row in offsets:
            if row.log_end_offset is not None and row.offset is not None:
                ends = now.setdefault(row.group, {})
                ends[str(row.topic), row.partition or 0] = row.offset, row.log_end_offset
        seconds = at - self._at
        paces = []
        for group in lags(offsets):
            history = self._history.setdefault(group.group, deque(maxlen=_KEPT))
            if group.lag is not None:
                history.append(group.lag)
            consumed, produced = self._rates(group.group, now.get(group.group, {}), seconds)
            paces.append(
                GroupPace(
                    group.group,
                    group.lag,
                    group.max_lag,
                    consumed,
                    produced,
                    _time_left(group.lag, consumed, produced),
                    tuple(history),
                    group.state,
                    group.note,
                )
            )
        self._at, self._before = at, now
        return paces

    def _rates(
        self, group: str, now: Mapping[tuple[str, int], tuple[int, int]], seconds: float
    ) -> tuple[float | None, float | None]:
        before = self._before.get(group)
        if before is None or seconds <= 0:
            return None, None
        both = now.keys() & before.keys()
        consumed = sum(now[partition][0] - before[partition][0] for partition in both)
        produced = sum(now[partition][1] - before[partition][1] for partition in both)
        return consumed / seconds, produced / seconds


def _time_left(lag: int | None, consumed: float | None, produced: float | None) -> float | None:
    if lag == 0:
        return 0.0
    if lag is None or consumed is None or produced is None or consumed <= produced:
        return None
    return lag / (consumed - produced)
