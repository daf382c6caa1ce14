"""What is committed of a partition with large messages, and where a query starts: as LinkedIn's consumer."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.extensions.large_messages.looking_back import WANTED, OpenMessages
from pyspark_kafkalog.extensions.large_messages.options import LargeMessageOptions
from pyspark_kafkalog.extensions.large_messages.safe_offsets import SafeOffsets, WantedOffsets
from pyspark_kafkalog.extensions.large_messages.settings import AssemblerSettings
from pyspark_kafkalog.extensions.large_messages.whole_messages import WholeMessageReader
from pyspark_kafkalog.model import CommittedOffset, OffsetRange, TopicPartition
from pyspark_kafkalog.read.ranges import ReadRules
from pyspark_kafkalog.read.splits import Split
from pyspark_kafkalog.stream.committing import OffsetCommitter
from tests.extensions.large_messages.cases import SCENARIOS, InMemory, Scenario
from tests.extensions.large_messages.reader import Reader
from tests.large_log import T0, Log, Message
from tests.read.fake_groups import FakeGroups

OFFSET = pa.schema([("offset", pa.int64())])
each_scenario = pytest.mark.parametrize(
    "scenario", [scenario for scenario in SCENARIOS if not scenario.evicts], ids=str
)


def safe_offsets(scenario: Scenario) -> SafeOffsets:
    rules = ReadRules(WANTED, scenario.read_committed, True, DecodeLimits())
    return SafeOffsets(OpenMessages(lambda: scenario.place, rules, scenario.settings))


@each_scenario
def test_the_end_is_committed_as_theirs(scenario: Scenario) -> None:
    end = scenario.log_end_offset
    committed = safe_offsets(scenario)({scenario.topic_partition: end})[scenario.topic_partition]
    assert committed.offset == scenario.end("committed_raw")["offset"]
    assert committed.metadata == f"{end},"


@each_scenario
def test_every_message_is_committed_as_theirs(scenario: Scenario) -> None:
    at, partition = safe_offsets(scenario), scenario.topic_partition
    for row in scenario.table("commit_each"):
        if "exception" in row:
            continue
        ours = at({partition: row["position"]})[partition]
        assert (ours.offset, ours.metadata) == (row["committed_offset"], row["metadata"]), row
        again = safe_offsets(scenario)({partition: row["position"]})[partition]
        assert again == ours, "it is the same without what was known before"


def offsets_from(scenario: Scenario, start: int) -> list[int]:
    """Those of the messages that our reader delivers from ``start`` to the end."""
    rules = ReadRules(OFFSET, scenario.read_committed, True, DecodeLimits())
    options = LargeMessageOptions(enabled=True, settings=scenario.settings)
    split = Split(scenario.topic_partition, OffsetRange(start, scenario.log_end_offset))
    batches = WholeMessageReader(scenario.place, rules, options).read(split)
    return sorted(offset for rows in batches for offset in rows.column("offset").to_pylist())


def delivered_from(scenario: Scenario, start: int) -> list[int]:
    """Those of the messages that their consumer delivered from there on."""
    return [row["offset"] for row in scenario.delivered if row["offset"] >= start]


def first_wanted(partition: TopicPartition, offset: int, metadata: str) -> int:
    groups = FakeGroups({"g": {partition: CommittedOffset(offset, metadata=metadata)}})
    return WantedOffsets(groups).committed("g", [partition])[partition].offset


@each_scenario
def test_a_query_takes_over_where_their_consumer_was(scenario: Scenario) -> None:
    for _, _, offset, metadata, delivered, *_ in scenario.table("resume"):
        start = first_wanted(scenario.topic_partition, offset, metadata)
        found = offsets_from(scenario, start)
        if scenario.has_default_gap:
            assert found == json.loads(delivered), f"{offset}, {metadata}"
        else:
            assert found == delivered_from(scenario, start)


@each_scenario
def test_a_query_starts_at_what_anyone_committed(scenario: Scenario) -> None:
    for _, offset, metadata, _, _, delivered, *_ in scenario.table("resume_from"):
        start = first_wanted(scenario.topic_partition, offset, metadata)
        if start > scenario.log_end_offset:
            continue  # Data loss, like any committed offset beyond the end.
        found = offsets_from(scenario, start)
        assert found == delivered_from(scenario, start)
        assert set(json.loads(delivered)) <= set(found), "we may look further back than they do"


@each_scenario
def test_an_offset_to_start_from_is_as_their_seek_back_inside_what_they_track(scenario: Scenario) -> None:
    for _, offset, position, delivered in scenario.table("seek"):
        if isinstance(position, int) and offset <= scenario.log_end_offset:
            found = offsets_from(scenario, offset)
            assert found == delivered_from(scenario, offset)
            assert set(json.loads(delivered)) <= set(found), (
                "what raised errors there, or expired, does not here"
            )
            if not scenario.expected("exceptions") and scenario.has_default_gap:
                assert found == json.loads(delivered)


LARGE = Message(7, 4)
FOUR = [LARGE.segment(number) for number in range(4)]


def of_log(log: Log, gap: int = 1000) -> SafeOffsets:
    place: Any = log
    rules = ReadRules(WANTED, False, True, DecodeLimits())
    settings = AssemblerSettings(expiration_offset_gap=gap)
    return SafeOffsets(OpenMessages(lambda: place, rules, settings))


def test_no_record_is_read_twice_and_none_that_is_too_old() -> None:
    log = Log([b"x"] * 50 + FOUR[:2] + [b"x"] * 50)
    at = of_log(log, gap=20)
    assert at({T0: 60}) == {T0: CommittedOffset(50, metadata="60,")}
    assert log.fetched == set(range(39, 60))
    log.fetched.clear()
    assert at({T0: 65})[T0].offset == 50
    assert log.fetched == set(range(60, 65))
    log.fetched.clear()
    assert at({T0: 100})[T0] == CommittedOffset(100, metadata="100,")
    assert log.fetched == set(range(79, 100))


def test_what_the_group_has_proves_nothing_of_earlier_messages() -> None:
    """Their consumer commits 1 of this log as it is, since it is below its first message."""
    two = Message(7, 2)
    log = Log([two.segment(0), b"B", b"C", two.segment(1)])
    theirs = Reader(InMemory(log.values, AssemblerSettings()))
    theirs.read_offsets()
    theirs.committed = theirs.commit_at(1, "")
    assert theirs.committed == (1, "1,")
    start = first_wanted(T0, *theirs.committed)
    ours = of_log(log)({T0: 2})[T0]
    assert (start, ours) == (1, CommittedOffset(0, metadata="2,"))
    assert Reader(InMemory(log.values, AssemblerSettings()), (ours.offset, "2,")).read_offsets() == "[2,3]"


def test_offsets_without_a_record_make_nothing_expire() -> None:
    two = Message(7, 2)
    log = Log([b"a", two.segment(0), *[None] * 30, two.segment(1), b"x"])
    ends = range(2, len(log.values) + 1)
    each = [of_log(log, gap=1)({T0: end})[T0].offset for end in ends]
    assert each == [1] * 31 + [33, 34]
    at = of_log(log, gap=1)
    assert [at({T0: end})[T0].offset for end in ends] == each


def test_a_message_whose_beginning_is_not_found_is_not_skipped() -> None:
    """A segment was sent again and again, further back than anybody looks."""
    again = [FOUR[1], *[b"x"] * 99]
    at = of_log(Log(again * 30), gap=150)
    assert at({T0: 2930})[T0].offset in (2800, 2900)


def test_nothing_below_the_log_start_is_committed() -> None:
    log = Log([*FOUR[:2], *[b"x"] * 8])
    at = of_log(log)
    assert at({T0: 5})[T0].offset == 0
    log.log_start = 1
    assert at({T0: 6})[T0].offset == 1
    log.log_start = 4
    assert at({T0: 8})[T0].offset == 4


def test_where_message_segments_cannot_be_read_nothing_is_committed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, groups = Log([*FOUR[:2], b"x"], broken={1}), FakeGroups()
    committer = OffsetCommitter(groups, "g", required=False, as_committed=of_log(log))
    committer.finished({T0: 3})
    assert groups.commits == 0
    assert "The offsets of group g were not committed; next attempt in 1 s" in caplog.text
    log.broken.clear()
    again = OffsetCommitter(groups, "g", required=True, as_committed=of_log(log))
    again.finished({T0: 3})
    assert groups.offsets["g"] == {T0: CommittedOffset(0, metadata="3,")}


def test_metadata_of_anyone_is_read() -> None:
    assert first_wanted(T0, 4, "9,note") == 9
    assert first_wanted(T0, 4, "9") == first_wanted(T0, 4, "") == first_wanted(T0, 4, "-1,") == 4
    assert first_wanted(T0, 4, "2,") == 4, "what is below was committed, too"
