"""Prints results: tables for people, JSON for programs, a progress bar on a terminal."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import click

from pyspark_kafkalog.model.rows import plain, table_columns
from pyspark_kafkalog.saying import said
from pyspark_kafkalog.tools.cli.printable import one_line, printable

_Item = TypeVar("_Item")
_OPTION = re.compile(r"\b([Gg]ive|[Ss]et) ((?:key|value|kafka|schema)\.[a-z])")
_ARGUMENT = re.compile(r"\b([a-z]+(?:_[a-z]+)*)=True\b")

wide_option = click.option(
    "--wide", is_flag=True, help="Show more columns than fit 80 characters; --json has all."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def show_json(value: Any) -> None:
    """Print an object, a row or a mapping of rows, as one JSON document.

    All commands print objects, so that one can get another field without a change for who reads it.
    """
    click.echo(json.dumps(plain(value), indent=2))


def show_rows(
    row_class: type[_Item],
    rows: Sequence[_Item],
    key: str = "",
    *,
    as_json: bool = False,
    wide: bool = False,
) -> None:
    """Print rows as a table, with the columns that their class declares, or as a JSON object.

    Numbers are right-aligned, None is a dash. A pipe or a narrow terminal gets plain text, one line per row,
    with nothing cut off.

    :param key: what the rows are called in JSON, such as ``partitions``.
    :param wide: whether to show more columns than fit 80 characters.
    """
    if as_json:
        show_json({key: rows})
        return
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    shown = table_columns(row_class, rows, wide=wide)
    titles = [one.title for one in shown]
    lines = [[one.cell(row, wide=wide) for one in shown] for row in rows]
    texts = [[cell(value) for value in line] for line in lines]
    widths = [max(cell_len(text[number]) for text in [titles, *texts]) for number in range(len(titles))]
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    is_plain = not console.is_terminal or sum(widths) + 3 * len(widths) + 2 > console.width
    table = Table(box=None if is_plain else SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(titles):
        is_number = any(isinstance(line[number], int) for line in lines)
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    for text in texts:
        table.add_row(*text)
    if not is_plain:
        console.print(table)
        return
    paper = Console(
        width=sum(widths) + 2 * len(widths), markup=False, highlight=False, emoji=False, no_color=True
    )
    with paper.capture() as capture:
        paper.print(table)
    for line in capture.get().splitlines():
        click.echo(click.unstyle(line).rstrip())


def cell(value: Any) -> str:
    """A value of a table, without control characters that a terminal would act on."""
    if value is None:
        return "-"
    return printable(str(value))


def said_until_first(doing: str, items: Iterable[_Item]) -> Iterator[_Item]:
    """The ``items``; until the first one comes, say what is being done as :func:`said` does."""
    rest = iter(items)
    with said(doing):
        first = list(islice(rest, 1))
    yield from first
    yield from rest


def in_shell(text: str) -> str:
    """A text for people, with a flag for an argument of Python, and -o before an option to give."""
    return _OPTION.sub(r"\1 -o \2", _ARGUMENT.sub(lambda match: f"--{match[1].replace('_', '-')}", text))


def say(text: str) -> None:
    """Say something about the command on stderr, as one line."""
    click.echo(one_line(f"kafkalog: {text}"), err=True)


class Warnings(logging.Handler):
    """Says the warnings of this package as commands say other things."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Say a warning."""
        self.said += 1
        # The option stands for --skip-damaged, and a command has no such option.
        say(record.getMessage().replace("Skipped, because failOnDataLoss=false: ", ""))


warnings = Warnings()
"""The warnings of the command that runs."""


def say_if_none(found: Sequence[object], done: str) -> None:
    """Say on stderr that there is no partition that could be done anything with, if so.

    :param done: what was to be done, such as ``verified``.
    """
    if not found:
        say(f"No partition is here, or all are excluded: nothing was {done}.")


def say_if_dry(execute: bool) -> None:
    """Say on stderr that nothing was changed, if so."""
    if not execute:
        click.echo("Dry run: nothing was changed. Add --execute to apply it.", err=True)


def say_unreadable(ctx: click.Context, groups: Sequence[tuple[str, str]]) -> None:
    """Say on stderr which groups can't be read or listed, and why, and exit with 1 if there are any."""
    for group, reason in groups:
        click.echo(one_line(f"Group {group!r} can't be read: {reason}" if group else reason), err=True)
    if groups:
        ctx.exit(1)


@contextmanager
def progress(
    doing: str, total: int | None, *, in_bytes: bool = False, hidden: bool = False
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr if that is a terminal; yields the function that advances it.

    The function takes what was done since the last call, and the total if it is known only now.
    """
    if hidden or not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    amount = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=total)
        yield lambda done, total=None: bar.update(task, advance=done, total=total)
