"""Which commits a restore translates."""

from __future__ import annotations

from pyspark_kafkalog.backups.restore_groups import restore_groups
from pyspark_kafkalog.backups.restore_state import OffsetMap, PlannedPartition
from pyspark_kafkalog.codec.marker import MarkerDetails, marker_metadata
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.reading.fake_groups import FakeGroups

T0 = TopicPartition("t", 0)


def test_a_marker_is_no_offset_to_translate() -> None:
    metadata = marker_metadata(MarkerDetails("query", "c", "", 5))
    source = FakeGroups(
        {"etl": {T0: CommittedOffset(4)}, "kafkalog-x": {T0: CommittedOffset(7, metadata=metadata)}}
    )
    target = FakeGroups()
    rows = restore_groups(source, target, None, [PlannedPartition("t", 0, 0, 10, "t")], {T0: OffsetMap(0, 0)})
    assert [row.group for row in rows] == ["etl"]
    assert target.offsets.keys() == {"etl"}
