"""A function of the user's names segments to delete; what it may not name is refused, and loses no commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog import LogSegment, by_value, connect
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.cleanup import deleting
from pyspark_kafkalog.extensions.cleanup.policies import DeletePolicy
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TopicPartition
from tests.extensions.cleanup.test_retention import BATCH, DAY, NOW, SEGMENT, Writer, bases, log, start_of
from tests.log.writing import T0, read, stage, values
from tests.tools.cli.running import run

given: list[tuple[TopicPartition, list[LogSegment], int]] = []


def noting(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    given.append((partition, segments, now_ms))
    return []


def all_but_two(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    return segments[:-2]


def retained(root: Path, policy: Callable[..., Any] | str, **configs: str) -> Any:
    path = policy if isinstance(policy, str) else f"{__name__}:{policy.__name__}"
    texts = {name.replace("_", "."): value for name, value in configs.items()}
    return deleting.retain([str(root)], ["t"], texts, DeletePolicy(path), execute=True)


def test_a_policy_gets_the_segments_as_they_are(tmp_path: Path) -> None:
    log(tmp_path, 5)
    given.clear()
    retained(tmp_path, noting)
    (partition, segments, now_ms) = next(call for call in given if call[0] == T0)
    assert partition == T0
    assert abs(now_ms - NOW) < DAY
    assert segments == [
        LogSegment(0, 19, SEGMENT, NOW - 3 * DAY + 9, False),
        LogSegment(20, 39, SEGMENT, NOW - DAY + 9, False),
        LogSegment(40, 49, BATCH, NOW + 9, True),
    ]
    assert bases(tmp_path) == [0, 20, 40]
    assert [call[0] for call in given] == [T0], "A partition with one segment has none to name"


def test_what_it_or_a_rule_names_goes(tmp_path: Path) -> None:
    log(tmp_path)
    ((done, *_), _) = retained(tmp_path, all_but_two, retention_bytes=str(7 * BATCH))
    assert (done.segments, done.reasons, done.new_start) == (3, ("retention.bytes", "deletePolicy"), 60)
    assert (bases(tmp_path), start_of(tmp_path)) == ([60, 80], 60)
    ((done, *_), _) = retained(tmp_path, noting, retention_bytes=str(BATCH))
    assert (done.segments, done.reasons) == (1, ("retention.bytes",))


def test_a_topic_that_is_only_compacted_loses_nothing(tmp_path: Path) -> None:
    log(tmp_path)
    given.clear()
    retained(tmp_path, noting, cleanup_policy="compact")
    assert not given


def fails(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    raise ValueError("no idea")


def is_cancelled(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    raise asyncio.CancelledError


def newest(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    return segments


def with_a_gap(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[LogSegment]:
    return segments[1:2]


def numbers(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> list[int]:
    return [segments[0].base_offset]


def nothing(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> None:
    return None


def text(partition: TopicPartition, segments: list[LogSegment], now_ms: int) -> str:
    return "all"


BAD = {
    fails: r"raised ValueError \(line \d+ of .*test_policies\.py\): no idea",
    is_cancelled: r"raised CancelledError \(line \d+ of .*test_policies\.py\)",
    newest: "named the active segment, at offset 80",
    with_a_gap: "named later segments, but not the one at offset 0",
    numbers: "returned 0, which is not one of the segments",
    nothing: "returned None, not a list of segments",
    text: "returned 'all', not a list of segments",
}


@pytest.mark.parametrize("policy", BAD, ids=lambda policy: policy.__name__)
def test_bad_answers_are_refused_and_nothing_is_deleted(policy: Callable[..., Any], tmp_path: Path) -> None:
    log(tmp_path)
    _, failures = retained(tmp_path, policy, retention_bytes="0")
    with pytest.raises(type(failures[T0]), match=BAD[policy]) as raised:
        raise failures[T0]
    assert str(tmp_path / "t-0") in str(raised.value)
    assert "Nothing was deleted from the partition" in str(raised.value)
    assert bases(tmp_path) == [0, 20, 40, 60, 80]


def writer(root: Path, policy: str) -> Writer:
    found = Writer(root)
    found.sink = DirectorySink.on_driver(
        str(root),
        1,
        EncodeSettings(),
        found.sink.configs,
        is_job=False,
        required=True,
        delete_policy=policy,
    )
    return found


def test_a_stream_deletes_what_it_names(tmp_path: Path) -> None:
    stream = writer(tmp_path, f"{__name__}:all_but_two")
    for _ in range(12):
        stream.commit()
        assert len(bases(tmp_path)) <= 2
    assert start_of(tmp_path) == 80


def test_a_bad_answer_fails_no_commit_and_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = writer(tmp_path, f"{__name__}:newest")
    for number in range(5):
        stream.commit()
        assert caplog.text.count("named the active segment") == max(number - 1, 0)
    assert "Published, but could not apply retention to t-0" in caplog.text
    assert read(tmp_path)[T0] == values(50, 53)
    stream = writer(tmp_path, f"{__name__}:all_but_two")
    staged = stage(tmp_path, "query", {T0: values(1)}, timestamp=NOW)
    stream.sink.commit(QueryBatch("query", 5), staged, Plan())
    assert bases(tmp_path) == [20, 40], "The next commit asks, though no segment has rolled"


def test_one_that_can_not_be_imported_is_refused_before_any_work(tmp_path: Path) -> None:
    root = tmp_path / "new"
    with pytest.raises(OptionError, match=r"delete policy 'nowhere:f' cannot be imported"):
        DirectorySink.on_driver(
            str(root), 1, EncodeSettings(), {}, is_job=False, required=True, delete_policy="nowhere:f"
        )
    assert not root.exists()


def of_two(partition: TopicPartition, segments: list[LogSegment]) -> list[LogSegment]:
    return segments


def test_one_that_takes_other_arguments_is_refused_before_any_work() -> None:
    with pytest.raises(OptionError, match=r"too many .*called with \(partition, segments, now_ms\)"):
        DeletePolicy(f"{__name__}:of_two")


def test_from_python_and_the_command_line(tmp_path: Path) -> None:
    log(tmp_path)
    kafka = connect(str(tmp_path))
    (row, *_) = kafka.logs.retain(["t"], delete_policy=by_value(all_but_two))
    assert (row.segments, row.reasons) == (3, ("deletePolicy",))
    assert len(bases(tmp_path)) == 5
    done = run(
        "retain", str(tmp_path), "t", "--delete-policy", f"{__name__}:all_but_two", "--execute", "--json"
    )
    assert (done.code, bases(tmp_path)) == (0, [60, 80])
    write_topic_configs(str(tmp_path), {"t": {"cleanup.policy": "delete"}})
    log(tmp_path, 4)
    refused = run("retain", str(tmp_path), "t", "--delete-policy", f"{__name__}:newest", "--execute")
    assert (refused.code, "named the active segment" in refused.out) == (1, True)
    with pytest.raises(OptionError, match=r"deletePolicy.*import path"):
        kafka.logs.retain(["t"], delete_policy="all of it")
