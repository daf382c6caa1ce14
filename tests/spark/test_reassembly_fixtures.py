"""``reassemble`` gives what LinkedIn's consumer gave, in a batch and in a stream of small micro-batches."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import reassemble
from tests.extensions.large_messages.cases import SCENARIOS, Scenario, as_delivered
from tests.spark.conftest import in_order


def _config(scenario: Scenario) -> str:
    return json.dumps(scenario.entry["consumer_config"])


def _by_config() -> list[list[Scenario]]:
    """The scenarios that can be read at once. Those that raise on eviction end a query of ours."""
    usable = [scenario for scenario in SCENARIOS if not scenario.settings.exception_on_message_dropped]
    return [list(group) for _, group in groupby(sorted(usable, key=_config), key=_config)]


def _options(scenarios: list[Scenario]) -> tuple[dict[str, str], dict[str, Any]]:
    """Those of the source, and those of the step."""
    config = dict(scenarios[0].entry["consumer_config"])
    config.pop("max.tracked.messages.per.partition", None)  # refused: nothing is tracked
    source = {
        "path": str(scenarios[0].folder),
        "subscribe": ",".join(sorted({scenario.case for scenario in scenarios})),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.isolation.level": config.pop("isolation.level", "read_uncommitted"),
    }
    return source, config


def _check(frame: DataFrame, scenarios: list[Scenario]) -> None:
    rows = in_order(frame)
    for scenario in scenarios:
        ours = [row.asDict(recursive=True) for row in rows if row.topic == scenario.case]
        of_partition = [row for row in ours if row["partition"] == scenario.partition]
        # A safe offset that is no longer tracked is not shown.
        delivered = [
            {name: value for name, value in row.items() if name != "safe_offset_of_message"}
            for row in scenario.expected("delivered")
        ]
        for row in delivered:
            if not isinstance(row["starting_offset"], int):
                del row["starting_offset"]
        found = [{**as_delivered(row), "starting_offset": row["startingOffset"]} for row in of_partition]
        assert [
            {name: row[name] for name in wanted} for row, wanted in zip(found, delivered, strict=False)
        ] == delivered, str(scenario)
        assert len(found) == len(delivered), str(scenario)


def _id(scenarios: list[Scenario]) -> str:
    return scenarios[0].entry["scenario"]


@pytest.mark.parametrize("scenarios", _by_config(), ids=_id)
def test_batch(spark: SparkSession, scenarios: list[Scenario]) -> None:
    source, options = _options(scenarios)
    frame = spark.read.format("kafkalog").options(**source).load()
    _check(reassemble(frame, options, extra_columns=True), scenarios)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenarios",
    [
        pytest.param(
            scenarios, id=_id(scenarios), marks=() if _id(scenarios) == "gap20" else pytest.mark.soak
        )
        for scenarios in _by_config()
        if _id(scenarios) in ("default", "gap20", "cap1500")
    ],
)
def test_stream(spark: SparkSession, scenarios: list[Scenario], tmp_path: Path) -> None:
    source, options = _options(scenarios)
    partitions = len({scenario.topic_partition for scenario in scenarios})
    frame = spark.readStream.format("kafkalog").options(**source, maxOffsetsPerTrigger=partitions * 9).load()
    whole = reassemble(frame, options, extra_columns=True)
    query = (
        whole.writeStream.format("memory")
        .queryName("reassembled")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.recentProgress[0].stateOperators[0].numRowsTotal > 0
    _check(spark.table("reassembled"), scenarios)
