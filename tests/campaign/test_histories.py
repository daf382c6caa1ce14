"""The campaign's judge finds what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.campaign.histories import (
    Record,
    Topic,
    check,
    check_batch,
    check_committed,
    check_copy,
    check_premise,
    check_shared,
)
from tests.campaign.workload import KEYS, last_of_each_key

RECORDS = [Record("a", n % 2, n // 2, n) for n in range(20)]
"""Ten in each of two partitions."""
TOPICS = {"a": Topic(frozenset(range(20)), frozenset(RECORDS))}
GOOD = {0: RECORDS[::2], 1: RECORDS[1::2]}


def findings(history: dict[int, list[Record]], *, exactly_once: bool = True, **rest: bool) -> str:
    return "\n".join(check(history, TOPICS, exactly_once=exactly_once, **rest).findings)


def test_a_good_history() -> None:
    verdict = check(GOOD, TOPICS, exactly_once=True)
    assert (verdict.findings, verdict.delivered, verdict.duplicates) == ([], 20, 0)
    assert not findings({0: RECORDS}), "partitions of the source may meet in one of the sink"


@pytest.mark.parametrize("at", range(10))
def test_a_lost_record_is_found(at: int) -> None:
    lost = GOOD | {0: GOOD[0][:at] + GOOD[0][at + 1 :]}
    assert "1 records of a are in the log and did not come" in findings(lost)
    assert f"1 acknowledged numbers of a did not come: {2 * at}" in findings(lost)
    assert not findings(lost, complete=False)


def test_a_replica_may_keep_older_records_of_a_key() -> None:
    first, last = ([Record("c", 0, n, n) for n in range(start, start + KEYS)] for start in (20, 70))
    assert last_of_each_key([*first, *last]) == last_of_each_key([*last, *first]) == set(last)


def test_a_duplicate_is_found() -> None:
    again = GOOD | {0: GOOD[0] + GOOD[0][3:5]}
    assert findings(again) == (
        "2 records came twice: Record(topic='a', partition=0, offset=3, number=6), "
        "Record(topic='a', partition=0, offset=4, number=8)"
    )
    assert not findings(again, exactly_once=False)
    assert check(again, TOPICS, exactly_once=False).duplicates == 2
    elsewhere = GOOD | {1: GOOD[1] + GOOD[0][3:5]}
    assert "came twice" in findings(elsewhere)


def test_a_wrong_order_is_found() -> None:
    swapped = GOOD | {1: [*GOOD[1][:3], GOOD[1][4], GOOD[1][3], *GOOD[1][5:]]}
    for exactly_once in (True, False):
        assert findings(swapped, exactly_once=exactly_once) == (
            "1 records came out of order: Record(topic='a', partition=1, offset=3, number=7)"
        )


def test_a_record_that_nobody_wrote_is_found() -> None:
    assert "came and are not in the log" in findings(GOOD | {2: [Record("a", 0, 10, 99)]})
    assert "have two records: (0, 3)" in findings(GOOD | {2: [Record("a", 0, 3, 99)]})
    assert "topics that are not read" in findings(GOOD | {2: [Record("b", 0, 3, 99)]})


def test_what_was_deleted_need_not_come_but_what_is_left_must() -> None:
    topics = {"a": Topic(TOPICS["a"].acknowledged, frozenset(RECORDS[10:]), whole=False, may_lose=True)}
    late = {0: RECORDS[10::2], 1: RECORDS[11::2]}
    assert not check(late, topics, exactly_once=True).findings
    assert not check(GOOD, topics, exactly_once=True).findings
    assert check({0: late[0]}, topics, exactly_once=True).findings


def test_what_was_deleted_after_it_came_must_have_come() -> None:
    topics = {"a": Topic(TOPICS["a"].acknowledged, frozenset(RECORDS[10:]), whole=False)}
    assert not check_premise(topics).findings
    assert not check(GOOD, topics, exactly_once=True).findings
    late = {0: RECORDS[10::2], 1: RECORDS[11::2]}
    assert check(late, topics, exactly_once=True).findings == [
        "10 acknowledged numbers of a did not come: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    ]


def test_a_cluster_that_lost_what_it_acknowledged_is_told_apart() -> None:
    assert not check_premise(TOPICS).findings
    assert check_premise({"a": Topic(frozenset([1, 99]), frozenset(RECORDS))}).findings == [
        "1 acknowledged numbers are not in the log of a: 99"
    ]


def test_members_of_a_group_have_all_together_and_commit_it_once() -> None:
    consumer, copier, query = RECORDS[:8], RECORDS[8:14], RECORDS[14:]

    def found(query: list[Record], committed: list[Record], limit: int = 0) -> list[str]:
        members = {0: consumer, 1: copier, 2: query}
        return check_shared(members, TOPICS, committed, again=query, limit=limit).findings

    assert not found(query, consumer + copier)
    assert "1 records of a are in the log and did not come" in found(query[1:], consumer + copier)[0]
    twice = "1 records were committed twice: Record(topic='a', partition=0, offset=0, number=0)"
    assert found(query, consumer + copier + consumer[:1]) == [twice]
    again = copier[-2:] + query + query[-1:]
    assert found(again, consumer + copier) == ["3 records came again, expected no more than 0"]
    assert not found(again, consumer + copier, limit=3)
    assert not found(query, consumer), "the last to read may not have committed it"


def test_a_group_ahead_of_its_query_is_found() -> None:
    assert not check_committed({("a", 0): 5}, {("a", 0): 5, ("a", 1): 7}).findings
    assert check_committed({("a", 0): 6}, {("a", 0): 5}).findings == [
        "1 partitions were committed ahead: a-0 at 6, finished 5"
    ]
    assert check_committed({("a", 0): 0}, {}).findings


def test_a_copy_that_lost_doubled_or_mixed_anything_is_found() -> None:
    original = {0: [1, 3, 5], 1: [2, 4]}

    def found(copy: dict[int, list[int]]) -> list[str]:
        return check_copy(original, copy, {1, 2, 3, 4, 5}, {6}).findings

    assert not found(original)
    assert "1 acknowledged numbers are not in the copy: 5" in found(original | {0: [1, 3]})
    assert "1 numbers are in the copy twice: 3" in found(original | {0: [1, 3, 3, 5]})
    assert "1 aborted numbers are visible in the copy: 6" in found(original | {1: [2, 4, 6]})
    assert found(original | {1: [4, 2]}) == ["1 partitions of the copy differ: 1"]


def test_a_batch_with_gaps_duplicates_or_too_little_is_found() -> None:
    assert not check_batch({("a", 0): (10, 10, 0, 9)}, {("a", 0): 9}).findings
    for counts in ((9, 9, 0, 9), (10, 9, 0, 9), (9, 9, 1, 9), (11, 10, 0, 9)):
        assert check_batch({("a", 0): counts}, {}).findings
    assert check_batch({("a", 0): (10, 10, 0, 9)}, {("a", 0): 10}).findings
    assert check_batch({}, {("a", 1): 0}).findings
