"""``kafkalog topics``, ``groups`` and ``lag``."""

from __future__ import annotations

import click

from pyspark_kafkalog import admin
from pyspark_kafkalog.admin.consumer_groups import GroupOffset
from pyspark_kafkalog.admin.rows import plain
from pyspark_kafkalog.cli.output import json_option, progress, show_json, show_table, size_text, time_text
from pyspark_kafkalog.cli.place import Target, on_place, selection

topic_option = click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
group_option = click.option("--group", "groups", multiple=True, help="Only this consumer group. Repeatable.")


@click.command()
@on_place
@topic_option
@click.option("--internal", is_flag=True, help="Show internal topics, too, such as __consumer_offsets.")
@json_option
def topics(target: Target, topics: tuple[str, ...], internal: bool, as_json: bool) -> None:
    """Show partitions with their bounds, sizes and timestamps."""
    rows = admin.topics(target.place, selection(topics), internal=internal)
    if as_json:
        show_json(plain(rows))
        return
    show_table(
        [
            "TOPIC",
            "PARTITION",
            "START",
            "END",
            "STABLE",
            "SIZE",
            "SEGMENTS",
            "EARLIEST",
            "LATEST",
            "TOPIC ID",
        ],
        [
            (
                row.topic,
                row.partition,
                row.log_start_offset,
                row.high_watermark,
                row.last_stable_offset,
                size_text(row.stored_bytes),
                row.segments,
                time_text(row.earliest_timestamp),
                time_text(row.latest_timestamp),
                row.topic_id,
            )
            for row in rows
        ],
    )


@click.command()
@on_place
@group_option
@click.option("--members", is_flag=True, help="Show each member and its assigned partitions.")
@json_option
def groups(target: Target, groups: tuple[str, ...], members: bool, as_json: bool) -> None:
    """Show consumer groups and their states."""
    rows = admin.groups(target.groups, groups or None)
    if as_json:
        show_json(plain(rows))
    elif members:
        show_table(
            ["GROUP", "MEMBER", "CLIENT", "HOST", "PARTITIONS"],
            [
                (
                    row.group,
                    member.member_id,
                    member.client_id,
                    member.host,
                    ", ".join(map(str, member.partitions)),
                )
                for row in rows
                for member in row.members
            ],
        )
    else:
        show_table(
            ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS", "COORDINATOR"],
            [
                (
                    row.group,
                    row.state,
                    row.protocol_type or None,
                    row.protocol or None,
                    len(row.members),
                    row.coordinator if row.coordinator >= 0 else None,
                )
                for row in rows
            ],
        )


@click.command()
@on_place
@group_option
@topic_option
@click.option("--max-lag", type=click.IntRange(0), help="Exit with 1 if the lag of a group is above this.")
@json_option
@click.pass_context
def lag(
    ctx: click.Context,
    target: Target,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    max_lag: int | None,
    as_json: bool,
) -> None:
    """Show the lag of each group, in offsets."""
    rows = admin.lags(offsets_of(target, groups, topics))
    total = admin.total_lag(rows)
    if as_json:
        show_json({"groups": plain(rows), "lag": total})
    else:
        show_table(
            ["GROUP", "LAG", "LARGEST", "PARTITIONS", "GONE"],
            [(row.group, row.lag, row.max_lag, row.partitions, row.unknown) for row in rows],
        )
        click.echo(f"Total lag: {total}")
    if max_lag is not None and any(row.lag > max_lag for row in rows):
        ctx.exit(1)


def offsets_of(target: Target, groups: tuple[str, ...], topics: tuple[str, ...]) -> list[GroupOffset]:
    """The committed offsets of these groups; of all groups if none is named."""
    names = groups or target.groups.group_ids()
    with progress("Groups", len(set(names))) as done:
        return admin.group_offsets(
            target.place, target.groups, groups or None, selection(topics), progress=done
        )
