"""What a query keeps about its writes, and what it makes of damage there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import KafkaLogError, TransactionError
from pyspark_kafkalog.extensions.exactly_once.intent import (
    Intent,
    Producers,
    RowsOf,
    Settling,
    store_intent,
    store_producers,
    stored_intent,
    stored_producers,
)
from pyspark_kafkalog.extensions.exactly_once.marker import (
    CommittedEpochs,
    Marker,
    OldMarkerError,
    RowsEnd,
    ends_with,
    transactional_id,
)
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import locate
from tests.extensions.exactly_once.works import work_of

INTENT = Intent("query", "cluster", "topic", 3, 1_700_000_000_000)
INTENT_OF_QUERY = replace(INTENT, confirmed=True)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return locate(str(tmp_path))


def test_an_intent_comes_back(folder: Folder) -> None:
    assert stored_intent(folder) is None
    whole = replace(INTENT, settling=(Settling(7, 3, 5), Settling(7, 4, 6, started=False)))
    for intent in (INTENT, whole):
        store_intent(folder, intent)
        assert stored_intent(folder) == intent


def marker_of(plan: str = "three", since: int = 0) -> Marker:
    """That of batch 3."""
    return Marker("query", "cluster", 3, plan, 0, 7, 5, CommittedEpochs.alone(5, since=since), ())


@pytest.mark.parametrize(
    ("whole", "damaged"), [("[2, 5, 5]", "[2, 5, 4]"), ("[2, 5, 5]", "[]"), ('"producer"', '"other"')]
)
def test_a_damaged_marker(whole: str, damaged: str) -> None:
    marker = marker_of(since=2).as_offset()
    assert whole in marker.metadata
    with pytest.raises(TransactionError, match="not a marker of this package"):
        Marker.of(replace(marker, metadata=marker.metadata.replace(whole, damaged)), "group")


def test_producers_come_back(folder: Folder) -> None:
    assert stored_producers(folder) == Producers()
    for producers in (Producers((7, 9)), Producers((7,), RowsOf(7, 4))):
        store_producers(folder, producers)
        assert stored_producers(folder) == producers
    folder.replace("producers.json", b'{"ids": [5]}')
    with pytest.raises(TransactionError, match=r"corrupt .*producers\.json.*Stop all runs of the query"):
        stored_producers(folder)


def test_the_newest_producers_are_known() -> None:
    producers = Producers()
    for producer_id in (*range(30), 29, 20):
        producers = producers.with_id(producer_id)
    assert producers.ids == (*range(10, 20), *range(21, 30), 20)


def test_which_rows_a_query_has_written_before_others() -> None:
    producers = Producers((7, 9))
    assert producers.is_before(RowsOf(7, 3), RowsOf(7, 4))
    assert producers.is_before(RowsOf(7, 3), RowsOf(9, 0))
    for later in (RowsOf(7, 3), RowsOf(7, 2), RowsOf(8, 9), RowsOf(-1, 9)):
        assert not producers.is_before(RowsOf(7, 3), later)
    assert not producers.is_before(RowsOf(9, 0), RowsOf(7, 3))
    assert producers.with_id(7).is_before(RowsOf(9, 0), RowsOf(7, 3)), "the cluster has gone back to it"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"query_id": 5}',
        b'{"query_id": "q", "cluster_id": null, "topic": "t", "batch": 0, "since_ms": 0, "confirmed": true}',
        json.dumps(
            {"query_id": "q", "cluster_id": None, "topic": 5, "batch": 0, "since_ms": 0, "confirmed": True}
        ),
        json.dumps(
            {
                "query_id": "q",
                "cluster_id": None,
                "topic": "t",
                "batch": 0,
                "since_ms": None,
                "confirmed": True,
            }
        ),
    ],
    ids=range(10),
)
def test_a_damaged_intent_is_named(folder: Folder, tmp_path: Path, content: bytes | str) -> None:
    (tmp_path / "intent.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TransactionError, match=r"corrupt .*intent\.json.*Stop all runs of the query"):
        stored_intent(folder)


def test_an_intent_that_is_no_file(folder: Folder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "intent.json")
    with pytest.raises(KafkaLogError, match=r"intent\.json"):
        stored_intent(folder)


def test_an_intent_that_cannot_be_stored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TransactionError, match=r"Could not store .*intent\.json.*Let the user"):
        store_intent(locate(str(tmp_path / "file" / "below")), INTENT)


def test_ids_are_stable_and_apart() -> None:
    assert transactional_id("query") == "kafkalog-vc3xdeqlqmm6i4sr2e3a6xuibp"
    assert transactional_id("query2") != transactional_id("query")


def test_a_marker_fits_the_brokers_limit_of_metadata() -> None:
    ranges = tuple((epoch, epoch) for epoch in range(32000, 32000 + 3 * 64, 3))
    epochs = CommittedEpochs(31_000, ranges)
    ends = tuple(RowsEnd(number, 32_767, 2**31 - 1) for number in range(10_000))
    marker = Marker("q" * 36, "c" * 22, 2**62, "d" * 64, 2**62, 2**62, 32_767, epochs, ())
    marker = replace(marker, ends=ends_with(marker, 2**62, ends))
    assert len(marker.ends) == 32
    assert len(marker.as_offset().metadata) < 2400
    assert Marker.of(marker.as_offset(), "group") == marker


def test_a_marker_keeps_where_rows_end_of_partitions_without_new_ones() -> None:
    marker = replace(marker_of(), ends=(RowsEnd(0, 5, 9), RowsEnd(1, 4, 3)))
    assert ends_with(marker, 7, [RowsEnd(0, 6, 2)]) == (RowsEnd(0, 6, 2), RowsEnd(1, 4, 3))
    assert ends_with(marker, 8, [RowsEnd(2, 0, 1)]) == (RowsEnd(2, 0, 1),), "of another producer"
    assert ends_with(None, 8, [RowsEnd(2, 0, 1)]) == (RowsEnd(2, 0, 1),)
    damaged = replace(
        marker.as_offset(), metadata=marker.as_offset().metadata.replace("[0, 5, 9, ", "[5, 9, ")
    )
    with pytest.raises(TransactionError, match="not a marker of this package"):
        Marker.of(damaged, "group")


@pytest.mark.parametrize("is_job", [False, True])
def test_a_job_may_begin_with_any_batch(is_job: bool) -> None:
    work = work_of(5, is_job=is_job)
    if is_job:
        assert not work.is_committed(None, None, "cluster")
    else:
        with pytest.raises(TransactionError, match="Batch 5 of this query is to be written"):
            work.is_committed(None, None, "cluster")


def test_a_clock_that_goes_back_only_prolongs_the_first_attempt() -> None:
    intent = Intent("query", "cluster", "topic", 0, 2**50)
    assert not work_of(0).is_committed(None, intent, "cluster")


@pytest.mark.parametrize(
    ("batch", "plan", "before", "text"),
    [
        (3, "other", "two", "other offsets"),
        (4, "four", "of a copy", "other offsets"),
        (5, "five", "four", "no later batch of this query than 3"),
        (3, None, "", "nothing tells"),
        (2, "two", "one", "has batch 3 of this query already"),
    ],
)
def test_a_marker_of_another_history(batch: int, plan: str | None, before: str, text: str) -> None:
    marker = marker_of()
    work = work_of(batch, plan, before=before)
    with pytest.raises(TransactionError, match=text):
        work.is_committed(marker, INTENT_OF_QUERY, "cluster")
    lenient = replace(work, required=False)
    if "no later" in text or "nothing tells" in text:
        assert not lenient.is_committed(marker, INTENT_OF_QUERY, "cluster")
    else:
        with pytest.raises(TransactionError, match=text):
            lenient.is_committed(marker, INTENT_OF_QUERY, "cluster")


def test_an_older_version_of_a_job_is_told_in_its_words() -> None:
    with pytest.raises(TransactionError, match="Expected txnVersion 3 or later of this txnAppId, got 2"):
        work_of(2, is_job=True).is_committed(marker_of(plan=""), INTENT_OF_QUERY, "cluster")


def test_what_going_on_costs_is_said() -> None:
    """The rows of batches between are missing if the topic went back, too, and nothing writes them again."""
    group = transactional_id("query")
    for batch, between in ((5, "batch 4"), (9, "batches 4 to 8")):
        work = work_of(batch, "new", before="old")
        with pytest.raises(OldMarkerError) as behind:
            work.is_committed(marker_of(), INTENT_OF_QUERY, "cluster")
        text = str(behind.value)
        assert f"group {group}" in text
        assert f"If topic topic went back, too, the rows of {between} are missing" in text
        assert "Bring back the newer data, or use a new checkpoint" in text
        with pytest.raises(OldMarkerError) as missing:
            work.is_committed(None, INTENT_OF_QUERY, "cluster")
        text = str(missing.value)
        assert f"marker's group {group}" in text
        assert "recreated, or went back, the rows of earlier batches are missing" in text
        assert "its rows are there twice if it was" in text
        assert text.index("cut off from the controllers") < text.index("failOnMissingMarker=false")


def test_a_marker_of_the_same_history() -> None:
    marker = marker_of()
    assert work_of(3, "three", before="two").is_committed(marker, INTENT_OF_QUERY, "cluster")
    assert not work_of(4, "four", before="three").is_committed(marker, INTENT_OF_QUERY, "cluster")
