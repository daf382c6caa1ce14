"""KafkaMicroBatchSourceSuiteBase: limits, triggers, offsets kept, what micro-batches hold."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from tests.parity.case import Outcome, case
from tests.parity.lab import FIRST, PEER, Lab, cells, error_of, offsets, values
from tests.parity.suites import MICRO_BATCH, MICRO_BATCH_V2, PROVIDER, SOURCE

EARLIEST = {"startingOffsets": "earliest"}
DELAY = 15
"""Seconds to wait for the least number of records. Spark has 5, less than a first micro-batch may take."""


@case(SOURCE, "cannot stop Kafka stream", peer={"active": False, "exception": None})
def can_be_stopped(lab: Lab) -> Outcome:
    prefix = lab.new_name()
    lab.send(lab.topic(5, name=prefix), range(101, 106))
    query = lab.start({"subscribePattern": f"{prefix}.*"})
    query.process()
    query.stop()
    return {"active": query.query.isActive, "exception": query.query.exception()}


@case(
    SOURCE,
    "SPARK-53560: no crash looping during uncommitted batch retry in AvailableNow trigger",
    peer={"first run": "our own", "with another partition": "our own"},
)
def retry_with_another_partition(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(1, 8))
    frame = lab.read_stream({"subscribe": topic, **EARLIEST}).selectExpr(
        "IF(CAST(value AS STRING) = '7', raise_error('error for 7'), value) AS value"
    )
    checkpoint = lab.folder()
    outcome = {}
    for name in ("first run", "with another partition"):
        outcome[name] = error_of(
            lambda: lab.available_now(frame, checkpoint=checkpoint), **{"our own": "error for 7"}
        )
        if name == "first run":
            lab.add_partitions(topic, 2)
    return outcome


@case(
    SOURCE,
    "Kafka column types",
    peer={
        "schema": "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>",
        "all nullable": True,
        "row": [(None, "1", True, 0, 0, 1_700_000_000_000_000, 0, [("a", "b"), ("c", "d")])],
    },
)
def column_types(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, [1], headers=[("a", b"b"), ("c", b"d")], timestamp_ms=FIRST)
    frame = lab.read_stream({"subscribe": topic, "includeHeaders": "true", **EARLIEST})
    shown = {"topic": expr(f"topic = '{topic}'"), "timestamp": expr("unix_micros(timestamp)")}
    (rows,) = lab.available_now(frame.withColumns(shown), take=cells)
    return {
        "schema": frame.schema.simpleString(),
        "all nullable": all(field.nullable for field in frame.schema),
        "row": rows,
    }


@case(
    MICRO_BATCH,
    "async progress tracking",
    peer={"source, to Spark's sink": [*range(30)], "source and sink": [*range(30)]},
    ours={"source and sink": "refused"},
    note="Spark allows asynchronous progress tracking with its own Kafka sink alone.",
)
def async_progress(lab: Lab) -> Outcome:
    topic = lab.topic(5)
    frame = lab.read_stream({"subscribe": topic, "maxOffsetsPerTrigger": 5, **EARLIEST}).select("value")
    lab.send(topic, range(15), 0)
    sinks = {"source, to Spark's sink": PEER, "source and sink": lab.format}
    copies = {name: lab.topic() for name in sinks}
    checkpoints = {name: lab.folder() for name in sinks}

    def run(name: str) -> None:
        settings = {
            "kafka.bootstrap.servers": lab.broker.bootstrap,
            "topic": copies[name],
            "checkpointLocation": str(checkpoints[name]),
            "asyncProgressTrackingEnabled": "true",
            "asyncProgressTrackingCheckpointIntervalMs": "1000",
        }
        query = frame.writeStream.format(sinks[name]).options(**settings).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def run_again(name: str) -> list[int]:
        run(name)
        # At least once: a query that is stopped may not have noted its last micro-batches.
        return sorted({int(value) for (value,) in lab.read_back(copies[name], "value")})

    refused = "does not support async progress tracking"
    errors = {name: error_of(functools.partial(run, name), refused=refused) for name in sinks}
    lab.send(topic, range(15, 30), 0)
    return {name: run_again(name) if error == "none" else error for name, error in errors.items()}


@case(
    MICRO_BATCH,
    "Trigger.AvailableNow",
    peer={"batches": [[*range(5)], [*range(5, 10)], [*range(10, 15)]]},
)
def available_now(lab: Lab) -> Outcome:
    topic = lab.topic(5)
    lab.send(topic, range(15), 0)
    return {"batches": lab.available_now({"subscribe": topic, "maxOffsetsPerTrigger": 5, **EARLIEST})}


@case(
    MICRO_BATCH,
    "(de)serialization of initial offsets",
    peer={"first run": [], "second run": [], "then written": [1, 2]},
)
def initial_offsets_again(lab: Lab) -> Outcome:
    topic = lab.topic(5)
    lab.send(topic, [0])
    frame = lab.read_stream({"subscribe": topic})
    query = lab.start(frame)
    first = query.process()
    query.stop()
    query = lab.start(frame, checkpoint=query.checkpoint)
    second = query.process()
    lab.send(topic, [1, 2])
    return {"first run": first, "second run": second, "then written": query.process()}


@case(
    MICRO_BATCH,
    "SPARK-26718 Rate limit set to Long.Max should not overflow integer during end offset calculation",
    peer={"values": [30, 31, 32, 33, 34]},
)
def limit_of_long_max(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(5))
    query = lab.start(
        {
            "subscribe": topic,
            "startingOffsets": offsets(topic, [5]),
            "maxOffsetsPerTrigger": 2**63 - 1,
        }
    )
    query.process()
    lab.send(topic, range(30, 35))
    return {"values": query.process()}


@case(
    MICRO_BATCH,
    "maxOffsetsPerTrigger",
    peer={
        "first 4 batches": [
            [1, 10, *range(100, 108)],
            [11, *range(108, 117)],
            [12, *range(117, 126)],
            [13, *range(126, 135)],
        ],
        "all": [1, *range(10, 21), *range(100, 201)],
        "once": [[1, *range(10, 21), *range(100, 201)]],
        "once again": [[*range(1000, 1011)]],
    },
)
def max_offsets(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition, numbers in enumerate([range(100, 201), range(10, 21), [1]]):
        lab.send(topic, numbers, partition)
    frame = lab.read_stream({"subscribe": topic, "maxOffsetsPerTrigger": 10, **EARLIEST})
    batches = lab.available_now(frame)
    return {
        "first 4 batches": batches[:4],
        "all": sorted(itertools.chain(*batches)),
        **_once(lab, topic, frame, range(1000, 1011)),
    }


def _once(lab: Lab, topic: str, frame: DataFrame, more: Iterable[int]) -> Outcome:
    """Trigger.Once, which knows no limit, before and after more is written."""
    checkpoint = lab.folder()
    outcome = {}
    for name in ("once", "once again"):
        query = lab.start(frame, checkpoint=checkpoint, once=True)
        query.wait()
        outcome[name] = query.batches
        if name == "once":
            lab.send(topic, more)
    return outcome


@case(
    MICRO_BATCH,
    "minOffsetsPerTrigger",
    peer={
        "first batch": [[1, *range(10, 15), *range(100, 110)]],
        "6 more": [],
        "18 more": [[2, *range(15, 21), *range(110, 121)]],
        "10 more": [],
        "after the delay": [[*range(21, 26), *range(121, 126)]],
        "once": [[1, 2, *range(10, 26), *range(100, 126)]],
        "once again": [[*range(1000, 1011)]],
    },
)
def min_offsets(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition, numbers in enumerate([range(100, 110), range(10, 15), [1]]):
        lab.send(topic, numbers, partition)
    given = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": f"{DELAY}s"}
    frame = lab.read_stream({"subscribe": topic, **given, **EARLIEST})
    query = lab.start(frame)
    outcome = {"first batch": query.process_batches()}
    lab.send(topic, range(15, 21), 1)
    outcome["6 more"] = query.process_batches()
    # The one record first: those that bring what waits above the minimum must be the last to come.
    lab.send(topic, [2], 2)
    lab.send(topic, range(110, 121), 0)
    outcome["18 more"] = query.process_batches()
    lab.send(topic, range(121, 126), 0)
    lab.send(topic, range(21, 26), 1)
    outcome["10 more"] = query.process_batches()
    time.sleep(DELAY)
    outcome["after the delay"] = query.process_batches()
    query.stop()
    return {**outcome, **_once(lab, topic, frame, range(1000, 1011))}


@case(
    MICRO_BATCH,
    "compositeReadLimit",
    peer={
        "first batch": [[1, *range(10, 16), *range(100, 112)]],
        "20 more": [[2, *range(16, 25), *range(112, 122)]],
        "after the delay": [[*range(25, 31), *range(122, 129)]],
        "once": [[1, 2, *range(10, 31), *range(100, 129)]],
        "once again": [[*range(1000, 1011)]],
    },
    ours={
        "first batch": [[1, *range(10, 16), *range(100, 113)]],
        "20 more": [[2, *range(16, 25), *range(113, 123)]],
        "after the delay": [[*range(25, 31), *range(123, 129)]],
    },
    note="kafkalog uses the whole limit, including the remainder of rounding (20 rows, not 19), so that a"
    " backlog of a multiple of the limit does not end in a micro-batch of a few rows.",
)
def composite_limit(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition, numbers in enumerate([range(100, 121), range(10, 21), [1]]):
        lab.send(topic, numbers, partition)
    given = {"minOffsetsPerTrigger": 15, "maxTriggerDelay": f"{DELAY}s", "maxOffsetsPerTrigger": 20}
    frame = lab.read_stream({"subscribe": topic, **given, **EARLIEST})
    query = lab.start(frame)
    outcome = {"first batch": query.process_batches()}
    # Partition by partition, what waits would reach 15 with the shares of the limit still unlike.
    query.stop()
    for partition, numbers in enumerate([range(121, 129), range(21, 31), [2]]):
        lab.send(topic, numbers, partition)
    query = lab.start(frame, checkpoint=query.checkpoint)
    outcome["20 more"] = query.process_batches()
    time.sleep(DELAY)
    outcome["after the delay"] = query.process_batches()
    query.stop()
    return {**outcome, **_once(lab, topic, frame, range(1000, 1011))}


@case(MICRO_BATCH, "input row metrics", peer={"values": [1, 2, 3], "input rows": 3})
def input_rows(lab: Lab) -> Outcome:
    topic = lab.topic(5)
    lab.send(topic, [-1])
    query = lab.start({"subscribe": topic})
    query.process()
    lab.send(topic, [1, 2, 3])
    found = query.process()
    return {"values": found, "input rows": query.input_rows()}


@case(
    MICRO_BATCH,
    "KafkaSource with watermark",
    peer={"windows": [(1_700_000_000, 1)]},
)
def watermark(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, [1], timestamp_ms=FIRST + 1)
    counts = (
        lab.read_stream({"subscribe": topic, **EARLIEST})
        .withWatermark("timestamp", "10 seconds")
        .groupBy(expr("window(timestamp, '5 seconds') AS window"))
        .count()
        .selectExpr("unix_seconds(window.start)", "count")
    )
    query = lab.start(counts, take=cells, mode="complete")
    query.process()
    return {"windows": query.batches[-1]}


@case(
    MICRO_BATCH,
    "SPARK-22956: currentPartitionOffsets should be set when no new data comes in",
    peer={
        "batches": [
            [*range(5), *range(100, 105)],
            [*range(5, 10), *range(105, 110)],
            [*range(110, 115)],
            [*range(115, 120)],
        ],
        "after a restart": [[*range(120, 125)]],
    },
)
def one_source_idle(lab: Lab) -> Outcome:
    topics = lab.topic(), lab.topic()
    lab.send(topics[0], range(10))
    lab.send(topics[1], range(100, 120))
    frames = [
        lab.read_stream({"subscribe": topic, "maxOffsetsPerTrigger": 5, **EARLIEST}) for topic in topics
    ]
    frame = frames[0].union(frames[1])
    query = lab.start(frame, availableNow=True)
    query.wait()
    lab.send(topics[1], range(120, 125))
    again = lab.available_now(frame, checkpoint=query.checkpoint)
    return {"batches": query.batches, "after a restart": again}


def _group_id(name: str, option: str, note: str, **ours: Outcome) -> None:
    @case(
        MICRO_BATCH,
        f"{name} (deprecated path only)",
        peer={"values": [1, 2, 3], "groups on the broker": 0},
        note=note,
        **ours,
    )
    def group_id(lab: Lab) -> Outcome:
        topic = lab.topic(3)
        lab.send(topic, [1, 2, 3])
        group = lab.new_name()
        found = lab.available_now({"subscribe": topic, option: group, **EARLIEST})
        return {
            "values": sorted(itertools.chain(*found)),
            "groups on the broker": sum(group in known for known in lab.groups()),
        }


_group_id(
    "allow group.id prefix",
    "groupIdPrefix",
    "Accepted without effect, as in Spark since it looks up offsets with the admin client.",
)
_group_id(
    "allow group.id override",
    "kafka.group.id",
    "kafkalog commits to the group what a micro-batch has finished; commitOffsets=false leaves it alone.",
    ours={"groups on the broker": 1},
)


@case(
    MICRO_BATCH,
    "ensure stream-stream self-join generates only one offset in log and correct metrics",
    peer={
        "rows": [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)],
        "sources": 1,
        "input rows": 8,
        "input rows with exchange reuse": 4,
    },
)
def self_join(lab: Lab) -> Outcome:
    outcome: dict[str, object] = {}
    reuse_conf = "spark.sql.exchange.reuse"
    before = lab.spark.conf.get(reuse_conf) or "true"
    for reuse, name in (("false", "input rows"), ("true", "input rows with exchange reuse")):
        lab.spark.conf.set(reuse_conf, reuse)
        try:
            topic = lab.topic(2)
            numbers = lab.read_stream({"subscribe": topic}).selectExpr(
                "CAST(CAST(value AS STRING) AS INT) AS value",
                "CAST(CAST(value AS STRING) AS INT) % 5 AS key",
            )
            query = lab.start(numbers.join(numbers, "key"), take=cells)
            query.process()
            lab.send(topic, [1, 2])
            rows = query.process()
            lab.send(topic, [6, 3])
            outcome["rows"] = sorted([*rows, *query.process()])
            outcome["sources"] = len(query.query.recentProgress[-1].sources)
            outcome[name] = query.input_rows()
            query.stop()
        finally:
            lab.spark.conf.set(reuse_conf, before)
    return outcome


@case(
    MICRO_BATCH,
    "read Kafka transactional messages: read_committed",
    peer={
        "0-4 open": [[]],
        "0-4 committed": [[0, 1, 2], [3, 4]],
        "6-10 aborted": [[], []],
        "12-16 committed": [[12, 13, 14], [15, 16]],
        "18, 20, 22-23 committed": [[18, 20], [22, 23], []],
    },
)
def read_committed(lab: Lab) -> Outcome:
    return _transactions(lab, "read_committed")


@case(
    MICRO_BATCH,
    "read Kafka transactional messages: read_uncommitted",
    peer={
        "0-4 open": [[0, 1, 2], [3, 4]],
        "0-4 committed": [[]],
        "6-10 aborted": [[6, 7, 8], [9, 10]],
        "12-16 committed": [[12, 13, 14], [15, 16]],
        "18, 20, 22-23 committed": [[18, 20], [22, 23], []],
    },
    note="The first marker makes a micro-batch of its own here, because everything before it has been read.",
)
def read_uncommitted(lab: Lab) -> Outcome:
    return _transactions(lab, "read_uncommitted")


def _transactions(lab: Lab, isolation: str) -> Outcome:
    topic = lab.topic()
    frame = lab.read_stream(
        {"subscribe": topic, "kafka.isolation.level": isolation, "maxOffsetsPerTrigger": 3, **EARLIEST}
    )
    checkpoint = lab.folder()

    def new_batches() -> list[list[object]]:
        return lab.available_now(frame, checkpoint=checkpoint)

    outcome: dict[str, object] = {}
    with lab.transactions() as transaction:
        transaction.begin(topic, range(5))
        outcome["0-4 open"] = new_batches()
        transaction.commit(topic, 6)
        outcome["0-4 committed"] = new_batches()
        transaction.begin(topic, range(6, 11))
        transaction.abort(topic, 12)
        outcome["6-10 aborted"] = new_batches()
        transaction.begin(topic, range(12, 17))
        transaction.commit(topic, 18)
        outcome["12-16 committed"] = new_batches()
        transaction.begin(topic, [18])
        transaction.commit(topic, 20)
        transaction.begin(topic, [20])
        transaction.commit(topic, 22)
        transaction.begin(topic, [22, 23])
        transaction.commit(topic, 25)
        outcome["18, 20, 22-23 committed"] = new_batches()
    return outcome


@case(
    MICRO_BATCH,
    "SPARK-25495: FetchedData.reset should reset all fields",
    peer={"batches": [[0, 1, 2, 3], [4, 5, 6, 7]]},
)
def prefetched_is_dropped(lab: Lab) -> Outcome:
    topic = lab.topic()
    with lab.transactions() as transaction:
        transaction.begin(topic, range(4))
        transaction.commit(topic, 5)
        taken: list[object] = []

        def take(batch: DataFrame) -> list[object]:
            if not taken:
                transaction.begin(topic, range(4, 8))
                transaction.commit(topic, 10)
            taken.append(batch)
            return values(batch)

        query = lab.start(
            {"subscribe": topic, "kafka.isolation.level": "read_committed", **EARLIEST}, take=take
        )
        return {"batches": query.process_batches()}


@case(
    MICRO_BATCH,
    "SPARK-27494: read kafka record containing null key/values.",
    peer={"rows": sorted([(None, None), ("1", None), ("2", None), (None, "3"), (None, "4")], key=repr)},
    note="Spark writes the records, without a transaction.",
)
def null_keys_and_values(lab: Lab) -> Outcome:
    topic = lab.topic()
    records = [(None, None), ("1", None), ("2", None), (None, "3"), (None, "4")]
    frame = lab.spark.createDataFrame(records, "key string, value string")
    lab.write(frame, {"topic": topic}, format=PEER)
    source = lab.read_stream({"subscribe": topic, "kafka.isolation.level": "read_committed", **EARLIEST})
    (rows,) = lab.available_now(source.select("key", "value"), take=cells)
    return {"rows": rows}


@case(
    MICRO_BATCH,
    "SPARK-30656: minPartitions",
    peer={"tasks": 7, "values": [*range(21)]},
)
def min_partitions(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition, numbers in enumerate([range(10), range(10, 20), [20]]):
        lab.send(topic, numbers, partition)
    (batch,) = lab.available_now(
        {"subscribe": topic, "minPartitions": 6, **EARLIEST},
        take=lambda batch: [batch.rdd.getNumPartitions(), values(batch)],
    )
    return {"tasks": batch[0], "values": batch[1]}


@case(
    MICRO_BATCH,
    "SPARK-56243: malformed record timestamp throws detailed error",
    peer={"error": "KAFKA_MALFORMED_RECORD_TIMESTAMP"},
)
def malformed_timestamp(lab: Lab) -> Outcome:
    topic = lab.topic(configs={"message.timestamp.after.max.ms": 2**63 - 1})
    nanoseconds = 1712345678123456789
    lab.send(topic, ["value"], timestamp_ms=nanoseconds)
    name = "KAFKA_MALFORMED_RECORD_TIMESTAMP"
    detailed = f"(?=.*({name}|overflows when converting))(?=.*{topic})(?=.*{nanoseconds})"
    query = lab.start({"subscribe": topic, **EARLIEST}, take=lambda batch: batch.collect())
    return {"error": error_of(query.process, **{name: detailed})}


@case(
    MICRO_BATCH_V2,
    "default config of includeHeader doesn't break existing query from Spark 2.4",
    peer={
        "columns": ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        "taken over": [*range(31, 36)],
    },
    note="The checkpoint, with its state, is one that Spark's connector has just written.",
)
def state_without_headers(lab: Lab) -> Outcome:
    topic = lab.topic(5)
    for partition in range(5):
        lab.send(topic, [partition * 10 + number for number in range(3)], partition)
    options = {"subscribe": topic, **EARLIEST}
    before = lab.start(lab.read_stream(options, format=PEER).dropDuplicates())
    before.process()
    before.stop()
    lab.send(topic, range(31, 36), headers=[("a", b"b"), ("c", b"d")])
    frame = lab.read_stream(options)
    query = lab.start(frame.dropDuplicates(), checkpoint=before.checkpoint)
    return {"columns": frame.columns, "taken over": query.process()}


@case(
    PROVIDER,
    "micro-batch mode - options should be handled as case-insensitive",
    peer={"lower case": [[0, 1], [2, 3]], "upper case": [[0, 1], [2, 3]]},
    note="Shown by micro-batches, not by fields.",
)
def case_of_options(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(4))
    given = {
        "subscribe": topic,
        "startingOffsets": json.dumps({topic: {"0": 0}}),
        "maxOffsetsPerTrigger": 2,
        "minOffsetsPerTrigger": 2,
        "maxTriggerDelay": "1111ms",
        "fetchOffset.numRetries": 1,
    }
    return {
        f"{word} case": lab.available_now({change(name): value for name, value in given.items()})
        for word, change in (("lower", str.lower), ("upper", str.upper))
    }
