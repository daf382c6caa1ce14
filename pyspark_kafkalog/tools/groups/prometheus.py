"""The lag of groups in Prometheus' text format, under the names that kafka_exporter gives them.

Source: Prometheus' exposition formats, version 0.0.4; https://github.com/danielqsj/kafka_exporter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pyspark_kafkalog.tools.groups.consumer_groups import BEYOND, GONE, UNKNOWN, GroupOffset

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_Labels = tuple[tuple[str, str], ...]


def prometheus_text(offsets: Iterable[GroupOffset]) -> str:
    """Gauges of each committed offset, its lag, the lag of each topic, and the ends of the partitions.

    A partition that no longer exists has a committed offset and no lag. As everywhere, a negative lag counts
    as 0 in sums. What an alarm on the lag would miss has gauges of its own, under our name.
    """
    current: dict[_Labels, int] = {}
    lag: dict[_Labels, int] = {}
    lag_sum: Counter[_Labels] = Counter()
    ends: dict[_Labels, int] = {}
    expired: dict[_Labels, int] = {}
    trouble: dict[_Labels, int] = {}
    for row in offsets:
        group, state = ("consumergroup", row.group), ("state", row.state)
        if row.topic is None or row.offset is None:
            trouble[group, state] = 1
            continue
        topic = ("topic", row.topic)
        partition = ("partition", str(row.partition))
        current[group, topic, partition] = row.offset
        if row.state in (BEYOND, GONE, UNKNOWN):
            trouble[group, topic, partition, state] = 1
        if row.expired is not None:
            expired[group, topic, partition] = row.expired
        if row.lag is not None and row.log_end_offset is not None:
            lag[group, topic, partition] = row.lag
            lag_sum[group, topic] += max(row.lag, 0)
            ends[topic, partition] = row.log_end_offset
    metrics = (
        ("kafka_consumergroup_current_offset", "Committed offset of a consumer group", current),
        ("kafka_consumergroup_lag", "Offsets between the committed one and the end of the log", lag),
        ("kafka_consumergroup_lag_sum", "Lag of a consumer group over all partitions of a topic", lag_sum),
        ("kafka_topic_partition_current_offset", "End of the log of a partition", ends),
        ("kafkalog_consumergroup_expired", "Offsets that were deleted before they were read", expired),
        ("kafkalog_consumergroup_trouble", "1 where the lag says nothing: see the state", trouble),
    )
    return "".join(line for metric in metrics for line in _lines(*metric))


def _lines(name: str, meaning: str, samples: Mapping[_Labels, int]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}\n"
    yield f"# TYPE {name} gauge\n"
    for labels, value in samples.items():
        shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
        yield f"{name}{{{shown}}} {value}\n"
