"""The text of ``sasl.jaas.config``: one login module and its options (Kafka's JaasConfig).

``package.LoginModule required name="value" other='value';`` with Java's comments
and escapes. As for Java's StreamTokenizer, what begins like a number must be quoted.
Errors give a position in the text but don't show the text: if it is badly quoted, it may
be a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError

_HINT = (
    "Write it as org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="..." password="..."; or with the login module of another mechanism.'
)
_SHADED = re.compile(r"^(kafkashaded|shadedmskiam)\.")
"""The prefixes that Databricks gives the classes of Kafka and of Amazon's login module."""
_PACKAGES = (
    "org.apache.kafka.common.security.",
    "com.sun.security.auth.module.",
    "com.ibm.security.auth.module.",
    "software.amazon.msk.auth.iam.",
)
_CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
_TOKEN = re.compile(
    r"""(?P<space>(?:[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)+)
    |(?P<word>[A-Za-z_$\xa0-\uffff][A-Za-z0-9_.$\xa0-\uffff-]*)
    |"(?P<double>(?:[^"\\\r\n]|\\[^\r\n])*)"
    |'(?P<single>(?:[^'\\\r\n]|\\[^\r\n])*)'
    |(?P<sign>[=;])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """A login module and its options."""

    name: str
    options: Mapping[str, str]

    def is_a(self, name: str) -> bool:
        """Whether it is the module of this name from Kafka, the JVM or Amazon."""
        return _SHADED.sub("", self.name) in {f"{package}{name}" for package in _PACKAGES}


def parse_jaas(option: str, text: str) -> LoginModule:
    """The login module in a JAAS text.

    :raises OptionError: naming ``option`` and the position, for any other text.
    """
    tokens = _tokens(option, text)
    name = _take_text(option, tokens, "the name of a login module")
    flag = _take_text(option, tokens, "a control flag such as required")
    if flag.lower() not in _CONTROL_FLAGS:
        raise OptionError(
            f"Option {option!r}: expected a control flag such as required after the login module", hint=_HINT
        )
    options: dict[str, str] = {}
    while tokens and not tokens[0].is_sign(";"):
        key = _take_text(option, tokens, "the name of an option")
        if not (tokens and tokens[0].is_sign("=")):
            raise _expected(option, tokens, "=")
        tokens.pop(0)
        options[key] = _take_text(option, tokens, "a quoted value")
    if not tokens:
        raise OptionError(f"Option {option!r}: expected a semicolon at the end", hint=_HINT)
    if len(tokens) > 1:
        raise OptionError(
            f"Option {option!r}: expected one login module, got more text after its semicolon", hint=_HINT
        )
    return LoginModule(name, options)


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    position: int
    text: str
    kind: str

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign


def _tokens(option: str, text: str) -> list[_Token]:
    found = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise OptionError(
                f"Option {option!r}: open quote, unquoted number or unquoted special character at character"
                f" {position + 1}",
                hint=_HINT,
            )
        kind = match.lastgroup or ""
        if kind != "space":
            content = match[kind]
            if kind in ("double", "single"):
                content = _ESCAPE.sub(_unescape, content)
            found.append(_Token(position, content, kind))
        position = match.end()
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)


def _take_text(option: str, tokens: list[_Token], what: str) -> str:
    if not tokens or tokens[0].kind == "sign":
        raise _expected(option, tokens, what)
    return tokens.pop(0).text


def _expected(option: str, tokens: list[_Token], what: str) -> OptionError:
    place = f"at character {tokens[0].position + 1}" if tokens else "at the end"
    return OptionError(f"Option {option!r}: expected {what} {place}", hint=_HINT)
