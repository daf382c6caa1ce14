"""``kafkalog lag``: how far groups are behind, once, again and again, or for Prometheus."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count, pairwise

import click

from pyspark_kafkalog.admin.consumer_groups import MARKER, GroupLag, GroupOffset, lags, total_lag
from pyspark_kafkalog.admin.kafka import Kafka
from pyspark_kafkalog.admin.partitions import partitions_of
from pyspark_kafkalog.admin.prometheus import prometheus_text
from pyspark_kafkalog.admin.rows import plain
from pyspark_kafkalog.admin.watching import GroupPace, LagWatch
from pyspark_kafkalog.cli.commands import group_option, topic_option
from pyspark_kafkalog.cli.output import json_option, show_json, show_table
from pyspark_kafkalog.cli.place import offsets_of, on_place, selection
from pyspark_kafkalog.saying import said

_BARS = "▁▂▃▄▅▆▇█"
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""


def _parse_seconds(ctx: click.Context, param: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("expected a number of seconds, got nan", ctx, param)
    return seconds


@click.command()
@on_place
@group_option
@topic_option
@click.option(
    "--max-lag",
    type=click.IntRange(0),
    help="Exit with 1 if the lag of a group is above this, or can't be trusted: see NOTE.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    help="With read_committed, count to the last stable offset, where such consumers end.",
)
@click.option(
    "--all", "all_groups", is_flag=True, help="Show also the groups that hold exactly-once queries' markers."
)
@click.option(
    "--watch",
    metavar="SECONDS",
    type=click.FloatRange(0, 86_400, min_open=True),
    callback=_parse_seconds,
    help="Look again every so many seconds, and show rates and the time to catch up.",
)
@click.option("--count", "looks", type=click.IntRange(1), help="With --watch: end after so many looks.")
@click.option("--prometheus", is_flag=True, help="Print Prometheus' text format, for a textfile collector.")
@json_option
@click.pass_context
def lag(
    ctx: click.Context,
    kafka: Kafka,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    max_lag: int | None,
    isolation_level: str,
    all_groups: bool,
    watch: float | None,
    looks: int | None,
    prometheus: bool,
    as_json: bool,
) -> None:
    """Show the lag of each group, in offsets.

    It counts what can still be read. A commit beyond the end of its log, a group that can't be read, and
    a named group without a lag fail --max-lag, whatever the number.

    With --watch, rates are offsets per second since the previous look: CONSUMED by the group, PRODUCED to
    its partitions. With --json it prints an object per line and look.
    """
    if prometheus and (as_json or watch is not None):
        raise click.UsageError("Give only one of --prometheus, --watch and --json.")
    if looks is not None and watch is None:
        raise click.UsageError("--count needs --watch.")
    is_committed = isolation_level == "read_committed"

    def look() -> list[GroupOffset]:
        if topics:
            # A topic that is gone has no lag, and a monitor of it would never give the alarm.
            with said("Looking up partitions"):
                partitions_of(kafka.place, selection(topics))
        found = offsets_of(kafka, groups, topics, read_committed=is_committed)
        return [row for row in found if all_groups or row.group in groups or row.state != MARKER]

    offsets = look() if watch is None else _watch(look, watch, looks, as_json)
    rows = lags(offsets)
    if prometheus:
        click.echo(prometheus_text(offsets), nl=False)
    elif watch is None:
        _show_once(rows, as_json)
    if max_lag is not None and any(row.is_alarming(max_lag, named=row.group in groups) for row in rows):
        ctx.exit(1)


def _show_once(rows: Sequence[GroupLag], as_json: bool) -> None:
    total = total_lag(rows)
    if as_json:
        show_json({"groups": plain(rows), "lag": total})
        return
    titles = ["GROUP", "LAG", "MAX LAG", "PARTITIONS", "GONE"]
    show_table(
        [*titles, "EXPIRED", "NOTE"],
        [
            (row.group, row.lag, row.max_lag, row.partitions, row.gone, row.expired, row.note or None)
            for row in rows
        ],
        only=[
            *titles,
            *(["EXPIRED"] if any(row.expired for row in rows) else []),
            *(["NOTE"] if any(row.note for row in rows) else []),
        ],
    )
    click.echo(f"Total lag: {total}")


def _watch(
    look: Callable[[], list[GroupOffset]], seconds: float, looks: int | None, as_json: bool
) -> list[GroupOffset]:
    """Look until interrupted, or as often as asked; returns what was seen last."""
    watch = LagWatch()
    due = time.monotonic()
    for number in count(1):
        offsets = look()
        paces = watch.look(offsets, time.monotonic())
        if as_json:
            click.echo(json.dumps({"groups": plain(paces), "lag": sum(pace.lag or 0 for pace in paces)}))
        else:
            _show(paces)
        if number == looks:
            return offsets
        now = time.monotonic()
        due = max(due + seconds, now)
        time.sleep(due - now)
    raise AssertionError("count never ends")


def _show(paces: Sequence[GroupPace]) -> None:
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    titles = ["GROUP", "LAG", "MAX LAG", "CONSUMED/S", "PRODUCED/S", "CATCH UP", "LAGS"]
    show_table(
        [*titles, "NOTE"],
        [
            (
                pace.group,
                pace.lag,
                pace.max_lag,
                _rate(pace.consumed_per_second),
                _rate(pace.produced_per_second),
                duration(pace.seconds_to_catch_up),
                sparkline(pace.history),
                pace.note or None,
            )
            for pace in paces
        ],
        only=[*titles, *(["NOTE"] if any(pace.note for pace in paces) else [])],
    )
    sys.stdout.flush()


def sparkline(values: Sequence[int]) -> str:
    """A bar for each value, the greatest at full height; one of 0 has the lowest."""
    top = max(values, default=0)
    return "".join(_BARS[-(-value * (len(_BARS) - 1) // top) if top else 0] for value in values)


def _rate(per_second: float | None) -> str | None:
    return None if per_second is None else f"{per_second:,.1f}"


def duration(seconds: float | None) -> str | None:
    """Seconds in the two largest units that there are; None as None."""
    if seconds is None:
        return None
    left = round(seconds)
    for (name, size), (smaller, small) in pairwise(_UNITS):
        if left >= size:
            return f"{left // size}{name} {left % size // small}{smaller}"
    return f"{left}s"
