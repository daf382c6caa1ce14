"""A broker with two disks that moves all partitions between them, beside readers of both disks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer

from pyspark_kafkalog import connect
from tests.kafka import Broker
from tests.kafka_disks import add_disk, move

_TOPIC = "moved"
_PARTITIONS = 3
_SETTLED = 10.0
"""Seconds after which a look must see what was acknowledged: the broker notes high watermarks each second."""


class MovedDisks:
    """The broker, a thread that writes to it, and one that moves its partitions."""

    def __init__(self, folder: Path) -> None:
        self._disks = folder / "data", folder / "more"
        self._broker = Broker(
            folder,
            {
                "log.dirs": ",".join(map(str, self._disks)),
                "file.delete.delay.ms": 100,
                "replica.high.watermark.checkpoint.interval.ms": 1000,
            },
            heap="256m",
        )
        add_disk(*self._disks)
        self._acknowledged: list[float] = []
        """When each record of partition 0 was, by offset; the others get the same numbers."""
        self._over = threading.Event()
        self._failed: list[BaseException] = []

    def swapped_for(self, seconds: float) -> int:
        """Move partitions for some seconds, read both disks meanwhile, and return how many looks there were.

        :raises AssertionError: if a look lacks records or has them twice.
        """
        self._broker.start()
        try:
            self._broker.make_topic(_TOPIC, _PARTITIONS)
            threads = [threading.Thread(target=self._run, args=(run,)) for run in (self._write, self._move)]
            for thread in threads:
                thread.start()
            deadline, looks = time.monotonic() + seconds, 0
            try:
                while time.monotonic() < deadline or looks < 2:
                    self._look()
                    looks += 1
            finally:
                self._over.set()
                for thread in threads:
                    thread.join()
            assert not self._failed, self._failed
            return looks
        finally:
            self._broker.discard()

    def _run(self, run: object) -> None:
        try:
            run()  # type: ignore[operator]
        except BaseException as error:
            self._failed.append(error)

    def _look(self) -> None:
        moment = time.monotonic() - _SETTLED
        least = sum(at < moment for at in self._acknowledged)
        with connect(",".join(map(str, self._disks))) as kafka:
            rows = kafka.read(_TOPIC, columns=["partition", "offset"]).read_all().to_pydict()
        counts = Counter(rows["partition"])
        assert all(counts[number] >= least for number in range(_PARTITIONS)), (counts, least)
        for number in range(_PARTITIONS):
            offsets = [o for p, o in zip(rows["partition"], rows["offset"], strict=True) if p == number]
            assert offsets == [*range(len(offsets))], f"{_TOPIC}-{number} has gaps or comes twice: {offsets}"

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "acks": "all", "log_level": 0})
        while not self._over.wait(0.05):
            for number in range(_PARTITIONS):
                producer.produce(_TOPIC, b"%0200d" % len(self._acknowledged), partition=number)
            if producer.flush(20) == 0:
                self._acknowledged.append(time.monotonic())
            else:
                raise TimeoutError("The broker takes nothing")

    def _move(self) -> None:
        turn = 1
        while not self._over.wait(0.2):
            target = self._disks[turn % 2]
            move(self._broker, target, _TOPIC, _PARTITIONS)
            while len([*target.glob(f"{_TOPIC}-?")]) < _PARTITIONS and not self._over.wait(0.01):
                pass
            turn += 1
