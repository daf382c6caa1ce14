"""Options that both formats refuse: which, and when."""

from __future__ import annotations

from tests.parity.case import Outcome, case
from tests.parity.lab import FIRST, Lab, Options, error_of, offsets, values
from tests.parity.suites import MICRO_BATCH_V2, RELATION, SOURCE


def _refused(lab: Lab, options: Options, kind: str, pattern: str, *, stream: bool) -> str:
    """``kind`` if the options are refused with such a text, and when."""
    kinds = {kind: pattern}
    load = lab.read_stream if stream else lab.read
    at_load = error_of(lambda: load(options), **kinds)
    if at_load != "none":
        return f"{at_load}, by load"
    run = (lambda: lab.start(options).process()) if stream else (lambda: values(lab.read(options)))
    return f"{error_of(run, **kinds)}, by the query"


_SELECTIONS: dict[str, tuple[Options, str, str]] = {
    "no selection": ({}, "one is needed", "One of .* must be (specified|given)|must be specified"),
    "subscribe and subscribePattern": (
        {"subscribe": "t", "subscribePattern": "t.*"},
        "only one",
        "only one|exactly one",
    ),
    "subscribe and assign": ({"subscribe": "t", "assign": '{"a":[0]}'}, "only one", "only one|exactly one"),
    "assign=": ({"assign": ""}, "empty", "no topicpartitions to assign|'assign'"),
    "subscribe=": ({"subscribe": ""}, "empty", "no topics to subscribe|'subscribe'"),
    "subscribePattern=": (
        {"subscribePattern": ""},
        "empty",
        "pattern to subscribe is empty|'subscribePattern'",
    ),
}
_STREAM_RULES: dict[str, tuple[Options, str, str]] = {
    "endingOffsets": (
        {"subscribe": "t", "endingOffsets": "latest"},
        "not in streams",
        "ending offset not valid in streaming|endingOffsets.*stream",
    ),
    "endingOffsetsByTimestamp": (
        {"subscribe": "t", "endingOffsetsByTimestamp": offsets("t", [1_700_000_000_000])},
        "not in streams",
        "ending timestamp not valid in streaming|endingOffsetsByTimestamp.*stream",
    ),
    "minOffsetsPerTrigger above max": (
        {"subscribe": "t", "minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 15},
        "min above max",
        "minOffsets?PerTrigger.*higher than.*maxOffsetsPerTrigger",
    ),
}
_ONLY_LATER = (
    "PySpark passes a stream's options when the query starts, so rules for streams alone apply only then."
)


@case(
    SOURCE,
    "bad source options",
    peer={name: f"{kind}, by load" for name, (_, kind, _) in {**_SELECTIONS, **_STREAM_RULES}.items()},
    ours=dict.fromkeys(("endingOffsets", "endingOffsetsByTimestamp"), "not in streams, by the query"),
    note=_ONLY_LATER,
)
def bad_stream_options(lab: Lab) -> Outcome:
    return {
        name: _refused(lab, options, kind, pattern, stream=True)
        for name, (options, kind, pattern) in {**_SELECTIONS, **_STREAM_RULES}.items()
    }


_BATCH_OFFSETS: dict[str, tuple[Options, str, str]] = {
    "startingOffsets=latest": (
        {"subscribe": "t", "startingOffsets": "latest"},
        "start at latest",
        "starting offset can't be latest|startingOffsets.*latest",
    ),
    "startingOffsets with -1": (
        {"subscribe": "t", "startingOffsets": offsets("t", [-1])},
        "start at latest",
        "startingOffsets for t-0 can't be latest|startingOffsets.*latest",
    ),
    "endingOffsets=earliest": (
        {"subscribe": "t", "endingOffsets": "earliest"},
        "end at earliest",
        "ending offset can't be earliest|endingOffsets.*earliest",
    ),
    "endingOffsets with -2": (
        {"subscribe": "t", "endingOffsets": offsets("t", [-2])},
        "end at earliest",
        "ending offset for t-0 can't be earliest|endingOffsets.*earliest",
    ),
}


@case(
    RELATION,
    "bad batch query options",
    peer={name: f"{kind}, by load" for name, (_, kind, _) in {**_SELECTIONS, **_BATCH_OFFSETS}.items()},
    ours={name: f"{kind}, by the query" for name, (_, kind, _) in _BATCH_OFFSETS.items()},
    note="PySpark asks for a schema before it says whether this is a batch or a stream, so rules for batches "
    "alone apply only when the query starts.",
)
def bad_batch_options(lab: Lab) -> Outcome:
    return {
        name: _refused(lab, options, kind, pattern, stream=False)
        for name, (options, kind, pattern) in {**_SELECTIONS, **_BATCH_OFFSETS}.items()
    }


_UNSUPPORTED = [
    ("kafka.auto.offset.reset", "someValue"),
    ("kafka.auto.offset.reset", "none"),
    ("kafka.auto.offset.reset", "earliest"),
    ("kafka.auto.offset.reset", "latest"),
    ("kafka.enable.auto.commit", "someValue"),
    ("kafka.interceptor.classes", "someValue"),
    ("kafka.key.deserializer", "someValue"),
    ("kafka.value.deserializer", "someValue"),
]


@case(
    SOURCE,
    "unsupported kafka configs",
    peer={f"{name}={value}": "not supported, by load" for name, value in _UNSUPPORTED},
)
def unsupported_settings(lab: Lab) -> Outcome:
    return {
        f"{name}={value}": _refused(
            lab, {"subscribe": "t", name: value}, "not supported", "is not supported", stream=True
        )
        for name, value in _UNSUPPORTED
    }


@case(
    SOURCE,
    "get offsets from case insensitive parameters",
    peer={"earLiEst to laTest": [0, 1], "offsets of topic-A": [1]},
    note="Shown by a batch read.",
)
def words_in_any_case(lab: Lab) -> Outcome:
    topic = lab.topic(name=f"{lab.new_name()}-A")
    lab.send(topic, [0, 1])
    words = {"startingOffsets": "earLiEst", "endingOffsets": "laTest"}
    return {
        "earLiEst to laTest": values(lab.read({"subscribe": topic, **words})),
        "offsets of topic-A": values(lab.read({"subscribe": topic, "STARTINGOFFSETS": offsets(topic, [1])})),
    }


def _mismatch(name: str, condition: str, pattern: str, start: list[int], end: list[int]) -> None:
    @case(RELATION, name, peer={"offsets": condition, "timestamps": condition})
    def mismatch(lab: Lab) -> Outcome:
        kinds = {condition: f"{condition}|{pattern}"}

        def error(starting: str, ending: str, base: int) -> str:
            given = {
                "subscribe": "test",
                starting: offsets("test", [base + number for number in start]),
                ending: offsets("test", [base + number for number in end]),
            }
            return error_of(lambda: values(lab.read(given)), **kinds)

        return {
            "offsets": error("startingOffsets", "endingOffsets", 0),
            "timestamps": error("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", FIRST),
        }


_mismatch(
    "topic-partition for start offset and end offset must match",
    "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
    "start (offset|timestamp) and end (offset|timestamp) should have the same topic-partitions",
    [1, 1, 1],
    [0, 0],
)
_mismatch(
    "unresolved start offset greater than end offset",
    "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
    "specified start (offset|timestamp) .* is greater than the end",
    [1, 1, 1],
    [0, 0, 0],
)


@case(
    MICRO_BATCH_V2,
    "minPartitions is supported",
    peer={
        "tasks without it": 1,
        "tasks with 1": 1,
        "tasks with 4": 4,
        "tasks of a micro-batch with 4": 4,
        **{f"minPartitions={word}": "minPartitions" for word in ("a", "1.0", "0", "-1")},
    },
)
def min_partitions(lab: Lab) -> Outcome:
    topic = lab.topic()
    lab.send(topic, range(100))
    options: dict[str, object] = {"subscribe": topic}
    outcome: dict[str, object] = {
        "tasks without it": lab.read(options).rdd.getNumPartitions(),
        **{
            f"tasks with {number}": lab.read({**options, "minPartitions": number}).rdd.getNumPartitions()
            for number in (1, 4)
        },
    }
    stream = {**options, "startingOffsets": "earliest", "minPartitions": 4}
    (numbers,) = lab.available_now(stream, take=lambda batch: [batch.rdd.getNumPartitions()])
    outcome["tasks of a micro-batch with 4"] = numbers[0]

    def refusal(word: str) -> str:
        # Java's NumberFormatException says the word only.
        kinds = {"minPartitions": f'minPartitions|For input string: "{word}"'}
        return error_of(lambda: values(lab.read({**options, "minPartitions": word})), **kinds)

    return {**outcome, **{f"minPartitions={word}": refusal(word) for word in ("a", "1.0", "0", "-1")}}
