"""Directories of brokers with tiered storage: the log begins before the first segment that is there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.errors import DataLossError
from pyspark_kafkalog.log.checkpoints import write_epochs
from pyspark_kafkalog.log.layout import format_offset_checkpoint
from pyspark_kafkalog.log.read import directory
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import EARLIEST, LATEST, OffsetRange, TopicPartition, Watermarks
from pyspark_kafkalog.read.ranges import ReadRules, RecordReader
from pyspark_kafkalog.read.splits import Split
from tests.broker.producing import connected, numbered, produce
from tests.kafka import Broker, kafka_jars
from tests.log.partitions import T0, batch, offsets_read, write_segment
from tests.tools.cli.running import command, run

TOLD = (
    "Offsets {} to {} are not in this directory: its broker keeps them elsewhere, such as in remote storage"
)
OFFSETS = pa.schema([("offset", pa.int64())])


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_begin_elsewhere", set())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Offsets 20 to 39, of a log that begins at offset 5."""
    for base_offset in (20, 30):
        write_segment(tmp_path / "t-0", [batch(base_offset, 10)])
    write_starts(tmp_path, 5)
    write_epochs(str(tmp_path / "t-0"), [(0, 5), (3, 25)])
    return tmp_path


def write_starts(root: Path, start: int) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(format_offset_checkpoint({T0: start}))


def bounds(root: Path) -> Watermarks:
    return LogDirectory.open(str(root)).watermarks([T0], read_committed=True)[T0]


def test_the_bounds_say_what_is_elsewhere(root: Path) -> None:
    assert bounds(root) == Watermarks(20, 40, 40, OffsetRange(5, 20))
    assert bounds(root / "t-0") == Watermarks(20, 40, 40, OffsetRange(5, 20))
    write_starts(root, 0)
    assert bounds(root) == Watermarks(20, 40, 40, OffsetRange(0, 20))


def test_it_is_told_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        bounds(root)
    (told,) = caplog.messages
    assert told == f"t-0: {TOLD.format(5, 19)}"


def test_a_fetch_of_it_is_data_loss(root: Path) -> None:
    place = LogDirectory.open(str(root))
    for wanted, first, last in ((OffsetRange(5, 40), 5, 19), (OffsetRange(7, 12), 7, 11)):
        with pytest.raises(DataLossError, match=TOLD.format(first, last)) as e:
            offsets_read(place, T0, wanted)
        assert (e.value.offset, e.value.next_offset) == (first, 20)
    with pytest.raises(DataLossError, match="Offsets 2 to 4 are gone: the log now starts at offset 5") as e:
        offsets_read(place, T0, OffsetRange(2, 40))
    assert e.value.next_offset == 5
    assert offsets_read(place, T0, OffsetRange(20, 40)) == list(range(20, 40))


def deleted(root: Path) -> None:
    """After DeleteRecords and retention, by a broker that was killed before it wrote the checkpoint again."""
    write_epochs(str(root / "t-0"), [(0, 20), (3, 25)])


def not_checkpointed(root: Path) -> None:
    (root / "log-start-offset-checkpoint").unlink()


def within_the_first_segment(root: Path) -> None:
    write_starts(root, 20)


def without_epochs(root: Path) -> None:
    (root / "t-0" / "leader-epoch-checkpoint").unlink()


def damaged_epochs(root: Path) -> None:
    (root / "t-0" / "leader-epoch-checkpoint").write_bytes(b"what")


@pytest.mark.parametrize(
    "change", [deleted, not_checkpointed, within_the_first_segment, without_epochs, damaged_epochs]
)
def test_what_was_deleted_is_not_elsewhere(
    change: Callable[[Path], None], root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(root)
    assert bounds(root) == Watermarks(20, 40, 40)
    assert not caplog.messages
    with pytest.raises(DataLossError, match="Offsets 7 to 19 are gone: the log now starts at offset 20"):
        offsets_read(LogDirectory.open(str(root)), T0, OffsetRange(7, 40))


def printed(*words: object) -> subprocess.CompletedProcess[str]:
    """What a command prints in its own process, where pytest does not capture what is logged."""
    return subprocess.run(command(*words), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_commands_say_it(root: Path) -> None:
    done = printed("topics", root)
    said = [
        line for line in done.stderr.splitlines() if not line.endswith("…")
    ]  # a slow machine sees progress
    assert (done.returncode, said) == (0, [f"kafkalog: t-0: {TOLD.format(5, 19)}"]), done
    verified = run("verify", root)
    assert (verified.code, verified.out.splitlines()[-1]) == (0, f"t-0: {TOLD.format(5, 19)}")
    (found,) = run("verify", root, "--json").json["partitions"]
    assert (found["notes"], found["damages"]) == ([TOLD.format(5, 19)], [])


def reader_of(root: Path, offsets: OffsetRange, *, fail_on_data_loss: bool) -> list[int]:
    rules = ReadRules(OFFSETS, False, fail_on_data_loss, DecodeLimits())
    found = RecordReader(LogDirectory.open(str(root)), rules).read(Split(T0, offsets))
    return [offset for arrow_batch in found for offset in arrow_batch.column(0).to_pylist()]


def test_readers_lose_it_for_that_reason(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = list(range(20, 40))
    for start, end, said in ((0, LATEST, (5, 19)), (7, LATEST, (7, 19)), (7, 10, (7, 9))):
        with pytest.raises(DataLossError, match=rf"below the log start offset 20. {TOLD.format(*said)}"):
            reader_of(root, OffsetRange(start, end), fail_on_data_loss=True)
        caplog.clear()
        found = reader_of(root, OffsetRange(start, end), fail_on_data_loss=False)
        assert found == (kept if end == LATEST else [])
        assert TOLD.format(*said) in caplog.text
    with pytest.raises(DataLossError) as e:
        reader_of(root, OffsetRange(2, 5), fail_on_data_loss=True)
    assert "elsewhere" not in str(e.value)
    caplog.clear()
    assert reader_of(root, OffsetRange(EARLIEST, LATEST), fail_on_data_loss=True) == kept


def test_only_its_broker_deletes_records(root: Path) -> None:
    def all_files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = all_files()
    for words in (
        ("retain", root, "t", "--set", "retention.bytes=1"),
        ("delete-records", root, "t:0=31"),
        ("delete-records", root, "t:0=25"),
        ("delete-records", root, "t:0=20"),
        ("delete-records", root, "t:0=15"),
        ("delete-records", root, "t:0=6"),
    ):
        for execute in ([], ["--execute"]):
            done = run(*words, *execute)
            assert done.code != 0, words
            assert f"{TOLD.format(5, 19)}. Only the broker can delete records of such a log" in done.out
    assert {path: content for path, content in all_files().items() if path in before} == before
    assert run("retain", root, "t", "--execute").code == 0, "nothing is due"
    assert run("delete-records", root, "t:0=5", "--execute").code == 0, "that is where the log begins"
    write_starts(root, 20)
    assert run("delete-records", root, "t:0=31", "--execute").code == 0


@pytest.mark.broker
@pytest.mark.soak
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_the_directory_of_a_real_broker(new_broker: Callable[..., Broker], tmp_path: Path) -> None:
    source = Path(__file__).with_name("ForgetfulStorage.java")
    compile_it = ["javac", "-cp", f"{kafka_jars()}/*", "-d", str(tmp_path), str(source)]
    subprocess.run(compile_it, check=True, timeout=120)
    broker = new_broker(
        {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": source.stem,
            "remote.log.storage.manager.class.path": f"{tmp_path}/",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
            "remote.log.manager.task.interval.ms": 200,
            "log.retention.check.interval.ms": 200,
            "log.initial.task.delay.ms": 200,
        }
    )
    broker.start()
    small = {"internal.segment.bytes": 2000, "file.delete.delay.ms": 0}
    broker.create_topic("tiered", 1, {**small, "remote.storage.enable": "true", "local.retention.bytes": 1})
    broker.create_topic("deleted", 1, {**small, "retention.bytes": 1})
    cluster = connected(broker.bootstrap)
    for number in range(20):
        for topic in ("tiered", "deleted"):
            produce(cluster, topic, [numbered(10, 10 * number, size=100)])
    for topic in ("tiered", "deleted"):
        first = broker.partition_folder(topic, 0) / f"{0:020d}.log"
        broker.wait_until(lambda first=first: not first.exists(), f"{first} was not deleted")
    broker.stop()
    tiered, other = TopicPartition("tiered", 0), TopicPartition("deleted", 0)
    found = LogDirectory.open(str(broker.log_dir)).watermarks([tiered, other], read_committed=True)
    start = found[tiered].log_start_offset
    assert 0 < start < 200
    assert found[tiered] == Watermarks(start, 200, 200, OffsetRange(0, start))
    assert found[other].elsewhere is None
    assert 0 < found[other].log_start_offset < 200
    verified = run("verify", broker.log_dir)
    told = [line for line in verified.out.splitlines() if "elsewhere" in line]
    assert (verified.code, told) == (0, [f"tiered-0: {TOLD.format(0, start - 1)}"])
