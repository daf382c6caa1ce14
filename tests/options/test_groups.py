"""The options about a consumer group, alike for brokers and directories."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import COMMITTED, EARLIEST, LATEST
from pyspark_kafkalog.options.settings import GroupOptions, ReadOptions, read_options

PLACES = [{"path": "/log"}, {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}]


@pytest.fixture(params=PLACES, ids=["directory", "brokers"])
def place(request: pytest.FixtureRequest) -> dict[str, str]:
    return dict(request.param)


def stream(place: dict[str, str], **options: str) -> ReadOptions:
    return read_options({**place, **{k.replace("__", "."): v for k, v in options.items()}}, batch=False)


def test_without_a_group_nothing_is_committed(place: dict[str, str]) -> None:
    assert stream(place).group == GroupOptions(none_committed=LATEST)
    assert stream(place, groupIdPrefix="p", queryName="q").group.commits is False


def test_a_group_is_committed_to_unless_told_otherwise(place: dict[str, str]) -> None:
    assert stream(place, kafka__group__id="g").group == GroupOptions("g", commits=True, none_committed=LATEST)
    assert stream(place, kafka__group__id="g", commitOffsets="false").group.commits is False
    required = stream(place, kafka__group__id="g", commitOffsets="REQUIRED").group
    assert (required.commits, required.required) == (True, True)


def test_the_querys_name_makes_a_group(place: dict[str, str]) -> None:
    named = stream(place, commitOffsets="true", queryName="orders").group
    assert (named.group_id, named.commits) == ("spark-kafka-source-orders", True)
    prefixed = stream(place, commitOffsets="true", queryName="orders", groupIdPrefix="etl").group
    assert prefixed.group_id == "etl-orders"


def test_a_commit_to_no_group_is_refused(place: dict[str, str]) -> None:
    with pytest.raises(
        OptionError, match=r"no consumer group is given\. Give 'kafka\.group\.id', or give 'queryName'"
    ):
        stream(place, commitOffsets="true")
    with pytest.raises(OptionError, match="'commitOffsets': expected one of true, false, required"):
        stream(place, commitOffsets="maybe")


@pytest.mark.parametrize(
    ("group_id", "says"),
    [
        ("", r"'kafka\.group\.id' is empty\. Give the name of a group, or leave it out\."),
        ("g" * 32768, r"'kafka\.group\.id': expected 1 to 32767 bytes"),
    ],
)
def test_an_id_that_kafka_would_refuse_is_refused(place: dict[str, str], group_id: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        stream(place, kafka__group__id=group_id)


def test_a_batch_starts_from_a_group_and_commits_nothing(place: dict[str, str]) -> None:
    options = {**place, "kafka.group.id": "g", "startingOffsets": "committed"}
    batch = read_options(options, batch=True)
    assert batch.starting.values == COMMITTED
    assert batch.group == GroupOptions("g", commits=False, none_committed=EARLIEST)


@pytest.mark.parametrize(("strategy", "start"), [("earliest", EARLIEST), ("latest", LATEST), ("error", None)])
def test_where_nothing_is_committed(place: dict[str, str], strategy: str, start: int | None) -> None:
    options = {"startingOffsets": "committed", "startingOffsetsByCommittedStrategy": strategy}
    assert stream(place, kafka__group__id="g", **options).group.none_committed == start


def test_committed_offsets_need_a_group(place: dict[str, str]) -> None:
    for batch in True, False:
        with pytest.raises(OptionError, match="is 'committed', but no consumer group is given"):
            read_options({**place, "startingOffsets": "committed"}, batch=batch)
    with pytest.raises(OptionError, match="'endingOffsets'"):
        read_options({**place, "endingOffsets": "committed", "kafka.group.id": "g"}, batch=True)


def test_groupidprefix_is_ignored_beside_a_group(
    place: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert stream(place, kafka__group__id="g", groupIdPrefix="p").group.group_id == "g"
    assert "groupIdPrefix is ignored" in caplog.text
