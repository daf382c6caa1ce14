"""What commands share: one of a group by default, changes only shown unless executed, NAME=VALUE."""

from __future__ import annotations

from collections.abc import Sequence

import click

topic_option = click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
group_option = click.option("--group", "groups", multiple=True, help="Only this consumer group. Repeatable.")
partitions_option = click.option(
    "--topic", "topics", multiple=True, help="A topic, or partitions of it such as orders:0,1. Repeatable."
)
execute_option = click.option(
    "--execute", is_flag=True, help="Apply the change. Without this it is only shown."
)


class ShownByDefault(click.Group):
    """A group with a command ``show``, which is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add ``show`` unless a command or the help is asked for; other tools call it list or describe."""
        if len(args) > 1 and args[0] in ("list", "describe"):
            args = args[1:]
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def say_if_dry(execute: bool) -> None:
    """Say on stderr that nothing was changed, if so."""
    if not execute:
        click.echo("Dry run: nothing was changed. Add --execute to apply it.", err=True)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """The values of an option that takes NAME=VALUE, by name."""
    values = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter("expected NAME=VALUE", param_hint=f"'{option}'")
        if name.strip() in values:
            raise click.BadParameter(f"{name.strip()} is named twice", param_hint=f"'{option}'")
        values[name.strip()] = text.strip()
    return values
