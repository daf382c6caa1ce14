"""Offsets of groups as text: JSON, which keeps everything a commit holds, and the CSV of Kafka's own tool.

::

    [{"group": "g", "topic": "t", "partition": 0, "offset": 23, "leaderEpoch": 1, "metadata": ""}]
    {"t":{"0":23}}     Spark's offsets; the group is named separately
    t,0,23             kafka-consumer-groups --export of one group
    g,t,0,23           and of several groups
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition, check_topic
from pyspark_kafkalog.options.offsets_json import MAX_INT, MAX_LONG, parse_offsets
from pyspark_kafkalog.tools.groups.consumer_groups import MARKER, GroupOffset

WantedOffsets = dict[str, dict[TopicPartition, CommittedOffset]]
"""The offsets to commit for each group."""


def export_json(offsets: Iterable[GroupOffset]) -> str:
    """The offsets as JSON, one object per line, without the markers of exactly-once queries."""
    rows = [
        {
            "group": row.group,
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "leaderEpoch": -1 if row.leader_epoch is None else row.leader_epoch,
            "metadata": row.metadata,
        }
        for row in _progress(offsets)
    ]
    return "[" + ",\n ".join(json.dumps(row) for row in rows) + "]\n"


def export_csv(offsets: Iterable[GroupOffset], *, with_group: bool) -> str:
    """The offsets as ``kafka-consumer-groups --export`` writes them, with the group first if asked for."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in _progress(offsets):
        writer.writerow([*([row.group] if with_group else []), row.topic, row.partition, row.offset])
    return text.getvalue()


def _progress(offsets: Iterable[GroupOffset]) -> list[GroupOffset]:
    """The rows that say how far a group is."""
    return [row for row in offsets if row.topic is not None and row.state != MARKER]


def parse(text: str, *, group: str | None = None) -> WantedOffsets:
    """Read what :func:`export_json`, :func:`export_csv`, Kafka's tool or Spark wrote.

    :param group: the group of the offsets if the text names none; if it does, the only group to keep.
    :raises OptionError: for any other text, and if neither names a group.
    """
    rows = _rows(text)
    wanted: WantedOffsets = {}
    for named, partition, offset, _ in rows:
        group_id = named if named is not None else group
        if group_id is None:
            raise OptionError("The file names no group", hint="Name it: --group GROUP.")
        if group is None or group_id == group:
            if partition in wanted.setdefault(group_id, {}):
                raise OptionError(
                    f"The file has two offsets for group {group_id!r}", topic_partition=partition
                )
            wanted[group_id][partition] = offset
    if not wanted:
        others = sorted({str(row.group) for row in rows})
        raise OptionError(
            f"The file has no offset of group {group!r}, but of {', '.join(map(repr, others[:_NAMED]))}",
            hint="Give one of the file's groups.",
        )
    return wanted


def where_named(text: str, partition: TopicPartition, *, group: str | None = None) -> str:
    """The part of a text that :func:`parse` takes which names a partition first, such as ``line 3``.

    It is empty for Spark's offsets, which are one object.
    """
    rows = (row for row in _rows(text) if group is None or row.group in (None, group))
    return next((row.where.lower() for row in rows if row.partition == partition), "")


def parse_ends(text: str) -> dict[TopicPartition, int]:
    """Read where partitions end, from offsets as :func:`parse` takes them, of one group or without groups.

    :raises OptionError: for any other text, and if it has several groups, or two offsets for a partition.
    """
    rows = _rows(text)
    groups = sorted({row.group for row in rows if row.group is not None})
    if len(groups) > 1:
        raise OptionError(
            f"The file has offsets of several groups: {', '.join(map(repr, groups[:_NAMED]))}",
            hint="Give those of one group, as kafkalog offsets export --group prints them.",
        )
    ends: dict[TopicPartition, int] = {}
    for _, partition, committed, _ in rows:
        if partition in ends:
            raise OptionError("The file has two offsets", topic_partition=partition)
        ends[partition] = committed.offset
    return ends


_NAMED = 3
"""Groups that an error names."""


class _Row(NamedTuple):
    """One offset, and where the text has it, such as ``Line 3``; empty for Spark's JSON."""

    group: str | None
    partition: TopicPartition
    offset: CommittedOffset
    where: str = ""


def _rows(text: str) -> list[_Row]:
    """The offsets of a text, at least one.

    :raises OptionError: for any other text.
    """
    start = text.lstrip()[:1]
    if start == "{":
        offsets = parse_offsets(text, option="offsets")
        rows = [_Row(None, partition, CommittedOffset(offset)) for partition, offset in offsets.items()]
    elif start == "[":
        rows = [_json_row(number, row) for number, row in enumerate(_json_list(text), 1)]
    else:
        rows = _csv_rows(text)
    if not rows:
        raise OptionError("The file has no offsets", hint="See whether the command that wrote it failed.")
    return rows


def _csv_rows(text: str) -> list[_Row]:
    rows: list[_Row] = []
    try:
        lines = list(csv.reader(io.StringIO(text)))
    except csv.Error as e:
        raise OptionError(f"The file is not valid CSV: {e}") from e
    for number, fields in enumerate(lines, 1):
        if not fields:
            continue
        where = f"Line {number}"
        if len(fields) not in (3, 4):
            expected = "topic,partition,offset or group,topic,partition,offset"
            raise _unexpected(where, f"{expected}, got {','.join(fields)[:80]!r}")
        group = fields[0] if len(fields) == 4 else None
        topic, partition, offset = fields[-3:]
        parsed_partition, parsed_offset = _integer(partition, MAX_INT), _integer(offset, MAX_LONG)
        if parsed_partition is None or parsed_offset is None:
            raise _unexpected(where, f"a partition and an offset of 0 or more, got {','.join(fields)[:80]!r}")
        named = TopicPartition(check_topic(topic), parsed_partition)
        rows.append(_Row(group, named, CommittedOffset(parsed_offset), where))
    return rows


def _integer(text: str, highest: int) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and int(digits[:20]) <= highest else None


def _json_list(text: str) -> list[Any]:
    try:
        return list(json.loads(text))
    except (ValueError, RecursionError) as e:
        raise OptionError(f"The file is not valid JSON: {e}") from e


def _json_row(number: int, row: object) -> _Row:
    where = f"Object {number}"
    if not isinstance(row, Mapping):
        raise _unexpected(where, "group, topic, partition and offset")
    partition, offset, epoch = (row.get(name, default) for name, default in _NUMBERS.items())
    texts = [row.get("topic"), row.get("metadata", "")]
    if not all(type(value) is int for value in (partition, offset, epoch)) or partition < 0 or offset < 0:
        raise _unexpected(where, "a partition and an offset of 0 or more")
    if not all(isinstance(value, str) for value in texts) or not isinstance(row.get("group"), str | None):
        raise _unexpected(where, "strings as group, topic and metadata")
    if partition > MAX_INT or offset > MAX_LONG or not -1 <= epoch <= MAX_INT:
        raise _unexpected(where, "a 32-bit partition, a 32-bit leaderEpoch and a 64-bit offset")
    committed = CommittedOffset(offset, epoch, row.get("metadata", ""))
    return _Row(row.get("group"), TopicPartition(check_topic(row["topic"]), partition), committed, where)


_NUMBERS = {"partition": None, "offset": None, "leaderEpoch": -1}


def _unexpected(where: str, expected: str) -> OptionError:
    return OptionError(f"{where} of the file: expected {expected}")
