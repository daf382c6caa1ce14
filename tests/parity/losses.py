"""Topics, partitions and records that go while a query needs them."""

from __future__ import annotations

import json
import random
from pathlib import Path

from pyspark.sql import DataFrame

from tests.parity.case import Outcome, case
from tests.parity.lab import Lab, Options, cells, error_of, offsets, values, with_both_flags
from tests.parity.suites import DATA_LOSS, MICRO_BATCH, STRESS

EARLIEST = {"startingOffsets": "earliest"}


def _recreated_during_available_now(lab: Lab, partitions: int, records: int, flag: str) -> str:
    topic = lab.topic(5)
    lab.send(topic, range(15), 0)

    def recreate(batch: DataFrame) -> list[object]:
        lab.recreate(topic, partitions)
        lab.send(topic, range(records), 0)
        return []

    options = {"subscribe": topic, "maxOffsetsPerTrigger": 5, "failOnDataLoss": flag, **EARLIEST}
    query = lab.start(options, take=recreate, availableNow=True)
    return error_of(
        query.wait,
        **{
            "recreated": "TOPIC_RECREATED",
            "partitions lost": "LOST_TOPIC_PARTITIONS|have been lost during running query with Trigger.Avail",
            "end moved back": "END_OFFSET_HAS_GREATER|available offset which is less than end offset",
        },
    )


_RECREATED = "Ours first notices, by its id, that the topic is another one."


@case(
    MICRO_BATCH,
    "Query with Trigger.AvailableNow should throw error when topic partitions got unavailable during "
    "subsequent batches",
    peer={"true": "partitions lost", "false": "partitions lost"},
    ours={"true": "recreated", "false": "recreated"},
    note=_RECREATED,
)
def partitions_lost(lab: Lab) -> Outcome:
    return with_both_flags(lambda flag: _recreated_during_available_now(lab, 3, 15, flag))


@case(
    MICRO_BATCH,
    "Query with Trigger.AvailableNow should throw error when offset(s) in planned topic partitions got "
    "unavailable during subsequent batches",
    peer={"true": "end moved back", "false": "end moved back"},
    ours={"true": "recreated", "false": "recreated"},
    note=_RECREATED,
)
def end_moved_back(lab: Lab) -> Outcome:
    return with_both_flags(lambda flag: _recreated_during_available_now(lab, 5, 10, flag))


def _deletions(prefix: str) -> Options:
    """It takes five seconds to prove that a topic is gone, by attempts that take three at most."""
    return {"subscribePattern": f"{prefix}-.*", "failOnDataLoss": "false", "fetchOffset.numRetries": 10}


@case(
    MICRO_BATCH,
    "subscribing topic by pattern with topic deletions",
    peer={"first topic": [1, 2, 3], "second topic": [4, 5, 6]},
)
def topic_deletions(lab: Lab) -> Outcome:
    prefix = lab.new_name()
    topic, topic2 = f"{prefix}-seems", f"{prefix}-bad"
    lab.topic(5, name=topic)
    lab.send(topic, [-1])
    query = lab.start(_deletions(prefix))
    query.process()
    lab.send(topic, [1, 2, 3])
    first = query.process()
    lab.delete(topic)
    lab.topic(5, name=topic2)
    lab.send(topic2, [4, 5, 6])
    return {"first topic": first, "second topic": query.process()}


@case(
    MICRO_BATCH,
    "SPARK-41375: empty partitions should not record to latest offset",
    peer={"values": [1, 2, 3], "empty offsets in the log": False},
)
def no_empty_offsets(lab: Lab) -> Outcome:
    prefix = lab.new_name()
    topic = lab.topic(5, name=f"{prefix}-good")
    lab.send(topic, [-1])
    query = lab.start(_deletions(prefix))
    query.process()
    lab.send(topic, [1, 2, 3])
    found = query.process()
    lab.delete(topic)
    query.process()
    last = max(int(path.name) for path in (query.checkpoint / "offsets").iterdir() if path.name.isdigit())
    return {"values": found, "empty offsets in the log": {} in query.logged_offsets(last)}


@case(
    MICRO_BATCH,
    "subscribe topic by pattern with topic recreation between batches",
    peer={"values": [1, 2, 3, 4], "after the recreation": "PARTITION_OFFSET_CHANGED"},
)
def recreated_between_batches(lab: Lab) -> Outcome:
    prefix = lab.new_name()
    topic, topic2 = (lab.topic(name=f"{prefix}-{suffix}") for suffix in ("good", "bad"))
    lab.send(topic, [1, 3])
    lab.send(topic2, [2, 4])
    frame = lab.read_stream({"subscribePattern": f"{prefix}-.*", **EARLIEST})
    query = lab.start(frame)
    found = query.process()
    query.stop()
    lab.recreate(topic2)
    lab.send(topic2, [6])
    kinds = {"PARTITION_OFFSET_CHANGED": "PARTITION_OFFSET_CHANGED.* from 2 to 1|was changed from 2 to 1"}
    again = lab.start(frame, checkpoint=query.checkpoint)
    return {"values": found, "after the recreation": error_of(again.process, **kinds)}


_NO_INITIAL_OFFSETS = (
    "Spark gives Python sources no place in the checkpoint. With `checkpointLocation` as an option of the "
    "reader, too, ours stores its start offsets there, in a file of its own. It does not read Spark's own "
    "`sources/0/0`."
)


@case(
    MICRO_BATCH,
    "ensure that initial offset are written with an extra byte in the beginning (SPARK-19517)",
    peer={"sources/0/0": [0, "v1", {"0": 0}]},
    ours={"sources/0/0": None},
    note=_NO_INITIAL_OFFSETS,
)
def initial_offset_file(lab: Lab) -> Outcome:
    topic = lab.topic()
    query = lab.start({"subscribe": topic, **EARLIEST})
    query.process()
    path = query.checkpoint / "sources" / "0" / "0"
    if not path.exists():
        return {"sources/0/0": None}
    content = path.read_bytes()
    version, offsets_json = content[1:].decode().split("\n")
    return {"sources/0/0": [content[0], version, json.loads(offsets_json)[topic]]}


def _put_initial_offsets(checkpoint: Path, content: str) -> Path:
    path = checkpoint / "sources" / "0" / "0"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" + content.encode())
    return checkpoint


@case(
    MICRO_BATCH,
    "deserialization of initial offset written by Spark 2.1.0 (SPARK-19517)",
    peer={"values": [0, 1, 2, 10, 20, 200, 1000]},
    ours={"values": [0, 0, 0, 1, 2, 10, 20, 100, 200, 1000]},
    note=_NO_INITIAL_OFFSETS,
)
def initial_offset_of_2_1(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    for partition, numbers in enumerate([[0, 1, 2], [0, 10, 20], [0, 100, 200]]):
        lab.send(topic, numbers, partition)
    checkpoint = _put_initial_offsets(lab.folder(), offsets(topic, [0, 1, 2]))
    query = lab.start({"subscribe": topic, **EARLIEST}, checkpoint=checkpoint)
    lab.send(topic, [1000])
    return {"values": query.process()}


@case(
    MICRO_BATCH,
    "deserialization of initial offset written by future version",
    peer={"error": "newer version"},
    ours={"error": "none"},
    note=_NO_INITIAL_OFFSETS,
)
def initial_offset_of_the_future(lab: Lab) -> Outcome:
    topic = lab.topic(3)
    checkpoint = _put_initial_offsets(lab.folder(), f"v99999\n{offsets(topic, [0, 0, 0])}")
    kinds = {"newer version": "maximum supported log version is v1, but encountered v99999"}
    return {"error": error_of(lab.start({"subscribe": topic}, checkpoint=checkpoint).process, **kinds)}


@case(
    MICRO_BATCH,
    "delete a topic when a Spark job is running",
    peer={"values": [], "exception": None},
    note="Deleted and recreated in `foreachBatch`, after the micro-batch is planned and before it is read.",
)
def deleted_while_running(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(1, 11))

    def recreate(batch: DataFrame) -> list[object]:
        if not recreated:
            lab.recreate(topic)
            recreated.append(topic)
        return values(batch)

    recreated: list[str] = []
    given = {"subscribe": topic, "failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": 1000, **EARLIEST}
    query = lab.start(given, take=recreate)
    return {"values": query.process(), "exception": query.query.exception()}


@case(
    STRESS,
    "stress test with multiple topics and partitions",
    peer={"lost": [], "read twice": [], "exception": None},
    note="8 steps with a fixed seed; topics and partitions come and go while the query runs.",
)
def stress(lab: Lab) -> Outcome:
    chance = random.Random(7)
    prefix = lab.new_name()
    topics = {f"{prefix}-{number}": chance.randint(1, 4) for number in range(3)}
    for topic, partitions in topics.items():
        lab.topic(partitions, name=topic)
        lab.send(topic, [-1] * 3)
    query = lab.start(_deletions(prefix))
    query.process()
    written, read = 0, []
    for step in range(8):
        chosen = chance.choice(list(topics))
        match step % 4:
            case 0:
                new = f"{prefix}-new-{step}"
                topics[new] = chance.randint(1, 4)
                lab.topic(topics[new], name=new)
            case 1 if len(topics) > 1:
                lab.delete(chosen)
                del topics[chosen]
            case 2:
                topics[chosen] += chance.randint(1, 3)
                lab.add_partitions(chosen, topics[chosen])
        numbers = range(written, written + chance.randint(1, 10))
        written = numbers.stop
        lab.send(chance.choice(list(topics)), numbers)
        read += query.process()
    return {
        "lost": sorted(set(range(written)) - set(read)),
        "read twice": sorted(number for number in set(read) if read.count(number) > 1),
        "exception": query.query.exception(),
    }


def _records_gone(lab: Lab) -> Options:
    topic = lab.topic()
    lab.send(topic, range(50))
    lab.delete_records(topic, 20)
    return {"subscribe": topic, "startingOffsets": offsets(topic, [0]), "failOnDataLoss": "false"}


@case(
    DATA_LOSS,
    "failOnDataLoss=false should not return duplicated records: microbatch v2",
    peer={"values": [*range(20, 50)]},
    note="Records are deleted by request, not by retention.",
)
def stream_without_failing(lab: Lab) -> Outcome:
    return {"values": lab.start(_records_gone(lab)).process()}


@case(
    DATA_LOSS,
    "failOnDataLoss=false should not return duplicated records: batch v1",
    peer={"values": [*range(20, 50)]},
    note="Records are deleted by request, not by retention.",
)
def batch_without_failing(lab: Lab) -> Outcome:
    return {"values": values(lab.read(_records_gone(lab)))}


@case(
    DATA_LOSS,
    "KafkaSourceStressForDontFailOnDataLossSuite: stress test for failOnDataLoss=false",
    peer={"exception": None, "read twice": []},
    note="25 steps with a fixed seed: topics are created, deleted, recreated and written, and records are "
    "deleted. "
    "Spark's test gives tasks three tries; with one, no topic may be deleted while the peer reads it.",
)
def stress_without_failing(lab: Lab) -> Outcome:
    chance = random.Random(11)
    prefix = lab.new_name()
    query = lab.start(
        {
            "subscribePattern": f"{prefix}-.*",
            "failOnDataLoss": "false",
            "fetchOffset.numRetries": 60,
            "fetchOffset.retryIntervalMs": 100,
            **EARLIEST,
        },
        take=lambda batch: cells(batch.selectExpr("CAST(value AS STRING)")),
    )
    alive: list[str] = []
    deleted: list[str] = []
    written = 0
    for step in range(25):
        match chance.randrange(6) if alive else 0:
            case 0:
                alive.append(lab.topic(name=f"{prefix}-{step}"))
            case 1:
                query.process()
                deleted.append(alive.pop(chance.randrange(len(alive))))
                lab.delete(deleted[-1])
            case 2 if deleted:
                alive.append(lab.topic(name=deleted.pop()))
            case 3:
                lab.delete_records(chance.choice(alive), -1)
            case _:
                for topic in alive:
                    lab.send(topic, range(written, written + 5))
                    written += 5
        if not query.query.isActive:
            break
    lab.topic(name=f"{prefix}-last")
    lab.send(f"{prefix}-last", ["last"])
    error = error_of(query.process)
    read = [value for batch in query.batches for (value,) in batch]
    return {
        "exception": None if error == "none" else error,
        "read twice": sorted({value for value in read if read.count(value) > 1}),
    }
