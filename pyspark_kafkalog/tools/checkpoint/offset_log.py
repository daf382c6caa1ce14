"""The files of Spark's logs in a checkpoint (its OffsetSeqLog, OffsetSeq, OffsetMap and CommitLog).

::

    v1                                     v2
    {"batchWatermarkMs":0,...}             {"batchWatermarkMs":0,...}
    {"orders":{"0":23}}                    clicks:{"orders":{"0":23}}
    -                                      rates:5

The first line is the version, and the second the metadata. Then a line for each source: its end offset, in
version 2 after its name; ``-`` for a source that has none yet. A commit has a version and metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark_kafkalog.errors import CorruptRecordError, OptionError
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_json

NO_OFFSET = "-"
_UNNAMED, _NAMED = "v1", "v2"
_SHUFFLE = "spark.sql.shuffle.partitions"
_OTHER_VERSION = "Another version of Spark has written it: look for a newer version of this package."
_BRING_BACK = "Bring back the whole checkpoint from one moment. Spark can't read the file either."


@dataclass(frozen=True, slots=True)
class LoggedSource:
    """The end of one source in a plan. ``name`` is the user's, or its number in the query, from 0.

    ``offsets`` are None unless they have the form of those of topics: ``kafka`` and ``kafkalog``.
    """

    name: str
    text: str
    offsets: Offsets | None

    @property
    def is_compact(self) -> bool:
        """Whether the JSON has no blanks, as Spark's own ``kafka`` writes it; ``kafkalog`` has some."""
        return '": ' not in self.text

    def at(self, offsets: Offsets) -> LoggedSource:
        """The source with other offsets, in the form that it has."""
        separators = (",", ":") if self.is_compact else None
        return replace(self, text=json.dumps(to_json(offsets), separators=separators), offsets=dict(offsets))


@dataclass(frozen=True, slots=True)
class LoggedPlan:
    """The plan of a micro-batch: the file ``offsets/N``."""

    version: str
    metadata: str
    sources: tuple[LoggedSource, ...]

    @classmethod
    def parse(cls, data: bytes, file: str) -> LoggedPlan:
        """The plan in a file.

        :raises CorruptRecordError: naming the line, if it is cut off, damaged or of another version.
        """
        version, metadata, *lines = _lines(data, file, (_UNNAMED, _NAMED))
        if metadata:
            _object(metadata, file, 2)
        if not lines:
            raise _damaged(file, len(data.splitlines()) + 1, "expected the offset of a source, got no line")
        sources = []
        for number, line in enumerate(lines):
            name, text = str(number), line
            if version == _NAMED:
                name, colon, text = line.partition(":")
                if not (name and colon):
                    raise _damaged(file, number + 3, "expected the name of a source and a colon")
            sources.append(LoggedSource(name, text, _offsets(text, file, number + 3)))
        return cls(version, metadata, tuple(sources))

    @property
    def watermark_ms(self) -> int:
        """The watermark of the micro-batch, in ms; 0 without one."""
        return _number(self.metadata, "batchWatermarkMs")

    def source(self, name: str) -> LoggedSource | None:
        """The source of this name."""
        return next((source for source in self.sources if source.name == name), None)

    def at(self, offsets: Mapping[str, Offsets]) -> LoggedPlan:
        """The plan with other offsets for the sources with these names."""
        sources = tuple(
            source.at(offsets[source.name]) if source.name in offsets else source for source in self.sources
        )
        return replace(self, sources=sources)

    def lacks_partitions_of(self, following: LoggedPlan) -> bool:
        """Whether Spark can't repeat the micro-batch that follows: it compares their shuffle partitions.

        Spark 4.2.0 leaves them out of the first plan in version 2.
        """
        return _SHUFFLE in _conf(following.metadata) and _SHUFFLE not in _conf(self.metadata)

    def with_partitions_of(self, following: LoggedPlan) -> LoggedPlan:
        """The plan with what :meth:`lacks_partitions_of` looks for."""
        metadata = json.loads(self.metadata or "{}")
        partitions = _conf(following.metadata)[_SHUFFLE]
        metadata["conf"] = {**_conf(self.metadata), _SHUFFLE: partitions}
        return replace(self, metadata=json.dumps(metadata, separators=(",", ":")))

    def data(self) -> bytes:
        """The file."""
        lines = [
            f"{source.name}:{source.text}" if self.version == _NAMED else source.text
            for source in self.sources
        ]
        return "\n".join([self.version, self.metadata, *lines]).encode()


def check_commit(data: bytes, file: str) -> None:
    """See that a file of ``commits`` is whole.

    :raises CorruptRecordError: naming the line, if not.
    """
    _, metadata, *_ = [*_lines(data, file, (_UNNAMED, _NAMED)), ""]
    if metadata:
        _object(metadata, file, 2)


def _lines(data: bytes, file: str, versions: tuple[str, ...]) -> list[str]:
    """The version, the metadata and the lines after them."""
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as e:
        raise _damaged(file, data.count(b"\n", 0, e.start) + 1, "it is not UTF-8") from None
    if not data.strip(b"\0\n"):
        raise _damaged(file, 1, "it is empty")
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    if lines[0] not in versions:
        is_foreign = lines[0].startswith("v") and lines[0][1:].isdecimal()
        expected = f"expected {' or '.join(versions)}, got {lines[0][:20]!r}"
        raise _damaged(file, 1, expected, _OTHER_VERSION if is_foreign else _BRING_BACK)
    return lines if len(lines) > 1 else [*lines, ""]


def _offsets(text: str, file: str, line: int) -> Offsets | None:
    if not text.startswith("{"):
        if not text:
            raise _damaged(file, line, "it is empty")
        return None
    found = _object(text, file, line)
    try:
        return parse_offsets(found, option="offsets of the checkpoint")
    except OptionError:
        return None  # of another kind of source


def _object(text: str, file: str, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _damaged(file, line, "expected a JSON object, got one that is cut off or damaged")
    return found


def _conf(metadata: str) -> dict[str, Any]:
    found = json.loads(metadata).get("conf") if metadata else None
    return found if isinstance(found, dict) else {}


def _number(metadata: str, name: str) -> int:
    found = json.loads(metadata).get(name, 0) if metadata else 0
    return found if isinstance(found, int) else 0


def _damaged(file: str, line: int, what: str, hint: str = _BRING_BACK) -> CorruptRecordError:
    return CorruptRecordError(f"Line {line} of a file of Spark's is not usable: {what}", file=file, hint=hint)
