"""The help of all commands: groups of commands, and whole sentences that fit 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from pyspark_kafkalog.tools.cli import application
from tests.tools.cli.running import run


def _all(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                yield from _all(command.commands[name], *path, name)


COMMANDS = dict(_all(application.kafkalog))
HELPS = [pytest.param(path, id=" ".join(path) or "kafkalog") for path in COMMANDS]


def test_each_command_is_listed_under_one_title() -> None:
    listed = [name for names in application.kafkalog.sections().values() for name in names]
    assert sorted(listed) == sorted(application.kafkalog.commands)
    shown = run("--help").out
    assert "Commands:" not in shown
    for title in application.kafkalog.sections():
        assert f"\n{title}:\n" in shown


@pytest.mark.parametrize("path", HELPS)
def test_sentences_are_whole_and_fit(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*path, "--help").out
    assert max(map(len, shown.splitlines())) <= 80
    _, *said = shown.split("\n\n")
    assert not [line for line in "\n".join(said).splitlines() if line.endswith("...")]
    if isinstance(command := COMMANDS[path], click.Group):
        listing = " ".join(shown.split())
        for one in command.commands.values():
            sentence = " ".join((one.help or "").split("\n\n")[0].split()).split(". ")[0].removesuffix(".")
            assert f"{sentence}." in listing


def test_one_thing_is_said_one_way() -> None:
    """Places, topics, partitions, files and configurations have one name in all commands."""
    arguments: dict[str, list[tuple[str, ...]]] = {}
    options: dict[str, dict[tuple[str, str], list[tuple[str, ...]]]] = {}
    for path, command in COMMANDS.items():
        for param in command.params:
            if isinstance(param, click.Argument):
                arguments.setdefault(param.make_metavar(click.Context(command)).strip("[]."), []).append(path)
            for word in param.opts if isinstance(param, click.Option) else ():
                shown = (str(param.metavar), param.help.split(".")[0] if param.help else "")
                options.setdefault(word, {}).setdefault(shown, []).append(path)
    of_records = {"TOPIC[:PARTITIONS", "TOPIC[:PARTITION", "TOPIC:PARTITIONS", "TOPIC:PARTITION"}
    assert {name.rstrip("]") for name in arguments} - of_records == {
        *("PLACE", "BACKUP", "CHECKPOINT", "TOPIC", "FILE", "TOPIC[:PARTITIONS][=OFFSET")
    }
    assert "--topic" not in options
    assert {metavar for metavar, _ in options["--config"]} == {"FILE"}
    assert {metavar for metavar, _ in options["--set"]} == {"NAME=VALUE"}
    for name in ("--since", "--until", "--to-datetime"):
        assert {metavar for metavar, _ in options[name]} == {"TIME"}
    of_resets = sorted(options["--to-datetime"].popitem()[1])
    assert of_resets == [("checkpoint", "rewind"), ("offsets", "reset")]
    assert len(options["--json"]) == 3, "a table, an object per line, or lines that are read"
