"""``kafkalog groups``: show consumer groups."""

from __future__ import annotations

import click

from pyspark_kafkalog.admin.kafka import Kafka
from pyspark_kafkalog.admin.rows import plain
from pyspark_kafkalog.cli.commands import group_option
from pyspark_kafkalog.cli.output import json_option, show_json, show_table, wide_option
from pyspark_kafkalog.cli.place import on_place
from pyspark_kafkalog.saying import said


@click.command()
@on_place
@group_option
@click.option("--members", is_flag=True, help="Show each member and its assigned partitions.")
@wide_option
@json_option
def groups(kafka: Kafka, groups: tuple[str, ...], members: bool, wide: bool, as_json: bool) -> None:
    """Show consumer groups and their states."""
    with said("Looking up groups"):
        rows = kafka.groups.describe(groups or None)
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
