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
from contextlib import suppress
from typing import Any, NoReturn

import click

from pyspark_kafkalog import cli
from pyspark_kafkalog._version import __version__
from pyspark_kafkalog.admin.printable import one_line
from pyspark_kafkalog.errors import KafkaLogError, OptionError

_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)\.?")
USAGE, FAILED, INTERRUPTED = 2, 3, 130


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
            code = _failed(USAGE, e.format_message() + _usage_hint(e))
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
        if not args:
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


def _usage_hint(error: click.UsageError) -> str:
    """What to write instead, or where that is said."""
    if error.ctx is None:
        return ""
    extra = _EXTRA.fullmatch(error.format_message())
    has_topic = any(
        isinstance(param, click.Option) and "--topic" in param.opts for param in error.ctx.command.params
    )
    if extra is not None and has_topic:
        return " Did you mean " + " ".join(f"--topic {name}" for name in extra[1].split()) + "?"
    return f" Try '{error.ctx.command_path} --help'."


class ShownByDefault(click.Group):
    """A group with a command ``show``, which is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add ``show`` unless a command or the help is asked for; also called list, ls, describe."""
        if len(args) > 1 and args[0] in {"list", "ls", "describe"} - self.commands.keys():
            args = args[1:]
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["show", *args]
        return super().parse_args(ctx, args)


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
