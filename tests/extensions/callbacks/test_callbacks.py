"""Callbacks of writes to a directory and of the producer's state, without a broker; files of metrics."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog import WriteCallback, WriteMetrics, WriteShare, by_value, connect
from pyspark_kafkalog.broker.produce.state import ProduceAnswer, ProduceLimits, ProduceState
from pyspark_kafkalog.errors import (
    KafkaLogError,
    LogDirectoryError,
    OptionError,
    RecordTooLargeError,
)
from pyspark_kafkalog.extensions.callbacks.files import metrics_rows, put_metrics
from pyspark_kafkalog.extensions.callbacks.listener import (
    Counted,
    Heard,
    TaskListener,
    UsersObject,
    load_callback,
)
from pyspark_kafkalog.extensions.callbacks.options import CallbackOptions
from pyspark_kafkalog.model import QueryBatch, TaskAttempt, TopicPartition
from pyspark_kafkalog.options.client_settings import WITHOUT_EFFECT
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.write.listening import listening_of
from tests.extensions.callbacks.hearing import FAILING, as_dict, batches, noting, stories

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MODULE = "tests.extensions.callbacks.hearing"


def options_of(**options: str) -> CallbackOptions:
    given = {name.replace("__", "."): value for name, value in options.items()}
    found = listening_of(write_options({"path": "/log", **given}))
    assert isinstance(found, CallbackOptions)
    return found


def rows(count: int, **more: Any) -> pa.Table:
    return pa.table({"value": [b"%010d" % i * 10 for i in range(count)], **more})


def test_options() -> None:
    assert options_of(callback__class="a.b:C") == CallbackOptions("a.b:C")
    assert options_of(callback__class=" Metrics") == CallbackOptions(None)
    assert options_of(metricsLocation="s3://u:secret@h/m") == CallbackOptions(None, "s3://u:secret@h/m")
    assert "secret" not in repr(options_of(metricsLocation="s3://u:secret@h/m"))
    assert (
        listening_of(write_options({"path": "/log"}))
        .of_task(QueryBatch("q"), TaskAttempt(0, 0, 0), awaits_commit=True)
        .__enter__()
        is None
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere:C", "The callback 'nowhere:C' cannot be imported: there is no such module"),
        (f"{MODULE}:Nothing", "its module has no such callable. Give package.module:Class"),
        (f"{MODULE}:Misspelt", "has a method on_ack, which nothing calls. Those that are called are on_en"),
        (f"{MODULE}:Deaf", "has no method that is called. Those that are called are on_enqueue, .*close"),
        (f"{MODULE}:Noting", r"missing a required argument: '\w+'. It is called with \(share\)"),
        (f"{MODULE}:TakesNothing", r"method on_send .* too many .*called with \(self, batch\)"),
        ("com.acme.Listener", "A Java class can't run here. Give package.module:Class"),
        ("C", "'callback.class': expected"),
    ],
)
def test_what_is_refused_before_anything_is_written(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=said):
        connect(tmp_path / "log").write(rows(1), "t", options={"callback.class": path})
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.interceptor.classes", "To change rows, .* transform. To hear .* callback.class"),
        ("interceptor.classes", "callback.class"),
        ("callback.handler", "callback.class hears of record batches"),
        ("event.handler", "callback.class hears of record batches .*, transform changes rows"),
    ],
)
def test_settings_of_kafkas_producers_say_what_to_give_here(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        write_options({"kafka.bootstrap.servers": "h:1", name: "org.shop.Handler"})


def test_reporters_of_javas_metrics_say_what_to_give_here() -> None:
    assert "metricsLocation" in WITHOUT_EFFECT["kafka.metric.reporters"]


def test_a_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Batches are enqueued as a task stages them; the commit acknowledges those of each partition at once."""
    kafka, folder = connect(tmp_path / "log"), tmp_path / "heard"
    options = {"callback.class": noting(folder), "batch.size": "1000", "compression.type": "gzip"}
    options |= {"numPartitions": "2", "metricsLocation": str(tmp_path / "metrics")}
    with caplog.at_level(logging.INFO, "pyspark_kafkalog"):
        for _ in range(2):
            kafka.write(rows(100, partition=[i % 2 for i in range(100)]), "t", options=options)
    first, second, *commits = stories(folder)
    assert [one.share["task"] for one in (first, second, *commits)] == [0, 0, None, None]
    for task in first, second:
        assert {method for method, _ in task.calls} == {"on_enqueue", "close"}
        enqueued = task.of("on_enqueue")
        assert batches(enqueued) == [(partition, number) for partition in (0, 1) for number in range(7)]
        (closed,) = task.of("close")
        assert (closed["records"], closed["batches"], closed["error"]) == (100, len(enqueued), None)
        assert closed["bytes"] == sum(batch["bytes"] for batch in enqueued) < closed["uncompressed_bytes"]
        assert 100 * 100 < closed["uncompressed_bytes"] <= 1000 * len(enqueued)
    found = []
    for commit in commits:
        assert [method for method, _ in commit.calls] == [
            "on_acknowledgement",
            "on_acknowledgement",
            "on_commit",
            "close",
        ]
        published = commit.of("on_acknowledgement")
        found += [(at["partition"], at["base_offset"], at["records"]) for at in published]
        (total,), (closed,) = commit.of("on_commit"), first.of("close")
        assert {**total, "error": None} == closed
    assert sorted(found) == [(0, 0, 50), (0, 50, 50), (1, 0, 50), (1, 50, 50)]
    size = sum(file.stat().st_size for file in (tmp_path / "log").glob("t-*/*.log"))
    stored = [*metrics_rows(str(tmp_path / "metrics"))]
    assert [row["records"] for row in stored] == [100, 100]
    assert sum(row["bytes"] for row in stored) == size
    assert caplog.text.count("A batch was written by 1 task: 100 records, ") == 2


def test_a_directory_that_has_the_batch_acknowledges_nothing_again(tmp_path: Path) -> None:
    options = {"txnAppId": "job", "txnVersion": "1", "metricsLocation": str(tmp_path / "metrics")}
    for folder in "first", "again":
        given = {**options, "callback.class": noting(tmp_path / folder)}
        connect(tmp_path / "log").write(rows(10), "t", options=given)
    assert len(stories(tmp_path / "first")[-1].of("on_acknowledgement")) == 1
    (_, commit) = stories(tmp_path / "again")
    assert [method for method, _ in commit.calls] == ["on_commit", "close"]
    assert [row["records"] for row in metrics_rows(str(tmp_path / "metrics"))] == [10], "one file, replaced"


def test_close_hears_why_a_task_ended(tmp_path: Path) -> None:
    options = {"callback.class": noting(tmp_path / "heard"), "max.message.bytes": "1000"}
    options["metricsLocation"] = str(tmp_path / "m")
    with pytest.raises(RecordTooLargeError):
        connect(tmp_path / "log").write(pa.table({"value": [b"x" * 2000]}), "t", options=options)
    (task,) = stories(tmp_path / "heard")
    assert "A record batch of" in task.of("close")[0]["error"]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("kind", FAILING, ids=lambda kind: kind.__name__)
def test_a_callback_that_raises_changes_no_write_to_a_directory(
    kind: type[WriteCallback], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = connect(tmp_path)
    options = {"callback.class": f"{MODULE}:{kind.__name__}", "batch.size": "500"}
    assert kafka.write(rows(100), "t", options=options) == 100
    assert kafka.read("t").read_all().num_rows == 100
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    heard_of_nothing = kind.__name__ in ("FailsAtSend", "FailsAtRetry")  # a directory has no such event
    objects = 2 if kind.__name__ in ("FailsAtOnce", "FailsAtClose") else 1
    assert len(warned) == (0 if heard_of_nothing else objects)
    assert all("It is not called again in this task; the write goes on" in line for line in warned)
    assert all(f"The callback '{MODULE}:{kind.__name__}' raised " in line for line in warned)


def test_metrics_that_can_not_be_stored_change_no_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    options = {"metricsLocation": str(tmp_path / "file")}
    connect(tmp_path / "log").write(rows(3), "t", options=options)
    assert connect(tmp_path / "log").read("t").read_all().num_rows == 3
    assert "its metrics are not stored" in caplog.text
    assert "Set metricsLocation to a folder that the driver can write to" in caplog.text


def test_metrics_in_the_log_directory_are_refused(tmp_path: Path) -> None:
    options = {"metricsLocation": str(tmp_path / "log" / "metrics")}
    with pytest.raises(OptionError, match="'metricsLocation' is inside the log directory"):
        connect(tmp_path / "log").write(rows(1), "t", options=options)
    assert not (tmp_path / "log").exists()


def test_a_folder_that_is_not_one_of_metrics_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="a folder of metricsLocation, got one that does not exist"):
        next(metrics_rows(str(tmp_path / "nowhere")))
    (tmp_path / "producer" / "query" / "7").mkdir(parents=True)
    (tmp_path / "producer" / "query" / "7" / "00000.jsonl").write_text("{}")  # of auditLocation
    with pytest.raises(
        LogDirectoryError, match="a folder of metricsLocation, got one that holds other files"
    ):
        next(metrics_rows(str(tmp_path)))
    put_metrics(
        str(tmp_path),
        QueryBatch("q", 1),
        [Heard(WriteShare("q", 1, 0, 0), WriteMetrics(records=2))],
        once=False,
    )
    assert [row["records"] for row in metrics_rows(str(tmp_path))] == [2]


def test_a_location_that_can_not_be_opened_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(LogDirectoryError, match="Cannot open the folder"):
        connect(tmp_path / "log").write(rows(1), "t", options={"metricsLocation": "nowhere://h/metrics"})
    assert not (tmp_path / "log").exists()


def test_a_class_that_the_commit_can_not_load_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    gone, batch = CallbackOptions("nowhere:C"), QueryBatch("q", 1)
    with gone.of_commit(batch, [Heard(WriteShare(*batch, 0, 0), WriteMetrics(records=2))]) as heard:
        heard.sending(1, [])
    assert "The commit goes on without its callback: The callback 'nowhere:C' cannot be" in caplog.text
    with pytest.raises(OptionError), gone.of_task(batch, TaskAttempt(0, 0, 0), awaits_commit=False):
        pytest.fail("a task that can't import it sends nothing")


def listening(folder: Path, **limits: Any) -> tuple[ProduceState, TaskListener]:
    share = WriteShare("q", None, 0, 0)
    listener = TaskListener(UsersObject(noting(folder), share), Counted.ACKNOWLEDGED, share)
    return ProduceState(ProduceLimits(**limits), listener=listener), listener


def pieces(*sizes: int) -> list[tuple[memoryview, int, int]]:
    """Record batches of these bytes, each of two records that had twice as many."""
    return [(memoryview(bytes(size)), 2, 2 * size) for size in sizes]


def send(state: ProduceState, listener: TaskListener, now: float = 0.0) -> int:
    """Send what may be sent, as a producer does; returns the number of requests."""
    count = 0
    while (request := state.next_request(now)) is not None:
        listener.sending(request.node, request.batches)
        count += 1
    return count


def test_a_batch_is_sent_again_until_it_is_acknowledged(tmp_path: Path) -> None:
    state, listener = listening(tmp_path / "heard")
    state.append(A, pieces(10, 20), 0.0)
    state.append(B, pieces(30), 0.0)
    state.set_leaders({A: 1, B: 2})
    assert send(state, listener) == 2
    state.answered(1, {A: ProduceAnswer(19, message="too few")}, 0.0)
    state.answered(2, {B: ProduceAnswer(0, 7, append_time=1234)}, 0.0)
    assert send(state, listener, 9.0) == 1
    state.lost(1, "cut", 9.0)
    state.set_leaders({A: 2})
    assert send(state, listener, 20.0) == 1
    state.answered(2, {A: ProduceAnswer(46)}, 20.0)  # which the broker has already
    assert send(state, listener, 20.0) == 1
    state.answered(2, {A: ProduceAnswer(0, 42)}, 20.0)
    assert state.is_idle
    state.give_up("nothing is left")
    (task,) = stories(tmp_path / "heard")
    story = [
        (method, given["partition"], given["number"], given["attempts"], given["broker"], given["error"])
        for method, given in task.calls
        if method != "on_enqueue"
    ]
    assert story == [
        ("on_send", 0, 0, 1, 1, None),
        ("on_send", 1, 0, 1, 2, None),
        ("on_retry", 0, 0, 1, 1, "NOT_ENOUGH_REPLICAS (too few)"),
        ("on_acknowledgement", 1, 0, 1, 2, None),
        ("on_send", 0, 0, 2, 1, None),
        ("on_retry", 0, 0, 2, 1, "cut"),
        ("on_send", 0, 0, 3, 2, None),
        ("on_acknowledgement", 0, 0, 3, 2, None),
        ("on_send", 0, 1, 1, 2, None),
        ("on_acknowledgement", 0, 1, 1, 2, None),
    ]
    acknowledged = task.of("on_acknowledgement")
    assert [(at["base_offset"], at["append_time"]) for at in acknowledged] == [(7, 1234), (-1, -1), (42, -1)]
    assert all(at["latency_ms"] >= 0 for at in acknowledged)
    found = listener.metrics
    assert (found.records, found.batches, found.bytes, found.uncompressed_bytes) == (6, 3, 60, 120)
    assert (found.requests, found.retries, found.errors, found.acknowledgements) == (5, 2, 0, 3)


def test_each_batch_has_one_end_where_a_write_fails(tmp_path: Path) -> None:
    state, listener = listening(tmp_path / "heard", max_in_flight=1)
    state.append(A, pieces(10, 20, 30), 0.0)
    state.append(B, pieces(40), 0.0)
    state.set_leaders({A: 1, B: 2})
    send(state, listener)
    with pytest.raises(KafkaLogError):
        state.answered(1, {A: ProduceAnswer(10)}, 0.0)
    state.give_up(None)  # as the producer does that is left without the answer of B's leader
    (task,) = stories(tmp_path / "heard")
    errors = {(at["partition"], at["number"]): at["error"] for at in task.of("on_error")}
    assert batches(task.ends()) == batches(task.of("on_enqueue")) == sorted(errors)
    assert errors.pop((0, 0)).startswith("A broker refused a record batch of 2 records")
    assert errors.pop((1, 0)) == "no response came"
    assert set(errors.values()) == {"another record batch of the task could not be written"}
    assert listener.metrics.errors == 4
    assert listener.metrics.records == 0


def test_metrics_are_summed() -> None:
    one = WriteMetrics(1, 2, 30, 60, 4, 5, 6, 7, 2, 10.0, 8.0)
    total = WriteMetrics.total([one, WriteMetrics(requests=3, latency_max_ms=9.0), WriteMetrics()])
    assert as_dict(total) == as_dict(one) | {"requests": 7, "latency_max_ms": 9.0}
    assert (total.compression_ratio, total.latency_avg_ms) == (2.0, 5.0)
    assert (WriteMetrics().compression_ratio, WriteMetrics().latency_avg_ms) == (None, None)
    assert str(total) == (
        "1 records, 30 bytes in 2 record batches; compression ratio 2.00; 7 requests, 5 retries, 6 errors;"
        " throttled for 7 ms; latency 5.0 ms on average, 9.0 ms at most"
    )


def test_a_micro_batch_that_runs_again_replaces_its_file(tmp_path: Path) -> None:
    """The attempt whose message the commit has counts, whatever a zombie has sent."""
    location, batch = str(tmp_path), QueryBatch("q", 3)
    for records in 5, 7:
        shares = [Heard(WriteShare("q", 3, task, records), WriteMetrics(records=records)) for task in (1, 0)]
        put_metrics(location, batch, shares, once=False)
    put_metrics(
        location,
        QueryBatch("q"),
        [Heard(WriteShare("q", None, None, 0), WriteMetrics(requests=1))],
        once=False,
    )
    found = [(row["batch"], row["task"], row["attempt"], row["records"]) for row in metrics_rows(location)]
    assert found == [(3, 0, 7, 7), (3, 1, 7, 7), (None, None, 0, 0)]


def test_a_class_need_not_inherit_and_what_does_nothing_is_not_called() -> None:
    share = WriteShare("q", None, 0, 0)
    assert [*UsersObject(f"{MODULE}:FailsAtSend", share).hears] == ["on_send"]
    assert load_callback(by_value(WriteCallback)) is not None
