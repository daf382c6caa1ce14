"""KafkaRelationSuite: batch reads; with what else of Spark's suites a batch read shows."""

from __future__ import annotations

import json

from pyspark.sql.functions import spark_partition_id

from tests.parity.case import Outcome, case
from tests.parity.lab import (
    AFTER,
    FIRST,
    SECOND,
    THIRD,
    Lab,
    Options,
    assigned,
    cells,
    error_of,
    offsets,
    values,
)
from tests.parity.suites import PROVIDER, READER, RELATION, STRATEGY

UP_TO_20 = [*range(21)]


def _three_partitions(lab: Lab) -> str:
    """A topic with 0 to 9, 10 to 19, and 20."""
    topic = lab.topic(3)
    for partition, numbers in enumerate([range(10), range(10, 20), [20]]):
        lab.send(topic, numbers, partition)
    return topic


@case(RELATION, "explicit earliest to latest offsets", peer={"rows": UP_TO_20, "read again": [*range(30)]})
def explicit_earliest_to_latest(lab: Lab) -> Outcome:
    topic = _three_partitions(lab)
    frame = lab.read({"subscribe": topic, "startingOffsets": "earliest", "endingOffsets": "latest"})
    rows = values(frame)
    lab.send(topic, range(21, 30), 2)
    return {"rows": rows, "read again": values(frame)}


@case(RELATION, "default starting and ending offsets", peer={"rows": UP_TO_20})
def default_offsets(lab: Lab) -> Outcome:
    return {"rows": values(lab.read({"subscribe": _three_partitions(lab)}))}


@case(
    RELATION,
    "explicit offsets",
    peer={
        "rows": UP_TO_20,
        "behind a fixed end": UP_TO_20,
        "behind latest": [*range(31)],
    },
)
def explicit_offsets(lab: Lab) -> Outcome:
    topic = _three_partitions(lab)
    given = {
        "startingOffsets": offsets(topic, [-2, -2, 0]),
        "endingOffsets": offsets(topic, [-1, -1, 1]),
    }
    frame = lab.read({"subscribe": topic, **given})
    rows = values(frame)
    lab.send(topic, range(31, 40), 2)
    behind_a_fixed_end = values(frame)
    lab.send(topic, range(21, 31), 1)
    return {"rows": rows, "behind a fixed end": behind_a_fixed_end, "behind latest": values(frame)}


@case(
    RELATION,
    "default starting and ending offsets with headers",
    peer={
        "rows": [
            ("1", None),
            ("2", [("a", "b"), ("c", "d")]),
            ("3", [("e", "f"), ("e", "g")]),
        ]
    },
)
def headers(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    lab.send(topic, [1], 0)
    lab.send(topic, [2], 1, headers=[("a", b"b"), ("c", b"d")])
    lab.send(topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    frame = lab.read({"subscribe": topic, "includeHeaders": "true"})
    return {"rows": cells(frame.selectExpr("CAST(value AS STRING)", "headers"))}


def _at_three_times(lab: Lab) -> str:
    """A topic with 0 to 9 of the first time, to 19 of the second, to 29 of the third; by rest of 3."""
    topic = lab.topic(3)
    for time, start in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
        for partition in range(3):
            numbers = [number for number in range(start, start + 10) if number % 3 == partition]
            lab.send(topic, numbers, partition, timestamp_ms=time)
    return topic


def _read_at_times(lab: Lab, topic: str, options: Options) -> list[object]:
    return values(lab.read({"subscribe": topic, **options}))


@case(RELATION, "timestamp provided for starting and ending", peer={"rows": [*range(10, 20)]})
def timestamps_for_both(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {
        "startingOffsetsByTimestamp": offsets(topic, [SECOND] * 3),
        "endingOffsetsByTimestamp": offsets(topic, [THIRD] * 3),
    }
    return {"rows": _read_at_times(lab, topic, given)}


@case(
    RELATION,
    "timestamp provided for starting, offset provided for ending",
    peer={"rows": sorted([*(number for number in range(30) if number % 3 != 2), 2])},
)
def timestamp_to_offset(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {
        "startingOffsetsByTimestamp": offsets(topic, [FIRST] * 3),
        "endingOffsets": offsets(topic, [-1, -1, 1]),
    }
    return {"rows": _read_at_times(lab, topic, given)}


@case(RELATION, "timestamp provided for ending, offset provided for starting", peer={"rows": [*range(20)]})
def offset_to_timestamp(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {
        "startingOffsets": offsets(topic, [-2, -2, 0]),
        "endingOffsetsByTimestamp": offsets(topic, [THIRD] * 3),
    }
    return {"rows": _read_at_times(lab, topic, given)}


@case(RELATION, "timestamp provided for starting, ending not provided", peer={"rows": [*range(10, 30)]})
def timestamp_for_starting(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {"startingOffsetsByTimestamp": offsets(topic, [SECOND] * 3)}
    return {"rows": _read_at_times(lab, topic, given)}


@case(RELATION, "timestamp provided for ending, starting not provided", peer={"rows": [*range(20)]})
def timestamp_for_ending(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    return {"rows": _read_at_times(lab, topic, {"endingOffsetsByTimestamp": offsets(topic, [THIRD] * 3)})}


@case(RELATION, "global timestamp provided for starting and ending", peer={"rows": [*range(10, 20)]})
def global_timestamps(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    return {"rows": _read_at_times(lab, topic, {"startingTimestamp": SECOND, "endingTimestamp": THIRD})}


@case(RELATION, "no matched offset for timestamp - startingOffsets", peer={"error": "no match"})
def no_match_for_starting(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {"startingOffsetsByTimestamp": offsets(topic, [SECOND, SECOND, 2**63 - 1])}
    kinds = {"no match": "no offset matched from request|no record has a timestamp"}
    return {"error": error_of(lambda: _read_at_times(lab, topic, given), **kinds)}


@case(
    RELATION,
    "preferences on offset related options",
    peer={"global timestamp first": [*range(20, 30)], "then timestamps": [*range(10, 30)]},
)
def preferences(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {
        "startingOffsetsByTimestamp": offsets(topic, [SECOND] * 3),
        "startingOffsets": "earliest",
    }
    return {
        "global timestamp first": _read_at_times(lab, topic, {**given, "startingTimestamp": THIRD}),
        "then timestamps": _read_at_times(lab, topic, given),
    }


@case(
    RELATION,
    "no matched offset for timestamp - endingOffsets",
    peer={"rows": sorted([*range(10), *(number for number in range(10, 30) if number % 3 == 2)])},
)
def no_match_for_ending(lab: Lab) -> Outcome:
    topic = _at_three_times(lab)
    given = {"endingOffsetsByTimestamp": offsets(topic, [SECOND, SECOND, 2**63 - 1])}
    return {"rows": _read_at_times(lab, topic, given)}


@case(RELATION, "reuse same dataframe in query", peer={"rows": sorted([*range(11)] * 2)})
def reuse_frame(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(11))
    frame = lab.read({"subscribe": topic})
    return {"rows": values(frame.union(frame))}


@case(
    RELATION,
    "test late binding start offsets",
    peer={"rows": [*range(10)], "read again": [*range(10, 20)]},
    note="Records are deleted by request, not by retention.",
)
def late_binding(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(10))
    frame = lab.read({"subscribe": topic, "startingOffsets": "earliest", "endingOffsets": "latest"})
    rows = values(frame)
    lab.delete_records(topic, 10)
    lab.send(topic, range(10, 20))
    return {"rows": rows, "read again": values(frame)}


def _transactions(lab: Lab, isolation: str) -> Outcome:
    topic = lab.topic()
    frame = lab.read({"subscribe": topic, "kafka.isolation.level": isolation})
    outcome: dict[str, object] = {}
    with lab.transactions() as transaction:
        transaction.begin(topic, range(1, 6))
        outcome["open"] = values(frame)
        transaction.commit(topic, 6)
        outcome["committed"] = values(frame)
        transaction.begin(topic, range(6, 11))
        transaction.abort(topic, 12)
        outcome["aborted"] = values(frame)
        transaction.begin(topic, range(11, 16))
        transaction.commit(topic, 18)
        outcome["committed after"] = values(frame)
    return outcome


@case(
    RELATION,
    "read Kafka transactional messages: read_committed",
    peer={
        "open": [],
        "committed": [*range(1, 6)],
        "aborted": [*range(1, 6)],
        "committed after": [*range(1, 6), *range(11, 16)],
    },
)
def read_committed(lab: Lab) -> Outcome:
    return _transactions(lab, "read_committed")


@case(
    RELATION,
    "read Kafka transactional messages: read_uncommitted",
    peer={
        "open": [*range(1, 6)],
        "committed": [*range(1, 6)],
        "aborted": [*range(1, 11)],
        "committed after": [*range(1, 16)],
    },
)
def read_uncommitted(lab: Lab) -> Outcome:
    return _transactions(lab, "read_uncommitted")


@case(
    RELATION,
    "SPARK-30656: minPartitions",
    peer={
        "6 tasks or more": True,
        "rows": UP_TO_20,
        "RDD read again": [*range(31)],
        "read again": [*range(31)],
    },
)
def min_partitions(lab: Lab) -> Outcome:
    topic = _three_partitions(lab)
    frame = lab.read({"subscribe": topic, "minPartitions": 6}).selectExpr("CAST(value AS STRING)")
    rdd = frame.rdd
    outcome: dict[str, object] = {
        "6 tasks or more": rdd.getNumPartitions() >= 6,
        "rows": sorted(int(row[0]) for row in rdd.collect()),
    }
    lab.send(topic, range(21, 31))
    return {
        **outcome,
        "RDD read again": sorted(int(row[0]) for row in rdd.collect()),
        "read again": values(frame),
    }


@case(
    RELATION,
    "resolved start offset greater than end offset (without latest)",
    peer={"error": "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"},
)
def resolved_start_behind_end(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition in range(3):
        lab.send(topic, [0, 0], partition, timestamp_ms=FIRST)
    given = {
        "startingOffsets": offsets(topic, [3, 3, 3]),
        "endingOffsetsByTimestamp": offsets(topic, [FIRST] * 3),
    }
    return {"error": _start_behind_end(lab, topic, given)}


@case(
    RELATION,
    "V1 only: resolved start offset greater than end offset (with latest)",
    peer={"error": "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"},
)
def start_behind_latest(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    return {"error": _start_behind_end(lab, topic, {"startingOffsets": offsets(topic, [1, 1, 1])})}


def _start_behind_end(lab: Lab, topic: str, options: Options) -> str:
    name = "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"
    kinds = {name: f"(?<!UN){name}|resolved start offset .* is greater than the resolved end offset"}
    return error_of(lambda: values(lab.read({"subscribe": topic, **options})), **kinds)


def _isolation(name: str, given: Options, peer: Outcome, note: str = "") -> None:
    @case(READER, name, peer=peer, note=note)
    def isolation(lab: Lab) -> Outcome:
        topic = lab.topic()
        options = {"subscribe": topic, **given}
        with lab.transactions() as transaction:
            transaction.begin(topic, [0])
            rows: list[object] = []
            kinds = {"invalid": "intentionally_invalid|isolation.level"}
            error = error_of(lambda: rows.extend(values(lab.read(options))), **kinds)
            transaction.abort(topic, 2)
        return {"an open transaction": rows} if error == "none" else {"error": error}


_isolation(
    "isolationLevel must give back default isolation level when not set", {}, {"an open transaction": [0]}
)
for _level, _rows in (("read_uncommitted", [0]), ("read_committed", [])):
    _isolation(
        f"isolationLevel must give back {_level.upper()} when set",
        {"kafka.isolation.level": _level},
        {"an open transaction": _rows},
    )
_isolation(
    "isolationLevel must throw exception when invalid isolation level set",
    {"kafka.isolation.level": "intentionally_invalid"},
    {"error": "invalid"},
)


def _tasks(lab: Lab, options: Options) -> list[tuple[int, int, int]]:
    """Partition, first offset and number of rows of each task, in order."""
    frame = lab.read(options).withColumn("task", spark_partition_id())
    rows = frame.groupBy("task", "partition").agg({"offset": "min", "*": "count"}).collect()
    return sorted((row["partition"], row["min(offset)"], row["count(1)"]) for row in rows)


@case(
    READER,
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using specific offsets",
    peer={"tasks": [(0, 1, 1), (0, 2, 1), (0, 3, 1)]},
)
def ranges_of_offsets(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(10))
    given = {"startingOffsets": offsets(topic, [1]), "endingOffsets": offsets(topic, [4]), "minPartitions": 3}
    return {"tasks": _tasks(lab, {"subscribe": topic, **given})}


@case(
    READER,
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using special offsets",
    peer={"tasks": [(0, 0, 1), (0, 1, 1), (0, 2, 2)], "more at the end": [(0, 0, 1), (0, 1, 1), (0, 2, 4)]},
    note="Inner cuts stay, and the last task goes up to what is latest then.",
)
def ranges_of_special_offsets(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(4))
    frame = lab.read({"subscribe": topic, "minPartitions": 3}).withColumn("task", spark_partition_id())

    def tasks() -> list[tuple[int, int, int]]:
        found: dict[int, list[int]] = {}
        for row in frame.collect():
            found.setdefault(row["task"], []).append(row["offset"])
        return sorted((0, min(group), len(group)) for group in found.values())

    first = tasks()
    lab.send(topic, range(4, 6))
    return {"tasks": first, "more at the end": tasks()}


@case(
    READER,
    "SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED error class",
    peer={"error": "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"},
)
def start_offsets_do_not_match(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    options = {
        "subscribe": topic,
        "startingOffsets": offsets(topic, [-2, -2]),
        "endingOffsets": offsets(topic, [-1, 3]),
        "minPartitions": 4,
    }
    kinds = {
        "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED": "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED|"
        "Partitions specified for Kafka start offsets don't match"
    }
    return {"error": error_of(lambda: values(lab.read(options)), **kinds)}


@case(
    READER,
    "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - multiple topic partitions",
    peer={"tasks": [(0, 0, 33), (0, 33, 33), (0, 66, 34), (1, 0, 3)]},
)
def ranges_of_partitions(lab: Lab) -> Outcome:
    topic = lab.topic(2)
    lab.send(topic, range(100), 0)
    lab.send(topic, range(4), 1)
    given = {
        "startingOffsets": offsets(topic, [-2, -2]),
        "endingOffsets": offsets(topic, [-1, 3]),
        "minPartitions": 4,
    }
    return {"tasks": _tasks(lab, {"subscribe": topic, **given})}


@case(
    READER,
    "SPARK-30656: getOffsetRangesFromResolvedOffsets",
    peer={"tasks": [(0, 0, 33), (0, 33, 33), (0, 66, 34), (1, 0, 3)]},
    note="Shown by a micro-batch.",
)
def ranges_of_a_micro_batch(lab: Lab) -> Outcome:
    topic = lab.topic(2)
    lab.send(topic, range(100), 0)
    lab.send(topic, range(3), 1)
    source = lab.read_stream({"subscribe": topic, "startingOffsets": "earliest", "minPartitions": 4})
    batches = lab.available_now(
        source.select(spark_partition_id().alias("task"), "partition", "offset"), take=cells
    )
    tasks: dict[tuple[int, int], list[int]] = {}
    for task, partition, offset in batches[0]:
        tasks.setdefault((task, partition), []).append(offset)
    return {"tasks": sorted((partition, min(found), len(found)) for (_, partition), found in tasks.items())}


def _timestamps_do_not_match(specified: int) -> None:
    name = "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"

    @case(
        READER,
        f"{name} error class - partitions assigned: 3, specified: {specified}",
        peer={"error": name},
    )
    def timestamps_do_not_match(lab: Lab) -> Outcome:
        topic = lab.topic(3)
        options = {
            "subscribe": topic,
            "startingOffsetsByTimestamp": offsets(topic, [FIRST] * specified),
            "endingOffsetsByTimestamp": offsets(topic, [AFTER] * specified),
        }
        kinds = {name: f"{name}|Partitions specified for Kafka timestamp based start offsets don't match"}
        return {"error": error_of(lambda: values(lab.read(options)), **kinds)}


for _specified in (2, 4):
    _timestamps_do_not_match(_specified)


def _partitions(lab: Lab, options: Options, *topics: str) -> list[tuple[int, int]]:
    """The partitions that a read finds: place in ``topics``, and number."""
    rows = lab.read(options).select("topic", "partition").distinct().collect()
    return sorted((topics.index(row["topic"]), row["partition"]) for row in rows)


@case(
    STRATEGY,
    "AssignStrategy.assignedTopicPartitions must give back all assigned",
    peer={"partitions": [(0, 0), (0, 2)]},
)
def assign_gives_all(lab: Lab) -> Outcome:
    topic, other = lab.topic(3), lab.topic(2)
    for written in (topic, other):
        lab.send(written, range(6))
    return {"partitions": _partitions(lab, assigned(topic, [0, 2]), topic, other)}


@case(
    STRATEGY,
    "AssignStrategy.assignedTopicPartitions must skip invalid partitions",
    peer={"partitions": [], "beside a valid one": [(0, 0)]},
)
def assign_skips_invalid(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(3))
    return {
        "partitions": _partitions(lab, assigned(topic, [1]), topic),
        "beside a valid one": _partitions(lab, assigned(topic, [0, 1]), topic),
    }


@case(
    STRATEGY,
    "SubscribeStrategy.assignedTopicPartitions must give back all assigned",
    peer={"partitions": [(0, 0), (0, 1), (1, 0), (1, 1)]},
)
def subscribe_gives_all(lab: Lab) -> Outcome:
    topics = [lab.topic(2) for _ in range(3)]
    for topic in topics:
        lab.send(topic, range(4))
    return {"partitions": _partitions(lab, {"subscribe": f"{topics[0]}, {topics[1]}"}, *topics)}


@case(
    STRATEGY,
    "SubscribePatternStrategy.assignedTopicPartitions must give back all assigned",
    peer={"partitions": [(0, 0), (0, 1), (1, 0), (1, 1)]},
)
def pattern_gives_all(lab: Lab) -> Outcome:
    prefix = lab.new_name()
    topics = [lab.topic(2, name=f"{prefix}-{suffix}") for suffix in ("a", "b")]
    topics.append(lab.topic(2))
    for topic in topics:
        lab.send(topic, range(4))
    return {"partitions": _partitions(lab, {"subscribePattern": f"{prefix}.*"}, *topics)}


@case(
    PROVIDER,
    "batch mode - options should be handled as case-insensitive",
    peer={"lower case": [1], "upper case": [1]},
    note="Shown by reading, not by a field.",
)
def case_of_options(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, [0, 1])
    given = {
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 1}}),
        "kafkaConsumer.pollTimeoutMs": 1111,
        "fetchOffset.numRetries": 1,
    }
    return {
        f"{word} case": values(lab.read({change(name): value for name, value in given.items()}))
        for word, change in (("lower", str.lower), ("upper", str.upper))
    }
