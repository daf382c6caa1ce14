"""What single option values may look like: whole numbers, booleans, times, sizes, Java patterns."""

from __future__ import annotations

import re
import warnings
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


_ASCII_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "XDigit": "0-9a-fA-F",
    "L": "a-zA-Z",
    "Lu": "A-Z",
    "Ll": "a-z",
    "N": "0-9",
    "Nd": "0-9",
    "IsAlphabetic": "a-zA-Z",
    "IsDigit": "0-9",
    "IsLowercase": "a-z",
    "IsUppercase": "A-Z",
}
"""What Java's character properties hold among the characters of topic names, all of which are ASCII."""

_JAVA_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    r"|\\(?P<property>[pP])(?:\{(?P<named>\w+)\}|(?P<letter>[A-Z]))"
    r"|\\k<(?P<reference>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|(?P<end>\\[zZ])"
    r"|(?P<octal>\\0)"
    r"|(?P<escape>\\.)"
    r"|\(\?<(?P<group>[a-zA-Z][a-zA-Z0-9]*)>"
    r"|(?P<python>\(\?[P(#]|\{(?!\d+(?:,\d*)?\}))"
    r"|(?P<intersection>&&)"
    r"|(?P<open>\[\^?\]?)"
    r"|(?P<close>\])"
    r"|(?P<other>.)",
    re.DOTALL,
)


def java_pattern(name: str, pattern: str) -> str:
    """A ``java.util.regex`` pattern as one for Python's ``re.ASCII`` that finds the same topic names.

    Java's named groups, ``\\Q..\\E``, ``\\z`` and character properties are
    rewritten. Refused are nested and intersected character classes, octal
    escapes, flags amid the pattern, and whatever else Python's ``re`` does not
    know (possessive quantifiers and atomic groups before Python 3.11).

    :raises OptionError: for a pattern that is invalid or cannot be translated.
    """
    python = []
    in_class = False
    for token in _JAVA_TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        if token["quoted"] is not None:
            python.append(re.escape(token["quoted"]))
        elif token["property"] is not None:
            python.append(_property(name, token, in_class=in_class))
        elif token["reference"] is not None:
            python.append(f"(?P={token['reference']})")
        elif kind == "end":
            python.append(r"\Z")
        elif kind == "octal":
            raise _untranslated(name, f"the octal escape at {token.start()}")
        elif in_class:
            if kind in ("intersection", "open"):
                raise _untranslated(name, f"the character class within a character class at {token.start()}")
            in_class = kind != "close"
            python.append(text)
        elif kind == "group":
            python.append(f"(?P<{token['group']}>")
        elif kind == "python":
            raise _untranslated(name, f"{text!r} at {token.start()}, which is not Java's")
        else:
            in_class = kind == "open"
            python.append(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile("".join(python), re.ASCII).pattern
    except (re.error, ValueError, Warning, OverflowError, RecursionError) as e:
        raise OptionError(f"Option {name!r} has a pattern that is invalid or unknown to Python: {e}") from e


def _property(name: str, token: re.Match[str], *, in_class: bool) -> str:
    members = _ASCII_CLASSES.get(token["named"] or token["letter"])
    negated = token["property"] == "P"
    if members is None or (negated and in_class):
        raise _untranslated(name, f"{token[0]!r} at {token.start()}")
    return members if in_class else f"[{'^' if negated else ''}{members}]"


def _untranslated(name: str, what: str) -> OptionError:
    return OptionError(f"Option {name!r} has a pattern that cannot be translated to Python's: {what}")
