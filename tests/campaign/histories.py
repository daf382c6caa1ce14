"""Holds what streams delivered against what was written: pure, so that its own tests can lie to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Offsets = Mapping[tuple[str, int], int]
"""By topic and partition."""
_SHOWN = 10


class Record(NamedTuple):
    """A record where it was written. Each number is written once; a recreated topic has another name here."""

    topic: str
    partition: int
    offset: int
    number: int


@dataclass(frozen=True)
class Topic:
    """What is known of a topic at the end of a round."""

    acknowledged: frozenset[int]
    """The numbers for which the producer has the word of all replicas in sync."""
    stored: frozenset[Record]
    """What the log has at the end."""
    whole: bool = True
    """The log still has all that it ever had."""
    may_lose: bool = False
    """It is not whole, and what is gone need not have been delivered."""


@dataclass
class Verdict:
    """What is wrong with a history, in lines of text, and what was counted."""

    findings: list[str] = field(default_factory=list)
    delivered: int = 0
    duplicates: int = 0

    def find(self, what: str, items: Iterable[object]) -> None:
        """Tell of these, if there are any."""
        found = sorted(items)  # type: ignore[type-var]
        if found:
            more = f" … {found[-1]}" if len(found) > _SHOWN else ""
            self.findings.append(f"{len(found)} {what}: {', '.join(map(str, found[:_SHOWN]))}{more}")


def check(
    history: Mapping[int, Sequence[Record]],
    topics: Mapping[str, Topic],
    *,
    exactly_once: bool,
    complete: bool = True,
) -> Verdict:
    """Judge what a stream delivered.

    :param history: in the order in which each partition of the sink has it.
    :param topics: all that the stream reads.
    :param exactly_once: no record may come twice; otherwise those that do are counted.
    :param complete: False for a stream that ended early with good reason: it need not have all.
    """
    verdict = Verdict()
    counts = Counter(record for records in history.values() for record in records)
    verdict.delivered = len(counts)
    verdict.duplicates = counts.total() - len(counts)
    if exactly_once:
        verdict.find("records came twice", (record for record, count in counts.items() if count > 1))
    verdict.find(
        "records of topics that are not read", (place for place in counts if place.topic not in topics)
    )
    for name, topic in topics.items():
        delivered = {record for record in counts if record.topic == name}
        if complete:
            lost = topic.stored - delivered
            verdict.find(f"records of {name} are in the log and did not come", lost)
            if not topic.may_lose:
                numbers = {record.number for record in delivered}
                verdict.find(f"acknowledged numbers of {name} did not come", topic.acknowledged - numbers)
        if topic.whole:
            invented = delivered - topic.stored
            verdict.find(f"records of {name} came and are not in the log", invented)
        places = Counter((record.partition, record.offset) for record in delivered | topic.stored)
        two = (place for place, count in places.items() if count > 1)
        verdict.find(f"offsets of {name} have two records", two)
    verdict.find("records came out of order", _out_of_order(history))
    return verdict


def _out_of_order(history: Mapping[int, Sequence[Record]]) -> Iterable[Record]:
    """Records that came for the first time, behind a later one of their partition."""
    seen: set[Record] = set()
    for records in history.values():
        last: dict[tuple[str, int], int] = {}
        for record in records:
            source = record.topic, record.partition
            if record not in seen and record.offset < last.get(source, -1):
                yield record
            seen.add(record)
            last[source] = max(record.offset, last.get(source, -1))


def check_shared(
    members: Mapping[int, Sequence[Record]],
    topics: Mapping[str, Topic],
    committed: Iterable[Record],
    *,
    again: Sequence[Record],
    limit: int,
) -> Verdict:
    """Judge what the members of one group delivered together: all, and each that is committed once.

    :param members: what each delivered, in order.
    :param committed: what was delivered in steps of consumers whose commit was answered.
    :param again: what a query delivered that may be committed or not.
    :param limit: how many of these may be repeated, by the query or by those that have committed them.
    """
    verdict = check(members, topics, exactly_once=False)
    counts = Counter(committed)
    verdict.find("records were committed twice", (record for record, count in counts.items() if count > 1))
    repeats = len(again) - len({*again}) + len({*again} & counts.keys())
    if repeats > limit:
        verdict.findings.append(f"{repeats} records came again, expected no more than {limit}")
    return verdict


def check_premise(topics: Mapping[str, Topic]) -> Verdict:
    """Whether the cluster itself kept what it acknowledged. If not, nothing can be said of the streams."""
    verdict = Verdict()
    for name, topic in topics.items():
        if topic.whole:
            stored = {record.number for record in topic.stored}
            verdict.find(f"acknowledged numbers are not in the log of {name}", topic.acknowledged - stored)
    return verdict


def check_committed(committed: Offsets, finished: Offsets) -> Verdict:
    """A group is never ahead of what its query has finished. ``committed`` was looked up first."""
    verdict = Verdict()
    ahead = (
        f"{topic}-{partition} at {offset}, finished {finished.get((topic, partition))}"
        for (topic, partition), offset in committed.items()
        if offset > finished.get((topic, partition), -1)
    )
    verdict.find("partitions were committed ahead", ahead)
    return verdict


def check_copy(
    original: Mapping[int, Sequence[int]],
    copy: Mapping[int, Sequence[int]],
    committed: Collection[int],
    aborted: Collection[int],
) -> Verdict:
    """Judge a copy of a topic: the numbers of each partition, in the order in which its log has them."""
    verdict = Verdict()
    counts = Counter(number for numbers in copy.values() for number in numbers)
    verdict.find("acknowledged numbers are not in the copy", set(committed) - set(counts))
    verdict.find("numbers are in the copy twice", (number for number, count in counts.items() if count > 1))
    verdict.find("aborted numbers are visible in the copy", set(aborted) & set(counts))
    wrong = (
        number
        for number in original.keys() | copy
        if list(original.get(number, ())) != list(copy.get(number, ()))
    )
    verdict.find("partitions of the copy differ", wrong)
    return verdict


def check_batch(counts: Mapping[tuple[str, int], Sequence[int]], least: Offsets) -> Verdict:
    """What a batch read in partitions that lose nothing: all from offset 0 on, each once, and not too little.

    :param counts: rows, distinct offsets, the least and the greatest offset.
    :param least: offsets that were acknowledged long before the batch began.
    """
    verdict = Verdict()
    broken = (
        f"{topic}-{partition}: {rows} rows, {distinct} offsets from {first} to {last}"
        for (topic, partition), (rows, distinct, first, last) in counts.items()
        if first != 0 or not rows == distinct == last + 1
    )
    verdict.find("partitions have gaps or duplicates in a batch", broken)
    short = (
        f"{topic}-{partition} has not {offset}"
        for (topic, partition), offset in least.items()
        if counts.get((topic, partition), (0, 0, 0, -1))[3] < offset
    )
    verdict.find("partitions are read short by a batch", short)
    return verdict
