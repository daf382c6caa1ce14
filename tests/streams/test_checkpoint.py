"""What is kept beside a checkpoint comes back, for the same source only."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.streams.checkpoint import QueryLog, keep_topic_ids, kept_start_offsets, kept_topic_ids

T0 = TopicPartition("t", 0)


def only_file(checkpoint: Path) -> Path:
    (file,) = (path for path in checkpoint.rglob("*") if path.is_file())
    return file


def test_start_offsets_are_chosen_once(tmp_path: Path) -> None:
    location = f"file://{tmp_path}/c"
    assert kept_start_offsets(location, "one", lambda: {T0: 5}) == {T0: 5}
    assert kept_start_offsets(location, "one", lambda: {T0: 7}) == {T0: 5}
    assert kept_start_offsets(location, "other", lambda: {T0: 7}) == {T0: 7}
    assert kept_start_offsets(None, "one", lambda: {T0: 7}) == {T0: 7}


def test_topic_ids_are_kept_as_they_were_last(tmp_path: Path) -> None:
    location = str(tmp_path / "c")
    assert kept_topic_ids(location, "one") == {}
    for topic_ids in ({"t": "A", "u": "B"}, {"t": "C"}):
        keep_topic_ids(location, "one", topic_ids)
        assert kept_topic_ids(location, "one") == topic_ids
    assert kept_topic_ids(location, "other") == {}
    only_file(tmp_path / "c")


def test_without_a_location_nothing_is_kept(tmp_path: Path) -> None:
    keep_topic_ids(None, "one", {"t": "A"})
    assert kept_topic_ids(None, "one") == {}


@pytest.mark.parametrize("content", [b"{", b'{"t":5}', b"[]", b"\xff"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    location = str(tmp_path / "c")
    keep_topic_ids(location, "one", {"t": "A"})
    file = only_file(tmp_path / "c")
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*Delete the file"):
        kept_topic_ids(location, "one")
    file.unlink()
    kept_start_offsets(location, "one", lambda: {T0: 5})
    file = only_file(tmp_path / "c")
    file.write_bytes(content)
    with pytest.raises(KafkaLogError, match=rf"corrupt.*{file}.*Delete the file"):
        kept_start_offsets(location, "one", dict)


def planned(tmp_path: Path, *sources: str) -> QueryLog:
    (tmp_path / "offsets").mkdir(exist_ok=True)
    (tmp_path / "offsets" / "3").write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))
    return QueryLog(str(tmp_path))


def test_the_ends_of_a_planned_batch(tmp_path: Path) -> None:
    log = planned(tmp_path, "5", '{"t":{"0":5,"1":7}}', '{"logOffset":1}')
    assert log.ends_of(3) == {T0: 5, TopicPartition("t", 1): 7}
    assert len(log.digest_of(3)) == 64
    assert log.digest_of(4) == ""
    assert log.digest_of(3) == planned(tmp_path, "5", '{"t":{"0":5,"1":7}}', '{"logOffset":1}').digest_of(3)
    assert log.digest_of(3) != planned(tmp_path, '{"t":{"0":6}}').digest_of(3)


@pytest.mark.parametrize(
    "sources", [(), ("7",), ('{"t":{"0":5}}', '{"u":{"0":5}}')], ids=["none", "other", "two"]
)
def test_the_ends_of_a_batch_without_one_source(tmp_path: Path, sources: tuple[str, ...]) -> None:
    with pytest.raises(KafkaLogError, match=r"one source of topics, got [02] "):
        planned(tmp_path, *sources).ends_of(3)
    with pytest.raises(KafkaLogError, match="got 0"):
        planned(tmp_path, *sources).ends_of(4)
