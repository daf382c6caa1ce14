"""Names and checkpoint files, as Kafka reads and writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import (
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_partition_metadata,
    is_unused_folder,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_folder,
    parse_partition_metadata,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.model import TopicPartition
from tests.fixtures_dir import CASES, requires_fixtures

PARTITIONS = st.builds(
    TopicPartition,
    st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,30}", fullmatch=True),
    st.integers(0, 2**31 - 1),
)
UUID = "0123456789abcdef0123456789abcdef"


@given(PARTITIONS)
def test_a_partition_has_a_folder_of_its_name(partition: TopicPartition) -> None:
    assert parse_partition_folder(str(partition)) == partition


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-0", ("a", 0)),
        ("a-b-12", ("a-b", 12)),
        ("t--5", ("t-", 5)),
        ("-0-0", ("-0", 0)),
        ("x.y_z-3", ("x.y_z", 3)),
    ],
)
def test_names_are_split_at_the_last_hyphen(name: str, partition: tuple[str, int]) -> None:
    assert parse_partition_folder(name) == partition


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "-0",
        "a-",
        "a-x",
        "a-01",
        "a-+1",
        "a-1 ",
        "a-1\n",
        "a-٣",
        "a-2147483648",
        f"a-{'9' * 400}",
        "..-0",
        ".-0",
        "../a-0",
        "a/b-0",
        "a\0b-0",
        "ä-0",
        f"{'a' * 250}-0",
        f"a-0.{UUID}-delete",
        f"a-0.{UUID}-future",
        f"a-0.{UUID}-stray",
        "__cluster_metadata-0",
    ],
)
def test_other_names_are_not_partitions(name: str) -> None:
    assert parse_partition_folder(name) is None


def test_folders_of_partitions_that_are_not_live() -> None:
    for kind in ("delete", "future", "stray"):
        assert is_unused_folder(f"a-0.{UUID}-{kind}")
    assert is_unused_folder("__cluster_metadata-0")
    assert not is_unused_folder("a-0")
    assert not is_unused_folder("photos")


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".log.swap", ".timeindex.deleted"]))
def test_segment_files(base_offset: int, suffix: str) -> None:
    name = segment_file(base_offset, suffix)
    assert len(name) == 20 + len(suffix)
    assert parse_segment_file(name) == (base_offset, suffix)


@pytest.mark.parametrize(
    "name",
    ["0.log", "00000000000000000000", "99999999999999999999.log", "0000000000000000000a.log", "-0.log"],
)
def test_other_files_belong_to_no_segment(name: str) -> None:
    assert parse_segment_file(name) is None


@given(st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=5))
def test_offset_checkpoints(offsets: dict[TopicPartition, int]) -> None:
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets), "file") == offsets


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=5))
def test_leader_epoch_checkpoints(epochs: list[tuple[int, int]]) -> None:
    assert parse_leader_epoch_checkpoint(format_leader_epoch_checkpoint(epochs), "file") == epochs


@requires_fixtures
def test_files_of_brokers_are_read_and_written_alike() -> None:
    seen = set()
    for case in CASES:
        for path in [p for p in case.directory.rglob("*") if p.is_file()]:
            data = path.read_bytes()
            seen.add(path.name)
            if path.name == "leader-epoch-checkpoint":
                assert format_leader_epoch_checkpoint(parse_leader_epoch_checkpoint(data, "f")) == data
            elif path.name.endswith("-checkpoint"):
                assert format_offset_checkpoint(parse_offset_checkpoint(data, "f")) == data
            elif path.name == "partition.metadata":
                assert format_partition_metadata(parse_partition_metadata(data, "f")) == data
    assert {"leader-epoch-checkpoint", "log-start-offset-checkpoint", "partition.metadata"} <= seen


def test_an_empty_checkpoint_has_no_entries() -> None:
    assert parse_offset_checkpoint(b"", "file") == {}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"1\n0\n", "expected version 0, got '1'"),
        (b"0\n", "expected a count"),
        (b"0\nx\n", "expected a number, got 'x'"),
        (b"0\n2\na 0 1\n", "expected 2 entries, got 1"),
        (b"0\n0\na 0 1\n", "expected 0 entries, got 1"),
        (b"0\n1\na 0\n", "in line 3, got 2"),
        (b"0\n1\na 0 1 2\n", "in line 3, got 4"),
        (b"0\n1\na 0 one\n", "expected a number, got 'one'"),
        (b"0\n1\na 0 " + b"9" * 5000, "expected a number, got"),
        (b"\xff\xfe", "expected UTF-8 text"),
        (bytes(100), "version"),
    ],
)
def test_malformed_checkpoints_are_named(data: bytes, what: str) -> None:
    with pytest.raises(LogDirectoryError, match=r"log-start-offset-checkpoint") as caught:
        parse_offset_checkpoint(data, "root/log-start-offset-checkpoint")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"version: 0\n", b"topic_id: abc", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: x"],
)
def test_malformed_partition_metadata_is_named(data: bytes) -> None:
    with pytest.raises(LogDirectoryError, match=r"partition\.metadata"):
        parse_partition_metadata(data, "a-0/partition.metadata")
