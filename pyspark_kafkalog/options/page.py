"""The options as Markdown: ``python -m pyspark_kafkalog.options.page > docs/options.md``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from pyspark_kafkalog.options.client_settings import (
    HARMLESS,
    REFUSED_READING,
    REFUSED_WRITING,
    WITHOUT_EFFECT,
)
from pyspark_kafkalog.options.old_settings import CHANGED, RENAMED
from pyspark_kafkalog.options.table import SECTIONS, VIEW_USES, Option, Use, Where

_INTRO = """\
# Options

Unless an option says otherwise, names, values and defaults are those of Spark's Kafka source and sink, of
Kafka's clients and topics, and, for large messages, of LinkedIn's clients. Names are case-insensitive. An
unknown option is refused, and similar names are suggested. An unknown `kafka.` name only logs a warning, once
per process. A read ignores `kafka.` settings of producers, and a write those of consumers, so both may be
given the same ones.

The small print of an option says

- where you can give it: to reads, writes, *views* (reads with the option `view`), or the *command line*
  (`kafkalog -o` and `pyspark_kafkalog.connect`),
- whether it is only for *log directories* (`path`) or only for *brokers* (`kafka.bootstrap.servers`),
- its default, if it has one.

Each option has an address, such as `options.html#maxBytesPerTrigger`.

<!-- Made by: python -m pyspark_kafkalog.options.page > docs/options.md -->
"""
_REFUSED = """\
## Refused settings of Kafka's clients

A reader or writer refuses these. Do this instead:
"""
_WITHOUT_EFFECT = """\
## Settings of Kafka's clients without effect

These are accepted, so that one set of settings serves every client, but have no effect. The same holds for a
producer's settings on a read, and for a consumer's on a write. A line at DEBUG says so.
"""
_OLD = """\
## Old names of settings

Kafka's clients before 0.9 had these names, and librdkafka has some of them. They are refused, with and
without `kafka.`. The error says what to do, as here:
"""
_PLACES = {Where.DIRECTORY: ["log directories only"], Where.BROKERS: ["brokers only"], Where.ANY: []}
_MOST = 2 / 3
"""The share of a section's options that have the same small print, from which on the section says it."""


def page() -> str:
    """The whole page."""
    titles = [*(section.title for section in SECTIONS), *map(_title, (_REFUSED, _WITHOUT_EFFECT, _OLD))]
    parts = [_INTRO, " · ".join(f"[{title}](#{_slug(title)})" for title in titles) + "\n"]
    for section in SECTIONS:
        [(scope, count)] = Counter(map(_scope, section.options)).most_common(1)
        common = scope if count >= max(2, _MOST * len(section.options)) else ""
        parts.append(f"## {section.title}\n")
        if common:
            parts.append(f"<small>Unless an option says otherwise: {common}</small>\n")
        parts.extend(_entry(option, common) for option in section.options)
    refused: dict[str, list[str]] = {}
    for name, (directions, reason) in sorted(_refused().items()):
        said = f"`{name}`{_but(name)}{'' if len(directions) == 2 else f', on a {directions[0]}'}"
        refused.setdefault(reason, []).append(f"{_anchor(name)}{said}")
    parts.append(f"{_REFUSED}\n{_by_reason(refused)}")
    without: dict[str, list[str]] = {}
    for name, reason in sorted(WITHOUT_EFFECT.items()):
        without.setdefault(reason, []).append(f"{_anchor(name)}`{name}`")
    parts.append(f"{_WITHOUT_EFFECT}\n{_by_reason(without)}")
    old: dict[str, list[str]] = {}
    for name, new in (*RENAMED.items(), *CHANGED.items()):
        if name != new:
            old.setdefault(f"Now `{new}`." if name in RENAMED else new, []).append(f"`{name}`")
    parts.append(f"{_OLD}\n{_by_reason(old)}")
    return "\n".join(parts)


def _title(part: str) -> str:
    return part.partition("\n")[0].removeprefix("## ")


def _slug(title: str) -> str:
    """The anchor of a heading, as code hosts and the site make it."""
    return re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-")


def _anchor(name: str) -> str:
    """An address of its own, since a heading's is in lower case and without dots."""
    return f'<a id="{name}"></a>'


def _entry(option: Option, common: str) -> str:
    """A heading, the meaning, and the small print, of which ``common`` is not said again."""
    heading = f"### {_anchor(option.name)}`{option.name}`\n"
    scope = _scope(option)
    default = {None: "", "": "default: empty"}.get(option.default, f"default `{option.default}`")
    small = " · ".join(filter(None, ["" if scope == common else scope, default]))
    return "\n".join([heading, f"{option.meaning}\n", *([f"<small>{small}</small>\n"] if small else [])])


def _by_reason(settings: Mapping[str, list[str]]) -> str:
    return "".join(f"- {', '.join(names)}<br>\n  {reason}\n" for reason, names in settings.items())


def _but(name: str) -> str:
    values = (f"`{value.rpartition('.')[2]}`" for value in HARMLESS.get(name, ()))
    return f", unless {' or '.join(values)}" if name in HARMLESS else ""


def _refused() -> Mapping[str, tuple[list[str], str]]:
    found: dict[str, tuple[list[str], str]] = {}
    for direction, names in (("read", REFUSED_READING), ("write", REFUSED_WRITING)):
        for name, reason in names.items():
            found.setdefault(name, ([], reason))[0].append(direction)
    return found


def _scope(option: Option) -> str:
    return " · ".join([_uses(option), *_PLACES[option.where]])


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
