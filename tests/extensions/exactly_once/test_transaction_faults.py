"""Transactions through connections that lose, double and delay, and beside processes that stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.extensions.exactly_once import committing, stops
from pyspark_kafkalog.extensions.exactly_once.marker import Marker, transactional_id
from pyspark_kafkalog.extensions.exactly_once.query_marker import QueryMarker
from tests.broker.producing import digits, unused_topic
from tests.extensions.exactly_once.writing import Query, is_stable, shown, transaction_state, values
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import INIT_PRODUCER_ID, PRODUCE, Fault, Link, cut, repeat, reset, send_twice, swallow

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OFFSET_FETCH, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 9, 24, 25, 26, 28
APIS = {
    "InitProducerId": INIT_PRODUCER_ID,
    "OffsetFetch": OFFSET_FETCH,
    "AddPartitionsToTxn": ADD_PARTITIONS,
    "AddOffsetsToTxn": ADD_OFFSETS,
    "Produce": PRODUCE,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
    "EndTxn": END_TXN,
}
"""All that a commit sends, in its order."""
FAULTS: dict[str, tuple[Fault, bool]] = {
    "answer dropped": (swallow, False),
    "answer cut": (cut(6), False),
    "answer doubled": (repeat, False),
    "request reset": (reset(), True),
    "request doubled": (send_twice, True),
}
ALWAYS = {
    ("InitProducerId", "answer dropped"),
    ("TxnOffsetCommit", "answer dropped"),
    ("EndTxn", "answer dropped"),
    ("EndTxn", "request doubled"),
}
"""The others are the soak's."""
IMPATIENT = {"kafka__request__timeout__ms": 1500, "kafka__delivery__timeout__ms": 20_000}


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = unused_topic()
    cluster.create_topic(name, 3)
    return name


@pytest.fixture
def driver(cluster: Cluster, topic: str, tmp_path: Path) -> Callable[..., Query]:
    """Makes drivers of one query, behind the proxies."""

    def make(**options: object) -> Query:
        return Query(cluster.proxied_bootstrap, topic, tmp_path, query_id=topic, **{**IMPATIENT, **options})

    return make


def strike(cluster: Cluster, api: str, fault: Fault, *, requests: bool) -> None:
    for proxy in cluster.proxies.values():
        proxy.strike(APIS[api], fault, requests=requests)


def until_done(write: Callable[[], None]) -> None:
    """Run a micro-batch as Spark does when its query is started again."""
    for _ in range(3):
        try:
            return write()
        except KafkaLogError as e:
            error = e
    raise error


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        pytest.param(
            api, fault, marks=() if (api, fault) in ALWAYS else pytest.mark.soak, id=f"{api} {fault}"
        )
        for api in APIS
        for fault in FAULTS
    ],
)
def test_what_connections_do(
    cluster: Cluster, topic: str, driver: Callable[..., Query], api: str, fault: str
) -> None:
    driver().write([values(10)], 0)
    what, requests = FAULTS[fault]
    strike(cluster, api, what, requests=requests)
    until_done(lambda: driver().write([values(10, 10), values(10, 20)], 1))
    assert sum(proxy.pending for proxy in cluster.proxies.values()) < 3
    for proxy in cluster.proxies.values():
        proxy.heal()
    driver().write([values(10, 30)], 2)
    assert sorted(shown(cluster.bootstrap, topic)) == digits(40)
    assert is_stable(cluster.bootstrap, topic)


class Held:
    """Holds requests back; :meth:`release` sends them to the broker after their connection is gone."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, bytes]] = []

    def __call__(self, link: Link, frame: bytes) -> None:
        self.requests.append((link.broker.getpeername()[1], frame))

    def release(self) -> None:
        for port, frame in self.requests:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(frame)
                assert connection.recv(1)


@pytest.mark.long
@pytest.mark.parametrize(
    "api",
    [
        "EndTxn",
        "Produce",
        *(
            pytest.param(api, marks=pytest.mark.soak)
            for api in ("TxnOffsetCommit", "AddOffsetsToTxn", "AddPartitionsToTxn")
        ),
    ],
)
def test_a_request_that_comes_in_the_next_batch(
    cluster: Cluster, topic: str, driver: Callable[..., Query], api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-17754: a commit that is late must not commit what is open by then."""
    held = Held()
    driver().write([values(10)], 0)
    strike(cluster, api, held, requests=True)
    until_done(lambda: driver().write([values(10, 10)], 1))
    assert held.requests
    for proxy in cluster.proxies.values():
        proxy.heal()

    def release_and_die(step: str) -> None:
        if step == "produced":
            held.release()
            raise RuntimeError("killed")

    monkeypatch.setattr(committing, "stop_at", release_and_die)
    monkeypatch.setattr(committing.Committing, "give_up", lambda _: None)
    with pytest.raises(RuntimeError):
        driver().write([values(5, 20)], 2)
    monkeypatch.undo()
    driver().write([values(7, 20)], 2)
    assert sorted(shown(cluster.bootstrap, topic)) == digits(27)


@pytest.mark.long
def test_a_coordinator_that_is_paused_until_another_has_taken_over(
    cluster: Cluster, topic: str, driver: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver().write([values(10)], 0)
    with cluster.admin() as admin:
        name = transactional_id(topic)
        paused = int(admin.describe_transactions([name])[name].coordinator_id)

    def pause(step: str) -> None:
        if step == "produced":
            cluster.pause(paused)

    monkeypatch.setattr(committing, "stop_at", pause)
    until_done(lambda: driver().write([values(10, 10)], 1))
    monkeypatch.undo()
    cluster.resume(paused)
    # The old coordinator may still end what it had begun, which fences the next run.
    until_done(lambda: driver().write([values(10, 20)], 2))
    assert sorted(shown(cluster.bootstrap, topic)) == digits(30)
    assert is_stable(cluster.bootstrap, topic)


@pytest.mark.parametrize("batch", [2, 1], ids=["the next batch", "a replay"])
def test_a_coordinator_that_was_deposed_gives_an_old_marker(
    cluster: Cluster,
    topic: str,
    driver: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    batch: int,
) -> None:
    """As a broker does that goes on after a pause, until it has heard of the next coordinator."""
    seen: list[Marker | None] = []
    look = QueryMarker._look

    def deposed(self: QueryMarker, deadline: Deadline, *, require_stable: bool) -> Marker | None:
        found = look(self, deadline, require_stable=require_stable)
        if require_stable:
            seen.append(found)
        return seen[1] if require_stable and len(seen) == 3 else found

    monkeypatch.setattr(QueryMarker, "_look", deposed)
    monkeypatch.setattr(committing, "PROVEN_AFTER", 0.1)
    for number in (0, 1, batch):
        driver().write([values(10, 10 * number)], number)
    assert [marker and marker.batch_id for marker in seen] == [None, 0, 1, 1]
    assert sorted(shown(cluster.bootstrap, topic)) == digits(10 * (batch + 1))
    assert caplog.text.count("Running the commit") == 1


@pytest.mark.long
@pytest.mark.parametrize("step", [pytest.param("begun", marks=pytest.mark.soak), "marked"])
def test_a_driver_that_is_paused_for_longer_than_its_transaction(
    broker: Broker, tmp_path: Path, step: str
) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 3)
    options = {"kafka__transaction__timeout__ms": 1000}
    wanted = tmp_path / "stops" / step
    wanted.parent.mkdir()
    wanted.touch()
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.extensions.exactly_once.writing import Query, values\n"
        "query = Query(sys.argv[1], sys.argv[2], Path(sys.argv[3]), query_id=sys.argv[2], "
        f"**{options!r}); query.write([values(10)], 0)"
    )
    paused = subprocess.Popen(
        [sys.executable, "-c", program, broker.bootstrap, topic, str(tmp_path / "checkpoint")],
        env={**os.environ, stops.VARIABLE: str(wanted.parent)},
        stderr=subprocess.PIPE,
        text=True,
    )
    broker.wait_until(lambda: bool([*wanted.parent.glob("*.stopped-*")]), "the driver does not come so far")
    paused.send_signal(signal.SIGSTOP)
    wanted.unlink()
    name = transactional_id(topic)
    broker.wait_until(lambda: transaction_state(broker, name) == "CompleteAbort", "it stays open")
    Query(broker.bootstrap, topic, tmp_path / "checkpoint", query_id=topic).write([values(10)], 0)
    paused.send_signal(signal.SIGCONT)
    _, errors = paused.communicate(timeout=60)
    assert paused.returncode == 0, errors  # it is refused, looks again, and finds the batch written
    assert sorted(shown(broker.bootstrap, topic)) == digits(10)
    time.sleep(0.2)
    assert is_stable(broker.bootstrap, topic)
