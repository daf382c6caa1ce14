"""Tools, which call the core: one folder each. This is the list of those that :func:`.connect` offers.

Each is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_kafkalog.tools.care.room import LogCare as LogCare
    from pyspark_kafkalog.tools.checkpoint.room import CheckpointAdmin as CheckpointAdmin
    from pyspark_kafkalog.tools.doctor.compare import examine as examine
    from pyspark_kafkalog.tools.doctor.report import Report as Report
    from pyspark_kafkalog.tools.groups.room import GroupAdmin as GroupAdmin
    from pyspark_kafkalog.tools.records.room import Records as Records
    from pyspark_kafkalog.tools.topics.brokers import describe_brokers as describe_brokers
    from pyspark_kafkalog.tools.topics.room import TopicAdmin as TopicAdmin

_OFFERED = {
    "CheckpointAdmin": "checkpoint.room",
    "GroupAdmin": "groups.room",
    "LogCare": "care.room",
    "Records": "records.room",
    "Report": "doctor.report",
    "TopicAdmin": "topics.room",
    "describe_brokers": "topics.brokers",
    "examine": "doctor.compare",
}
"""The module of each class and function."""


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_OFFERED[name]}"), name)
