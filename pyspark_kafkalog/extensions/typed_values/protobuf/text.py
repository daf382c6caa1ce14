"""The declarations in the text of a .proto file (https://protobuf.dev/reference/protobuf/textformat-spec).

Services, extensions and the options of extensions are read over: values need none of them.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark_kafkalog.errors import SchemaError
from pyspark_kafkalog.extensions.typed_values.protobuf.declarations import (
    DEEPEST,
    SCALARS,
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    MessageDeclaration,
    entry_name,
)

# Apart from a token: one pattern for both would try all parts of a banner of slashes if no token follows.
_GAP = re.compile(r"(?:\s|\ufeff|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<word>[^\W\d]\w*)
      |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
      |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      |(?P<sign>[{}\[\]()<>=;:,.+\-/])
      |(?P<end>\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.S
)
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_LABELS = ("optional", "required", "repeated")
_CLOSED = {"{": "}", "[": "]", "(": ")", "<": ">"}
_SYNTAXES = ("proto2", "proto3")
_LONGEST = 60
_HINT = "Give the text of the file, or descriptors in base64, not the name of a file or bare bytes."
_MOST_TOKENS = 1_000_000


def parse_text(text: str) -> FileDeclaration:
    """The declarations of a file.

    :raises SchemaError: if it isn't one, naming the line.
    """
    try:
        return _Parser(text).file()
    except RecursionError:
        raise SchemaError(f"the text has more than {DEEPEST} messages in one another") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[tuple[str, str, int]] = []
        """The kind of each, what it is, and where."""
        at = 0
        while not self._tokens or self._tokens[-1][0] != "end":
            gap = _GAP.match(text, at)
            assert gap is not None, "it may be empty"
            at = gap.end()
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise self._error("unexpected character", at)
            if found.lastgroup == "number" and found.end() - at > _LONGEST:
                raise self._error(f"a number of more than {_LONGEST} digits", at)
            if len(self._tokens) >= _MOST_TOKENS:
                raise self._error(f"it has more than {_MOST_TOKENS} words", at)
            self._tokens.append((found.lastgroup, found.group(found.lastgroup), found.start(found.lastgroup)))
            at = found.end()

    def file(self) -> FileDeclaration:
        made = FileDeclaration()
        if self._take("syntax"):
            made.syntax = self._syntax()
            if made.syntax not in _SYNTAXES:
                raise self._error(f"expected {' or '.join(_SYNTAXES)}, got {made.syntax!r}")
        elif self._take("edition"):
            made.syntax = self._syntax()
        while self._kind != "end":
            if self._take("package"):
                made.package = self._name()
                self._expect(";")
            elif self._take("import"):
                if self._kind == "word":
                    self._next()
                made.imports.append(self._string().decode(errors="replace"))
                self._expect(";")
            elif self._take("option"):
                self._option(made.options)
            elif self._is("service", "extend"):
                self._skip_block()
            elif not self._take(";") and not self._declaration(made, 1):
                raise self._unexpected("a declaration")
        return made

    def _declaration(self, place: FileDeclaration | MessageDeclaration, depth: int) -> bool:
        """Add the message or enum that comes next, if one does."""
        if self._is("export", "local") and self._tokens[self._at + 1][1] in ("message", "enum"):
            self._next()
        kind, name = self._tokens[self._at + 1 : self._at + 3] or [("", "", 0)] * 2
        if kind[0] != "word" or name[1] != "{":
            return False
        if self._take("message"):
            place.messages.append(self._message(self._word(), depth))
        elif self._take("enum"):
            place.enums.append(self._enum(self._word()))
        else:
            return False
        return True

    def _message(self, name: str, depth: int) -> MessageDeclaration:
        if depth > DEEPEST:
            raise self._error(f"more than {DEEPEST} messages in one another")
        made = MessageDeclaration(name)
        self._expect("{")
        while not self._take("}"):
            if self._take("option"):
                self._option(made.options)
            elif self._is("oneof") and self._tokens[self._at + 2][1] == "{":
                self._next()
                self._oneof(made, depth)
            elif self._is("extend"):
                self._skip_block()
            elif self._is("extensions", "reserved") and self._tokens[self._at + 1][1] not in (".", "="):
                self._skip_statement()
            elif not self._take(";") and not self._declaration(made, depth + 1):
                self._field(made, None, depth)
        return made

    def _oneof(self, message: MessageDeclaration, depth: int) -> None:
        name = self._word()
        options: dict[str, Any] = {}
        message.oneofs[name] = options
        self._expect("{")
        while not self._take("}"):
            if self._take("option"):
                self._option(options)
            elif not self._take(";"):
                self._field(message, name, depth)

    def _field(self, message: MessageDeclaration, oneof: str | None, depth: int) -> None:
        label = ""
        if self._is(*_LABELS) and self._tokens[self._at + 1][0] in ("word", "sign"):
            label = self._next()
        if self._is("group") and self._tokens[self._at + 2][1] == "=":
            self._next()
            name = self._word()
            field = FieldDeclaration(name.lower(), self._number_of_field(), label, "group", name, oneof)
            if self._is("["):
                field.options = self._options()
            message.fields.append(field)
            message.messages.append(self._message(name, depth + 1))
            return
        if self._is("map") and self._tokens[self._at + 1][1] == "<":
            self._map(message, oneof)
            return
        kind, type_name = self._type()
        name = self._word()
        field = FieldDeclaration(name, self._number_of_field(), label, kind, type_name, oneof)
        if self._is("["):
            field.options = self._options()
        self._expect(";")
        message.fields.append(field)

    def _map(self, message: MessageDeclaration, oneof: str | None) -> None:
        self._next()
        self._expect("<")
        key = self._type()
        self._expect(",")
        value = self._type()
        self._expect(">")
        name = self._word()
        field = FieldDeclaration(name, self._number_of_field(), "repeated", "", entry_name(name), oneof)
        if self._is("["):
            field.options = self._options()
        self._expect(";")
        message.fields.append(field)
        parts = [
            FieldDeclaration(part, number, "", kind, type_name)
            for part, number, (kind, type_name) in (("key", 1, key), ("value", 2, value))
        ]
        # Features of the field decide about its key and value.
        for part in parts:
            part.options = {key: value for key, value in field.options.items() if key.startswith("features.")}
        message.messages.append(MessageDeclaration(entry_name(name), parts, is_map_entry=True))

    def _enum(self, name: str) -> EnumDeclaration:
        made = EnumDeclaration(name)
        self._expect("{")
        while not self._take("}"):
            if self._is("option") and self._tokens[self._at + 1][1] != "=":
                self._next()
                self._option(made.options)
            elif self._is("reserved") and self._tokens[self._at + 1][1] != "=":
                self._skip_statement()
            elif not self._take(";"):
                value = self._word()
                self._expect("=")
                made.values.append((value, self._integer()))
                if self._is("["):
                    self._options()
                self._expect(";")
        return made

    def _type(self) -> tuple[str, str]:
        """A scalar, or a name that begins with a dot or not."""
        start = self._tokens[self._at][1]
        name = self._name() if start != "." else self._next() + self._name()
        return (name, "") if name in SCALARS else ("", name)

    def _number_of_field(self) -> int:
        self._expect("=")
        return self._integer()

    def _option(self, options: dict[str, Any]) -> None:
        """One option up to its semicolon."""
        self._named_option(options)
        self._expect(";")

    def _options(self) -> dict[str, Any]:
        """Options in brackets."""
        options: dict[str, Any] = {}
        self._expect("[")
        while True:
            self._named_option(options)
            if not self._take(","):
                break
        self._expect("]")
        return options

    def _named_option(self, options: dict[str, Any]) -> None:
        name = ""
        is_known = True
        while True:
            if self._is("("):
                self._skip_brackets()
                is_known = False
            else:
                name += self._word()
            if not self._take("."):
                break
            name += "."
        self._expect("=")
        found: dict[str, Any] = {}
        self._option_value(name, found)
        if is_known:
            options.update(found)

    def _option_value(self, name: str, found: dict[str, Any]) -> None:
        """A value, or the fields of a message, each by its whole name."""
        if self._is("{", "<"):
            closed = _CLOSED[self._next()]
            while not self._take(closed):
                if self._is("["):
                    self._skip_brackets()
                    part = "["
                else:
                    part = self._word()
                if not self._take(":") and not self._is("{", "<"):
                    raise self._unexpected("a colon")
                self._option_value(f"{name}.{part}", found)
                self._take(",") or self._take(";")
        elif self._is("["):
            self._skip_brackets()
        else:
            found[name] = self._value()

    def _value(self) -> Any:
        if self._kind == "text":
            return self._string()
        sign = self._next() if self._is("-", "+") else ""
        if self._kind == "word":
            return sign + self._name()
        if self._kind != "number":
            raise self._unexpected("a value")
        text = self._next()
        if re.fullmatch(r"0[xX].*|\d+", text):
            return _integer(text) * (-1 if sign == "-" else 1)
        return float(sign + text.rstrip("fF"))

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _is(self, *tokens: str) -> bool:
        kind, token, _ = self._tokens[self._at]
        return kind in ("word", "sign") and token in tokens

    def _take(self, token: str) -> bool:
        if not self._is(token):
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        if self._kind == "end":
            raise self._unexpected("more")
        token = self._tokens[self._at][1]
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._unexpected(repr(token))

    def _word(self) -> str:
        if self._kind != "word":
            raise self._unexpected("a name")
        return self._next()

    def _name(self) -> str:
        """Words with dots between them."""
        name = self._word()
        while self._take("."):
            name += f".{self._word()}"
        return name

    def _integer(self) -> int:
        sign = -1 if self._take("-") else 1
        token = self._tokens[self._at][1]
        if self._kind != "number" or not re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", token):
            raise self._unexpected("an integer")
        return sign * _integer(self._next())

    def _string(self) -> bytes:
        """Strings one after another are one."""
        found = b""
        if self._kind != "text":
            raise self._unexpected("a text in quotes")
        while self._kind == "text":
            found += unescaped(self._next()[1:-1].encode(errors="replace"))
        return found

    def _syntax(self) -> str:
        self._expect("=")
        found = self._string().decode(errors="replace")
        self._expect(";")
        return found

    def _skip_statement(self) -> None:
        while not self._take(";"):
            self._next()

    def _skip_block(self) -> None:
        """Skip up to the end of the next braces."""
        while not self._is("{"):
            self._next()
        self._skip_brackets()

    def _skip_brackets(self) -> None:
        """Skip brackets, and what is between them."""
        depth = 0
        while True:
            is_sign = self._kind == "sign"
            token = self._next()
            if is_sign and token in _CLOSED and token != "<":
                depth += 1
            elif is_sign and token in ("}", "]", ")"):
                depth -= 1
            if depth == 0:
                return

    def _unexpected(self, expected: str) -> SchemaError:
        kind, token, _ = self._tokens[self._at]
        got = "the end" if kind == "end" else repr(token[:_LONGEST])
        return self._error(f"expected {expected}, got {got}")

    def _error(self, what: str, at: int | None = None) -> SchemaError:
        if at is None:
            at = self._tokens[self._at][2]
        line = self._text.count("\n", 0, at) + 1
        return SchemaError(f"line {line} of the .proto text: {what}", hint=None if self._at else _HINT)


def unescaped(text: bytes) -> bytes:
    """The bytes of a text in C's way, given without its quotes."""
    return _ESCAPE.sub(_unescaped, text)


def _integer(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8) if len(text) > 1 and text[0] == "0" and set(text) <= set("01234567") else int(text)


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, other = found.groups()
    if octal:
        return bytes([int(octal, 8) & 255])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        return chr(min(int(short or long, 16), 0x10FFFF)).encode(errors="replace")
    return _SIMPLE.get(other, other)
