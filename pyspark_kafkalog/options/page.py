"""The options as Markdown: ``python -m pyspark_kafkalog.options.page > docs/options.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark_kafkalog.options.client_settings import (
    HARMLESS,
    REFUSED_READING,
    REFUSED_WRITING,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.table import SECTIONS, VIEW_USES, Option, Use, Where

_INTRO = """\
# Options

Names, values and, unless a row says otherwise, defaults are those of Spark's Kafka source and sink, of
Kafka's clients and topics, and, for large messages, of LinkedIn's clients. Names are case-insensitive. An
unknown option is refused, and similar names are suggested. An unknown `kafka.` name only logs a warning,
once per process.

*Place* says whether an option is for a log directory (`path`), for brokers (`kafka.bootstrap.servers`), or
both. *Views* are reads with the option `view`; *command line* is `kafkalog -o` and
`pyspark_kafkalog.connect`.

<!-- Made by: python -m pyspark_kafkalog.options.page > docs/options.md -->
"""
_REFUSED = """\
## Refused settings of Kafka's clients

A reader or writer refuses these. Do this instead:
"""
_WITHOUT_EFFECT = """\
## Settings of Kafka's clients without effect

These are accepted, so that one set of settings serves every client, but have no effect. The same holds for a
producer's settings on a read and a consumer's on a write. A line at DEBUG says so.
"""
_PLACES = {Where.DIRECTORY: "directory", Where.BROKERS: "brokers", Where.ANY: "both"}


def page() -> str:
    """The whole page."""
    parts = [_INTRO]
    for section in SECTIONS:
        rows = (
            (f"`{option.name}`", _uses(option), _PLACES[option.where], _default(option), option.meaning)
            for option in section.options
        )
        columns = ("option", "applies to", "place", "default", "meaning")
        parts.append(f"## {section.title}\n\n{_table(columns, rows)}")
    refused = (
        (f"`{name}`{_but(name)}", ", ".join(directions), reason)
        for name, (directions, reason) in sorted(_refused().items())
    )
    parts.append(f"{_REFUSED}\n{_table(('setting', 'refused by', 'instead'), refused)}")
    without = ((f"`{name}`", reason) for name, reason in sorted(WITHOUT_EFFECT.items()))
    parts.append(f"{_WITHOUT_EFFECT}\n{_table(('setting', 'why'), without)}")
    return "\n".join(parts)


def _but(name: str) -> str:
    values = (f"`{value.rpartition('.')[2]}`" for value in HARMLESS.get(name, ()))
    return f", unless {' or '.join(values)}" if name in HARMLESS else ""


def _refused() -> Mapping[str, tuple[list[str], str]]:
    found: dict[str, tuple[list[str], str]] = {}
    for direction, names in (("read", REFUSED_READING), ("write", REFUSED_WRITING)):
        for name, reason in names.items():
            found.setdefault(name, ([], reason))[0].append(direction)
    return found


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _default(option: Option) -> str:
    return {None: "-", "": "empty"}.get(option.default, f"`{option.default}`")


def _uses(option: Option) -> str:
    views = [name for name, use in VIEW_USES.items() if option.use & use]
    named = {
        "read": Use.READ in option.use,
        "batch read": Use.BATCH_READ in option.use and Use.READ not in option.use,
        "stream read": Use.STREAM_READ in option.use and Use.READ not in option.use,
        "write": Use.WRITE in option.use,
        "`reassemble`": Use.REASSEMBLE in option.use,
        "views": Use.VIEWS in option.use,
        f"view{'s' * (len(views) > 1)} `{'`, `'.join(views)}`": bool(views) and Use.VIEWS not in option.use,
        "command line": Use.ADMIN in option.use,
    }
    return ", ".join(name for name, applies in named.items() if applies)


if __name__ == "__main__":
    print(page(), end="")
