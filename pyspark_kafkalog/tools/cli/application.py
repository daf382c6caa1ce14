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

import importlib.util
import logging
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pyspark_kafkalog import tools
from pyspark_kafkalog._version import __version__
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.tools.cli.other_tools import OF_OTHER_TOOLS
from pyspark_kafkalog.tools.cli.output import in_shell, say, warnings

_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)\.?")
_TYPED = f"{__name__}.typed"
"""The key under which click's context has all words of the command line."""
USAGE, FAILED, INTERRUPTED = 2, 3, 130
_SECTIONS: Mapping[str, Sequence[str]] = {
    "First steps": ("doctor", "run-broker"),
    "Topics and brokers": ("topics", "brokers"),
    "Records": ("cat", "export", "produce", "dump", "delete-records", "redrive"),
    "Groups and queries": ("groups", "lag", "offsets", "checkpoint"),
    "Backups": ("backup", "copy", "restore", "adopt"),
    "Log maintenance": ("verify", "repair", "retain", "compact", "forget-queries"),
}
"""The commands as the help lists them."""
_VERBS = ("list", "ls", "describe")
"""The words of other tools for ``show``."""
_WHOLE_NUMBER = re.compile(r"(\S+) is not a valid integer(?: range)?")
_CHOICE = re.compile(r"('[^']*') is not one of (.+?)\.?$")
_NO_NUMBER = re.compile(r"(\S+) is not a valid float(?: range)?")
_NO_FILE = re.compile(
    r"(?:File |Directory )?'([^']*)':? (No such file or directory|is a directory|is a file)\.?", re.I
)
_METAVAR = re.compile(r"'\[([A-Z]+)\](?:\.\.\.)?'")
_RANGE = re.compile(r"(\S+) is not in the range (?:(\S+?)(<=?))?x(?:(>=?|<=?)(-?[\d.]*\d))?\.?")
_UNKNOWN = re.compile(r"No such (?:option|command):? '?(?P<word>-*[^\s'=]*[^\s'=.])'?")


class CommandGroup(click.Group):
    """A group of commands whose help has a whole sentence for each of them."""

    def sections(self) -> Mapping[str, Sequence[str]]:
        """The commands by the title under which the help lists them."""
        return {"Commands": sorted(self.commands)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command, on as many lines as it needs."""
        width = max(map(len, self.commands))
        for title, names in self.sections().items():
            with formatter.section(title):
                # click would cut a sentence after so many letters.
                said = [(name, self.commands[name].get_short_help_str(limit=1000)) for name in names]
                formatter.write_dl([(name.ljust(width), sentence) for name, sentence in said])


class Application(CommandGroup):
    """Prints every error as one line on stderr; the exit code says its kind.

    The modules in ``commands`` of each tool have the commands, with ``@kafkalog.command()``.
    """

    def sections(self) -> Mapping[str, Sequence[str]]:
        """The commands by what they are about."""
        return _SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, as the help lists them."""
        _load_commands()
        return [name for names in _SECTIONS.values() for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command."""
        _load_commands()
        super().format_commands(ctx, formatter)

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
        logging.getLogger("pyspark_kafkalog").addHandler(warnings)
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
        finally:
            logging.getLogger("pyspark_kafkalog").removeHandler(warnings)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help if there is no command; click 8.1 and 8.2 differ in where and how that ends."""
        if not args and not ctx.resilient_parsing:  # that is a shell which completes
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except click.UsageError as e:
            e.ctx = e.ctx or ctx  # the parser's own errors have none
            raise
        except OptionError as e:
            ctx.exit(_failed(USAGE, in_shell(str(e))))
        except KafkaLogError as e:
            ctx.exit(_failed(FAILED, in_shell(str(e))))


def _load_commands() -> None:
    for tool in pkgutil.iter_modules(tools.__path__, f"{tools.__name__}."):
        if importlib.util.find_spec(commands := f"{tool.name}.commands") is not None:
            for module in pkgutil.iter_modules(importlib.import_module(commands).__path__, f"{commands}."):
                importlib.import_module(module.name)


def _drop_output() -> None:
    """Python would try once more at its end."""
    with suppress(OSError), click.open_file(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _failed(code: int, message: str) -> int:
    say(message)
    return code


def _usage_message(error: click.UsageError) -> str:
    """The error, and what to write instead, or where that is said."""
    message = error.format_message()
    like = getattr(error, "possibilities", None)
    if like and isinstance(error, click.NoSuchOption):
        like, message = _near(error.option_name, like), error.message
    if like:  # click would put several into brackets
        message = f"{error.message} Did you mean {' or '.join(map(repr, like))}?"
    message = _METAVAR.sub(r"'\1'", message)
    message = _NO_FILE.sub(_expected_file, message)
    message = _WHOLE_NUMBER.sub(r"expected a whole number, got \1", message)
    message = _NO_NUMBER.sub(r"expected a number, got \1", message)
    message = _CHOICE.sub(lambda found: f"expected {_either(found[2])}, got {found[1]}", message)
    message = _RANGE.sub(_expected_range, message)
    if error.ctx is None:
        return message
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if name := _name_with_dash(option, error.ctx.meta[_TYPED]):
        return f"{message} If {name} is a name, write -- before it, and options before that."
    if unknown := _UNKNOWN.match(message):
        for command in error.ctx.command.name or "", "":
            if told := OF_OTHER_TOOLS.get(command, {}).get(unknown["word"]):
                return f"{unknown[0]}. {told.replace('{command}', error.ctx.command_path)}"
    hint = f"Try '{error.ctx.command_path} --help'."
    typed: Sequence[str] = error.ctx.meta[_TYPED]
    if unknown and (word := unknown["word"] or "") in typed[:-1] and not word.startswith("-"):
        place = typed[typed.index(word) + 1]
        if _is_place(place) and (as_name := _as_name(error.ctx.command, word)):
            written = as_typed({word: (place,), place: as_name}, error.ctx)
            return f"{message} If {word} is a name, PLACE comes first: {written}"
    if isinstance(error, click.MissingParameter) and error.param:
        hint = _as_it_is_written(error.ctx)
    elif isinstance(error, click.BadOptionUsage):
        hint = _with_value(error.option_name, _named_command(typed))
    elif unknown and not unknown["word"].startswith("-") and _is_place(unknown["word"]):
        hint = f"A place comes after the command, such as kafkalog topics {unknown['word']}"
    elif extra := _EXTRA.fullmatch(message):
        options = {option for param in error.ctx.command.params for option in param.opts}
        meant = [option for option in ("--group",) if option in options]
        if "%" in extra[1] and "--follow" in options:
            hint = "-f is --follow: write --format for a format."
        elif meant:
            named = [" ".join(f"{option} {name}" for name in extra[1].split()) for option in meant]
            hint = f"Did you mean {' or '.join(named)}?"
        else:
            hint = _as_it_is_written(error.ctx)
    elif (
        isinstance(error, click.BadParameter)
        and error.param
        and error.param.multiple
        and ("," in message.partition("got ")[2])
    ):
        hint = f"Repeat {error.param.opts[0]} for each."
    return f"{message}{'' if message.endswith(('.', '?')) else '.'} {hint}"


def _near(option: str, possible: Collection[str]) -> list[str]:
    """The options whose words are near that of one that does not exist."""
    by_word = {name.lstrip("-"): name for name in possible}
    return [by_word[word] for word in get_close_matches(option.lstrip("-"), by_word, 3, 0.5)]


def _expected_file(found: re.Match[str]) -> str:
    """The text of click about a file or a folder that is needed, in words."""
    name, why = found[1], found[2].lower()
    if why == "is a file":
        return f"expected a folder, got the file {name!r}"
    got = f"the folder {name!r}" if why == "is a directory" else f"{name!r}, and {os.path.abspath(name)}"
    return f"expected a file, got {got}{' does not exist' if why.startswith('no such') else ''}"


def _either(choices: str) -> str:
    """The choices that click lists, as other errors list them."""
    return f"one of {choices.replace(chr(39), '')}"


def _named_command(typed: Sequence[str]) -> click.Command:
    """The command that these words name, as far as they name one."""
    command: click.Command = kafkalog
    for word in (*typed, "show"):
        if isinstance(command, click.Group):
            command = command.commands.get(word, command)
    return command


def _with_value(name: str, command: click.Command) -> str:
    """The hint for an option that lacks its value."""
    for param in command.params:
        if name in param.opts:
            choices = "|".join(map(str, getattr(param.type, "choices", ())))
            is_number = isinstance(param.type, click.IntRange | click.FloatRange | type(click.INT))
            kind = "NUMBER" if is_number else param.opts[-1].lstrip("-").upper()
            return f"Write {name} {param.metavar or choices or kind}."
    return f"Try '{command.name} --help'."


def _expected_range(found: re.Match[str]) -> str:
    """The text of click about a number that is outside of a range, in words."""
    got, low, low_sign, sign, bound = found.groups()
    least = (low, low_sign == "<=") if low else (bound, sign == ">=") if sign and sign[0] == ">" else None
    most = bound if sign and sign[0] == "<" else None
    words = [] if least is None else [f"{least[0]} or more" if least[1] else f"more than {least[0]}"]
    words += [f"at most {most}" if sign == "<=" else f"less than {most}"] if most else []
    return f"expected {' and '.join(words)}, got {got}"


def _as_it_is_written(ctx: click.Context) -> str:
    """The hint that has the command with the words that it needs."""
    words = f"{ctx.command_path} {_words_of(ctx.command)}".rstrip()
    return f"Write {words}{'' if words.endswith('...') else '.'}"


def _words_of(command: click.Command) -> str:
    """The words that a command needs, as its help writes them."""
    needed = [param for param in command.params if param.required or isinstance(param, click.Argument)]
    names = [param.metavar or (param.name or "").upper() for param in needed]
    return " ".join(
        name if isinstance(param, click.Argument) else f"{param.opts[0]} {name}"
        for param, name in zip(needed, names, strict=True)
    )


def _as_name(command: click.Command, name: str) -> tuple[str, ...]:
    """The words that give a command a name, of a topic or of a group; none if it takes no name."""
    shown = command.commands.get("show", command) if isinstance(command, click.Group) else command
    if any("TOPIC" in (param.metavar or "") for param in shown.params if isinstance(param, click.Argument)):
        return (name,)
    return ("--group", name) if any("--group" in param.opts for param in shown.params) else ()


def as_typed(instead: Mapping[str, Sequence[str]], ctx: click.Context | None = None) -> str:
    """The command as it was typed, with others in place of some words, each where it was typed last."""
    ctx = ctx or click.get_current_context()
    words = [[word] for word in ctx.meta[_TYPED]]
    for word, others in instead.items():
        at = max(number for number, typed in enumerate(ctx.meta[_TYPED]) if typed == word)
        words[at] = list(others)
    return shlex.join(["kafkalog", *(word for group in words for word in group)])


def _name_with_dash(option: str, typed: Sequence[str]) -> str | None:
    """The word in which click took letters for an unknown option; None if the option itself was typed."""
    if len(option) != 2 or option in typed:
        return None
    names = (word for word in typed if re.fullmatch(r"-[\w.][\w.-]+(=\S*)?", word))
    return next((name for name in names if option[1] in name), None)


class ShownByDefault(CommandGroup):
    """A group with a command ``show``, which is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add ``show`` unless a command or the help is asked for; a shell that completes has no words yet."""
        args = _without_verb(args, self.commands.keys())
        is_command = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        is_typo = len(args) > 1 and not _is_place(args[0]) and get_close_matches(args[0], self.commands)
        if not (is_command or is_typo or _is_verb(args) or (ctx.resilient_parsing and not args)):
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The completions: commands, or else the folder that ``show`` takes."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="dir")]


class Shown(click.Command):
    """A command that shows what its name says; with list, ls or describe, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Drop such a verb; another one is a command that does not exist."""
        args = _without_verb(args)
        if _is_verb(args):
            ctx.fail(f"No such command {args[0]!r}.")
        return super().parse_args(ctx, args)


def _without_verb(args: list[str], commands: Collection[str] = ()) -> list[str]:
    is_verb = bool(args) and args[0] in _VERBS and args[0] not in commands
    is_place = len(args) == 1 and os.path.exists(args[0])
    return args[1:] if is_verb and not is_place else args


def _is_verb(args: list[str]) -> bool:
    """Whether a word stands before the place."""
    is_word = len(args) > 1 and re.fullmatch("[a-z][a-z-]*", args[0]) is not None
    return is_word and not _is_place(args[0]) and _is_place(args[1])


def _is_place(word: str) -> bool:
    return ":" in word or os.path.exists(word)


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
