"""``kafkalog lag``: how far groups are behind, once, again and again, or for Prometheus."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.client.partitions import partitions_of
from pyspark_kafkalog.errors import BrokerConnectionError, ZooKeeperError
from pyspark_kafkalog.model.rows import plain, time_text
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say, show_json, show_rows, wide_option
from pyspark_kafkalog.tools.cli.parameters import (
    exclude_option,
    group_option,
    groups_as_options,
    offsets_of,
    on_place,
    selection,
    topics_argument,
)
from pyspark_kafkalog.tools.cli.printable import one_line
from pyspark_kafkalog.tools.groups.consumer_groups import (
    FAILED,
    MARKER,
    GroupLag,
    GroupOffset,
    by_lag,
    lags,
    total_lag,
)
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
    help="With read_committed, count to the last stable offset, where such consumers stop.",
)
@click.option(
    "--all",
    "all_groups",
    is_flag=True,
    help="Also show the groups that hold markers of exactly-once queries.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["group", "lag"]),
    default="group",
    help="By name, or with the group that is furthest behind first.",
)
@click.option(
    "--watch",
    metavar="SECONDS",
    type=click.FloatRange(0, 86_400, min_open=True),
    callback=_parse_seconds,
    help="Look again every so many seconds, and show rates and the time to catch up.",
)
@click.option("--count", "looks", type=click.IntRange(1), help="With --watch: end after so many looks.")
@click.option(
    "--checkpoint",
    "checkpoints",
    metavar="LOCATION",
    multiple=True,
    help="Also the query of this checkpoint, named like the checkpoint; without --group, no groups."
    " Repeatable.",
)
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
    order: str,
    watch: float | None,
    looks: int | None,
    checkpoints: tuple[str, ...],
    prometheus: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Show the lag of each group, or of queries by their checkpoints, in offsets.

    It counts what can still be read. --max-lag fails, whatever the number, if a commit is beyond the end of
    its log, if a log does not tell its end, if a group can't be read, or if a named group has no lag. It also
    fails if the brokers can't list groups now, or there is no group: nothing was checked then. A group or
    checkpoint that can't be read exits with 1 even without --max-lag, but not with --prometheus, which has a
    metric for it.

    With --watch, rates are offsets per second since the previous look: CONSUMED by the group, PRODUCED to its
    partitions. With --json, each look prints one object on a line.
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
            with said("Looking up partitions"), groups_as_options(kafka, chosen):
                partitions_of(kafka.groups.place, chosen)
        found: list[GroupOffset] = []
        if groups or not checkpoints:
            found += offsets_of(kafka, groups, chosen, read_committed=is_committed)
        if checkpoints:
            with said("Looking into checkpoints"):
                read = kafka.checkpoints.offsets(checkpoints, read_committed=is_committed)
            found += [row for row in read if row.topic is None or chosen.covers(row.topic, internal=True)]
        return [row for row in found if all_groups or row.group in groups or row.state != MARKER]

    shown = _Shown(kafka.name, order == "lag", as_json, wide)
    offsets = look() if watch is None else _watch(look, watch, looks, shown)
    rows = lags(offsets)
    if prometheus:
        click.echo(prometheus_text(offsets), nl=False)
    elif watch is None:
        shown.once(rows)
    if not rows:
        say("No group has committed offsets here: nothing was checked.")
    alarming = not rows or any(
        row.is_alarming(max_lag or 0, named=bool(checkpoints) or row.group in groups) for row in rows
    )
    is_unread = any(row.state == FAILED for row in rows) and not prometheus
    if is_unread or (max_lag is not None and alarming):
        ctx.exit(1)


@dataclass(frozen=True, slots=True)
class _Shown:
    """The way in which the rows of a place are shown."""

    place: str
    is_by_lag: bool
    as_json: bool
    wide: bool

    def once(self, found: Sequence[GroupLag]) -> None:
        """Show what one look has found."""
        rows, total = by_lag(found) if self.is_by_lag else found, total_lag(found)
        if self.as_json:
            show_json({"groups": rows, "lag": total})
            return
        show_rows(GroupLag, rows, wide=self.wide)
        click.echo(f"Total lag: {_number(total)}")

    def look(self, found: Sequence[GroupPace], total: int | None) -> None:
        """Show one of many looks: at what time, at which place, and the total, too."""
        rows, now_ms = by_lag(found) if self.is_by_lag else found, time.time_ns() // 1_000_000
        if self.as_json:
            click.echo(json.dumps({"timestamp": now_ms, "groups": plain(rows), "lag": total}))
            return
        if sys.stdout.isatty():
            click.echo(_CLEAR, nl=False)
        at = time_text(now_ms, precision="seconds")
        click.echo(one_line(f"{at} {self.place}: total lag {_number(total)}"))
        show_rows(GroupPace, rows, wide=self.wide)
        sys.stdout.flush()


def _number(total: int | None) -> str:
    return "unknown" if total is None else str(total)


def _watch(
    look: Callable[[], list[GroupOffset]], seconds: float, looks: int | None, shown: _Shown
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
            shown.look(watch.look(offsets, time.monotonic()), total_lag(lags(offsets)))
            if number == looks:
                return offsets
        now = time.monotonic()
        due = max(due + seconds, now)
        time.sleep(due - now)
    raise AssertionError("count never ends")
