"""Topics with records, in a broker or a log directory of a test."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from pyspark_kafkalog.client.kafka import Kafka, connect
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.topics import NewTopic
from pyspark_kafkalog.tools.try_out.local_broker import LocalBroker

_Part: TypeAlias = str | bytes | None
"""A key or a value; text is encoded as UTF-8, and None is null."""
_Records: TypeAlias = "pa.Table | pa.RecordBatch | Iterable[_Part | tuple[_Part, _Part]]"
"""Values, or pairs of a key and a value; or Arrow with any columns that ``df.write`` takes."""


def filled(
    place: LocalBroker | str | os.PathLike[str] | Mapping[str, str],
    topic: str,
    records: _Records = (),
    *,
    partitions: int | None = None,
    configs: Mapping[str, str] | None = None,
) -> Kafka:
    """The place, in which ``topic`` has these records after those that it had before.

    Without a key, Kafka's own rule spreads records over the partitions. With ``partition`` as a column of
    Arrow each goes where you say.

    :param place: a broker, or whatever :func:`.connect` takes.
    :param partitions: of a topic that is not there yet, by default 1.
    :param configs: configurations of a topic that is not there yet, such as ``max.message.bytes``.
    :raises OptionError: for records of another kind, and if the topic is there with other partitions, or
        ``configs`` are given for it. Then nothing is written.
    """
    rows = records_of(records)
    kafka = connect(place.options if isinstance(place, LocalBroker) else place)
    new = NewTopic(topic, 1 if partitions is None else partitions, configs=dict(configs or {}))
    (found,) = kafka.topics.create([new], if_not_exists=True)
    if not found.created and (configs or partitions not in (None, found.partitions)):
        kafka.close()
        raise OptionError(
            f"Topic {topic!r} is there already, with {found.partitions} partitions",
            hint="Leave out partitions and configs to add records to it.",
        )
    if rows.num_rows:
        kafka.write(rows, topic)
    return kafka


def records_of(records: _Records) -> pa.Table:
    """The records as Arrow.

    :raises OptionError: for anything that is neither Arrow, nor values, nor pairs of a key and a value.
    """
    if isinstance(records, pa.Table):
        return records
    if isinstance(records, pa.RecordBatch):
        return pa.Table.from_batches([records])
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise OptionError(
            f"Expected a list of records, got {type(records).__name__}",
            hint='Write ["12.50"], or [("c1", "12.50")] with keys, or a table of Arrow.',
        )
    pairs = [_pair(record, number) for number, record in enumerate(records)]
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table([pa.array(column, pa.binary()) for column in columns], ["key", "value"])


def _pair(record: object, number: int) -> Sequence[bytes | None]:
    pair: Any = record if isinstance(record, tuple) else (None, record)
    if len(pair) != 2 or not all(isinstance(part, str | bytes | None) for part in pair):
        kinds = ", ".join(type(part).__name__ for part in pair)
        raise OptionError(
            f"Record {number} has ({kinds}), expected a value, or a key and a value",
            hint="Each is str, bytes or None: write json.dumps(…), or str(…), for anything else.",
        )
    return [part.encode() if isinstance(part, str) else part for part in pair]
