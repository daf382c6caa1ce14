"""A driver is killed -9 while it writes good rows and dead letters: each record is in one of two topics."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.extensions.exactly_once.stops import VARIABLE
from tests.broker.producing import unused_topic
from tests.faults.application import Application
from tests.faults.kill_matrix import IN_COMMITS
from tests.kafka import Broker
from tests.spark.test_dead_letters import fill, numbers, options

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(900)]

COUNT = 30
PATIENCE = 180.0


def test_killed_at_steps(broker: Broker, tmp_path: Path) -> None:
    place = broker.bootstrap
    source, good, dead = topics = [unused_topic() for _ in range(3)]
    connect(place).topics.create([NewTopic(name, partitions=2) for name in topics])
    checkpoint = {"checkpointLocation": str(tmp_path / "query")}
    sink = {"kafka.bootstrap.servers": place, "delivery.guarantee": "exactly-once", **checkpoint}
    given = json.dumps({"source": options(place, source), "sink": sink, "good": good, "dead": dead})
    written = 0

    @contextlib.contextmanager
    def running(stops: Path) -> Iterator[Application]:
        """With more to read; killed at the end."""
        nonlocal written
        fill(place, source, COUNT, start=written)
        written += COUNT
        arguments = "tests.faults.copying_stream", str(tmp_path / "query"), given
        log, environment = tmp_path / f"{written}.log", {VARIABLE: str(stops)}
        with contextlib.closing(Application(*arguments, output=log, environment=environment)) as application:
            try:
                yield application
            finally:
                application.kill()

    for step in ("staged", *IN_COMMITS):
        stops = tmp_path / step
        stops.mkdir()
        (stops / step).touch()
        with running(stops) as application:
            deadline = time.monotonic() + PATIENCE
            while not list(stops.glob(f"{step}.stopped-*")):
                assert time.monotonic() < deadline, application.output_tail()
                time.sleep(0.1)
    with running(tmp_path / "nothing") as application:
        deadline = time.monotonic() + PATIENCE
        while len(numbers(place, good)) + len(numbers(place, dead)) < written:
            assert time.monotonic() < deadline, application.output_tail()
            time.sleep(0.5)
    bad = [n for n in range(written) if n % 3 == 2 or n % 5 == 4]
    assert numbers(place, dead) == bad
    assert numbers(place, good) == [n for n in range(written) if n not in bad]
