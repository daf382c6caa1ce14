"""All or nothing, and once: a publish that succeeds, and one that fails."""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_kafkalog.errors import (
    LogDirectoryError,
    OptionError,
    UnknownTopicOrPartitionError,
)
from pyspark_kafkalog.filesystem import folder as filesystem
from pyspark_kafkalog.log import lock
from pyspark_kafkalog.log.journal_file import PartitionEnd
from pyspark_kafkalog.log.layout import (
    JOURNAL_FILE,
    JOURNAL_SEPARATOR,
    OFFSET_CHECKPOINTS,
    format_offset_checkpoint,
)
from pyspark_kafkalog.log.publish import journal
from pyspark_kafkalog.log.publish import publish as publish_module
from pyspark_kafkalog.log.publish.undo import Undo
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import OffsetRange, QueryBatch, TopicPartition
from pyspark_kafkalog.staging import Staged, StagedSection
from tests.log.writing import (
    T0,
    T1,
    files_beside_partitions,
    publish_staged,
    read,
    stage,
    values,
    write,
    write_batch,
)

LEDGER = journal.ledger_file("query")


def snapshot(root: Path) -> dict[str, bytes]:
    """All files and their contents, without the locks and staged files."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and not path.name.startswith((".lock", ".kafkalog-lock", ".kafkalog-staged-", ".kafkalog-abandoned"))
    }


def test_batch_job_leaves_nothing_behind(tmp_path):
    write(tmp_path, {T0: values(3), T1: values(2)})
    assert read(tmp_path) == {T0: values(3), T1: values(2)}
    assert files_beside_partitions(tmp_path) == set()
    for path in (tmp_path / "t-0").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    assert stat.S_IMODE((tmp_path / "t-0").stat().st_mode) == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_order_of_tasks_and_calls(tmp_path):
    staged = [
        stage(tmp_path, "job", {T0: values(10, start=10 * i), T1: values(1, start=i)})[0] for i in range(5)
    ]
    publish_staged(tmp_path, staged, QueryBatch("job"))
    assert read(tmp_path) == {T0: values(50), T1: values(5)}


def test_several_sections_of_one_partition(tmp_path):
    first, other = (stage(tmp_path, "job", {T0: values(10, start=10 * i)})[0] for i in range(2))
    whole = b"".join((tmp_path / file.name).read_bytes() for file in (first, other))
    (tmp_path / first.name).write_bytes(whole)
    second = other.sections[0]._replace(position=first.sections[0].size)
    publish_staged(tmp_path, [Staged(first.name, (*first.sections, second))], QueryBatch("job"))
    assert read(tmp_path)[T0] == values(20)


def test_nothing_staged(tmp_path):
    assert publish_staged(tmp_path / "absent", [], QueryBatch("job")).offsets == {}
    assert not (tmp_path / "absent").exists()


def test_micro_batches(tmp_path):
    for i in range(3):
        published = write_batch(tmp_path, i, {T0: values(4, start=4 * i)})
        assert (published.skipped, published.offsets) == (False, {T0: OffsetRange(4 * i, 4 * i + 4)})
    assert files_beside_partitions(tmp_path) == {LEDGER}
    ledger = json.loads((tmp_path / LEDGER).read_text().partition(JOURNAL_SEPARATOR)[0])
    assert (ledger["query_id"], ledger["batch_id"]) == ("query", 2)


def test_replayed_batch_is_skipped(tmp_path):
    write_batch(tmp_path, 0, {T0: values(4)})
    before = snapshot(tmp_path)
    published = write_batch(tmp_path, 0, {T0: values(2), T1: values(2)})
    assert published.skipped
    assert published.offsets == {}
    assert snapshot(tmp_path) == before
    assert files_beside_partitions(tmp_path) == {LEDGER}


def test_queries_do_not_share_a_ledger(tmp_path):
    write_batch(tmp_path, 3, {T0: values(1)}, query="a")
    write_batch(tmp_path, 1, {T0: values(1)}, query="b")
    write(tmp_path, {T0: values(1)})
    assert len(read(tmp_path)[T0]) == 3
    assert files_beside_partitions(tmp_path) == {journal.ledger_file("a"), journal.ledger_file("b")}


def test_checkpoint_older_than_the_directory(tmp_path):
    write_batch(tmp_path, 7, {T0: values(1)})
    before = snapshot(tmp_path)
    with pytest.raises(
        LogDirectoryError,
        match=rf"Expected micro-batch 7 or later of query query, got 3.*{LEDGER}.*checkpoint",
    ):
        write_batch(tmp_path, 3, {T0: values(1)})
    assert snapshot(tmp_path) == before


CALLS = "close fsync ftruncate lstat open pwrite rename replace rmdir scandir stat unlink utime".split()  # noqa: SIM905


def fail_after_the_commit(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Let each system call fail once ``how`` has removed the journal."""
    really, close = getattr(os, how), os.close

    def fail(*_, **__):
        raise OSError(5, "planted")

    def commit(path, *more):
        really(path, *more)
        if os.path.basename(path) == JOURNAL_FILE:
            for call in CALLS:
                monkeypatch.setattr(os, call, fail)
            monkeypatch.setattr(os, "close", lambda descriptor: (close(descriptor), fail()))

    monkeypatch.setattr(os, how, commit)


@pytest.mark.parametrize("clean", [True, False])
def test_what_fails_after_the_commit_does_not_unsay_it(tmp_path, monkeypatch, caplog, clean):
    if clean:
        (tmp_path / ".kafka_cleanshutdown").write_text("0")
    stage(tmp_path, "of-another", {T0: values(1)})
    staged = stage(tmp_path, "job", {T0: values(3)})
    with monkeypatch.context() as patch:
        fail_after_the_commit(patch, "unlink")
        publish_staged(tmp_path, staged, QueryBatch("job"))
        with pytest.raises(OSError, match="planted"):
            os.scandir(tmp_path)
    staged = stage(tmp_path, "query-0", {T0: values(3, start=3)})
    with monkeypatch.context() as patch:
        fail_after_the_commit(patch, "replace")
        publish_staged(tmp_path, staged, QueryBatch("query", 0))
        with pytest.raises(OSError, match="planted"):
            os.scandir(tmp_path)
    assert "Published, but" in caplog.text
    assert read(tmp_path)[T0] == values(6)
    assert write_batch(tmp_path, 0, {T0: values(3)}).skipped


def test_commit_that_was_done_although_it_failed(tmp_path, monkeypatch):
    """As a network mount may report when it asks its server again."""
    replace, unlink = os.replace, os.unlink

    def twice(call):
        def done(path, *more):
            call(path, *more)
            if os.path.basename(path) == JOURNAL_FILE:
                raise FileNotFoundError(2, "No such file or directory", path)

        return done

    monkeypatch.setattr(os, "replace", twice(replace))
    write_batch(tmp_path, 0, {T0: values(3)})
    monkeypatch.setattr(os, "unlink", twice(unlink))
    write(tmp_path, {T0: values(3, start=3)})
    assert read(tmp_path)[T0] == values(6)


def test_commit_that_fails(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(3)})
    before = snapshot(tmp_path)

    def fail(*_):
        raise OSError(5, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(
            os, "replace", lambda path, *more: fail() if LEDGER in more[0] else os.rename(path, *more)
        )
        with pytest.raises(LogDirectoryError, match=r"planted.*Check the disk.*Nothing was published"):
            write_batch(tmp_path, 0, {T0: values(3)})
    assert snapshot(tmp_path) == before


def test_a_new_topic_inherits_nothing_of_a_folder_that_was_removed(tmp_path):
    write(tmp_path, {T0: values(90), T1: values(90)}, num_partitions=2)
    other = TopicPartition("u", 0)
    for name in OFFSET_CHECKPOINTS:
        (tmp_path / name).write_bytes(format_offset_checkpoint({T0: 55, T1: 55, other: 7}))
    for partition in T0, T1:
        shutil.rmtree(tmp_path / str(partition))
    write(tmp_path, {T0: values(20)}, num_partitions=2)
    assert read(tmp_path) == {T0: values(20), T1: []}
    for name in OFFSET_CHECKPOINTS:
        assert (tmp_path / name).read_bytes() == format_offset_checkpoint({other: 7})


def test_partition_that_a_topic_does_not_have(tmp_path):
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 't' has 1.*t-1.*numPartitions"):
        write(tmp_path, {T0: values(1), T1: values(1)}, num_partitions=1)
    assert not (tmp_path / "t-0").exists()
    write(tmp_path, {T0: values(1)}, num_partitions=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="t-1"):
        write(tmp_path, {T1: values(1)}, num_partitions=2)
    assert read(tmp_path) == {T0: values(1)}


@pytest.mark.parametrize("topic", ["..", "a/b", "../../t", "/t", "", "t" * 250, "t\0"])
def test_illegal_topics(tmp_path, topic):
    root = tmp_path / "root"
    (file,) = stage(root, "job", {T0: values(1)})
    section = StagedSection(topic, *file.sections[0][1:])
    with pytest.raises(OptionError, match="Illegal topic"):
        publish_staged(root, [Staged(file.name, (section,))], QueryBatch("job"))
    assert {path.name for path in tmp_path.iterdir()} == {"root"}
    assert not any(path.is_dir() for path in root.iterdir())


def test_longest_topic(tmp_path):
    partition = TopicPartition("t" * 249, 10_000)
    write(tmp_path, {partition._replace(partition=1): values(1)})
    assert read(tmp_path)[partition._replace(partition=1)] == values(1)


def test_folder_that_leads_out_of_the_root(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    root = tmp_path / "root"
    write(elsewhere, {T0: values(3)})
    root.mkdir()
    (root / "t-0").symlink_to(elsewhere / "t-0")
    before = snapshot(elsewhere)
    with pytest.raises(LogDirectoryError, match=r"leads out of.*t-0"):
        write(root, {T0: values(1)})
    assert snapshot(elsewhere) == before


@pytest.mark.parametrize(
    ("name", "kind"),
    [("t-0", "file"), ("t-1", "file"), ("t-0", "link"), ("t-1", "link"), ("__cluster_metadata-0", "folder")],
)
def test_what_is_not_a_partition_is_left_alone(tmp_path, name, kind):
    path = tmp_path / name
    make = {"file": path.touch, "link": lambda: path.symlink_to("nowhere"), "folder": path.mkdir}
    make[kind]()
    topic = name.rpartition("-")[0]
    with pytest.raises(LogDirectoryError, match=f"new partition.*{name}"):
        write(tmp_path, {TopicPartition(topic, 0): values(1)})
    assert os.path.lexists(path)
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == [name]


def test_segment_that_is_a_link(tmp_path):
    write(tmp_path, {T0: values(3)})
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.rename(tmp_path / "moved")
    log.symlink_to(tmp_path / "moved")
    before = (tmp_path / "moved").read_bytes()
    with pytest.raises(LogDirectoryError, match="symbolic link"):
        write(tmp_path, {T0: values(1)})
    assert (tmp_path / "moved").read_bytes() == before


def test_clean_shutdown_is_gone_while_publishing(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(3)})
    clean = tmp_path / ".kafka_cleanshutdown"
    clean.write_text('{"version":0,"brokerEpoch":42}')
    seen = []
    append = publish_module.append
    monkeypatch.setattr(publish_module, "append", lambda *a: (seen.append(clean.exists()), append(*a))[1])
    write(tmp_path, {T0: values(1)})
    assert seen == [False]
    assert clean.read_text() == '{"version":0,"brokerEpoch":42}'


class Crash(BaseException):
    """Stands for the end of the process: the interrupted code cannot clean up."""


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """A directory where a publish ended after appending, with its journal."""
    write(tmp_path, {T0: values(3)})
    (tmp_path / ".kafka_cleanshutdown").write_text("old")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    before = snapshot(tmp_path)
    new = TopicPartition("new", 0)

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(journal, "commit", crash)
        patch.setattr(journal, "recover", lambda root: None)
        with pytest.raises(Crash):
            write_batch(
                tmp_path, 0, {T0: values(500, 100), T1: values(3), new: values(3)}, segment_bytes=20_000
            )
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 2
    assert (tmp_path / "new-0").is_dir()
    return tmp_path, before


def test_unfinished_publish_is_hidden(interrupted):
    root, _ = interrupted
    assert read(root) == {T0: values(3), T1: []}


def test_unfinished_publish_is_undone(interrupted):
    """All is as before, but without a clean shutdown: a broker that starts recovers the log."""
    root, before = interrupted
    del before[".kafka_cleanshutdown"]
    journal.recover(str(root))
    assert snapshot(root) == before
    journal.recover(str(root))
    assert snapshot(root) == before


def test_next_writer_undoes_it_first(interrupted):
    root, _ = interrupted
    write(root, {T0: values(2, start=3)})
    assert read(root) == {T0: values(5), T1: []}
    assert JOURNAL_FILE not in files_beside_partitions(root)
    assert ".kafka_cleanshutdown" not in files_beside_partitions(root)


def test_replay_of_an_unfinished_batch(interrupted):
    root, _ = interrupted
    assert not write_batch(root, 0, {T0: values(2, start=3)}).skipped
    assert read(root) == {T0: values(5), T1: []}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".kafka_cleanshutdown", "new"),
        ("replication-offset-checkpoint", "0\n1\nt 0 9\n"),
        ("recovery-point-offset-checkpoint", "0\n1\nt 0 9\n"),
    ],
)
def test_records_of_a_broker_are_not_undone(interrupted, name, content):
    root, _ = interrupted
    (root / name).write_text(content)
    before = snapshot(root)
    with pytest.raises(
        LogDirectoryError, match=r"Cannot undo.*\.kafkalog-publish.*broker or something.*delete"
    ):
        write(root, {T0: values(1)})
    assert snapshot(root) == before


def test_undoing_a_partition_that_was_deleted_since(interrupted):
    root, _ = interrupted
    for path in (root / "t-1").iterdir():
        path.unlink()
    (root / "t-1").rmdir()
    write(root, {T0: values(2, start=3)})
    assert read(root) == {T0: values(5)}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 3}', '{"version": 2}'])
@pytest.mark.parametrize("name", [".kafkalog-publish", LEDGER])
def test_foreign_journal_or_ledger(tmp_path, name, text):
    write_batch(tmp_path, 0, {T0: values(3)})
    (tmp_path / name).write_text(text)
    before = snapshot(tmp_path)
    with pytest.raises(LogDirectoryError, match=f"Cannot read the file, which another version.*{name}"):
        write_batch(tmp_path, 1, {T0: values(3)})
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("version", [1, 4])
def test_a_ledger_or_journal_of_another_version(interrupted, version):
    root, _ = interrupted
    for number, name in enumerate([JOURNAL_FILE, LEDGER]):
        text = (root / name).read_text()
        (root / name).write_text(text.replace('"version": 2', f'"version": {version}'))
        before = snapshot(root)
        with pytest.raises(LogDirectoryError, match=f"which another version may have written.*{name}"):
            write_batch(root, number, {T0: values(3)})
        assert snapshot(root) == before
        (root / name).write_text(text)
        write_batch(root, number, {T0: values(3)})


def test_opening_of_each_partition_is_progress(tmp_path, monkeypatch):
    """Opening one that a broker left without a shutdown reads its whole last segment."""
    write(tmp_path, {T0: values(1), T1: values(1)})
    seen = []
    opened = publish_module.open_partition
    monkeypatch.setattr(lock._Progress, "__call__", lambda self: seen.append("progress"))
    monkeypatch.setattr(
        publish_module, "open_partition", lambda *arguments: (seen.append("open"), opened(*arguments))[1]
    )
    write(tmp_path, {T0: values(1, start=1), T1: values(1, start=1)})
    assert "open progress open progress" in " ".join(seen)


def test_journal_of_many_batches(tmp_path, monkeypatch):
    write(tmp_path, {T0: values(1)})
    monkeypatch.setattr(filesystem, "_MAX_TEXT_FILE", 8000)
    monkeypatch.setattr(filesystem, "_FIRST_READ", 500)
    seen = []

    def commit(root, entries, ends):
        seen.append((Path(root, JOURNAL_FILE).stat().st_size, read(tmp_path)))
        committed(root, entries, ends)

    committed = journal.commit
    monkeypatch.setattr(journal, "commit", commit)
    staged = stage(tmp_path, "job", {T0: values(2000, start=1)}, batch_size=0)
    publish_staged(tmp_path, staged, QueryBatch("job"))
    ((size, before),) = seen
    assert size > 3 * 8000
    assert before == {T0: values(1), T1: []}
    assert read(tmp_path) == {T0: values(2001), T1: []}


ANYTHING = [
    None,
    True,
    -1,
    0,
    2**70,
    1.5,
    float("inf"),
    float("nan"),
    "x",
    "/8==",
    "\ud800",
    [],
    [1],
    [[1]],
    [["a", "b"]],
    {},
    {".log": "x"},
    {"a": 1},
]


def _places(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The path to each value in a JSON document."""
    yield path
    named = value.items() if isinstance(value, dict) else ()
    entries = enumerate(value) if isinstance(value, list) else named
    for key, child in entries:
        yield from _places(child, *path, key)


def test_journals_of_anything(interrupted):
    root, _ = interrupted
    path = root / JOURNAL_FILE
    documents = [json.loads(text) for text in path.read_text().split(JOURNAL_SEPARATOR)]
    texts = ["[" * 100_000, '{"version": 2, "partitions": ' + "[" * 100_000]
    for *way, last in filter(None, _places(documents)):
        for value in ANYTHING:
            changed = json.loads(json.dumps(documents))
            functools.reduce(operator.getitem, way, changed)[last] = value
            texts.append(JOURNAL_SEPARATOR.join(map(json.dumps, changed)))
    undone = []
    for text in texts:
        path.write_text(text)
        with contextlib.suppress(LogDirectoryError):
            ends = LogDirectory.open(str(root)).end_offsets([T0, T1], read_committed=False)
            assert min(ends.values(), default=0) >= 0
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(LogDirectoryError):
            patch.setattr(Undo, "run", lambda self: undone.append(self.folder))
            patch.setattr(os, "unlink", lambda path: None)
            journal.recover(str(root))
    assert undone


def test_journal_does_not_lead_out_of_the_root(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere-0"
    write(root, {T0: values(3)})
    elsewhere.mkdir()
    journal.begin(
        str(root), {TopicPartition("../elsewhere", 0): PartitionEnd(0, True)}, {}, QueryBatch("job")
    )
    with pytest.raises(LogDirectoryError):
        journal.recover(str(root))
    assert elsewhere.exists()


@pytest.mark.parametrize("step", ["create_folder", "append"])
def test_full_disk(tmp_path, step, monkeypatch):
    write(tmp_path, {T0: values(3)})
    before = snapshot(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish_module, step, fail)
    records = {T0: values(3), TopicPartition("new", 1): values(3)}
    with pytest.raises(LogDirectoryError, match=r"No space left on device.*Nothing was published"):
        write(tmp_path, records)
    assert snapshot(tmp_path) == before
    monkeypatch.undo()
    write(tmp_path, records)
    assert read(tmp_path)[T0] == values(3) * 2


FILE_SIZE_LIMIT = """
import resource, sys
from pathlib import Path
from tests.log.writing import *
root = Path(sys.argv[1])
staged = [stage(root, "job", {T0: values(500, 100, 500 * i), T1: values(500, 100)})[0] for i in range(2)]
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
publish_staged(root, staged, QueryBatch("job"))
"""


@pytest.mark.parametrize("limit", [50, 300, 8_000, 60_000, 100_000])
def test_file_too_large(tmp_path, limit):
    """EFBIG in the journal, in the first file, in the middle of a segment: readers see nothing of it."""
    write(tmp_path, {T0: values(5)})
    before = snapshot(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, str(tmp_path), str(limit)], capture_output=True, text=True
    )
    assert "Could not append: File too large" in done.stderr
    assert snapshot(tmp_path) == before


def test_file_too_large_while_staging(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        with pytest.raises(LogDirectoryError, match=r"Could not stage: File too large.*ulimit -f"):
            stage(tmp_path, "job", {T0: values(500, 100)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []
