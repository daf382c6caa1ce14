"""Brokers die, leaders move, connections break: every row is written, once if idempotent."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import pytest

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.produce import producer as produce
from pyspark_kafkalog.broker.produce.state import PartitionResult
from pyspark_kafkalog.errors import BrokerError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.kafka_uuid import random_uuid
from pyspark_kafkalog.write.rows import write_rows
from tests.broker.producing import (
    connected,
    consume,
    digits,
    numbered,
    router_to,
    sink_of,
    unused_topic,
    values_of,
)
from tests.broker.producing import (
    produce as produce_rows,
)
from tests.kafka import Broker
from tests.kafka_cluster import Cluster as Brokers
from tests.kafka_proxy import PRODUCE, Fault, cut, delay, repeat, reset, send_twice, swallow

pytestmark = [pytest.mark.broker, pytest.mark.slow]

STEPS, ROWS_A_STEP = 40, 300
COUNT = STEPS * ROWS_A_STEP


@pytest.fixture(autouse=True)
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests, so that each fault hits some in flight."""
    monkeypatch.setattr(produce, "_MIN_SEND_BYTES", 1)


def produce_in_steps(
    cluster: Cluster, topic: str, before: Mapping[int, Callable[[], Any]], **options: Any
) -> dict[TopicPartition, PartitionResult]:
    """Write COUNT rows, with actions before some of the steps."""
    with sink_of(cluster, batch_size=600, max_request_size=3000, **options) as sink:
        router = router_to(sink, topic, batch_size=600)
        for step in range(STEPS):
            before.get(step, lambda: None)()
            write_rows([numbered(ROWS_A_STEP, step * ROWS_A_STEP)], router, sink)
        return sink.finish()


def check_once_and_in_order(bootstrap: str, topic: str, results: dict[TopicPartition, Any]) -> None:
    values: dict[int, list[bytes]] = {}
    for record in consume(bootstrap, topic):
        values.setdefault(record.partition, []).append(record.value or b"")
    assert sorted(chain.from_iterable(values.values())) == digits(COUNT)
    assert all(written == sorted(written) for written in values.values())
    assert {p.partition: result.records for p, result in results.items()} == {
        partition: len(written) for partition, written in values.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("idempotent", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_broker_killed_and_started_again(stoppable_broker: Broker, idempotent: bool) -> None:
    broker, topic = stoppable_broker, unused_topic()
    broker.create_topic(topic, 2)
    start = threading.Timer(0.5, broker.start)

    def die() -> None:
        broker.stop(kill=True)
        start.start()

    ours = connected(broker.bootstrap)
    results = produce_in_steps(ours, topic, {20: die}, enable_idempotence=idempotent)
    start.join()
    if idempotent:
        check_once_and_in_order(broker.bootstrap, topic, results)
    else:
        written = Counter(record.value for record in consume(broker.bootstrap, topic))
        assert sorted(value or b"" for value in written) == digits(COUNT)
    assert sum(result.records for result in results.values()) == COUNT


@pytest.mark.long
def test_few_rows_are_sent_when_a_broker_is_back(stoppable_broker: Broker) -> None:
    """Without waiting for more rows, which may come late or never."""
    broker, topic = stoppable_broker, unused_topic()
    broker.create_topic(topic)
    with sink_of(connected(broker.bootstrap, request_timeout_ms=1000)) as sink:
        router = router_to(sink, topic)
        write_rows([numbered(1)], router, sink)
        sink.advance(flush=True)
        broker.stop(kill=True)
        starting = threading.Timer(2, broker.start)
        starting.start()
        write_rows([numbered(1, 1)], router, sink)
        for _ in range(3):
            sink.advance(flush=True)
            time.sleep(0.1)
        starting.join()
        assert values_of(broker.bootstrap, topic) == digits(2)


@pytest.mark.long
def test_leaders_that_move(cluster: Brokers) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    moves = {step: lambda step=step: cluster.move_leader(topic, step % 3) for step in range(5, STEPS, 5)}
    results = produce_in_steps(connected(cluster.bootstrap), topic, moves)
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.long
def test_a_leader_that_dies_for_good(cluster: Brokers) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    kill = {10: lambda: cluster.kill(cluster.leader(topic, 0))}
    results = produce_in_steps(connected(cluster.bootstrap), topic, kill)
    cluster.start()
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.soak
def test_too_few_replicas_in_sync(cluster: Brokers) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 1, {"min.insync.replicas": 3})
    follower = next(node for node in cluster.brokers if node != cluster.leader(topic))
    start = threading.Timer(6, lambda: cluster.restart(follower))

    def die() -> None:
        cluster.kill(follower)
        start.start()

    results = produce_in_steps(connected(cluster.bootstrap), topic, {10: die})
    start.join()
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.soak
def test_the_active_controller_is_paused(cluster: Brokers) -> None:
    """A broker that has just started must ask the controller for producer ids; others have some left."""
    topic = unused_topic()
    cluster.create_topic(topic)
    controller = cluster.active_controller()
    leader, started = (node for node in cluster.brokers if node != controller)
    cluster.move_leader(topic, to=leader)
    cluster.kill(started)
    cluster.restart(started)
    cluster.wait_until_in_sync()
    connected(cluster.brokers[leader].bootstrap).producer_id()
    ours = connected(cluster.brokers[started].bootstrap, request_timeout_ms=1000)
    ours.topics([topic])
    cluster.pause(controller)
    try:
        results = produce_in_steps(ours, topic, {})
    finally:
        cluster.resume(controller)
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        pytest.param(reset(), {}, id="reset", marks=pytest.mark.soak),
        pytest.param(reset(9), {}, id="reset within"),
        pytest.param(cut(0), {}, id="closed", marks=pytest.mark.soak),
        pytest.param(cut(2), {}, id="cut in the size", marks=pytest.mark.soak),
        pytest.param(cut(20), {}, id="cut in the body", marks=pytest.mark.soak),
        pytest.param(repeat, {}, id="repeated"),
        pytest.param(delay(0.3), {}, id="late", marks=pytest.mark.soak),
        pytest.param(swallow, {"request_timeout_ms": 1000}, id="swallowed"),
    ],
)
def test_answers_that_are_lost(cluster: Brokers, fault: Fault, options: dict[str, Any]) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    strikes = {
        step: lambda: [proxy.strike(PRODUCE, fault) for proxy in cluster.proxies.values()]
        for step in range(0, STEPS, 10)
    }
    ours = connected(cluster.proxied_bootstrap, **options)
    results = produce_in_steps(ours, topic, strikes, **options)
    assert [proxy.pending for proxy in cluster.proxies.values()] == [0, 0, 0]
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(reset(), id="reset", marks=pytest.mark.soak),
        pytest.param(send_twice, id="sent twice"),
    ],
)
def test_requests_that_are_lost_or_doubled(cluster: Brokers, fault: Fault) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    strikes = {
        step: lambda: [proxy.strike(PRODUCE, fault, requests=True) for proxy in cluster.proxies.values()]
        for step in range(0, STEPS, 10)
    }
    results = produce_in_steps(connected(cluster.proxied_bootstrap), topic, strikes)
    assert [proxy.pending for proxy in cluster.proxies.values()] == [0, 0, 0]
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.long
def test_a_network_that_is_dead_for_a_while(cluster: Brokers) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)

    def hold() -> None:
        for proxy in cluster.proxies.values():
            proxy.hold()
            threading.Timer(2.5, proxy.heal).start()

    ours = connected(cluster.proxied_bootstrap, request_timeout_ms=1000)
    results = produce_in_steps(ours, topic, {10: hold}, request_timeout_ms=1000)
    check_once_and_in_order(cluster.bootstrap, topic, results)


@pytest.mark.long
@pytest.mark.parametrize(
    "same_cluster_id",
    [
        pytest.param(False, id="another id", marks=pytest.mark.soak),
        pytest.param(True, id="the same id"),
    ],
)
def test_a_cluster_that_is_set_up_anew(new_broker: Callable[..., Broker], same_cluster_id: bool) -> None:
    """Producer ids begin at 0 again, and no records are taken for duplicates of another producer's."""
    broker = new_broker()
    broker.start()
    topic = unused_topic()
    broker.create_topic(topic)
    workers = [connected(broker.bootstrap, client_id=f"worker-{number}") for number in range(2)]
    produce_rows(workers[0], topic, [numbered(10)])
    broker.stop(kill=True)
    broker.format(broker.cluster_id if same_cluster_id else random_uuid())
    broker.start()
    other = unused_topic()
    for name in (other, topic):
        broker.create_topic(name)
        for number, worker in enumerate(workers):
            produce_rows(worker, name, [numbered(10, 10 * number)])
        assert values_of(broker.bootstrap, name) == digits(20)


@pytest.mark.soak
def test_a_cluster_that_is_set_up_anew_during_a_write(new_broker: Callable[..., Broker]) -> None:
    broker = new_broker()
    broker.start()
    topic = unused_topic()
    broker.create_topic(topic)

    def replace() -> None:
        broker.stop(kill=True)
        broker.format(random_uuid())
        broker.start()
        broker.create_topic(topic)

    was = broker.cluster_id
    with pytest.raises(BrokerError, match=f"expected cluster id {was}, got (?!{was})"):
        produce_in_steps(connected(broker.bootstrap), topic, {10: replace})
    assert values_of(broker.bootstrap, topic) == []
    results = produce_in_steps(connected(broker.bootstrap), topic, {})
    check_once_and_in_order(broker.bootstrap, topic, results)


@pytest.mark.soak
def test_delivery_ends_in_time_and_names_the_partition(stoppable_broker: Broker) -> None:
    broker, topic = stoppable_broker, unused_topic()
    broker.create_topic(topic)
    ours = connected(broker.bootstrap, request_timeout_ms=1000)
    begun = 0.0

    def die() -> None:
        nonlocal begun
        broker.stop(kill=True)
        begun = time.monotonic()

    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 3000}
    with pytest.raises(BrokerError, match=rf"delivery\.timeout\.ms = 3000.*partition {topic}-0") as raised:
        produce_in_steps(ours, topic, {10: die}, **options)
    assert 2.5 < time.monotonic() - begun < 60
    assert "refused" in str(raised.value)


def test_delivery_ends_in_time_where_a_broker_hangs(stoppable_broker: Broker) -> None:
    broker, topic = stoppable_broker, unused_topic()
    broker.create_topic(topic)
    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 3000}
    begun = 0.0

    def hang() -> None:
        nonlocal begun
        os.kill(broker.pid, signal.SIGSTOP)
        begun = time.monotonic()

    ours = connected(broker.bootstrap, request_timeout_ms=1000)
    try:
        with pytest.raises(BrokerError, match=rf"delivery\.timeout\.ms = 3000.*partition {topic}-0"):
            produce_in_steps(ours, topic, {10: hang}, **options)
        assert time.monotonic() - begun < 60
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(10, id="sent", marks=pytest.mark.soak),
        pytest.param(900_000, id="blocked while sending"),
    ],
)
def test_delivery_ends_in_time_on_a_dead_network(
    cluster: Brokers, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No response comes, and large requests do not even fit into the sockets' buffers."""
    topic = unused_topic()
    cluster.create_topic(topic)
    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 3000}
    ours = connected(cluster.proxied_bootstrap, request_timeout_ms=1000, send_buffer_bytes=1 << 16)
    caplog.set_level(logging.DEBUG, "pyspark_kafkalog")
    with sink_of(ours) as sink:  # a leader that does not know its role yet may refuse the first request
        write_rows([numbered(1)], router_to(sink, topic), sink)
        sink.finish()
    with sink_of(ours, batch_size=1 << 20, max_in_flight=20, **options) as sink:
        router = router_to(sink, topic)
        for count in (2, 3, 4):  # after the first response, requests are pipelined
            write_rows([numbered(1, size=size)], router, sink)
            while len(values_of(cluster.bootstrap, topic)) < count:
                time.sleep(0.1)
        for proxy in cluster.proxies.values():
            proxy.hold()
        begun = time.monotonic()
        write_rows([numbered(20, size=size)], router, sink)
        with pytest.raises(BrokerError, match=rf"delivery\.timeout\.ms = 3000.*partition {topic}-0"):
            sink.finish()
    assert time.monotonic() - begun < 60
    assert ("did not take a request" in caplog.text) == (size > 10)


def test_no_answer_to_any_request(cluster: Brokers) -> None:
    topic = unused_topic()
    cluster.create_topic(topic, 3)
    for proxy in cluster.proxies.values():
        proxy.strike(PRODUCE, swallow, times=1000)
    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 3000}
    begun = time.monotonic()
    with pytest.raises(BrokerError, match=r"delivery\.timeout\.ms = 3000.*no response"):
        produce_in_steps(connected(cluster.proxied_bootstrap, request_timeout_ms=1000), topic, {}, **options)
    assert time.monotonic() - begun < 60


def test_slow_rows_are_no_slow_broker(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_MIN_SEND_BYTES", 1 << 20)
    topic = unused_topic()
    cluster.create_topic(topic)
    options = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1000}
    with sink_of(connected(cluster.bootstrap), **options) as sink:
        router = router_to(sink, topic)
        for start in (0, 10):
            write_rows([numbered(10, start)], router, sink)
            time.sleep(1.2)
        results = sink.finish()
    assert sum(result.records for result in results.values()) == 20


def test_no_broker_at_all() -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        produce_in_steps(connected("127.0.0.1:1", request_timeout_ms=500), "t", {})
