"""``kafkalog groups``, and the options and lookups that commands for groups share."""

from __future__ import annotations

import click

from pyspark_kafkalog import admin
from pyspark_kafkalog.admin.consumer_groups import GroupOffset
from pyspark_kafkalog.admin.rows import plain
from pyspark_kafkalog.cli.output import (
    json_option,
    show_json,
    show_table,
    wide_option,
)
from pyspark_kafkalog.cli.place import Target, on_place, selection
from pyspark_kafkalog.saying import said

topic_option = click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
group_option = click.option("--group", "groups", multiple=True, help="Only this consumer group. Repeatable.")


@click.command()
@on_place
@group_option
@click.option("--members", is_flag=True, help="Show each member and its assigned partitions.")
@wide_option
@json_option
def groups(target: Target, groups: tuple[str, ...], members: bool, wide: bool, as_json: bool) -> None:
    """Show consumer groups and their states."""
    with said("Looking up groups"):
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
                for member in row.members or ()
            ],
            only=None if wide else ("GROUP", "CLIENT", "HOST", "PARTITIONS"),
        )
    else:
        show_table(
            ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS", "COORDINATOR"],
            [
                (
                    row.group,
                    row.state or None,
                    row.protocol_type or None,
                    row.protocol or None,
                    None if row.members is None else len(row.members),
                    row.coordinator if row.coordinator >= 0 else None,
                )
                for row in rows
            ],
        )


def offsets_of(
    target: Target, groups: tuple[str, ...], topics: tuple[str, ...], *, read_committed: bool = False
) -> list[GroupOffset]:
    """The committed offsets of these groups; of all groups if none is named."""
    with said("Looking up committed offsets"):
        return admin.group_offsets(
            target.place, target.groups, groups or None, selection(topics), read_committed=read_committed
        )
