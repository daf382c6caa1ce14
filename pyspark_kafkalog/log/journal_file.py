"""The format of the journal and the ledgers of a log directory; see :mod:`.publish.journal`.

A journal has two JSON documents, apart by an empty line. Readers need the first one only. The second one
grows with the data: what is to be appended.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyspark_kafkalog.log.layout import (
    INDEX_SUFFIX,
    JOURNAL_SEPARATOR,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    partition_of,
)
from pyspark_kafkalog.model import BatchHeader, TopicPartition

_VERSION = 2
"""The version of journals and ledgers."""
BATCH = np.dtype([("size", "<u4"), ("records", "<u4"), ("crc", "<u4")])
"""A record batch before it is appended: its bytes, the number of its offsets, its checksum."""
_Value = TypeVar("_Value")
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class MalformedError(Exception):
    """A journal or a ledger that can't be parsed; another version may have written it."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """The end of a partition before a publish, and its files.

    ``segment`` is the base offset of its active segment (None if it had none)
    and ``sizes`` the size of each of that segment's files by suffix. ``others`` are
    the names of files for higher base offsets, such as a producer snapshot.
    ``leader_epochs`` are those of ``leader-epoch-checkpoint``, and ``leader_epoch``
    is that of the batches to append. The publish ``created`` a partition that did
    not exist; ``topic_id`` is for its ``partition.metadata``.
    """

    log_end_offset: int
    created: bool
    segment: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    leader_epoch: int = 0
    leader_epochs: Sequence[Sequence[int]] = ()
    topic_id: str | None = None

    def is_sound(self) -> bool:
        """Whether the fields, read from a journal that may hold anything, have their types."""
        files = {LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX}
        return (
            type(self.created) is bool
            and _are_numbers(self.log_end_offset, self.leader_epoch)
            and isinstance(self.sizes, Mapping)
            and _are_numbers(*self.sizes.values())
            and (self.segment is None or (_are_numbers(self.segment) and {*self.sizes} == files))
            and _is_list_of(self.others, str)
            and _is_list_of(self.leader_epochs, list)
            and all(len(pair) == 2 and _are_numbers(*pair) for pair in self.leader_epochs)
            and (self.topic_id is None or (isinstance(self.topic_id, str) and self.topic_id.isascii()))
        )


class WrittenEnd(NamedTuple):
    """The last record batch that a query has written to a partition; its topic's id, empty if not known."""

    topic_id: str
    batch: BatchHeader

    @property
    def offset(self) -> int:
        """The log end offset after the batch."""
        return self.batch.last_offset + 1

    def is_of_another(self, topic_id: str) -> bool:
        """Whether the batch certainly is of another topic than this id's. An unknown id proves nothing."""
        return bool(self.topic_id) and bool(topic_id) and self.topic_id != topic_id


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of an unfinished publish.

    :param ends: the ends of all partitions before the publish.
    :param comes: the record batches to append to them, of dtype :data:`BATCH`.
    :param query_id: of the query whose ledger gets ``batch_id`` and ``plan``, a digest that is empty if it is
        not known; None if no ledger does.
    :param written: the last record batches that this query has written after the publish.
    :param append_time: the timestamp, in ms, that the records of some topics get; None if all keep theirs.
    :param topics: new topics whose configurations go with an undo.
    :param clean_shutdown: the content of ``.kafka_cleanshutdown``, if it was there.
    :param checkpoints: a digest of the checkpoint files that a broker changes when it runs.
    """

    ends: Mapping[TopicPartition, PartitionEnd]
    comes: Mapping[TopicPartition, np.ndarray]
    query_id: str | None
    batch_id: int | None
    plan: str
    written: Mapping[TopicPartition, WrittenEnd]
    append_time: int | None
    topics: Sequence[str]
    clean_shutdown: str | None
    checkpoints: str

    def text(self) -> str:
        """The file."""
        content = {
            "version": _VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "plan": self.plan,
            "written": _by_name(self.written),
            "append_time": self.append_time,
            "topics": self.topics,
            "partitions": {str(partition): asdict(end) for partition, end in self.ends.items()},
            "clean_shutdown": self.clean_shutdown,
            "checkpoints": self.checkpoints,
        }
        return _text(content, self.comes)


class Ledger(NamedTuple):
    """The last batch of a query in the directory, and the last record batch that it has written to each
    partition.

    ``plan`` is a digest, empty if it is not known.
    """

    query_id: str
    batch_id: int
    plan: str
    written: Mapping[TopicPartition, WrittenEnd]

    def text(self) -> str:
        """The file, if no journal becomes it."""
        content = {**self._asdict(), "written": _by_name(self.written)}
        return json.dumps({"version": _VERSION, **content})


def _text(content: Mapping[str, Any], appended: Mapping[TopicPartition, np.ndarray]) -> str:
    listed = {
        str(partition): base64.b64encode(data.tobytes()).decode() for partition, data in appended.items()
    }
    return json.dumps(content, indent=1) + JOURNAL_SEPARATOR + json.dumps(listed)


def parse_journal(text: str) -> Journal:
    """The journal in a file.

    :raises MalformedError: if it is unsound in any way.
    """
    try:
        first, _, second = text.partition(JOURNAL_SEPARATOR)
        return _journal(_content(first), json.loads(second))
    except _MALFORMED as e:
        raise MalformedError from e


def _content(text: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(text)
    if content["version"] != _VERSION:
        raise ValueError("another version")
    return content


def _journal(content: dict[str, Any], listed: dict[str, str]) -> Journal:
    ends = {partition_of(name): PartitionEnd(**end) for name, end in content["partitions"].items()}
    if not all(end.is_sound() for end in ends.values()):
        raise ValueError("an unsound end")
    return Journal(
        ends,
        {partition: _array(listed.get(str(partition), ""), BATCH) for partition in ends},
        _optional(content, "query_id", str),
        _optional(content, "batch_id", int),
        _value(content, "plan", str),
        _written(content),
        _optional(content, "append_time", int),
        _names(content["topics"]),
        _optional(content, "clean_shutdown", str),
        _value(content, "checkpoints", str),
    )


def parse_ledger(text: str) -> Ledger:
    """The ledger in a file, which may be the journal of its batch.

    :raises MalformedError: if it is unsound in any way.
    """
    try:
        content = _content(text.partition(JOURNAL_SEPARATOR)[0])
        return Ledger(
            _value(content, "query_id", str),
            _value(content, "batch_id", int),
            _value(content, "plan", str),
            _written(content),
        )
    except _MALFORMED as e:
        raise MalformedError from e


def parse_ends(data: bytes) -> dict[TopicPartition, int | None]:
    """The end of each partition for readers, by the first document of a journal; None for a new partition.

    Of a version that is not known it is enough that it says this.

    :raises MalformedError: if it does not.
    """
    try:
        return {
            partition_of(name): None if was.get("created") else _offset(was["log_end_offset"])
            for name, was in json.loads(data)["partitions"].items()
        }
    except _MALFORMED as e:
        raise MalformedError from e


def _by_name(ends: Mapping[TopicPartition, WrittenEnd]) -> dict[str, WrittenEnd]:
    return {str(partition): ends[partition] for partition in sorted(ends)}


def _written(content: dict[str, Any]) -> dict[TopicPartition, WrittenEnd]:
    written = content["written"].items()
    ends = {
        partition_of(name): WrittenEnd(topic_id, BatchHeader(*batch)) for name, (topic_id, batch) in written
    }
    if not all(isinstance(end.topic_id, str) and _is_sound(end.batch) for end in ends.values()):
        raise TypeError("an unsound end")
    return ends


def _is_sound(batch: BatchHeader) -> bool:
    return all(type(value) is int for value in batch) and _are_numbers(batch.last_offset)


def _array(text: str, kind: np.dtype[Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), kind)


def _value(content: dict[str, Any], name: str, kind: type[_Value]) -> _Value:
    found = content[name]
    if not isinstance(found, kind):
        raise TypeError(name)
    return found


def _optional(content: dict[str, Any], name: str, kind: type[_Value]) -> _Value | None:
    return None if content[name] is None else _value(content, name, kind)


def _names(found: object) -> list[str]:
    if not isinstance(found, list) or not _is_list_of(found, str):
        raise TypeError("not a list of names")
    return found


def _offset(value: object) -> int:
    if not _are_numbers(value):
        raise ValueError(value)
    assert isinstance(value, int)
    return value


def _are_numbers(*values: object) -> bool:
    return all(type(value) is int and 0 <= value < 2**63 for value in values)


def _is_list_of(values: object, kind: type) -> bool:
    """Whether it is a list, of a JSON document or our own, and all its values are of a kind."""
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)
