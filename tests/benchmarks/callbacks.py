"""Callbacks: CPU time of a record batch in a producer, without one and with one that does nothing.

The producer's state is driven without a broker: batches of 16 KiB are queued, sent and acknowledged, some in
each request. What a batch costs to encode is shown for comparison.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa

from pyspark_kafkalog.broker.produce.state import ProduceAnswer, ProduceLimits, ProduceState
from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.extensions.callbacks.callback import BatchEvent, WriteCallback, WriteShare
from pyspark_kafkalog.extensions.callbacks.listener import Counted, TaskListener, UsersObject
from pyspark_kafkalog.extensions.callbacks.metrics import WriteMetrics
from pyspark_kafkalog.model import EncodeSettings, TopicPartition
from tests.benchmarks.measure import arguments, event, print_ratio

COUNT, SIZE, RECORDS, PARTITIONS = 50_000, 16 << 10, 140, 10
BAR = 1.25
"""The most that a batch may cost with a callback that does nothing, encoding included."""


class Idle(WriteCallback):
    """Hears all, and does nothing."""

    def on_enqueue(self, batch: BatchEvent) -> None:
        pass

    def on_send(self, batch: BatchEvent) -> None:
        pass

    def on_acknowledgement(self, batch: BatchEvent) -> None:
        pass

    def on_retry(self, batch: BatchEvent) -> None:
        pass

    def on_error(self, batch: BatchEvent) -> None:
        pass

    def on_commit(self, metrics: WriteMetrics) -> None:
        pass

    def close(self, metrics: WriteMetrics, error: BaseException | None) -> None:
        pass


def main() -> None:
    args = arguments(__doc__)
    count = max(int(COUNT * args.scale), PARTITIONS)
    ways: dict[str, Callable[[], TaskListener | None]] = {
        "no callback": lambda: None,
        "metrics alone": lambda: _listener(None),
        "a callback that does nothing": lambda: _listener(f"{__spec__.name}:Idle"),
    }
    times: dict[str, list[float]] = {name: [] for name in [*ways, "encoding"]}
    for _ in range(args.rounds + 1):
        for name, listener in ways.items():
            times[name].append(_cpu(lambda listener=listener: _send(listener(), count)) / count)
        times["encoding"].append(_cpu(lambda: _encode(max(count // 10, 1))) / max(count // 10, 1))
    cost = {name: statistics.median(found[-args.rounds :]) * 1e6 for name, found in times.items()}
    for name, micros in cost.items():
        print(f"{name}: {micros:.2f} µs of CPU for each record batch of 16 KiB")
    base = cost["encoding"] + cost["no callback"]
    for name in [*ways][1:]:
        text = f"a record batch with {name}, encoded and sent, to one without"
        print_ratio(text, (cost["encoding"] + cost[name]) / base, at_most=BAR)


def _listener(path: str | None) -> TaskListener:
    share = WriteShare("benchmark", None, 0, 0)
    return TaskListener(UsersObject(path, share), Counted.ACKNOWLEDGED, share)


def _send(listener: TaskListener | None, count: int) -> None:
    state = ProduceState(ProduceLimits(max_request_size=1 << 20), listener=listener)
    partitions = [TopicPartition("t", number) for number in range(PARTITIONS)]
    data, answers = memoryview(bytes(SIZE)), {each: ProduceAnswer(0, 7) for each in partitions}
    for first in range(0, count, PARTITIONS):
        for partition in partitions:
            state.append(partition, [(data, RECORDS, SIZE)], 0.0)
        if first == 0:
            state.set_leaders(dict.fromkeys(partitions, 1))
        while (request := state.next_request(0.0)) is not None:
            if listener is not None:
                listener.sending(request.node, request.batches)
            state.answered(1, answers, 0.0)
    assert state.is_idle
    assert listener is None or listener.metrics.batches == -(-count // PARTITIONS) * PARTITIONS


def _encode(count: int) -> None:
    values = pa.array([event(number, 100) for number in range(RECORDS * 10)], pa.binary())
    rows = pa.RecordBatch.from_pydict({"value": values, "timestamp": pa.array([0] * RECORDS * 10)})
    for _ in range(-(-count // 10)):
        encode(rows, None, EncodeSettings(batch_size=SIZE), topic_partition=TopicPartition("t", 0))


def _cpu(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
