"""Tokens of JSON as Jackson's parser gives them to Spark, behind a fault, too.

Spark goes on behind a field that it can't convert, with whatever the parser gives next. So where this one
stands after a fault, and which token is its current one, is as in Jackson's ReaderBasedJsonParser with the
features that ``from_json`` has by default: single quotes and NaN are allowed, comments are not.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

(
    NAME,
    STRING,
    INTEGER,
    NUMBER,
    TRUE,
    FALSE,
    NULL,
    START_OBJECT,
    END_OBJECT,
    START_ARRAY,
    END_ARRAY,
) = range(11)
"""Tokens. NUMBER has a fraction or an exponent, or is NaN or infinite."""

MOST_DEPTH, MOST_DIGITS, LONGEST_NAME, LONGEST_STRING = 1000, 1000, 50_000, 20_000_000
"""Jackson's StreamReadConstraints."""

_WHITE_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SHORT = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\", "'": "'"}
_HEX = frozenset("0123456789abcdefABCDEF")
_LONE = re.compile("[\ud800-\udfff]")
_IN_WORDS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Mc", "Mn", "Sc", "Pc", "Cf"))
_BEGIN_WORDS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_LONGEST_WORD = 256
"""Characters of an unknown word that Jackson skips."""


class Fault(Exception):  # noqa: N818 - Spark goes on behind most of them
    """The fault of a value.

    :ivar why: what was expected.
    :ivar at: the character of :func:`as_chars` where it was.
    :ivar path: the names of the fields that it is in.
    """

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.why = why
        self.at = at
        self.path: list[str] = []


class _Context:
    """An object or an array that is open, or what is around all."""

    __slots__ = ("count", "kind", "name")

    def __init__(self, kind: int | None) -> None:
        self.kind = kind
        self.count = 0
        self.name: str | None = None


class JsonTokens:
    """The tokens of one text.

    :ivar kind: the current token; None before the first one, and behind the last one.
    :ivar begin: the character where it begins.
    """

    def __init__(self, text: str) -> None:
        self._text = as_chars(text)
        self._at = 0
        self._contexts = [_Context(None)]
        self._following: int | None = None
        """The token behind a name, which is read with the name."""
        self._is_open = False
        """Whether the current token is a string that has not been read yet."""
        self._value = ""
        self.kind: int | None = None
        self.begin = 0

    @property
    def name(self) -> str | None:
        """The name of the current token; an object or array has its own where it begins and ends."""
        is_opened = self.kind in (START_OBJECT, START_ARRAY) and len(self._contexts) > 1
        return self._contexts[-2 if is_opened else -1].name

    @property
    def number(self) -> str:
        """The text of a number."""
        return self._value

    def string(self) -> str:
        """The text of a string, whose surrogates may lack their other half."""
        if self._is_open:
            self._is_open = False
            self._value = self._quoted('"')
        if len(self._value) > LONGEST_STRING:
            raise Fault(f"expected a string of at most {LONGEST_STRING} characters", self.begin)
        return self._value

    def fault(self, expected: str) -> Fault:
        """The fault of a token that is not what was ``expected``."""
        if self.kind == STRING:
            self.string()
        return Fault(f"expected {expected}", self.begin)

    def advance(self) -> int | None:
        """The next token, which is the current one then; None if there is none."""
        if self.kind == NAME:
            following, self._following = self._following, None
            self._enter(following)
            self.kind = following
            return following
        if self._is_open:
            self._is_open = False
            self._quoted('"')
        char = self._next()
        if not char:
            if len(self._contexts) > 1:
                raise Fault("the value ends too early", self._at)
            self.kind = None
            return None
        self.begin = self._at - 1
        if char in "}]":
            return self._leave(char)
        context = self._contexts[-1]
        context.count += 1
        if context.kind is not None and context.count > 1:
            if char != ",":
                raise Fault("expected a comma", self._at - 1)
            char = self._needed()
        if context.kind != START_OBJECT:
            self.begin = self._at - 1
            kind = self._token(char)
            self._enter(kind)
            self.kind = kind
            return kind
        if char not in ('"', "'"):
            raise Fault("expected the name of a field in quotes", self._at - 1)
        name = self._quoted(char)
        if len(name) > LONGEST_NAME:
            raise Fault(f"expected a name of at most {LONGEST_NAME} characters", self._at)
        context.name = paired(name)
        self.kind = NAME
        if self._needed() != ":":
            raise Fault("expected a colon", self._at - 1)
        char = self._needed()
        self.begin = self._at - 1
        self._following = self._token(char)
        return NAME

    def skip_children(self) -> None:
        """Go to the end of the object or array that the current token begins, if it begins one."""
        if self.kind not in (START_OBJECT, START_ARRAY):
            return
        depth = 1
        while depth:
            kind = self.advance()
            if kind is None:
                raise Fault("the value ends too early", self._at)
            depth += (kind in (START_OBJECT, START_ARRAY)) - (kind in (END_OBJECT, END_ARRAY))

    def _enter(self, kind: int | None) -> None:
        if kind in (START_OBJECT, START_ARRAY):
            self._contexts.append(_Context(kind))
            if len(self._contexts) > MOST_DEPTH + 1:
                raise Fault(f"expected at most {MOST_DEPTH} objects and arrays in one another", self._at)

    def _leave(self, char: str) -> int:
        opening, kind = (START_OBJECT, END_OBJECT) if char == "}" else (START_ARRAY, END_ARRAY)
        if self._contexts[-1].kind != opening:
            raise Fault(f"nothing begins here that {char!r} could end", self._at - 1)
        self._contexts.pop()
        self.kind = kind
        return kind

    def _next(self) -> str:
        """The next character that is not white space; empty at the end."""
        found = _WHITE_SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()
        char = self._text[self._at : self._at + 1]
        self._at += len(char)
        if char and (char < " " or char == "/"):
            what = "comment" if char == "/" else "control character"
            raise Fault(f"expected no {what}", self._at - 1)
        return char

    def _needed(self) -> str:
        char = self._next()
        if not char:
            raise Fault("the value ends too early", self._at)
        return char

    def _char(self) -> str:
        """The next character."""
        char = self._text[self._at : self._at + 1]
        if not char:
            raise Fault("the value ends too early", self._at)
        self._at += 1
        return char

    def _token(self, char: str) -> int:
        """The token that begins with ``char``, which has been read."""
        if char == '"':
            self._is_open = True
            return STRING
        if char == "{":
            return START_OBJECT
        if char == "[":
            return START_ARRAY
        if char == "-" or "0" <= char <= "9":
            return self._number(char)
        if char == "t":
            return self._word("true", 1, TRUE)
        if char == "f":
            return self._word("false", 1, FALSE)
        if char == "n":
            return self._word("null", 1, NULL)
        if char == "'":
            self._value = self._quoted(char)
            return STRING
        if char == "N":
            return self._word("NaN", 1, NUMBER)
        if char == "I":
            return self._word("Infinity", 1, NUMBER)
        if char == "+":
            return self._infinity(char, self._char())
        if unicodedata.category(char) in _BEGIN_WORDS:
            self._unknown_word(1)
        raise Fault("expected a value", self._at - 1)

    def _infinity(self, sign: str, char: str) -> int:
        if char == "I":
            char = self._char()
            if char in "Nn":
                return self._word(sign + ("INF" if char == "N" else "Infinity"), 3, NUMBER)
        raise Fault("expected a digit", self._at - 1)

    def _word(self, word: str, known: int, kind: int) -> int:
        """The token ``word``, whose first ``known`` characters have been read."""
        for place in range(known, len(word)):
            if self._text[self._at : self._at + 1] != word[place]:
                self._unknown_word(place)
            self._at += 1
        char = self._text[self._at : self._at + 1]
        if char >= "0" and char not in "]}" and _is_in_words(char):
            self._unknown_word(len(word))
        self._value = word
        return kind

    def _unknown_word(self, known: int) -> None:
        begin, end = self._at - known, self._at + max(_LONGEST_WORD - known, 1)
        while self._at < min(end, len(self._text)) and _is_in_words(self._text[self._at]):
            self._at += 1
        raise Fault("expected a value", begin)

    def _number(self, first: str) -> int:
        begin, text = self._at - 1, self._text
        found = _NUMBER.match(text, begin)
        if found is None:
            char = self._char()
            if char == ".":
                raise Fault("expected a digit", self._at - 1)
            return self._infinity(first, char)
        whole, fraction, exponent = found.groups()
        end = found.end()
        following = text[end : end + 1]
        if not fraction and not exponent and whole == "0" and "0" <= following <= "9":
            self._at = end
            raise Fault("expected no zero before other digits", begin)
        if (following == "." and not fraction and not exponent) or (following in ("e", "E") and not exponent):
            # Jackson reads numbers that begin with 0 in another way, which leaves it elsewhere.
            if whole != "0":
                self._at = found.end(1) + 1
            else:
                has_sign = following != "." and text[end + 1 : end + 2] in ("+", "-")
                self._at = min(end + 2 + has_sign, len(text))
            raise Fault("expected a digit", end + 1)
        self._at = end
        self._value = found.group()
        digits = sum("0" <= char <= "9" for char in self._value)
        if whole == "0":
            # Behind a 0 Jackson counts a fraction or an exponent that is not there as -1 digits.
            digits -= (fraction is None) + (exponent is None)
        if digits > MOST_DIGITS:
            raise Fault(f"expected a number of at most {MOST_DIGITS} digits", begin)
        return NUMBER if fraction or exponent else INTEGER

    def _quoted(self, quote: str) -> str:
        """The text up to ``quote``, which ends it."""
        parts = []
        while True:
            found = _PLAIN[quote].match(self._text, self._at)
            assert found is not None
            parts.append(found.group())
            self._at = found.end()
            char = self._char()
            if char == quote:
                return "".join(parts)
            if char != "\\":
                raise Fault("expected control characters of strings as escapes", self._at - 1)
            parts.append(self._escaped())

    def _escaped(self) -> str:
        char = self._char()
        if char != "u":
            if char not in _SHORT:
                raise Fault(r"expected one of \" \\ \/ \b \f \n \r \t \u", self._at - 2)
            return _SHORT[char]
        for _ in range(4):
            if self._char() not in _HEX:
                raise Fault(r"expected four hexadecimal digits behind \u", self._at - 1)
        return chr(int(self._text[self._at - 4 : self._at], 16))


def as_chars(text: str) -> str:
    """``text`` in Java's characters, of which one beyond U+FFFF takes two: a fault may leave the second."""
    if text.isascii():
        return text
    chars = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
    return chars.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def paired(text: str) -> str:
    """``text`` with the character for each pair of surrogates."""
    if _LONE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def without_surrogates(text: str) -> str:
    """``text`` as Java encodes it: each surrogate without its other half is a question mark."""
    return _LONE.sub("?", paired(text))


def _is_in_words(char: str) -> bool:
    """Java's isJavaIdentifierPart."""
    if char <= "\x7f":
        return char.isalnum() or char in "_$\x7f" or char <= "\x08" or "\x0e" <= char <= "\x1b"
    return unicodedata.category(char) in _IN_WORDS or char <= "\x9f"
