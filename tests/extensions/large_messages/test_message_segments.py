"""``segment.serializer`` and ``segment.deserializer.class`` without Spark, in a directory and in brokers."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import (
    KafkaLogError,
    MessageSegment,
    NewTopic,
    OptionError,
    RecordSelection,
    RecordTooLargeError,
    connect,
)
from tests.broker.producing import unused_topic
from tests.extensions.large_messages.segment_formats import FORMATS, own
from tests.tools.cli.running import run

LARGE = bytes(range(100))
WRITE = {
    "large.message.enabled": "true",
    "max.message.segment.bytes": "30",
    "segment.serializer": f"{FORMATS}:own",
    "header.timestamp.enabled": "false",
}
READ = {"large.message.enabled": "true", "segment.deserializer.class": f"{FORMATS}:from_own"}


@pytest.fixture
def topic(options: Mapping[str, str]) -> str:
    """Old values, and then a large one among small ones."""
    name = unused_topic()
    with connect(options) as kafka:
        kafka.topics.create([NewTopic(name)])
        kafka.write(table(b"old", None, b"own", b""), name)
        kafka.write(table(b"small", LARGE, b"last"), name, options=WRITE)
    return name


def table(*values: bytes | None) -> pa.Table:
    return pa.table({"key": [b"k"] * len(values), "value": pa.array(values, pa.binary())})


def values(rows: pa.RecordBatchReader) -> list[bytes | None]:
    found: list[bytes | None] = rows.read_all()["value"].to_pylist()
    return found


def test_old_values_lie_beside_message_segments(options: Mapping[str, str], topic: str) -> None:
    kafka = connect(options)
    stored = values(kafka.read(topic))
    assert stored[:5] == [b"old", None, b"own", b"", b"small"]
    assert [str(value)[2:6] for value in stored[5:9]] == ["own:"] * 4
    assert stored[9:] == [b"last"]
    whole = [b"old", None, b"own", b"", b"small", LARGE, b"last"]
    assert values(kafka.read(topic, options=READ)) == whole
    cut = kafka.plan(topic, options={**READ, "maxRecordsPerPartition": "2"})
    assert len(cut) == 5
    assert [value for split in cut for value in values(pickle.loads(pickle.dumps(split)).read())] == whole
    theirs = values(kafka.read(topic, options={"large.message.enabled": "true"}))
    assert theirs == stored, "they are not in LinkedIn's format"


def test_wrapped_small_values_may_be_bare(options: Mapping[str, str]) -> None:
    topic, kafka = unused_topic(), connect(options)
    kafka.topics.create([NewTopic(topic)])
    wrapping = {**WRITE, "li.large.message.segment.wrapping.required": "true"}
    kafka.write(table(b"small", LARGE), topic, options=wrapping)
    assert values(kafka.read(topic))[0] == b"small"
    assert values(kafka.read(topic, options=READ)) == [b"small", LARGE]


def test_a_group_commits_where_an_open_message_begins(options: Mapping[str, str]) -> None:
    topic, kafka = unused_topic(), connect(options)
    kafka.topics.create([NewTopic(topic)])
    group = f"{topic}-etl"
    pieces = [own(topic, MessageSegment(b"0123456789abcdef", n, 2, 6, b"abc")) for n in range(2)]
    for written, expected, safe in (
        ([b"old", pieces[0], b"new"], [b"old", b"new"], 1),
        ([pieces[1]], [b"abcabc"], 4),
    ):
        kafka.write(table(*written), topic)
        with kafka.changes(topic, group=group, options=READ) as changes:
            assert values(changes.read()) == expected
        (committed,) = kafka.groups.offsets([group])
        assert committed.offset == safe


def test_a_group_is_reset_to_where_an_open_message_begins(options: Mapping[str, str], topic: str) -> None:
    """The large message is at offsets 5 to 8."""
    (place,) = options.values()
    words = ("offsets", "reset", place, "--group", f"{topic}-etl", topic, "--to-offset", 7)
    named = f"segment.deserializer.class={FORMATS}:from_own"
    (step,) = run(*words, "--large-messages", "--execute", "--json", "-o", named).rows
    assert (step["offset"], step["metadata"]) == (5, "7,")
    with connect({**options, "segment.deserializer.class": f"{FORMATS}:from_own"}) as kafka:
        selection = RecordSelection(offset=7, large_messages=True)
        (rows,) = kafka.records.select(topic, selection, columns=["offset", "value"])
        assert rows.to_pylist() == [{"offset": 8, "value": LARGE}, {"offset": 9, "value": b"last"}]
    broken = connect({**options, "segment.deserializer.class": "no.such:f"})
    with pytest.raises(OptionError, match=r"The segment deserializer 'no\.such:f' cannot be imported"):
        list(broken.records.select(topic, RecordSelection(large_messages=True)))


def test_dropped_message_segments_are_shown(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    piece = own("t", MessageSegment(b"0123456789abcdef", 0, 2, 6, b"abc"))
    kafka.write(table(piece, b"1", b"2", b"3"), "t")
    gap = {"message.assembler.expiration.offset.gap": "1", "large.message.dead.letters": "true"}
    rows = kafka.read("t", columns=["value", "dropped"], options={**READ, **gap}).read_all().to_pylist()
    (letter,) = [row["dropped"] for row in rows if row["dropped"]]
    assert letter["segments"] == [{"offset": 0, "number": 0, "value": b"abc"}]
    assert sorted(row["value"] for row in rows if row["value"]) == [b"1", b"2", b"3"]


def test_errors_say_where(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    failing = {name: value.replace(":own", ":raises") for name, value in WRITE.items()}
    with pytest.raises(KafkaLogError, match=rf"The segment serializer '{FORMATS}:raises' raised") as raised:
        kafka.write(table(b"small", b"bad" * 20), "t", options=failing)
    assert raised.value.topic_partition == "t-0"
    assert not list(tmp_path.rglob("*.log"))
    kafka.write(table(b"small", b"bad"), "t")
    with pytest.raises(KafkaLogError, match=r"The segment deserializer .* these bytes are bad") as raised:
        values(kafka.read("t", options={**READ, "segment.deserializer.class": f"{FORMATS}:raises"}))
    assert (raised.value.topic_partition, raised.value.offset) == ("t-0", 1)


def test_what_can_t_be_imported_is_refused_first(tmp_path: Path) -> None:
    kafka = connect(str(tmp_path))
    with pytest.raises(OptionError, match=rf"The segment serializer '{FORMATS}:none' cannot be imported"):
        kafka.write(table(b"x"), "t", options={**WRITE, "segment.serializer": f"{FORMATS}:none"})
    assert not list(tmp_path.iterdir())
    with pytest.raises(OptionError, match=r"The segment deserializer 'no\.such:f' cannot be imported"):
        kafka.read("t", options={**READ, "segment.deserializer.class": "no.such:f"})


def test_copies_of_whole_messages_are_no_message_segments(tmp_path: Path) -> None:
    """What a reader has added is not copied; a header of the user's that is named alike is."""
    place, large = connect(tmp_path), {"large.message.enabled": "true"}
    named = [("_lm", b"mine"), ("_so", bytes(8))]
    headers = [[{"key": "n", "value": b"1"}], [{"key": key, "value": value} for key, value in named]]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = pa.table({"value": [b"x" * 900, b"small"], "headers": pa.array(headers, kind)})
    split = {"max.message.segment.bytes": "400", "li.record.header.enable": "true"}
    place.write(given, "a", options={**large, **split, "header.timestamp.enabled": "false"})
    whole = place.read("a", columns=["value", "headers"], options=large).read_all()
    assert [each["key"] for each in whole.column("headers")[0].as_py()] == ["n", "_lm"]
    assert whole.num_rows == 1, "the small one's header is a broken one"
    raw = place.read("a", columns=["value", "headers"]).read_all()
    place.write(pa.concat_tables([whole, raw.slice(3)]), "b")
    copied = place.read("b", columns=["value", "headers"]).read_all()
    assert copied.to_pylist() == [
        {"value": b"x" * 900, "headers": headers[0]},
        {"value": b"small", "headers": headers[1]},
    ]


def test_no_message_is_written_that_readers_would_drop(tmp_path: Path) -> None:
    """Readers wait 1,000 offsets for the rest of it."""
    kafka, on = connect(tmp_path), {"large.message.enabled": "true"}
    longest = {**on, "max.message.segment.bytes": "1"}
    kafka.write(table(bytes(1002)), "t", options=longest)
    with pytest.raises(
        RecordTooLargeError, match=r"1003 message segments.*more than 1002.*bytes to 2 or more"
    ):
        kafka.write(table(bytes(1003)), "t", options=longest)
    kafka.write(table(bytes(1003)), "t", options={**on, "max.message.segment.bytes": "2"})
    gap = {"message.assembler.expiration.offset.gap": "1001"}
    kafka.write(table(bytes(1003)), "t", options={**longest, **gap})
    assert values(kafka.read("t", options=on)) == [bytes(1002), bytes(1003)]
    assert values(kafka.read("t", options={**on, **gap})) == [bytes(1002), bytes(1003), bytes(1003)]
