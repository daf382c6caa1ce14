"""Checkpoints in an object store."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_kafkalog import OptionError, RewindTo, TopicPartition, connect
from tests.object_store import SECRET, ObjectStore, object_store
from tests.tools.checkpoint.checkpoints import at, checkpoint
from tests.tools.cli.running import run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as server:
        yield server


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    connect(str(tmp_path / "logs")).write(pa.table({"value": [b"%d" % n for n in range(10)]}), "t")
    return tmp_path / "logs"


@pytest.mark.slow
@pytest.mark.parametrize("is_complete", [True, False])
def test_a_rewind(store: ObjectStore, logs: Path, tmp_path: Path, is_complete: bool) -> None:
    name = f"checkpoint-{is_complete}"
    folder = checkpoint(tmp_path / name, [[at(t={0: 4})], [at(t={0: 8})]], done=1 + is_complete)
    store.put(folder, name)
    for file in (store.bucket / name).rglob("*"):
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    uri = store.uri(name)
    shown = run("checkpoint", "show", uri, logs, "--json")
    assert shown.code == 0, shown.err
    assert [row["lag"] for row in shown.json["offsets"]] == [2 if is_complete else 6]
    assert run("lag", logs, "--checkpoint", uri, "--json").json["lag"] == (2 if is_complete else 6)
    done = run("checkpoint", "rewind", uri, logs, "--to-earliest", "--stopped", "--execute", "--json")
    assert done.code == 0, done.err
    again = run("checkpoint", "show", uri, logs, "--json")
    assert [row["offset"] for row in again.json["offsets"]] == [0]
    assert (store.bucket / name / "offsets" / "1").read_text().endswith(at(t={0: 0}))
    kept = store.bucket / done.json["kept"].partition("bucket/")[2]
    assert (kept / "offsets" / "1").read_text().endswith(at(t={0: 8}))
    missing = run("lag", logs, "--checkpoint", store.uri("none"))
    change = connect(str(logs)).checkpoints.plan_rewind(uri, RewindTo.LATEST)
    for text in (shown.out, done.out, again.out, missing.out, missing.err, repr(change)):
        assert SECRET not in text


def test_a_file_system_that_replaces_nothing_at_once_is_refused(tmp_path: Path, logs: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    folder = checkpoint(tmp_path / "c", [[at(t={0: 4})]])
    memory = fsspec.filesystem("memory")
    memory.put(f"{folder}/", "/checkpoint", recursive=True)
    checkpoints = connect(str(logs)).checkpoints
    assert checkpoints.show("memory://checkpoint").offsets[0].offset == 4
    offsets = {TopicPartition("t", 0): 0}
    with pytest.raises(OptionError, match="replace a file at once"):
        checkpoints.plan_rewind("memory://checkpoint", "offsets", offsets)
