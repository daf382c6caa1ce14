"""What the doctor finds without Spark, how executors are compared, and what the report shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog import connect
from pyspark_kafkalog.codec import jit, library
from pyspark_kafkalog.codec.kernel import Kernel
from pyspark_kafkalog.codec.kernel import kernels as all_kernels
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.log.topic_configs import write_topic_configs
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.tools.doctor import look as look_module
from pyspark_kafkalog.tools.doctor.compare import examine, findings_of_executors
from pyspark_kafkalog.tools.doctor.look import kernels, leave_marks, look, remove_marks
from pyspark_kafkalog.tools.doctor.probe import probe
from pyspark_kafkalog.tools.doctor.report import Finding, Report, State
from tests.kafka_process import free_ports
from tests.log.writing import values, write
from tests.tools.cli.running import run

MARK = ".kafkalog-doctor-test"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "log"
    root.mkdir()
    write(root, {TopicPartition("t", 0): values(3), TopicPartition("t", 1): values(3)})
    return root


def one(report: Report, what: str) -> Finding:
    (found,) = (finding for finding in report.findings if finding.what == what)
    return found


def test_all_is_fine_here(root: Path, tmp_path: Path) -> None:
    report = examine({"path": str(root), "checkpointLocation": str(tmp_path), "subscribe": "t"})
    assert report.ok
    assert one(report, "path").found == "1 topic, 2 partitions"
    assert one(report, "checkpointLocation").found == "can be written to"
    assert not [name for name in os.listdir(tmp_path) if "doctor" in name]


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("subscribe", "tt", "No such topic: tt"),
        ("assign", '{"t":[7]}', "no topic or partition matches"),
        ("subscribePattern", "x+", "no topic or partition matches"),
    ],
)
def test_topics_that_are_not_there_are_named(root: Path, name: str, value: str, found: str) -> None:
    report = examine({"path": str(root), name: value})
    assert not report.ok
    assert one(report, name).found.startswith(found)


def test_a_directorys_configurations_that_nothing_obeys_are_named(root: Path) -> None:
    """Those of a source's broker are fine in a backup; what makes no sense lets writes fail."""
    foreign = {"min.insync.replicas": "2", "preallocate": "false", "of.a.later.kafka": "x"}
    write_topic_configs(str(root), {"t": {"segment.bytes": "1000", **foreign}})
    report = examine({"path": str(root)})
    assert report.ok
    assert [finding.found for finding in report.findings if finding.what == "t"] == [
        "min.insync.replicas=2 has no effect here: a log directory has one replica",
        "of.a.later.kafka=x has no effect here: this version does not know it",
        "segment.bytes=1000 is obeyed here, but brokers since Kafka 4.0 take 1048576 or more",
    ]
    remedies = [finding.remedy for finding in report.findings if "is obeyed here" in finding.found]
    assert remedies == ["Leave it out when you restore the topic, by --set segment.bytes=."]
    write(root, {TopicPartition("t", 0): values(3)})
    write_topic_configs(str(root), {"t": {"segment.bytes": "large"}})
    found = one(examine({"path": str(root)}), "t")
    assert found.state is State.PROBLEM
    assert "'segment.bytes': expected a whole number" in found.found
    assert "kafkalog topics alter" in (found.remedy or "")


def test_what_is_not_fine_has_a_remedy(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    options = {
        "path": str(tmp_path / "gone"),
        "stagingLocation": str(closed),
        "checkpointLocation": str(closed / "made"),
        "auditLocation": "s3://key:hush@no-such-bucket.invalid/x?secret=hush",
    }
    report = examine(options)
    assert not report.ok
    wrong = {found.what for found in report.findings if found.state is State.PROBLEM}
    named = {"path", "auditLocation"} | (
        set() if os.getuid() == 0 else {"stagingLocation", "checkpointLocation"}
    )
    assert named <= wrong
    assert all(found.remedy for found in report.findings if found.state is State.PROBLEM)
    assert "hush" not in str(report) + json.dumps(report.rows()) + report._repr_html_()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"staginglocatoin": "hush"}, "Did you mean stagingLocation"),
        ({"path": "/a", "kafka.bootstrap.servers": "h:1"}, "Only one of"),
        ({"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "hush"}, "kafka.security.protocol"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_looked_at(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as refused:
        examine(options)
    assert "hush" not in str(refused.value)


def test_a_temporary_folder_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    found = one(examine({}), "temporary folder")
    assert (found.state, found.found) == (State.PROBLEM, "it cannot be written to: No space left on device")


def test_kernels_of_the_library() -> None:
    others = [one for one in all_kernels() if library.find(one.function, one.signature) is None]
    if others:
        pytest.skip("No library was compiled from this source here, or another way was chosen")
    assert kernels() == (State.FINE, f"compiled: {library.path()}", None)


SOURCE = """
from pyspark_kafkalog.codec.kernel import kernel
from pyspark_kafkalog.codec.signature import BYTES

@kernel(BYTES, results=1)
def size(data):
    return data.size
"""


def kernel_of(file: Path) -> Kernel:
    names: dict[str, Any] = {"__name__": "of_the_doctor"}
    exec(compile(SOURCE, str(file), "exec"), names)
    found: Kernel = names["size"]
    return found


def test_kernels_that_numba_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The doctor compiles none of them."""
    folder = tmp_path / "__pycache__"
    folder.mkdir()
    (tmp_path / "of_the_doctor.py").write_text(SOURCE)
    kernel = kernel_of(tmp_path / "of_the_doctor.py")
    monkeypatch.setattr(look_module, "all_kernels", lambda: [kernel])
    for _ in range(2):
        state, found, _ = kernels()
        assert state is State.FINE
        assert found.startswith("not compiled yet")
        assert found.endswith(f"caches them in {folder}")
    assert kernel(np.zeros(3, np.uint8)) == 3
    assert kernels() == (State.FINE, f"compiled by numba, cached in {folder}", None)


def test_kernels_that_can_be_cached_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(look_module, "all_kernels", lambda: [kernel_of(tmp_path / "gone.py")])
    state, found, remedy = kernels()
    assert state is State.PROBLEM
    assert "compiles them again" in found
    assert "NUMBA_CACHE_DIR" in str(remedy)


def test_kernels_with_neither_library_nor_numba(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(look_module, "all_kernels", lambda: [kernel_of(tmp_path / "gone.py")])
    monkeypatch.delattr(jit.__name__)
    monkeypatch.delitem(sys.modules, jit.__name__)
    monkeypatch.setitem(sys.modules, "numba", None)
    state, found, remedy = kernels()
    assert state is State.PROBLEM
    assert "numba cannot be imported: import of numba halted" in found
    assert remedy == "Run: pip install numba"


Seen = Callable[..., dict[str, Any]]


@pytest.fixture
def seen(root: Path, tmp_path: Path) -> Seen:
    """What an executor has seen that sees what the driver sees, except for what a test says."""

    def seen(executor: str = "a:1", **other: Any) -> dict[str, Any]:
        options = {"path": str(root), "stagingLocation": str(tmp_path)}
        marked = leave_marks(options, MARK)
        looked = look(options, MARK) | other
        remove_marks(marked, MARK)
        return {"executor": executor, "python": "3.12.3", "executable": "/python", "looked": looked}

    return seen


def compared(driver: dict[str, Any], *executors: dict[str, Any]) -> list[Finding]:
    now = driver["looked"]["now"]
    return list(findings_of_executors(executors, driver["looked"], now - 5, now + 5))


def problems(findings: list[Finding]) -> dict[str, str]:
    return {found.what: found.found for found in findings if found.state is State.PROBLEM}


def test_executors_that_see_the_same(seen: Seen) -> None:
    findings = compared(seen(), seen("a:1"), seen("a:1"), seen("b:2"))
    assert problems(findings) == {}
    report = Report(tuple(findings))
    assert {row["where"] for row in report.rows()} == {"executors a:1, b:2"}


def test_executors_that_see_something_else(seen: Seen) -> None:
    now = seen()["looked"]["now"]
    known = seen()["looked"]["partitions"]
    assert len(known) == 2
    first, (topic_id, end) = next(iter(known.items()))
    for partitions, found in (
        ({first: known[first]}, "it shows other partitions than on the driver"),
        (
            {**known, first: [topic_id, end - 1]},
            f"{first} ends at {end - 1}, but has ended at {end} on the driver",
        ),
        ({**known, first: ["X", end]}, f"{first} has the topic id X, and {topic_id or 'none'} on the driver"),
    ):
        assert problems(compared(seen(), seen(partitions=partitions))) == {"path": found}
    assert problems(compared(seen(), seen(partitions={**known, first: [topic_id, end + 9]}))) == {}, (
        "it grows"
    )
    assert problems(compared(seen(), seen(marks={"stagingLocation": False}))) == {
        "stagingLocation": "it is not the folder that the driver sees"
    }
    assert problems(compared(seen(), seen(version="9.9"))) == {
        "package": "pyspark-kafkalog 9.9, but the driver has 0.1.0"
    }
    assert problems(compared(seen(), seen(now=now - 3600)))["clock"].endswith("behind the driver's")
    assert problems(compared(seen(), seen(now=now + 3600)))["clock"].endswith("ahead of the driver's")
    missing = seen() | {"looked": None, "missing": "No module named 'pyspark_kafkalog'"}
    assert problems(compared(seen(), missing)) == {
        "package": "pyspark-kafkalog is missing: No module named 'pyspark_kafkalog'"
    }


def test_an_executor_looks_once_however_many_of_its_tasks_run() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [7]})

    def rows(hold: float) -> list[str | None]:
        yielded = list(probe(iter([batch]), run="r", options={}, hold=hold))
        return [text for one in yielded for text in one.column("seen").to_pylist()]

    claim = Path(tempfile.gettempdir()) / f"kafkalog-doctor-r-{os.getppid()}"
    claim.touch()
    try:
        assert rows(0) == [None]
    finally:
        claim.unlink()
    (text,) = rows(0)
    assert json.loads(str(text))["looked"]["version"]
    assert not claim.exists()


class Cells(HTMLParser):
    """The texts of a table's cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag == "td":
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data


texts = st.text(max_size=20)
findings = st.builds(
    Finding,
    st.sampled_from(["driver", "session", "executor a:1", "executor b:2"]),
    texts,
    st.sampled_from(State),
    texts,
    st.none() | texts,
)


@given(st.lists(findings, max_size=8))
def test_a_report_shows_each_finding_in_each_form(found: list[Finding]) -> None:
    report = Report(tuple(found))
    rows = report.rows()
    assert len(rows) <= len(found)
    assert report.ok == all(row["state"] != "problem" for row in rows)
    assert all(str(text).isprintable() for row in rows for text in row.values())
    assert len(str(report).splitlines()) == len(rows) + sum(row["remedy"] is not None for row in rows)
    cells = Cells(report._repr_html_()).texts
    assert cells == [str(text or "") for row in rows for text in row.values()]


def test_many_executors_are_counted() -> None:
    same = [Finding(f"executor h:{number}", "clock", State.FINE, "right") for number in range(4)]
    assert [row["where"] for row in Report(tuple(same)).rows()] == ["4 executors"]


@pytest.mark.parametrize("of_a_directory", [True, False])
def test_connect_asks_it_without_pyspark(root: Path, of_a_directory: bool) -> None:
    """What ``kafkalog doctor`` finds, line by line: both are one."""
    (port,) = free_ports(1)
    place = str(root) if of_a_directory else f"127.0.0.1:{port}"
    code = (
        "import json, sys; sys.modules['pyspark'] = None; from pyspark_kafkalog import connect;"
        "report = connect(sys.argv[1]).doctor(); print(json.dumps([report.ok, report.rows()]))"
    )
    done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=True)
    shown = run("doctor", place, "--json").json
    assert json.loads(done.stdout) == [shown["ok"], shown["findings"]]
    assert shown["ok"] == of_a_directory


def test_connect_gives_it_the_options_of_the_place(root: Path, tmp_path: Path) -> None:
    options = {"path": str(root), "checkpointLocation": str(tmp_path), "subscribe": "t"}
    assert one(connect(options).doctor(), "checkpointLocation").found == "can be written to"
    with pytest.raises(OptionError, match=r"kafka\.request\.timeout\.ms': expected"):
        connect({"kafka.bootstrap.servers": "h:1", "kafka.request.timeout.ms": "long"}).doctor()
