"""What a driver and its tasks must share: the folder, and a group if they are two users."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pyspark_kafkalog.codec.encode import encode
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.filesystem import machine
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.filesystem.machine import Mark, is_marked_by, leave_mark
from pyspark_kafkalog.filesystem.private import NewFile, make_folder
from pyspark_kafkalog.log.sink import DirectorySink
from pyspark_kafkalog.model import EncodeSettings, Plan, QueryBatch, TaskAttempt
from pyspark_kafkalog.staging import Staged
from tests.codec.strategies import Row, arrow_batch
from tests.log.writing import T0, read, values

GROUP, DRIVER, WORKER = 4_242, 4_243, 4_244
BATCH, ATTEMPT = QueryBatch("query", 1), TaskAttempt(0, 0, 0)


def sink_on(root: Path) -> DirectorySink:
    return DirectorySink.on_driver(str(root), 1, EncodeSettings(), {}, is_job=False, required=True)


def run_task(sink: DirectorySink, batch: QueryBatch = BATCH) -> Staged:
    rows = [Row(None, value, None, 1) for value in values(3)]
    with sink.open(batch, ATTEMPT) as staging:
        staging.append(T0, encode(arrow_batch(rows), None, EncodeSettings(), topic_partition=T0))
        return staging.finish()


def test_a_task_in_another_folder_than_the_driver_writes_nothing(tmp_path: Path) -> None:
    sink = sink_on(tmp_path / "of-driver")
    for folder in (tmp_path / "of-worker", tmp_path / "missing"):
        if folder.name == "of-worker":
            shutil.copytree(sink.root, folder)  # an older copy, with the mark of the driver in it
            (mark,) = folder.iterdir()
            os.utime(mark, ns=(0, sink.driver.time_ns - 3_000_000_000))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(
            OptionError, match=r"does not share the log directory with the driver\. Give a folder"
        ):
            run_task(replace(sink, root=str(folder)))
        assert sorted(tmp_path.rglob("*")) == before
    assert run_task(sink) is not None


@pytest.mark.parametrize("end", [DirectorySink.abort, lambda *run: DirectorySink.commit(*run, Plan())])
def test_a_batch_that_runs_again_in_a_process_sees_the_partitions_of_now(
    tmp_path: Path, end: Callable[..., None]
) -> None:
    sink = sink_on(tmp_path / "log")
    for number in (0, 1):
        (tmp_path / "log" / f"u-{number}").mkdir()
        for _ in range(2):
            with sink.open(QueryBatch("job"), ATTEMPT) as staging:
                assert staging.partition_count("u") == number + 1
        end(sink, QueryBatch("job"), [])


def test_a_number_of_partitions_that_a_topic_does_not_get_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, count in enumerate((1, 1, 3, 3)):
        sink, batch = replace(sink_on(tmp_path), num_partitions=count), QueryBatch(f"job-{number}")
        assert sink.commit(batch, [run_task(sink, batch)], Plan())
        said = [
            message for message in caplog.messages if "keeps its 1 partition, 0: numPartitions=3" in message
        ]
        assert len(said) == (count > 1)


def test_marks_of_hosts_that_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = os.stat(tmp_path).st_mtime
    known: set[Path] = set()
    for number, days in ((0, 8), (1, 6), (2, 0)):
        monkeypatch.setattr(machine, "host_id", lambda number=number: f"pod-{number}")
        leave_mark(str(tmp_path))
        (mark,) = {*tmp_path.iterdir()} - known
        os.utime(mark, (now - days * 86_400,) * 2)
        known.add(mark)
    left = [is_marked_by(str(tmp_path), Mark(f"pod-{number}", 0)) for number in range(3)]
    assert left == [False, True, True]
    monkeypatch.setattr(machine, "host_id", lambda: "pod-1")
    leave_mark(str(tmp_path))
    assert min(mark.stat().st_mtime for mark in tmp_path.iterdir()) > now - 86_400


@contextmanager
def user(user_id: int, group: int = GROUP) -> Iterator[None]:
    """Be another user, of a group of its own name, and of ``group``."""
    groups, mask = os.getgroups(), os.umask(0o022)
    os.setgroups([group])
    os.setegid(user_id)
    os.seteuid(user_id)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
        os.umask(mask)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
class TestTwoUsers:
    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        sink = sink_on(tmp_path / "first")  # imports what others may not read
        for number in range(2):
            sink.commit(QueryBatch("query", number), [run_task(sink)], Plan())
        read(tmp_path / "first")
        shared = tmp_path / "shared"
        shared.mkdir()
        for folder in (tmp_path, *tmp_path.parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
        os.chown(shared, DRIVER, GROUP)
        shared.chmod(0o770)
        return shared

    def test_of_one_group_write_together_and_nobody_else_reads(self, shared: Path) -> None:
        for number, (driver, worker) in enumerate([(DRIVER, WORKER), (WORKER, DRIVER)]):
            batch = QueryBatch("query", number)
            with user(driver):
                sink = sink_on(shared)
            with user(worker):
                file = run_task(sink, batch)
                assert file is not None
                assert stat.S_IMODE((shared / file.name).stat().st_mode) == 0o660
            with user(driver):
                sink.commit(batch, [file], Plan())
        assert read(shared) == {T0: values(3) * 2}
        assert not [*shared.glob(".kafkalog-staged-*")]

    def test_of_no_common_group_share_nothing(self, tmp_path: Path) -> None:
        for mode, name in ((0o777, "all"), (0o1777, "sticky"), (0o755, "one")):
            folder = tmp_path / name
            folder.mkdir()
            folder.chmod(mode)
            sink = sink_on(folder)
            file = run_task(sink)
            assert file is not None
            assert stat.S_IMODE((folder / file.name).stat().st_mode) == 0o600

    def test_folders_for_rows_of_transactions_are_shared_with_the_group(self, shared: Path) -> None:
        folder = locate(str(shared)).child("kafkalog-transactions").child("query")
        with user(WORKER):
            make_folder(folder)
            with NewFile(folder, "rows") as file:
                file.write(b"rows")
        rows = Path(folder.path, "rows")
        with user(WORKER + 1, group=WORKER), pytest.raises(PermissionError):
            rows.read_bytes()
        with user(DRIVER):
            assert rows.read_bytes() == b"rows"
            rows.unlink()


@pytest.mark.parametrize("is_job", [True, False])
def test_a_version_that_is_there_is_warned_of(
    tmp_path: Path, is_job: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing compares the rows of a job. A micro-batch that Spark runs again is the same one."""
    sink, batch = replace(sink_on(tmp_path), is_job=is_job), QueryBatch("query", 0)
    for _ in range(2):
        assert not caplog.records
        sink.commit(batch, [run_task(sink, batch)], Plan())
    assert len(read(tmp_path)[T0]) == 3
    said = "txnVersion 0 of this txnAppId is there already, so nothing more is written. If these are other"
    assert [record.getMessage()[: len(said)] for record in caplog.records] == [said] * is_job
