"""``kafkalog groups``: show consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model import Group
from pyspark_kafkalog.model.rows import STRING, column
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.application import Shown, kafkalog
from pyspark_kafkalog.tools.cli.output import json_option, say_unreadable, show_rows, wide_option
from pyspark_kafkalog.tools.cli.parameters import group_option, on_place


@kafkalog.command(cls=Shown)
@on_place
@group_option
@click.option("--members", is_flag=True, help="Show each member and its assigned partitions.")
@wide_option
@json_option
@click.pass_context
def groups(
    ctx: click.Context, kafka: Kafka, groups: tuple[str, ...], members: bool, wide: bool, as_json: bool
) -> None:
    """Show consumer groups and their states. Exits with 1 if one can't be read."""
    with said("Looking up groups"):
        rows = kafka.groups.describe(groups or None)
    if members and not as_json:
        show_rows(_Member, [member for row in rows for member in _members(row)], wide=wide)
    else:
        show_rows(Group, rows, "groups", as_json=as_json, wide=wide)
    say_unreadable(ctx, [(row.group, row.note) for row in rows if row.note])


@dataclass(frozen=True, slots=True)
class _Member:
    """A row of ``--members``; a group without members has one, too, which says its state."""

    group: str = field(metadata=column(STRING, "GROUP"))
    state: str = field(metadata=column(STRING, "STATE"))
    member_id: str | None = field(default=None, metadata=column(STRING, "MEMBER", wide=True))
    instance_id: str | None = field(default=None, metadata=column(STRING, "INSTANCE", if_any=True))
    client_id: str | None = field(default=None, metadata=column(STRING, "CLIENT"))
    host: str | None = field(default=None, metadata=column(STRING, "HOST"))
    partitions: str | None = field(default=None, metadata=column(STRING, "PARTITIONS"))


def _members(group: Group) -> list[_Member]:
    return [
        _Member(
            group.group,
            group.state,
            one.member_id,
            one.instance_id,
            one.client_id,
            one.host,
            ", ".join(map(str, one.partitions)) or None,
        )
        for one in group.members or ()
    ] or [_Member(group.group, group.state)]
