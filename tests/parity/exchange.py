"""What one format wrote, the other reads; where one query stopped, the other goes on."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tests.parity.case import Outcome, case
from tests.parity.lab import FORMATS, PEER, Lab, error_of, values
from tests.parity.suites import EXCHANGE

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""In the order of the numbers that record batches bear."""
_COUNT = 300


def _records(lab: Lab) -> DataFrame:
    """Rows with all that a record may have, or lack."""
    number = "CAST(id AS STRING)"
    return lab.spark.range(0, _COUNT, 1, 1).selectExpr(
        f"CAST(IF(id % 7 = 0, NULL, concat('key-', {number})) AS BINARY) AS key",
        "CAST(CASE WHEN id % 5 = 0 THEN NULL WHEN id % 11 = 0 THEN '' "
        f"ELSE repeat(concat('value-', {number}), 20) END AS BINARY) AS value",
        f"CASE id % 3 WHEN 1 THEN array(struct('a' AS key, CAST({number} AS BINARY) AS value)) "
        "WHEN 2 THEN array(struct('b' AS key, CAST('' AS BINARY) AS value), "
        "struct('b' AS key, CAST(NULL AS BINARY) AS value)) END AS headers",
        "CAST(id % 2 AS INT) AS partition",
    )


def _same(left: DataFrame, right: DataFrame) -> bool:
    return left.exceptAll(right).isEmpty() and right.exceptAll(left).isEmpty()


def _register_compression(codec: str) -> None:
    @case(
        EXCHANGE,
        f"written with {codec}, read by both",
        peer={
            "stored as": codec,
            **{f"{reader} reads what was written": True for reader in FORMATS},
            "both read the same offsets, timestamps and types": True,
            "offsets": [(0, 0, _COUNT // 2), (1, 0, _COUNT // 2)],
        },
    )
    def written(lab: Lab) -> Outcome:
        topic = lab.topic(2)
        records = _records(lab)
        lab.write(records, {"topic": topic, "kafka.compression.type": codec})
        given = {"subscribe": topic, "includeHeaders": "true"}
        read = {reader: lab.read(given, format=reader) for reader in FORMATS}
        bounds = read[PEER].groupBy("partition").agg({"offset": "min", "*": "count"}).collect()
        segment = lab.broker.partition_folder(topic, 0) / f"{0:020}.log"
        return {
            # The low bits of a record batch's attributes.
            "stored as": _CODECS[segment.read_bytes()[22] & 7],
            **{
                f"{reader} reads what was written": _same(frame.select(records.columns), records)
                for reader, frame in read.items()
            },
            "both read the same offsets, timestamps and types": _same(*read.values()),
            "offsets": sorted((row["partition"], row["min(offset)"], row["count(1)"]) for row in bounds),
        }


for _codec in _CODECS:
    _register_compression(_codec)


def _go_on(lab: Lab, first: str, then: str) -> Outcome:
    topic = lab.topic(2)
    lab.send(topic, range(10))
    given = {"subscribe": topic, "maxOffsetsPerTrigger": 6, "startingOffsets": "earliest"}
    query = lab.start(lab.read_stream(given, format=first), availableNow=True)
    query.wait()
    lab.send(topic, range(10, 14))
    again = lab.available_now(lab.read_stream(given, format=then), checkpoint=query.checkpoint)
    logged = [query.logged_offsets(number) for number in range(3)]
    return {
        "first": query.batches,
        "then": again,
        "offsets in the log": [offsets[topic] for (offsets,) in logged],
    }


_GOES_ON = {
    "first": [[*range(6)], [*range(6, 10)]],
    "then": [[*range(10, 14)]],
    "offsets in the log": [{"0": 3, "1": 3}, {"0": 5, "1": 5}, {"0": 7, "1": 7}],
}


@case(EXCHANGE, "a query goes on where one of Spark's connector has stopped", peer=_GOES_ON)
def take_over(lab: Lab) -> Outcome:
    return _go_on(lab, PEER, lab.format)


@case(EXCHANGE, "a query of Spark's connector goes on where another has stopped", peer=_GOES_ON)
def give_back(lab: Lab) -> Outcome:
    return _go_on(lab, lab.format, PEER)


def _replay(lab: Lab, first: str, then: str) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(15))
    given = {"subscribe": topic, "maxOffsetsPerTrigger": 5, "startingOffsets": "earliest"}

    def fail_at_third(batch: DataFrame) -> list[object]:
        found = values(batch)
        if 10 in found:
            raise RuntimeError("error for 10")
        return found

    query = lab.start(lab.read_stream(given, format=first), take=fail_at_third, availableNow=True)
    error = error_of(query.wait, **{"our own": "error for 10"})
    lab.send(topic, range(15, 17))
    again = lab.available_now(lab.read_stream(given, format=then), checkpoint=query.checkpoint)
    return {"first": query.batches, "error": error, "then": again}


_REPLAYED = {
    "first": [[*range(5)], [*range(5, 10)]],
    "error": "our own",
    "then": [[*range(10, 15)], [15, 16]],
}


@case(EXCHANGE, "a micro-batch that failed with Spark's connector is replayed", peer=_REPLAYED)
def replay(lab: Lab) -> Outcome:
    return _replay(lab, PEER, lab.format)


@case(EXCHANGE, "Spark's connector replays a micro-batch that failed", peer=_REPLAYED)
def be_replayed(lab: Lab) -> Outcome:
    return _replay(lab, lab.format, PEER)
