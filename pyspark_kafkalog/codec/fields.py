"""Fields of Kafka's schemas in the keys and values of its internal topics, which may hold any bytes.

Flexible versions have compact lengths and tagged fields (KIP-482).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from pyspark_kafkalog.errors import CorruptRecordError

_Item = TypeVar("_Item")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
"""Half of a surrogate pair, encoded by itself; its last byte may be missing."""


class Fields:
    """Reads the fields of ``data`` one after another, from ``position`` on, within bounds."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position
        self.flexible = False
        """Whether lengths are compact and tagged fields follow structures."""

    @property
    def is_at_end(self) -> bool:
        """Whether no bytes are left."""
        return self._position == len(self._data)

    def version(self, name: str, latest: int, *, flexible: int) -> int:
        """The version that a value opens with, at most ``latest``; it is flexible from ``flexible`` on."""
        version = self.int16()
        if not 0 <= version <= latest:
            raise CorruptRecordError(
                f"Expected {name} of version 0 to {latest}, got version {version}", position=0
            )
        self.flexible = version >= flexible
        return version

    def int8(self) -> int:
        return self._integer(1)

    def int16(self) -> int:
        return self._integer(2)

    def int32(self) -> int:
        return self._integer(4)

    def int64(self) -> int:
        return self._integer(8)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self._corrupt("Expected a string, got null")
        return text

    def nullable_string(self) -> str | None:
        size = self._size(2)
        return None if size < 0 else text_of(self._take(size))

    def blob(self) -> bytes:
        return self._take(max(self._size(4), 0))

    def array(self, item: Callable[[], _Item]) -> list[_Item]:
        count = self._size(4)
        # Every item takes bytes, so a false count fails where the bytes end.
        return [item() for _ in range(count)]

    def skip_tagged_fields(self) -> None:
        """Skip the tagged fields at the end of a flexible structure."""
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _size(self, width: int) -> int:
        return self._varint() - 1 if self.flexible else self._integer(width)

    def _integer(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big", signed=True)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._corrupt("A varint is cut short")

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise self._corrupt(f"Expected {size} bytes, got {len(self._data) - self._position}")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _corrupt(self, message: str) -> CorruptRecordError:
        return CorruptRecordError(message, position=self._position)


def text_of(data: bytes) -> str:
    """``data`` as Java's decoder of UTF-8 gives it, with U+FFFD in place of what is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java has one U+FFFD for a surrogate, where Python has one for each byte.
        return _SURROGATE.sub("\ufffd".encode(), data).decode(errors="replace")
