"""The commands as Markdown: ``python -m pyspark_kafkalog.tools.cli.page > docs/commands.md``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pyspark_kafkalog.tools.cli.application import kafkalog

_INTRO = """\
# Commands

What `kafkalog --help` and the help of each command say. [Command line](command-line.md) has examples.

<!-- Made by: python -m pyspark_kafkalog.tools.cli.page > docs/commands.md -->
"""
_WIDTH = 76  # what the site's pages show without a scroll bar


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRO, *_sections(kafkalog, "kafkalog", None)])


def _sections(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command, info_name=path.split()[-1], parent=parent, terminal_width=_WIDTH, **command.context_settings
    )
    yield f"## `{path}`\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _sections(command.commands[name], f"{path} {name}", context)


if __name__ == "__main__":
    print(page(), end="")
