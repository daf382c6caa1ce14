"""The marked folder is the one where rows are staged, wherever it is, even if others may write above it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from pyspark_kafkalog.errors import TransactionError
from pyspark_kafkalog.extensions.exactly_once.folders import Folders
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.model import QueryBatch
from pyspark_kafkalog.options.contracts import delivery_of
from pyspark_kafkalog.options.settings import write_options


def folders(**options: str) -> Folders:
    named = {"kafka.bootstrap.servers": "h:1", "topic": "t", "delivery.guarantee": "exactly-once", **options}
    transactions = delivery_of(write_options(named))
    assert isinstance(transactions, TransactionOptions)
    return Folders.of(transactions)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"kafkalog-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o1777, 0o2770, 0o700])
def test_the_default_is_its_owners_alone(tmp_path: Path, temporary: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    for _ in range(2):
        mark = folders().mark()
        assert mark is not None
        assert folders().are_shared_with(mark)
    assert stat.S_IMODE(temporary.stat().st_mode) & 0o777 == 0o700


def test_a_default_that_others_may_read(temporary: Path) -> None:
    temporary.mkdir(mode=0o755)
    with pytest.raises(TransactionError, match=f"only its owner.*{temporary}.*set stagingLocation"):
        folders().mark()
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize(
    ("option", "location"),
    [
        ("checkpointLocation", "a b"),
        ("checkpointLocation", "file:{}/a%20b"),
        ("checkpointLocation", "file://{}/ä"),
        ("stagingLocation", "{}/file:/a"),
        ("stagingLocation", "file://{}/a%20b"),
    ],
)
def test_rows_are_staged_in_what_is_marked(
    tmp_path: Path, option: str, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = folders(**{option: location.replace("{}", str(tmp_path))})
    found.mark()
    found.make("id", QueryBatch("query", 7))
    (rows,) = tmp_path.rglob("7")
    assert [*rows.parent.parent.glob(".kafkalog-seen-by-*")]
    assert len([*tmp_path.rglob(".kafkalog-seen-by-*")]) == 1
