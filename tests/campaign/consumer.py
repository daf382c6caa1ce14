"""A consumer of a shared group, as applications have it: a step is read, written to a file, and committed.

Its arguments are the file, topics, and JSON with settings of librdkafka. The file gets a line for each
record, "topic partition offset value", one behind each step: how its commit went, and one for each start.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

AT_ONCE = 100
"""Records of a step, at most."""
COMMITTED, REFUSED, BEGAN = "committed", "refused", "began"


class Step:
    """What was read since the last commit."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.records: list[Any] = []

    def end(self, consumer: Consumer, partitions: object = None) -> None:
        """Write and commit it: also before partitions go."""
        records, self.records = self.records, []
        if not records:
            return
        ends = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
        lines = [
            f"{record.topic()} {record.partition()} {record.offset()} {record.value().decode()}\n"
            for record in records
        ]
        self._file.write("".join(lines).encode())
        offsets = [TopicPartition(topic, number, end) for (topic, number), end in ends.items()]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
            errors = [str(answer.error) for answer in answers if answer.error is not None]
        except KafkaException as e:
            errors = [str(e)]
        self._file.write(f"{REFUSED} {errors}\n".encode() if errors else f"{COMMITTED}\n".encode())

    def drop(self, consumer: Consumer, partitions: object) -> None:
        """Others have the partitions already."""
        self.records = []


def main(file: str, topics: str, settings: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    usual = {
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        # It waits for open transactions when it looks up where it starts.
        "isolation.level": "read_committed",
        "log_level": 4,
    }
    consumer = Consumer({**usual, **json.loads(settings)})
    with Path(file).open("ab", buffering=0) as out:
        out.write(f"{BEGAN}\n".encode())
        step = Step(out)
        consumer.subscribe(topics.split(","), on_revoke=step.end, on_lost=step.drop)
        while not stopping:
            record = consumer.poll(0.2)
            if record is not None and record.error() is None:
                step.records.append(record)
            if record is None or len(step.records) >= AT_ONCE:
                step.end(consumer)
        step.end(consumer)
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
