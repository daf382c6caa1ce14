"""What single option values may look like: whole numbers, booleans, times, sizes, import paths."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark_kafkalog.errors import OptionError

_TRUTH = {"true": True, "false": False}
_MILLISECONDS = {
    name: factor
    for names, factor in (
        ("ms msec msecs millisecond milliseconds", 1),
        ("s sec secs second seconds", 1000),
        ("m min mins minute minutes", 60_000),
        ("h hr hrs hour hours", 3_600_000),
        ("d day days", 86_400_000),
    )
    for name in names.split()
}
_BYTES = {
    name: 1 << 10 * power
    for power, letter in enumerate(["", "k", "m", "g", "t", "p"])
    for name in (letter, f"{letter}b")
}
_MAY_BE_SECRET = ("kafka.sasl.", "kafka.ssl.", "kafka.security.")
_LOOKS_SECRET = re.compile("loginmodule|password|secret|token|-----begin", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d{1,18})\s*([a-z]*)", re.ASCII)


def shown(name: str, text: str) -> str:
    """What to put behind "must be ..." in an error: the value, unless it may be a secret.

    No value of the options that say who logs in is shown, nor one that looks like
    theirs and was given to another option.
    """
    if name.lower().startswith(_MAY_BE_SECRET) or _LOOKS_SECRET.search(text):
        return ""
    return f", not {text!r}"


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false`` in any case."""
    try:
        return _TRUTH[text.strip().lower()]
    except KeyError:
        raise OptionError(f"Option {name!r} must be true or false{shown(name, text)}") from None


def integer(name: str, text: str, lowest: int, highest: int) -> int:
    """A decimal whole number in ``lowest..highest``."""
    digits = text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,19}", digits) and lowest <= int(digits) <= highest:
        return int(digits)
    raise OptionError(f"Option {name!r} must be a whole number from {lowest} to {highest}{shown(name, text)}")


def choice(name: str, text: str, allowed: Sequence[str]) -> str:
    """The one of ``allowed`` that ``text`` is in any case."""
    for value in allowed:
        if text.strip().lower() == value.lower():
            return value
    raise OptionError(f"Option {name!r} must be one of {', '.join(allowed)}{shown(name, text)}")


def milliseconds(name: str, text: str) -> int:
    """A Spark time string such as ``15m`` or ``interval 10 minutes``; a bare number is milliseconds."""
    time = text.strip().lower().removeprefix("interval ")
    return _amount(name, time, {"": 1, **_MILLISECONDS}, "a time such as 500ms, 30s, 15m or 1h")


def size_in_bytes(name: str, text: str) -> int:
    """A Spark byte string such as ``64m`` or ``1gb`` (powers of 1024); a bare number is bytes. Not 0."""
    size = _amount(name, text, _BYTES, "a size such as 1048576, 64m or 1g")
    if size == 0:
        raise OptionError(f"Option {name!r} must be above 0")
    return size


def import_path(name: str, text: str) -> str:
    """``package.module:callable``, also written with a dot for the colon."""
    module, _, last = text.strip().partition(":") if ":" in text else text.strip().rpartition(".")
    if not last.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise OptionError(
            f"Option {name!r} must be an import path{shown(name, text)}",
            hint="Expected e.g. package.module:callable.",
        )
    return f"{module}:{last}"


def _amount(name: str, text: str, units: dict[str, int], expected: str) -> int:
    match = _AMOUNT.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        raise OptionError(f"Option {name!r} must be {expected}{shown(name, text)}")
    return int(match[1]) * units[match[2]]
