"""A topic's own configurations in a directory: each is obeyed, or refused when it is set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_kafkalog import NewTopic, connect
from pyspark_kafkalog.codec.format import COMPRESSION_NAMES
from pyspark_kafkalog.codec.walk import Batches, walk
from pyspark_kafkalog.errors import InvalidRecordError, KafkaLogError, OptionError, RecordTooLargeError
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.topic_configs import read_topic_configs, write_topic_configs
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.topics import OFFSETS_TOPIC
from pyspark_kafkalog.options.topic_configs import TOPIC_CONFIGS
from tests.log.writing import T0, read, values, write
from tests.tools.cli.running import run

NOW = time.time_ns() // 1_000_000
DAY = 24 * 3600 * 1000
U0 = TopicPartition("u", 0)


class Topic:
    """A topic of a new directory, with configurations of its own."""

    def __init__(self, root: Path, configs: Mapping[str, str]) -> None:
        self.root = root
        self.kafka = connect(str(root))
        root.mkdir(exist_ok=True)
        self.kafka.topics.create([NewTopic("t", configs=configs)])

    def write(
        self, count: int = 1, size: int = 10, *, key: str | None = "k", at: int = NOW, **options: str
    ) -> list[Batches]:
        """Write equal records, and return the batches of each segment."""
        columns = {
            "key": pa.array([key] * count, pa.string()),
            "value": pa.array(["v" * size] * count),
            "timestamp": pa.array([at] * count, pa.timestamp("ms", "UTC")),
        }
        options = {name.replace("_", "."): value for name, value in options.items()}
        self.kafka.write(pa.table(columns), "t", options=options)
        return self.segments()

    def segments(self) -> list[Batches]:
        return [walk(np.fromfile(path, np.uint8)) for path in self.files("log")]

    def files(self, kind: str) -> list[Path]:
        return sorted((self.root / "t-0").glob(f"*.{kind}"))


def compression(segments: list[Batches]) -> set[str]:
    return {COMPRESSION_NAMES[int(number)] for batches in segments for number in batches.compression}


def cleanup_policy(make: Callable[..., Topic]) -> None:
    with pytest.raises(InvalidRecordError, match=r"A row has no key, but cleanup\.policy is compact"):
        make("compact").write(key=None)
    with pytest.raises(InvalidRecordError, match="A row has no key"):
        make("compact,delete").write(key=None, cleanup_policy="delete")
    with pytest.raises(InvalidRecordError, match="A row has no key"):
        make("delete").write(key=None, cleanup_policy="compact")
    assert make("delete").write(key=None)
    large = {"large_message_enabled": "true", "max_message_segment_bytes": "1000"}
    for key in ("k", None):
        with pytest.raises(InvalidRecordError, match=r"2 message segments, of which compaction would keep"):
            make("compact").write(key=key, size=1500, **large)
        assert make("delete").write(key=key, size=1500, **large)
    assert make("compact").write(size=999, **large)
    topic = make("", retention_ms="1", segment_bytes="200")
    topic.write(20, at=NOW - DAY)
    assert topic.kafka.logs.retain(execute=True)[0].segments == 0


def compression_type(make: Callable[..., Topic]) -> None:
    assert compression(make("gzip").write(compression_type="zstd")) == {"gzip"}
    assert compression(make("uncompressed").write(compression_type="zstd")) == {"none"}
    assert compression(make("producer").write(compression_type="zstd")) == {"zstd"}


def level(name: str, low: str, high: str) -> Callable[[Callable[..., Topic]], None]:
    def check(make: Callable[..., Topic]) -> None:
        sizes = []
        for value in (low, high):
            topic = make(value, compression_type=name)
            text = "".join(f"{number * number % 10007:x}" for number in range(20_000))
            topic.kafka.write(pa.table({"value": [text]}), "t")
            sizes.append(topic.files("log")[0].stat().st_size)
        assert sizes[0] > sizes[1]

    return check


def deletes_tombstones(make: Callable[..., Topic]) -> None:
    removed = []
    for value in ("0", str(1 << 60)):
        topic = make(value, cleanup_policy="compact", segment_bytes="100", min_cleanable_dirty_ratio="0")
        table = pa.table({"key": ["a", "b", "c"], "value": pa.array([None] * 3, pa.string())})
        for _ in range(3):
            topic.kafka.write(table, "t")
        for _ in range(3):  # the first sets the delete horizon
            topic.kafka.logs.compact(["t"], execute=True)
            topic.write(3, key="d")
        removed.append(sum(int(batches.count.sum()) for batches in topic.segments()))
    assert removed[0] < removed[1]


def dirty_ratio(make: Callable[..., Topic]) -> None:
    assert compacts(make("0"))
    assert not compacts(make("1"))


def min_lag(make: Callable[..., Topic]) -> None:
    assert compacts(make("0"))
    assert not compacts(make(str(DAY)))


def max_lag(make: Callable[..., Topic]) -> None:
    """What is older is compacted, however little it is."""
    old = {"at": NOW - DAY}
    assert compacts(make("1", min_cleanable_dirty_ratio="1"), **old)
    assert not compacts(make(str(2 * DAY), min_cleanable_dirty_ratio="1"), **old)


def compacts(topic: Topic, at: int = NOW) -> bool:
    topic.kafka.topics.alter(
        topic.kafka.topics.plan_alteration(
            ["t"], configs={"cleanup.policy": "compact", "segment.bytes": "200"}
        )
    )
    topic.write(20, at=at)
    topic.kafka.logs.compact(["t"], execute=True, configs={"min.cleanable.dirty.ratio": "0"})
    before = topic.kafka.read("t").read_all().num_rows
    topic.write(3, at=at)  # a commit compacts, too
    topic.kafka.logs.compact(["t"], execute=True)
    return topic.kafka.read("t").read_all().num_rows < before + 3


def flushes(make: Callable[..., Topic]) -> None:
    """Whatever the value, all is on disk when it is visible: tests of losses of power show that."""
    assert make("1").write(3)
    assert make("1000").write(3)


def index_interval(make: Callable[..., Topic]) -> None:
    few, many = make("100000"), make("0")
    for topic in (few, many):
        topic.write(40, batch_size="100")
    assert few.files("index")[0].stat().st_size < many.files("index")[0].stat().st_size
    assert many.write(40, batch_size="100", index_interval_bytes="100000")


def max_message_bytes(make: Callable[..., Topic]) -> None:
    topic = make("300")
    with pytest.raises(RecordTooLargeError, match=r"exceeds the topic's max\.message\.bytes = 300"):
        topic.write(size=400)
    with pytest.raises(RecordTooLargeError, match=r"exceeds the topic's max\.message\.bytes = 300"):
        topic.write(size=400, max_message_bytes="1000")
    with pytest.raises(RecordTooLargeError, match=r"exceeds the option max\.message\.bytes = 100"):
        topic.write(size=200, max_message_bytes="100")
    segments = topic.write(100)
    assert max(int(batches.size.max()) for batches in segments) <= 300
    assert make(str(2 << 20)).write(size=3 << 19)


def timestamp_type(make: Callable[..., Topic]) -> None:
    (batches,) = make("LogAppendTime").write(at=DAY)
    assert batches.timestamp_type.tolist() == [1]
    assert batches.max_timestamp[0] >= NOW
    (batches,) = make("LogAppendTime").write(at=DAY, message_timestamp_type="CreateTime")
    assert batches.timestamp_type.tolist() == [0]
    assert batches.max_timestamp.tolist() == [DAY]


def timestamps(*refused: int) -> Callable[[Callable[..., Topic]], None]:
    def check(make: Callable[..., Topic]) -> None:
        for at in refused:
            with pytest.raises(InvalidRecordError, match=r"which the topic takes now.*message\.timestamp\."):
                make("3600000").write(at=NOW + at)
            assert make("3600000", message_timestamp_type="LogAppendTime").write(at=NOW + at)
        assert make("3600000").write(at=NOW)
        for at in {DAY, -DAY} - {*refused}:
            assert make("3600000").write(at=NOW + at)

    return check


def difference(make: Callable[..., Topic]) -> None:
    """It counts for a side only where the newer configuration of that side is not set."""
    timestamps(DAY, -DAY)(make)
    wide, longest = str(2 * DAY), str(2**63 - 1)
    assert make("3600000", message_timestamp_before_max_ms=wide).write(at=NOW - DAY)
    for others in ({"message_timestamp_before_max_ms": longest}, {"message_timestamp_after_max_ms": wide}):
        with pytest.raises(InvalidRecordError, match="which the topic takes now"):
            make("3600000", **others).write(at=NOW - DAY)


def retention(name: str, most: str) -> Callable[[Callable[..., Topic]], None]:
    def check(make: Callable[..., Topic]) -> None:
        for value, are_left in ((most, False), ("-1", True)):
            topic = make(value, segment_bytes="200")
            topic.write(50, at=NOW - DAY)
            topic.write(20, at=NOW)
            assert (topic.files("log")[0].name == "0" * 20 + ".log") == are_left

    return check


def segment_bytes(make: Callable[..., Topic]) -> None:
    topic = make("200")
    segments = topic.write(30)
    assert len(segments) > 4
    assert max(path.stat().st_size for path in topic.files("log")) <= 200
    with pytest.raises(RecordTooLargeError, match=r"exceeds segment\.bytes = 200"):
        topic.write(size=300)
    assert len(topic.write(30, segment_bytes="100000")) == len(segments)


def segment_index_bytes(make: Callable[..., Topic]) -> None:
    assert len(make("64").write(100, batch_size="100", index_interval_bytes="0")) > 3
    assert len(make("6400").write(100, batch_size="100", index_interval_bytes="0")) == 1


def segment_ms(make: Callable[..., Topic]) -> None:
    topic = make("1000")
    for number in range(3):
        topic.write(at=NOW + 2000 * number)
    assert len(topic.segments()) == 3
    assert len(topic.write(at=NOW + 9000, segment_ms="100000")) == 3


OBEYED: dict[str, Callable[[Callable[..., Topic]], None]] = {
    "cleanup.policy": cleanup_policy,
    "compression.gzip.level": level("gzip", "1", "9"),
    "compression.lz4.level": level("lz4", "1", "12"),
    "compression.type": compression_type,
    "compression.zstd.level": level("zstd", "-50", "15"),
    "delete.retention.ms": deletes_tombstones,
    "flush.messages": flushes,
    "flush.ms": flushes,
    "index.interval.bytes": index_interval,
    "max.compaction.lag.ms": max_lag,
    "max.message.bytes": max_message_bytes,
    "message.timestamp.after.max.ms": timestamps(DAY),
    "message.timestamp.before.max.ms": timestamps(-DAY),
    "message.timestamp.difference.max.ms": difference,
    "message.timestamp.type": timestamp_type,
    "min.cleanable.dirty.ratio": dirty_ratio,
    "min.compaction.lag.ms": min_lag,
    "retention.bytes": retention("retention.bytes", "300"),
    "retention.ms": retention("retention.ms", "60000"),
    "segment.bytes": segment_bytes,
    "segment.index.bytes": segment_index_bytes,
    "segment.ms": segment_ms,
}
"""For each configuration what shows that it has its effect."""
REFUSED = {
    "file.delete.delay.ms": "60000",
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "1",
    "local.retention.ms": "1",
    "message.downconversion.enable": "true",
    "message.format.version": "0.10.0",
    "min.insync.replicas": "2",
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "true",
    "segment.jitter.ms": "1000",
    "unclean.leader.election.enable": "true",
}
"""For each of the others a value that Kafka would take."""


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_what_can_be_set_has_its_effect(name: str, tmp_path: Path) -> None:
    made = []

    def make(value: str, **others: str) -> Topic:
        made.append(value)
        configs = {name.replace("_", "."): value for name, value in others.items()}
        return Topic(tmp_path / str(len(made)), {name: value, **configs})

    if name in REFUSED:
        obeyed = r"A log directory obeys .*\bsegment\.bytes\b"
        with pytest.raises(OptionError, match=f"{name}.* can't be .*: .*{obeyed}") as refusal:
            make(REFUSED[name])
        assert str(refusal.value).partition(" obeys ")[2].rstrip(".").split(", ") == sorted(OBEYED)
        topic = Topic(tmp_path / "other", {})
        plan = topic.kafka.topics.plan_alteration
        with pytest.raises(OptionError, match=f"{name}.* can't be"):
            plan(["t"], configs={name: REFUSED[name]})
        refused = run("topics", "alter", topic.root, "t", "--set", f"{name}={REFUSED[name]}", "--execute")
        assert (refused.code, "can't be" in refused.err) == (2, True)
        assert read_topic_configs(open_folder(str(topic.root))) == {}
    else:
        OBEYED[name](make)
        assert made


def test_a_backups_configurations_can_be_dropped_but_not_set(tmp_path: Path) -> None:
    topic = Topic(tmp_path, {"retention.ms": "1"})
    write_topic_configs(str(tmp_path), {"t": {"min.insync.replicas": "2", "preallocate": "true"}})
    change = topic.kafka.topics
    change.alter(change.plan_alteration(["t"], configs={"preallocate": None, "segment.bytes": "200"}))
    assert read_topic_configs(open_folder(str(tmp_path)))["t"] == {
        "min.insync.replicas": "2",
        "segment.bytes": "200",
    }
    with pytest.raises(OptionError, match=r"expected at most 'max\.compaction\.lag\.ms' = 5, got 6"):
        change.plan_alteration(["t"], configs={"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("segment.bytes", "large", {}),
        ("compression.type", "brotli", {}),
        ("compression.zstd.level", "99", {"compression.type": "zstd"}),
    ],
)
def test_a_stored_value_that_is_none_is_named(
    name: str, value: str, others: dict[str, str], tmp_path: Path
) -> None:
    topic = Topic(tmp_path, {})
    write_topic_configs(str(tmp_path), {"t": {name: value, **others}})
    with pytest.raises(KafkaLogError, match=f"{name} of topic 't' is invalid: '{value}'.*topics alter"):
        topic.write()
    assert topic.files("log")[0].stat().st_size == 0


def test_what_a_source_alone_obeys_lets_no_write_fail(tmp_path: Path) -> None:
    """A backup keeps its brokers' configurations, also those of a later Kafka."""
    topic = Topic(tmp_path, {})
    write_topic_configs(str(tmp_path), {"t": {**REFUSED, "of.a.later.kafka": "x", "segment.bytes": "200"}})
    assert len(topic.write(30)) > 4


def test_commits_of_groups_are_written_as_their_topic_is_configured(tmp_path: Path) -> None:
    topic = Topic(tmp_path, {})
    own = {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    write_topic_configs(str(tmp_path), {OFFSETS_TOPIC: own})
    topic.write(3)
    topic.kafka.groups.commit("g", {T0: CommittedOffset(2)})
    (log,) = (log for log in tmp_path.glob(f"{OFFSETS_TOPIC}-*/*.log") if log.stat().st_size)
    batches = walk(np.fromfile(log, np.uint8))
    assert (batches.compression.tolist(), batches.timestamp_type.tolist()) == ([4], [1])
    write_topic_configs(str(tmp_path), {OFFSETS_TOPIC: {"max.message.bytes": "10"}})
    with pytest.raises(RecordTooLargeError, match=r"the topic's max\.message\.bytes = 10"):
        topic.kafka.groups.commit("g", {T0: CommittedOffset(3)})
    assert {row.offset for row in topic.kafka.groups.committed("g").values()} == {2}


def test_the_command_obeys_them_all(tmp_path: Path) -> None:
    root = tmp_path / "log"
    root.mkdir()
    configs = {
        "segment.bytes": "200",
        "max.message.bytes": "300",
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "gzip",
    }
    sets = [word for name, value in configs.items() for word in ("--set", f"{name}={value}")]
    assert run("topics", "create", root, "t", *sets).code == 0
    assert run("produce", root, "t", text="x" * 70 + "\n" + "y" * 70 + "\n" + "z\n" * 50).code == 0
    segments = [walk(np.fromfile(path, np.uint8)) for path in sorted((root / "t-0").glob("*.log"))]
    assert len(segments) > 1
    assert compression(segments) == {"gzip"}
    assert {int(kind) for batches in segments for kind in batches.timestamp_type} == {1}
    refused = run("produce", root, "t", text="".join(map(chr, range(48, 448))) + "\n")
    assert (refused.code, "exceeds segment.bytes = 200" in refused.err) == (3, True)


@pytest.mark.parametrize("of_a_new_topic", [False, True])
def test_a_killed_write_to_topics_of_both_types_is_undone(
    of_a_new_topic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_topic_configs(str(tmp_path), {"u": {"message.timestamp.type": "LogAppendTime"}})
    if not of_a_new_topic:
        write(tmp_path, {T0: values(3), U0: values(3)}, num_partitions=1)
    before = read(tmp_path)

    class Crash(BaseException):
        """Stands for the end of the process."""

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", crash)
        patch.setattr(journal, "recover", lambda root: None)
        with pytest.raises(Crash):
            write(tmp_path, {T0: values(20), U0: values(20)}, num_partitions=1)
    journal.recover(str(tmp_path))
    assert read(tmp_path) == before
    write(tmp_path, {T0: values(2, start=3), U0: values(2, start=3)}, num_partitions=1)
    assert read(tmp_path)[U0][-2:] == values(2, start=3)
    segments = [(path.parent.name, walk(np.fromfile(path, np.uint8))) for path in tmp_path.glob("*/*.log")]
    types = {(folder[0], int(kind)) for folder, batches in segments for kind in batches.timestamp_type}
    assert types == {("t", 0), ("u", 1)}
