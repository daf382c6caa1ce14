"""What Spark's suites do not ask for: rules that they leave out, and where ours goes further."""

from __future__ import annotations

import itertools

from pyspark.sql import DataFrame

from pyspark_kafkalog import LagListener
from tests.parity.case import Outcome, case
from tests.parity.lab import (
    FIRST,
    PEER,
    Lab,
    Options,
    attempt,
    cells,
    error_of,
    offsets,
    values,
    wait_until,
    with_both_flags,
)
from tests.parity.suites import BEYOND, MICRO_BATCH_V2

EARLIEST = {"startingOffsets": "earliest"}


def _lag(lab: Lab, given: Options) -> Outcome:
    """Minimum, maximum and average of the offsets behind latest, after each micro-batch."""
    topic = lab.topic(2)
    lab.send(topic, range(10))
    listener = LagListener()
    lab.spark.streams.addListener(listener)
    try:
        query = lab.start({"subscribe": topic, **given, **EARLIEST}, availableNow=True)
        query.wait()
        progress = [progress for progress in query.query.recentProgress if progress.numInputRows]
        wait_until(lambda: len(listener.history(query.query.id)) >= len(progress), "the listener's events")
    finally:
        lab.spark.streams.removeListener(listener)
    metrics = [event.sources[0].metrics for event in progress]
    heard = [event.sources[0] for event in listener.history(query.query.id) if event.rows]
    return {
        "Spark's metrics": [
            tuple(float(found[f"{word}OffsetsBehindLatest"]) for word in ("min", "max", "avg"))
            for found in metrics
            if found
        ],
        "LagListener": [
            (lag.min_offsets_behind, lag.max_offsets_behind, lag.avg_offsets_behind)
            for lag in heard
            if lag is not None
        ],
    }


def _register_lag(name: str, given: Options, lags: list[tuple[float, ...]]) -> None:
    @case(
        MICRO_BATCH_V2,
        f"test custom metrics - {name}",
        peer={"Spark's metrics": lags, "LagListener": lags},
        ours={"Spark's metrics": []},
        note="Spark takes no metrics from Python sources. `LagListener` reports the same, for both formats.",
    )
    def lag(lab: Lab) -> Outcome:
        return _lag(lab, given)


_register_lag("with rate limit", {"maxOffsetsPerTrigger": 1}, [(lag, lag, lag) for lag in (4, 3, 2, 1, 0)])
_register_lag("no rate limit", {}, [(0, 0, 0)])


@case(
    BEYOND,
    "a query that starts at latest dies in its first micro-batch",
    peer={"reader without the checkpoint": [1, 2, 3], "reader with the checkpoint": [1, 2, 3]},
    ours={"reader without the checkpoint": "PARTITION_OFFSET_CHANGED"},
    note="Spark then asks a Python source for its start again, and gives it no place in the checkpoint. A "
    "reader with `checkpointLocation` as an option, too, stores its start there.",
)
def start_kept(lab: Lab) -> Outcome:
    def fail(batch: DataFrame) -> list[object]:
        raise RuntimeError("error in the first micro-batch")

    def restarted(with_checkpoint: bool) -> object:
        topic = lab.topic()
        checkpoint = lab.folder()
        frame = lab.read_stream(
            {"subscribe": topic, **({"checkpointLocation": checkpoint} if with_checkpoint else {})}
        )
        error_of(lab.start(frame, checkpoint=checkpoint, take=fail).process)
        lab.send(topic, [1, 2, 3])
        again = lab.start(frame, checkpoint=checkpoint)
        return attempt(again.process, PARTITION_OFFSET_CHANGED="PARTITION_OFFSET_CHANGED")

    return {
        "reader without the checkpoint": restarted(with_checkpoint=False),
        "reader with the checkpoint": restarted(with_checkpoint=True),
    }


@case(
    BEYOND,
    "failOnDataLoss=true: records are gone",
    peer={"stream": "data loss", "batch": "data loss", "values": []},
    note="The peer names COULD_NOT_READ_OFFSET_RANGE.",
)
def records_gone(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(50))
    lab.delete_records(topic, 20)
    given = {"subscribe": topic, "startingOffsets": offsets(topic, [0])}
    kinds = {"data loss": "COULD_NOT_READ_OFFSET_RANGE|could not read records in offset|failOnDataLoss"}
    query = lab.start(given)
    stream = error_of(query.process, **kinds)
    return {
        "stream": stream,
        "batch": error_of(lambda: values(lab.read(given)), **kinds),
        "values": query.batches,
    }


@case(
    BEYOND,
    "a topic is deleted between micro-batches",
    peer={"true": "PARTITIONS_DELETED", "false": [3, 4]},
)
def topic_deleted(lab: Lab) -> Outcome:
    def run(flag: str) -> object:
        prefix = lab.new_name()
        topics = [lab.topic(name=f"{prefix}-{number}") for number in range(2)]
        for topic in topics:
            lab.send(topic, [1, 2])
        # It takes five seconds to prove that a topic is gone, by attempts that take two to three.
        options = {"subscribePattern": f"{prefix}-.*", "fetchOffset.numRetries": 10}
        query = lab.start({**options, "failOnDataLoss": flag, **EARLIEST})
        query.process()
        lab.delete(topics[1])
        lab.send(topics[0], [3, 4])
        return attempt(query.process, PARTITIONS_DELETED="PARTITIONS_DELETED|Partitions .* have been deleted")

    return with_both_flags(run)


@case(
    BEYOND,
    "a partition that comes has lost its first records",
    peer={"true": "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", "false": [12, 13]},
)
def added_partition_starts_late(lab: Lab) -> Outcome:
    name = "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"

    def run(flag: str) -> object:
        topic = lab.topic()
        lab.send(topic, [1])
        frame = lab.read_stream({"subscribe": topic, "failOnDataLoss": flag, **EARLIEST})
        query = lab.start(frame)
        query.process()
        query.stop()
        lab.add_partitions(topic, 2)
        lab.send(topic, [10, 11, 12, 13], 1)
        lab.delete_records(topic, 2, partition=1)
        again = lab.start(frame, checkpoint=query.checkpoint)
        return attempt(again.process, **{name: f"{name}|starts from 2 instead of 0"})

    return with_both_flags(run)


@case(
    BEYOND,
    "a topic is recreated, and grows longer than what was read",
    peer={"true": [7, 8], "false": [7, 8]},
    ours={"true": "TOPIC_RECREATED", "false": [5, 6, 7, 8]},
    note="Topics have ids since Kafka 2.8. The peer ignores them, and reads the new topic from the "
    "offset where it stood in the old one.",
)
def recreated_longer(lab: Lab) -> Outcome:
    def run(flag: str) -> object:
        topic = lab.topic()
        lab.send(topic, [1, 2])

        def recreate(batch: DataFrame) -> list[object]:
            found = values(batch)
            if found == [1, 2]:
                lab.recreate(topic)
                lab.send(topic, [5, 6, 7, 8])
            return found

        query = lab.start({"subscribe": topic, "failOnDataLoss": flag, **EARLIEST}, take=recreate)
        return attempt(lambda: query.process()[2:], TOPIC_RECREATED="TOPIC_RECREATED")

    return with_both_flags(run)


@case(
    BEYOND,
    "maxRecordsPerPartition in a batch with open ends",
    peer={"tasks": 1, "rows": 10},
    ours={"tasks": 4},
    note="The peer subtracts the words for earliest and latest, and so finds nothing to split.",
)
def max_records(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(10))
    frame = lab.read({"subscribe": topic, "maxRecordsPerPartition": 3})
    return {"tasks": frame.rdd.getNumPartitions(), "rows": frame.count()}


@case(
    BEYOND,
    "AvailableNow with minOffsetsPerTrigger and maxOffsetsPerTrigger",
    peer={"batches": [[*range(10)]]},
    ours={"batches": [[*range(10)], [10, 11, 12]]},
    note="The peer ends the run with records unread, as fewer than the minimum are left.",
)
def available_now_leaves_nothing(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(13))
    given = {"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 10}
    return {"batches": lab.available_now({"subscribe": topic, **given, **EARLIEST})}


@case(
    BEYOND,
    "the column timestamp is written",
    peer={"kept": False},
    ours={"kept": True},
    note="With it and `headers` a topic can be copied faithfully.",
)
def timestamps_written(lab: Lab) -> Outcome:
    topic = lab.topic()
    frame = lab.spark.createDataFrame([("1", FIRST)], "value string, ms long")
    lab.write(frame.selectExpr("value", "timestamp_millis(ms) AS timestamp"), {"topic": topic})
    (row,) = lab.read({"subscribe": topic}, format=PEER).selectExpr("unix_millis(timestamp)").collect()
    return {"kept": row[0] == FIRST}


@case(
    BEYOND,
    "endingTimestamp in a stream",
    peer={"error": "none"},
    ours={"error": "not in streams"},
    note="The peer refuses the two other ending options, but overlooks this one.",
)
def ending_timestamp_in_stream(lab: Lab) -> Outcome:
    topic = lab.topic()
    query = {"subscribe": topic, "endingTimestamp": FIRST}
    kinds = {"not in streams": "endingTimestamp"}
    return {"error": error_of(lambda: lab.start(query).process(), **kinds)}


@case(
    BEYOND,
    "impossible numbers",
    peer={
        "maxOffsetsPerTrigger=0": "none",
        "maxOffsetsPerTrigger=-1": "none",
        "startingOffsets with -3": "fails",
    },
    ours={
        "maxOffsetsPerTrigger=0": "refused",
        "maxOffsetsPerTrigger=-1": "refused",
        "startingOffsets with -3": "refused",
    },
    note="With the peer 0 never reads anything, -1 goes backwards, and -3 fails in a task.",
)
def impossible_numbers(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, [1])

    def limited_to(number: int) -> str:
        given = {"subscribe": topic, "maxOffsetsPerTrigger": number}
        return error_of(lambda: lab.start(given).process(), refused="maxOffsetsPerTrigger")

    below = {"subscribe": topic, "startingOffsets": offsets(topic, [-3])}
    return {
        **{f"maxOffsetsPerTrigger={number}": limited_to(number) for number in (0, -1)},
        "startingOffsets with -3": error_of(
            lambda: values(lab.read(below)), refused="startingOffsets", fails=".*"
        ),
    }


@case(
    BEYOND,
    "topics that do not exist",
    peer={"subscribe": "unknown topic", "subscribePattern": [], "stream": "unknown topic"},
)
def no_such_topics(lab: Lab) -> Outcome:
    name = lab.new_name()
    kinds = {"unknown topic": "Unknown.?Topic.?Or.?Partition|does not host this topic|no such topic"}
    return {
        "subscribe": error_of(lambda: values(lab.read({"subscribe": name})), **kinds),
        "subscribePattern": values(lab.read({"subscribePattern": name})),
        "stream": error_of(lambda: lab.start({"subscribe": name}).process(), **kinds),
    }


@case(
    BEYOND,
    "internal topics",
    peer={"by pattern": [], "by name": False},
    ours={"by name": True},
    note="Ours reads an internal topic that is named, as any consumer does.",
)
def internal_topics(lab: Lab) -> Outcome:
    with lab.transactions() as transaction:
        topic = lab.topic()
        transaction.begin(topic, [1])
        transaction.commit(topic, 2)
    by_pattern = lab.read({"subscribePattern": "^__transaction_state$"})
    by_name = lab.read({"subscribe": "__transaction_state"})
    return {"by pattern": values(by_pattern), "by name": by_name.count() > 0}


@case(
    BEYOND,
    "one source read twice in a query",
    peer={"rows": sorted([*range(4), *range(4)]), "sources": 1},
)
def self_union(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(4))
    frame = lab.read_stream({"subscribe": topic, **EARLIEST})
    query = lab.start(frame.union(frame), availableNow=True)
    query.wait()
    return {
        "rows": sorted(itertools.chain(*query.batches)),
        "sources": len(query.query.recentProgress[0].sources),
    }


@case(
    BEYOND,
    "complete mode",
    peer={"written": [("a", "1"), ("a", "2"), ("b", "1")]},
    note="Each result table is appended to the topic.",
)
def complete_mode(lab: Lab) -> Outcome:
    source, topic = lab.topic(), lab.topic()
    counts = (
        lab.read_stream({"subscribe": source, **EARLIEST})
        .groupBy("key")
        .count()
        .selectExpr("key", "CAST(count AS STRING) AS value")
    )
    settings = {
        "kafka.bootstrap.servers": lab.broker.bootstrap,
        "topic": topic,
        "checkpointLocation": str(lab.folder()),
    }
    lab.send(source, [0], key=b"a")
    query = counts.writeStream.format(lab.format).outputMode("complete").options(**settings).start()
    try:
        query.processAllAvailable()
        lab.send(source, [0], key=b"a")
        lab.send(source, [0], key=b"b")
        query.processAllAvailable()
    finally:
        query.stop()
    rows = lab.read({"subscribe": topic}, format=PEER).select("key", "value")
    return {"written": sorted(set(cells(rows)))}
