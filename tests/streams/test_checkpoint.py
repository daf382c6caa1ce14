"""What is kept beside a checkpoint comes back, for the same source only."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.streams.checkpoint import keep_topic_ids, kept_start_offsets, kept_topic_ids

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
