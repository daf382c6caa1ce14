"""KafkaSourceSuiteBase: where streams start, with each way of choosing topics and both failOnDataLoss."""

from __future__ import annotations

from collections.abc import Callable

from tests.parity.case import Outcome, case
from tests.parity.lab import FIRST, SECOND, Lab, Options, assigned, both, error_of, offsets
from tests.parity.suites import SOURCE

_Selection = Callable[[Lab], tuple[str, Options]]
"""Makes up a topic's name, and the options that select it."""


def _assign(lab: Lab) -> tuple[str, Options]:
    topic = lab.new_name()
    return topic, assigned(topic, range(5))


def _by_name(lab: Lab) -> tuple[str, Options]:
    topic = lab.new_name()
    return topic, {"subscribe": topic}


def _by_pattern(lab: Lab) -> tuple[str, Options]:
    prefix = lab.new_name()
    return f"{prefix}-suffix", {"subscribePattern": f"{prefix}-.*"}


_SELECTIONS: dict[str, _Selection] = {
    "assign": _assign,
    "subscribing topic by name": _by_name,
    "subscribing topic by pattern": _by_pattern,
}


class _Pair:
    """One query with failOnDataLoss=true, and one with false."""

    def __init__(self, lab: Lab, options: Options) -> None:
        self._lab = lab
        self._frames = [lab.read_stream({**options, "failOnDataLoss": flag}) for flag in ("true", "false")]
        self._queries = [lab.start(frame) for frame in self._frames]

    def process(self) -> object:
        return both(*(query.process() for query in self._queries))

    def stop(self) -> None:
        for query in self._queries:
            query.stop()

    def restart(self) -> None:
        self._queries = [
            self._lab.start(frame, checkpoint=query.checkpoint)
            for frame, query in zip(self._frames, self._queries, strict=True)
        ]


def _go_on(lab: Lab, topic: str, pair: _Pair, grow: bool) -> Outcome:
    """Stop, write, restart; then, where partitions may come, add some; write to all."""
    pair.stop()
    lab.send(topic, [30, 31, 32])
    pair.restart()
    outcome = {"written while stopped": pair.process()}
    if grow:
        lab.add_partitions(topic, 10)
    lab.send(topic, range(40, 50))
    return {**outcome, "written to all partitions": pair.process()}


_GOES_ON = {"written while stopped": [30, 31, 32], "written to all partitions": [*range(40, 50)]}


def _from_latest(lab: Lab, select: _Selection, grow: bool) -> Outcome:
    topic, options = select(lab)
    lab.topic(5, name=topic)
    lab.send(topic, [-1])
    pair = _Pair(lab, {**options, "startingOffsets": "latest"})
    before = pair.process()
    lab.send(topic, [1, 2, 3])
    return {"before the start": before, "after": pair.process(), **_go_on(lab, topic, pair, grow)}


def _from_earliest(lab: Lab, select: _Selection, grow: bool) -> Outcome:
    topic, options = select(lab)
    lab.topic(5, name=topic)
    lab.send(topic, [1, 2, 3])
    pair = _Pair(lab, {**options, "startingOffsets": "earliest"})
    lab.send(topic, [4, 5, 6])
    return {"at first": pair.process(), **_go_on(lab, topic, pair, grow)}


def _from_offsets(lab: Lab, select: _Selection, grow: bool) -> Outcome:
    topic, options = select(lab)
    lab.topic(5, name=topic)
    lab.send(topic, [-20, -21, -22], 0)
    lab.send(topic, [-10, -11, -12], 1)
    lab.send(topic, [0, 1, 2], 2)
    lab.send(topic, [10, 11, 12], 3)
    lab.send(topic, [20, 21, 22], 4)
    pair = _Pair(lab, {**options, "startingOffsets": offsets(topic, [-2, -1, 0, 1, 2])})
    return {"at first": pair.process(), **_go_on(lab, topic, pair, grow=False)}


def _send_at_two_times(lab: Lab, topic: str) -> None:
    """Partition 4 has no record of the second time."""
    lab.topic(5, name=topic)
    for time, by_partition in {
        FIRST: [[-20], [-10], [0, 1], [10, 11], [20, 21, 22]],
        SECOND: [[-21, -22], [-11, -12], [2], [12], []],
    }.items():
        for partition, numbers in enumerate(by_partition):
            lab.send(topic, numbers, partition, timestamp_ms=time)


def _from_timestamps(lab: Lab, select: _Selection, grow: bool) -> Outcome:
    topic, options = select(lab)
    _send_at_two_times(lab, topic)
    times = offsets(topic, [SECOND] * 4 + [FIRST])
    pair = _Pair(lab, {**options, "startingOffsetsByTimestamp": times})
    return {"at first": pair.process(), **_go_on(lab, topic, pair, grow)}


def _from_global_timestamp(lab: Lab, select: _Selection, grow: bool) -> Outcome:
    topic, options = select(lab)
    _send_at_two_times(lab, topic)
    lab.send(topic, [23, 24], 4, timestamp_ms=SECOND)
    pair = _Pair(lab, {**options, "startingTimestamp": SECOND})
    return {"at first": pair.process(), **_go_on(lab, topic, pair, grow)}


_FROM_SECOND = [-22, -21, -12, -11, 2, 12]
_STARTS: dict[str, tuple[Callable[[Lab, _Selection, bool], Outcome], Outcome]] = {
    "latest offsets": (_from_latest, {"before the start": [], "after": [1, 2, 3]}),
    "earliest offsets": (_from_earliest, {"at first": [1, 2, 3, 4, 5, 6]}),
    "specific offsets": (_from_offsets, {"at first": [-22, -21, -20, 0, 1, 2, 11, 12, 22]}),
    "specific timestamps": (_from_timestamps, {"at first": [*_FROM_SECOND, 20, 21, 22]}),
    "global timestamp per topic": (_from_global_timestamp, {"at first": [*_FROM_SECOND, 23, 24]}),
}


def _register_start(selection: str, start: str) -> None:
    run, at_first = _STARTS[start]
    grow = selection != "assign" and start != "specific offsets"

    @case(SOURCE, f"{selection} from {start} (failOnDataLoss: true and false)", peer={**at_first, **_GOES_ON})
    def start_case(lab: Lab) -> Outcome:
        return run(lab, _SELECTIONS[selection], grow)


for _selection in _SELECTIONS:
    for _start in _STARTS:
        _register_start(_selection, _start)


def _register_no_match(selection: str, start: str) -> None:
    @case(
        SOURCE,
        f"{selection} from {start} with non-matching starting offset",
        peer={
            "no strategy": "no match",
            "error": "no match",
            "latest": _FROM_SECOND,
            "latest, then written": [23, 24, 25],
        },
    )
    def no_match(lab: Lab) -> Outcome:
        topic, options = _SELECTIONS[selection](lab)
        _send_at_two_times(lab, topic)
        if start == "specific timestamps":
            options = {**options, "startingOffsetsByTimestamp": offsets(topic, [SECOND] * 5)}
        else:
            options = {**options, "startingTimestamp": SECOND}
        strategy = "startingOffsetsByTimestampStrategy"
        kinds = {"no match": "no offset matched|no record has a timestamp"}
        outcome: dict[str, object] = {
            "no strategy": error_of(lambda: lab.start(options).process(), **kinds),
            "error": error_of(lambda: lab.start({**options, strategy: "error"}).process(), **kinds),
        }
        query = lab.start({**options, strategy: "latest"})
        outcome["latest"] = query.process()
        lab.send(topic, [23, 24, 25], 4, timestamp_ms=SECOND)
        return {**outcome, "latest, then written": query.process()}


for _selection in ("subscribing topic by name", "subscribing topic by pattern"):
    for _start in ("specific timestamps", "global timestamp per topic"):
        _register_no_match(_selection, _start)
