"""``kafkalog lag``: how far groups are behind, once, again and again, or for Prometheus."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import BrokerConnectionError, ZooKeeperError
from pyspark_kafkalog.model.rows import plain
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say, show_json, show_rows, wide_option
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    group_option,
    offsets_of,
    on_place,
    selection,
    topics_argument,
)
from pyspark_kafkalog.tools.groups.consumer_groups import MARKER, GroupLag, GroupOffset, lags, total_lag
from pyspark_kafkalog.tools.groups.prometheus import prometheus_text
from pyspark_kafkalog.tools.groups.watching import GroupPace, LagWatch

_CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal."""


def _parse_seconds(ctx: click.Context, param: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and math.isnan(seconds):
        raise click.BadParameter("expected a number of seconds, got nan", ctx, param)
    return seconds


@kafkalog.command()
@on_place
@group_option
@topics_argument
@exclude_option
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
@wide_option
@json_option
@click.pass_context
def lag(
    ctx: click.Context,
    kafka: Kafka,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    exclude: tuple[str, ...],
    max_lag: int | None,
    isolation_level: str,
    all_groups: bool,
    watch: float | None,
    looks: int | None,
    prometheus: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Show the lag of each group, in offsets.

    It counts what can still be read. A commit beyond the end of its log, one whose log does not tell its
    end, a group that can't be read, and a named group without a lag fail --max-lag, whatever the number. So
    do groups that the brokers can't list now, and a place without any: nothing was checked then.

    With --watch, rates are offsets per second since the previous look: CONSUMED by the group, PRODUCED to
    its partitions. With --json it prints an object per line and look.
    """
    if prometheus and (as_json or watch is not None):
        raise click.UsageError("Give only one of --prometheus, --watch and --json.")
    if looks is not None and watch is None:
        raise click.UsageError("--count needs --watch.")
    chosen = selection(topics, exclude)
    is_committed = isolation_level == "read_committed"

    def look() -> list[GroupOffset]:
        if topics:
            # A topic that is gone has no lag, and a monitor of it would never give the alarm.
            with said("Looking up partitions"):
                partitions_of(kafka.groups.place, chosen)
        found = offsets_of(kafka, groups, chosen, read_committed=is_committed)
        return [row for row in found if all_groups or row.group in groups or row.state != MARKER]

    offsets = look() if watch is None else _watch(look, watch, looks, as_json, wide)
    rows = lags(offsets)
    if prometheus:
        click.echo(prometheus_text(offsets), nl=False)
    elif watch is None:
        _show_once(rows, as_json, wide)
    if not rows:
        say("No group has committed offsets here: nothing was checked.")
    alarming = not rows or any(row.is_alarming(max_lag or 0, named=row.group in groups) for row in rows)
    if max_lag is not None and alarming:
        ctx.exit(1)


def _show_once(rows: Sequence[GroupLag], as_json: bool, wide: bool) -> None:
    total = total_lag(rows)
    if as_json:
        show_json({"groups": rows, "lag": total})
        return
    show_rows(GroupLag, rows, wide=wide)
    click.echo(f"Total lag: {'unknown' if total is None else total}")


def _watch(
    look: Callable[[], list[GroupOffset]], seconds: float, looks: int | None, as_json: bool, wide: bool
) -> list[GroupOffset]:
    """Look until interrupted, or as often as asked; returns what was seen last.

    An outage between the first look and the last is only said.
    """
    watch = LagWatch()
    due = time.monotonic()
    for number in count(1):
        try:
            offsets = look()
        except (BrokerConnectionError, ZooKeeperError) as e:
            if number in (1, looks):
                raise
            say(str(e))
        else:
            paces = watch.look(offsets, time.monotonic())
            if as_json:
                click.echo(json.dumps({"groups": plain(paces), "lag": total_lag(lags(offsets))}))
            else:
                _show(paces, wide)
            if number == looks:
                return offsets
        now = time.monotonic()
        due = max(due + seconds, now)
        time.sleep(due - now)
    raise AssertionError("count never ends")


def _show(paces: Sequence[GroupPace], wide: bool) -> None:
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    show_rows(GroupPace, paces, wide=wide)
    sys.stdout.flush()
