"""Java's regular expressions as Python's, for names of topics."""

from __future__ import annotations

import re
import warnings

from pyspark_kafkalog.errors import OptionError

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
"""The members of Java's character properties among the ASCII characters of topic names."""

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
    """Translate a ``java.util.regex`` pattern for Python's ``re.ASCII``; it finds the same topic names.

    Java's named groups, ``\\Q..\\E``, ``\\z`` and character properties are
    rewritten. Refused are nested and intersected character classes, octal
    escapes, flags within the pattern, and whatever else Python's ``re`` does not
    support (possessive quantifiers and atomic groups before Python 3.11).

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
            raise _untranslated(name, f"octal escape at {token.start()}")
        elif in_class:
            if kind in ("intersection", "open"):
                raise _untranslated(name, f"nested character class at {token.start()}")
            in_class = kind != "close"
            python.append(text)
        elif kind == "group":
            python.append(f"(?P<{token['group']}>")
        elif kind == "python":
            raise _untranslated(name, f"{text!r} at {token.start()} is Python syntax, not Java's")
        else:
            in_class = kind == "open"
            python.append(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile("".join(python), re.ASCII).pattern
    except (re.error, ValueError, Warning, OverflowError, RecursionError) as e:
        raise OptionError(
            f"Option {name!r}: the pattern {pattern!r} cannot be used: {e}",
            hint="Patterns are Java's regular expressions, in which .* stands for any text.",
        ) from e


def _property(name: str, token: re.Match[str], *, in_class: bool) -> str:
    members = _ASCII_CLASSES.get(token["named"] or token["letter"])
    negated = token["property"] == "P"
    if members is None or (negated and in_class):
        raise _untranslated(name, f"{token[0]!r} at {token.start()}")
    return members if in_class else f"[{'^' if negated else ''}{members}]"


def _untranslated(name: str, what: str) -> OptionError:
    return OptionError(f"Option {name!r}: cannot translate the pattern to Python: {what}")
