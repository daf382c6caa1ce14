"""Rates of groups between two looks, and their lag as Prometheus reads it."""

from __future__ import annotations

import re
from dataclasses import replace

from pyspark_kafkalog import GroupOffset, LagWatch
from pyspark_kafkalog.tools.groups.prometheus import prometheus_text


def committed(group: str, partition: int, offset: int, end: int | None, topic: str = "t") -> GroupOffset:
    lag = None if end is None else end - offset
    return GroupOffset(group, topic, partition, offset, None, "", None, None, lag, end)


def test_rates_and_the_time_to_catch_up() -> None:
    watch = LagWatch()
    (first,) = watch.look([committed("g", 0, 100, 400), committed("g", 1, 0, 100)], 50.0)
    assert (first.lag, first.max_lag, first.history) == (400, 300, (400,))
    assert (first.consumed_per_second, first.produced_per_second, first.seconds_to_catch_up) == (None,) * 3
    (second,) = watch.look([committed("g", 0, 300, 450), committed("g", 1, 100, 150)], 60.0)
    assert (second.consumed_per_second, second.produced_per_second) == (30.0, 10.0)
    assert (second.lag, second.seconds_to_catch_up, second.history) == (200, 10.0, (400, 200))
    (third,) = watch.look([committed("g", 0, 310, 500), committed("g", 1, 100, 150)], 70.0)
    assert third.seconds_to_catch_up is None, "it falls behind"


def test_who_has_caught_up_needs_no_time_and_a_reset_shows_as_a_negative_rate() -> None:
    watch = LagWatch()
    watch.look([committed("g", 0, 10, 10)], 0.0)
    (caught_up,) = watch.look([committed("g", 0, 10, 10)], 1.0)
    assert caught_up.seconds_to_catch_up == 0.0
    (reset,) = watch.look([committed("g", 0, 0, 10)], 2.0)
    assert (reset.consumed_per_second, reset.seconds_to_catch_up) == (-10.0, None)


def test_partitions_that_come_and_go_have_no_rate() -> None:
    watch = LagWatch()
    watch.look([committed("g", 0, 0, 10), committed("gone", 0, 5, None)], 0.0)
    rows = watch.look([committed("g", 1, 7, 9), committed("new", 0, 1, 2)], 1.0)
    assert [(row.group, row.consumed_per_second, row.lag) for row in rows] == [
        ("g", 0.0, 2),
        ("new", None, 1),
    ]


def test_a_group_without_a_lag_is_watched() -> None:
    watch = LagWatch()
    for at in range(2):
        (pace,) = watch.look([GroupOffset("g", None, None, None, state="none", note="why")], float(at))
    assert (pace.lag, pace.seconds_to_catch_up, pace.history) == (None, None, ())
    assert (pace.state, pace.note) == ("none", "why")


def test_history_is_bounded() -> None:
    watch = LagWatch()
    for at in range(50):
        (pace,) = watch.look([committed("g", 0, 0, at)], float(at))
    assert pace.history == tuple(range(30, 50))


def test_prometheus_text() -> None:
    rows = [committed("g", 0, 4, 10), committed("g", 1, 9, 5), committed("g", 2, 1, None)]
    rows[1] = replace(rows[1], state="beyond")
    rows.append(GroupOffset("g", "t", 3, 0, expired=7, state="expired"))
    rows.append(GroupOffset("h", None, None, None, state="none"))
    assert prometheus_text(rows).splitlines() == [
        "# HELP kafka_consumergroup_current_offset Committed offset of a consumer group",
        "# TYPE kafka_consumergroup_current_offset gauge",
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="0"} 4',
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="1"} 9',
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="2"} 1',
        'kafka_consumergroup_current_offset{consumergroup="g",topic="t",partition="3"} 0',
        "# HELP kafka_consumergroup_lag Offsets between the committed one and the end of the log",
        "# TYPE kafka_consumergroup_lag gauge",
        'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="0"} 6',
        'kafka_consumergroup_lag{consumergroup="g",topic="t",partition="1"} -4',
        "# HELP kafka_consumergroup_lag_sum Lag of a consumer group over all partitions of a topic",
        "# TYPE kafka_consumergroup_lag_sum gauge",
        'kafka_consumergroup_lag_sum{consumergroup="g",topic="t"} 6',
        "# HELP kafka_topic_partition_current_offset End of the log of a partition",
        "# TYPE kafka_topic_partition_current_offset gauge",
        'kafka_topic_partition_current_offset{topic="t",partition="0"} 10',
        'kafka_topic_partition_current_offset{topic="t",partition="1"} 5',
        "# HELP kafkalog_consumergroup_expired Offsets that were deleted before they were read",
        "# TYPE kafkalog_consumergroup_expired gauge",
        'kafkalog_consumergroup_expired{consumergroup="g",topic="t",partition="3"} 7',
        "# HELP kafkalog_consumergroup_trouble 1 where the lag says nothing: see the state",
        "# TYPE kafkalog_consumergroup_trouble gauge",
        'kafkalog_consumergroup_trouble{consumergroup="g",topic="t",partition="1",state="beyond"} 1',
        'kafkalog_consumergroup_trouble{consumergroup="h",state="none"} 1',
    ]


def test_a_group_may_have_any_name() -> None:
    name = 'a\\b"c\nd é'
    line = prometheus_text([committed(name, 0, 1, 2)]).splitlines()[2]
    assert (
        line
        == 'kafka_consumergroup_current_offset{consumergroup="a\\\\b\\"c\\nd é",topic="t",partition="0"} 1'
    )
    found = re.search(r'consumergroup="((?:[^"\\]|\\.)*)"', line)
    assert found is not None
    unescaped = re.sub(r"\\(.)", lambda letter: {"n": "\n"}.get(letter[1], letter[1]), found[1])
    assert unescaped == name


def test_one_end_for_a_partition_that_two_groups_read() -> None:
    text = prometheus_text([committed("a", 0, 1, 9), committed("b", 0, 2, 9)])
    assert text.count("kafka_topic_partition_current_offset{") == 1
    assert text.endswith("\n")
