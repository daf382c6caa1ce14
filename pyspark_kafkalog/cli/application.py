"""The command ``kafkalog``, and what its exit codes mean.

====  ==========================================================================
   0  success
   1  a check failed: damage or a problem was found, or a lag above ``--max-lag``
   2  the command is wrong
   3  the command failed: no access, no such topic or group, a group in use ...
 130  interrupted
====  ==========================================================================
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from pyspark_kafkalog import cli
from pyspark_kafkalog._version import __version__
from pyspark_kafkalog.admin.printable import one_line
from pyspark_kafkalog.errors import KafkaLogError, OptionError

_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)\.?")
USAGE, FAILED, INTERRUPTED = 2, 3, 130
_VERBS = ("list", "ls", "describe")
"""What other tools call showing."""
_PLACE_FIRST = "Brokers come after the command, such as kafkalog topics host:9092."
_OF_OTHER_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(("-b", "--bootstrap-server", "--brokers", "--zookeeper"), _PLACE_FIRST),
    **dict.fromkeys(("-t", "-C"), "Write kafkalog cat host:9092 TOPIC."),
    **dict.fromkeys(("-q", "-u", "-l", "-Q"), "Leave it out."),
    **dict.fromkeys(("--max-messages", "--num"), "Write --limit."),
    "-P": "Write kafkalog produce host:9092 TOPIC.",
    "-L": "Write kafkalog topics describe host:9092, or kafkalog brokers host:9092.",
    "-G": "Write kafkalog cat host:9092 TOPIC; groups are shown by kafkalog groups host:9092.",
    "-X": "Write -o NAME=VALUE.",
    "-F": "Write --config FILE.",
    "--command-config": "Write --config FILE.",
    "--list": "Write kafkalog topics host:9092, or kafkalog groups host:9092.",
    "--describe": "Write kafkalog topics describe host:9092, or kafkalog offsets host:9092 --group GROUP.",
    "--create": "Write kafkalog topics create host:9092 TOPIC.",
    "--alter": "Write kafkalog topics alter host:9092 TOPIC.",
    "--delete": "Write kafkalog topics delete host:9092 TOPIC, or kafkalog offsets delete.",
    "--reset-offsets": "Write kafkalog offsets reset host:9092 --group GROUP.",
    "--from-beginning": "Leave it out: cat begins there.",
    "--add-config": "Write --set NAME=VALUE.",
    "--delete-config": "Write --unset NAME.",
    "consume": "Write kafkalog cat.",
    "tail": "Write kafkalog cat --follow.",
    "topic": "Write kafkalog topics.",
    "list": "Write kafkalog topics, or kafkalog groups.",
    "describe": "Write kafkalog topics describe.",
    "group": "Write kafkalog groups.",
    "consumer-groups": "Write kafkalog groups.",
    "cluster": "Write kafkalog brokers.",
    "info": "Write kafkalog brokers.",
    "metadata": "Write kafkalog brokers, or kafkalog topics describe.",
    "configs": "Write kafkalog topics describe, or kafkalog topics alter.",
    "create": "Write kafkalog topics create.",
}
"""Options of kcat and of Kafka's tools, and commands of rpk: what to write instead."""
_UNKNOWN = re.compile(r"No such (?:option|command):? '?(?P<word>-*[^\s'=.]+)'?")


class Application(click.Group):
    """Prints every error as one line on stderr; the exit code says its kind.

    The other modules of this folder have the commands, with ``@kafkalog.command()``.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        _load_commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of this name."""
        _load_commands()
        return super().get_command(ctx, name)

    def main(self, *args: Any, **settings: Any) -> NoReturn:
        """Run and exit."""
        settings["standalone_mode"] = False
        for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
            if getattr(sys, name) is None:  # closed by the process that started us
                setattr(sys, name, click.open_file(os.devnull, mode))
        try:
            code = super().main(*args, **settings)
            sys.stdout.flush()
        except click.UsageError as e:
            code = _failed(USAGE, _usage_message(e))
        except click.ClickException as e:
            code = _failed(USAGE, e.format_message())
        except (click.Abort, KeyboardInterrupt):
            code = _failed(INTERRUPTED, "interrupted")
        except OSError as e:
            if e.filename is not None:
                raise
            code = _failed(FAILED, f"Cannot write the output: {e.strerror}. Write it elsewhere.")
            _drop_output()
        except SystemExit:
            code = 0  # click exits when the reader of the output, such as head, has closed it
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Without a command, show the help; click 8.1 and 8.2 differ in where and how that ends."""
        if not args and not ctx.resilient_parsing:  # that is a shell which completes
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except OptionError as e:
            ctx.exit(_failed(USAGE, str(e)))
        except UnicodeDecodeError as e:
            ctx.exit(_failed(USAGE, f"A file is not valid UTF-8: {e.reason} at byte {e.start}"))
        except KafkaLogError as e:
            ctx.exit(_failed(FAILED, str(e)))


def _load_commands() -> None:
    for module in pkgutil.iter_modules(cli.__path__):
        importlib.import_module(f"{cli.__name__}.{module.name}")


def _drop_output() -> None:
    """Python would try once more at its end."""
    with suppress(OSError), click.open_file(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _failed(code: int, message: str) -> int:
    click.echo(f"kafkalog: {one_line(message)}", err=True)
    return code


def _usage_message(error: click.UsageError) -> str:
    """What is wrong, and what to write instead, or where that is said."""
    message = error.format_message()
    if error.ctx is None:
        return message
    if (unknown := _UNKNOWN.match(message)) and unknown["word"] in _OF_OTHER_TOOLS:
        return f"{unknown[0]}. {_OF_OTHER_TOOLS[unknown['word']]}"
    hint = f"Try '{error.ctx.command_path} --help'."
    if extra := _EXTRA.fullmatch(message):
        has_topic = any("--topic" in param.opts for param in error.ctx.command.params)
        if "%" in extra[1] and "follow" in {param.name for param in error.ctx.command.params}:
            hint = "-f is --follow: write --format for a format."
        elif has_topic:
            hint = "Did you mean " + " ".join(f"--topic {name}" for name in extra[1].split()) + "?"
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} {hint}"


class ShownByDefault(click.Group):
    """A group with a command ``show``, which is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add ``show`` unless a command or the help is asked for; a shell that completes has no words yet."""
        args = _without_verb(args, self.commands.keys())
        is_command = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        is_place = bool(args) and (":" in args[0] or os.path.exists(args[0]))
        is_typo = len(args) > 1 and not is_place and get_close_matches(args[0], self.commands)
        if not (is_command or is_typo or (ctx.resilient_parsing and not args)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


class Shown(click.Command):
    """A command that shows what its name says; with list, ls or describe, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Drop such a verb."""
        return super().parse_args(ctx, _without_verb(args))


def _without_verb(args: list[str], commands: Collection[str] = ()) -> list[str]:
    is_verb = len(args) > 1 and args[0] in _VERBS and args[0] not in commands
    return args[1:] if is_verb else args


@click.group(
    cls=Application, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__)
def kafkalog() -> None:
    """Read, write and inspect Kafka log directories and clusters, and reset consumer groups.

    PLACE is a log directory (a folder or a URI; no broker is needed) or brokers: host:port[,host:port].
    For groups, offsets and lag it can be ZooKeeper: zk://host:port[,host:port][/chroot].

    Exit codes: 0 success, 1 damage, a problem or lag found, 2 wrong command, 3 failure.
    """
