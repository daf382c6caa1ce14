"""Folders that have no place in a log directory are named by all who look at it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_kafkalog import OptionError, connect
from pyspark_kafkalog.log.layout import may_be_there
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.options.settings import write_options
from pyspark_kafkalog.places import open_sink
from tests.tools.backup.test_adopt import T0, back_up, make_broker
from tests.tools.cli.running import run

NAMED = [
    "named-payments is not TOPIC-PARTITION: a broker will not start here",
    "payments-1 has no file of Kafka, and yet readers and brokers take it for a partition",
]


def put_folders(root: Path) -> None:
    for name in ("named-payments", "payments-1", "orders-0.0123456789abcdef0123456789abcdef-delete"):
        (root / name).mkdir()
    (root / "payments-1" / "part-0.parquet").write_bytes(b"PAR1")
    (root / "lag.prom").write_text("no folder")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "log"
    assert run("produce", root, "orders", text="a\n").code == 0
    put_folders(root)
    return root


def test_verify_names_them(root: Path) -> None:
    done = run("verify", root)
    assert (done.code, done.err) == (0, "".join(f"kafkalog: {sentence}\n" for sentence in NAMED))


def test_repair_names_them_and_promises_no_start(root: Path) -> None:
    steps = [sentence.replace(" ", ": it ", 1) for sentence in NAMED]
    for words in [], ["--execute"]:
        done = run("repair", root, *words)
        assert [line for line in done.out.splitlines() if line.startswith("skip")][1:] == [
            f"skip {step}" for step in steps
        ]
        assert (done.code, "A broker starts" in done.out) == (0, False)
    assert [path.name for path in (root / "payments-1").iterdir()] == ["part-0.parquet"]
    (root / "named-payments").rmdir()
    assert "A broker starts on it without recovery" in run("repair", root, "--execute").out


def test_doctor_names_them(root: Path) -> None:
    (root / "lost+found").mkdir()
    done = run("doctor", root, "--json")
    found = {row["found"]: (row["state"], row["remedy"]) for row in done.json["findings"]}
    assert (done.code, {found[sentence] for sentence in NAMED}) == (
        1,
        {("problem", "Move it out of the log directory.")},
    )
    assert found["lost+found is not TOPIC-PARTITION: a broker will not start here"][0] == "unknown"


def test_each_mount_has_its_own_folder(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("1", "not lost+found is not")]
    for number, root in enumerate(roots):
        assert run("produce", root, f"clicks{number}", text="a\n").code == 0
        (root / "lost+found").mkdir()
    (roots[1] / "found").mkdir()
    found = connect({"path": json.dumps([str(root) for root in roots])}).doctor().findings
    named = [(each.found.partition(" is not TOPIC"), each.state.value) for each in found]
    states = {name: state for (name, is_named, _), state in named if is_named}
    assert states == {
        str(roots[0] / "lost+found"): "unknown",
        str(roots[1] / "lost+found"): "unknown",
        str(roots[1] / "found"): "problem",
    }


def test_adopt_names_those_of_the_broker(tmp_path: Path) -> None:
    backup, log_dir = back_up(tmp_path, T0), tmp_path / "broker"
    make_broker(log_dir, T0)
    put_folders(log_dir)
    for words in [], ["--execute"]:
        done = run("adopt", backup, log_dir, "--no-groups", *words)
        assert done.code == 0
        assert [line for line in done.err.splitlines() if line.startswith("kafkalog: ")] == [
            f"kafkalog: {sentence}" for sentence in NAMED
        ]


def test_each_directory_of_several_is_named(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert run("produce", other, "clicks", text="a\n").code == 0
    (other / "ck").mkdir()
    found = LogDirectory.open([str(root), str(other)]).misplaced()
    assert [sentence.split()[0] for sentence in found] == [
        str(root / "named-payments"),
        str(root / "payments-1"),
        str(other / "ck"),
    ]
    assert LogDirectory.open([str(root / "orders-0")]).misplaced() == []


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("orders-0", True),
        ("a-b-12", True),
        ("orders-2147483647", True),
        ("orders-2147483648", False),
        ("orders--1", True),
        ("orders", False),
        ("-1", False),
        ("orders-", False),
        ("orders-x", False),
        ("lost+found", False),
        ("orders-0.abc-delete", True),
        ("orders-0.abc-future", True),
        ("orders-delete", False),
        ("orders-x.abc-stray", False),
        ("remote-log-index-cache", True),
        ("__cluster_metadata-0", True),
    ],
)
def test_what_a_broker_starts_beside(name: str, starts: bool) -> None:
    assert may_be_there(name) is starts


def test_a_checkpoint_in_the_log_directory_is_refused(tmp_path: Path) -> None:
    root, link = tmp_path / "log", tmp_path / "link"
    link.symlink_to(root)
    for checkpoint in (root / "ck", root, f"file://{root}/ck", f"file:{root}/a/b", link / "ck"):
        with pytest.raises(OptionError, match="'checkpointLocation' is inside the log directory"):
            open_sink(write_options({"path": str(root), "topic": "t", "checkpointLocation": str(checkpoint)}))
        assert not root.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.mkdir()
    (root / "link").symlink_to(elsewhere)
    for checkpoint in (root / "link", root / "a:/ck", f"file:{root}/link/ck"):
        with pytest.raises(OptionError, match="'checkpointLocation' is inside the log directory"):
            open_sink(write_options({"path": str(root), "topic": "t", "checkpointLocation": str(checkpoint)}))
    (root / "link").unlink()
    for checkpoint in (
        tmp_path / "log-ck",
        tmp_path / "a:/ck",
        f"file://{tmp_path}/ck",
        "s3://bucket/log/ck",
    ):
        open_sink(write_options({"path": str(root), "topic": "t", "checkpointLocation": str(checkpoint)}))
    assert connect(str(root)).topics.describe() == []
