"""Reads the counts of an audit, each as often as it counts: once, however often a task was run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.audit.auditor import AuditCount, AuditedTask, format_count, in_order
from pyspark_kafkalog.extensions.audit.stores import Entries, FolderStore, batch_name, read_entries
from pyspark_kafkalog.options.settings import PlaceOptions, Selection, place_options, selection
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_report

_TIMESTAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("side", pa.string()),
        ("topic", pa.string()),
        ("kind", pa.string()),
        ("auditKey", pa.string()),
        ("bucketStart", _TIMESTAMP),
        ("bucketEnd", _TIMESTAMP),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("query", pa.string()),
        ("batch", pa.int64()),
    ]
)
"""The columns of counts."""
_MAX_MS = (2**63 - 1) // 1000
"""The greatest time that a timestamp in microseconds can hold."""


def audit_counts(options: Mapping[str, str]) -> pa.Table:
    """The counts of an audit as an Arrow table, without Spark; ``view=audit`` shows the same rows. ::

        from pyspark_kafkalog import audit_counts

        audit_counts({"path": "/audit"})
        audit_counts({"kafka.bootstrap.servers": "host:9092", "subscribe": "audits"})

    Each count is there once. For a task its last run counts, and for a write that awaits its commit only what
    was committed. Columns: ``side``, ``topic``, ``kind``, ``auditKey``, ``bucketStart``, ``bucketEnd`` (µs,
    UTC), ``messages``, ``bytes``, ``query``, ``batch``.

    :param options: ``path``, the ``auditLocation``; or ``subscribe``, the ``auditTopic``, with the options of
        its cluster, or with ``path`` of a log directory that has a copy of it.
    :raises OptionError: for other options.
    :raises KafkaLogError: if the folder or topic does not exist, has something else, or can't be read.
    """
    user = UserOptions(options, Use.AUDIT_VIEW)
    user.check_names()
    chosen = selection(user)
    check_selection(user)
    return counts_table(place_options(options), chosen)


def check_selection(user: UserOptions) -> None:
    """Check that options name one folder, or one topic.

    :raises OptionError: if not.
    """
    topics = user.value("subscribe") or ()
    if len(topics) > 1 or (not topics and "kafka.bootstrap.servers" in user):
        raise OptionError(
            f"An audit is read from one topic, got {len(topics)}",
            hint="Give the auditTopic as option 'subscribe', or the auditLocation to load().",
        )


def counts_table(place: PlaceOptions, chosen: Selection) -> pa.Table:
    """The counts in a topic of a place, or, if no topic is chosen, in its folders."""
    sources: list[Entries]
    if chosen.topics is None:
        sources = [FolderStore(location) for location in place.paths]
    else:
        from pyspark_kafkalog.extensions.audit.topic import TopicEntries

        sources = [TopicEntries.of(open_report(place), topic) for topic in chosen.topics]
    rows = [row for source in sources for row in audit_rows(source)]
    for row in rows:
        for name in "bucketStart", "bucketEnd":
            row[name] = None if row[name] is None or row[name] > _MAX_MS else row[name] * 1000
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def audit_rows(entries: Entries) -> Iterator[dict[str, Any]]:
    """The counts that stand, one per task, bucket, key and kind; times in ms."""
    for data, is_committed in read_entries(entries):
        for line in data.splitlines():
            row = json.loads(line)
            if not row.pop("awaitsCommit", False) or is_committed:
                yield row


def batch_report(location: str, side: str, query: str, batch: int) -> Iterator[str]:
    """The counts of one side of a micro-batch, summed over its tasks, as :func:`format_count` writes them."""
    sums: defaultdict[tuple[AuditCount, int], list[int]] = defaultdict(lambda: [0, 0])
    for row in audit_rows(FolderStore(location, batch_name(AuditedTask(side, query, batch, "")))):
        start = row["bucketStart"]
        width = 1 if start is None else row["bucketEnd"] - start
        found = sums[AuditCount(row["topic"], row["kind"], row["auditKey"], start, 0, 0), width]
        found[0] += row["messages"]
        found[1] += row["bytes"]
    for (count, width), (messages, size) in sorted(sums.items(), key=lambda item: in_order(item[0][0])):
        yield f"{side} {format_count(count._replace(messages=messages, bytes=size), width)}"
