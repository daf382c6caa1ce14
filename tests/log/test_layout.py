"""Names and checkpoint files, as Kafka reads and writes them."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.log.layout import (
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_partition_metadata,
    is_unused_folder,
    may_be_there,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_folder,
    parse_partition_metadata,
    parse_segment_file,
    segment_file,
)
from pyspark_kafkalog.model import TopicPartition
from tests.fixtures_dir import CASES, requires_fixtures
from tests.kafka_jars import java, kafka_jars

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
        (b"0\nx\n", "expected a number up to 2147483647, got 'x'"),
        (b"0\n2\na 0 1\n", "expected 2 entries, got 1"),
        (b"0\n0\na 0 1\n", "expected 0 entries, got 1"),
        (b"0\n1\na 0\n", "in line 3, got 2"),
        (b"0\n1\na 0 1 2\n", "in line 3, got 4"),
        (b"0\n1\na 0 one\n", "expected a number up to 9223372036854775807, got 'one'"),
        (b"0\n1\na 0 " + b"9" * 5000, "expected a number up to"),
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


_EPOCHS = b"0\n3\n0 0\n1 900\n12 2147483648\n"
_OFFSETS = b"0\n2\nlong.topic_name 0 9223372036854775807\na 2147483647 -1\n"
_METADATA = b"version: 0\ntopic_id: 3eSe3plxSHu9vLwYwVpkSg"
_ODD = (
    b"0\n1\n 0 0\n",
    b"0\n1\n0 0 \n",
    b"0\n1\n0\t 0\n\n",
    b"0\r\n1\r0 0\r\n",
    b"0\n1\n9999999999 0",
    b"0\n1\n0 9223372036854775808\n",
    b"0\n1\n+0 -1\n",
    b" 0\n0\n",
    b"0\n 0\n",
    b"0\n-1\n",
    b"0\n2147483647\n0 0\n",
    b"-0\n00\n",
    b"version: 0\nid:  3eSe3plxSHu9vLwYwVpkSg==\nmore",
    b"version: 1\r\ntopic_id: 3eSe3plxSHu9vLwYwVpkSh\r\n",
    b"version: -1\ntopic_id: 3eSe3plxSHu9vLwYwVpkSg",
    b"version:0\ntopic_id: 3eSe3plxSHu9vLwYwVpkSg",
    b"version: 0\ntopic_id: 3eSe3plxSHu9vLwYwVpkSg ",
    b"version: 0\ntopic_id: 3eSe3plxSHu9vLwYwVpkSg=",
)


def _damaged(content: bytes) -> Iterator[bytes]:
    """Each bit flipped, and each byte replaced by one that text is made of, or nearly."""
    yield content
    for at in range(len(content)):
        before, after = content[:at], content[at + 1 :]
        yield before
        for bit in range(8):
            yield before + bytes([content[at] ^ 1 << bit]) + after
        for byte in b"\t\n\v\f\r\x1c\x1d\x1e\x1f +-=:0", "\x85".encode(), "\u2028".encode(), "\xa0".encode():
            for other in [bytes([b]) for b in byte] if byte[0] < 128 else [byte]:
                yield before + other + after


def _as_ours(name: str, data: bytes) -> str:
    """What :file:`ReadTextFiles.java` says of a file, by our own code."""
    try:
        if name.startswith("epochs"):
            return ",".join(
                f"{epoch} {offset}" for epoch, offset in parse_leader_epoch_checkpoint(data, name)
            )
        if name.startswith("offsets"):
            found = parse_offset_checkpoint(data, name)
            return ",".join(sorted(f"{t.encode().hex()} {p} {offset}" for (t, p), offset in found.items()))
        return parse_partition_metadata(data, name)
    except LogDirectoryError:
        return "refused"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_each_byte_counts_as_for_kafkas_own_classes(tmp_path: Path) -> None:
    """What a broker refuses to read is damage, and what it reads is the same."""
    for kind, content in (("epochs", _EPOCHS), ("offsets", _OFFSETS), ("metadata", _METADATA)):
        for number, data in enumerate({content, *_damaged(content), *_ODD}):
            (tmp_path / f"{kind}-{number}").write_bytes(data)
    source = Path(__file__).with_name("ReadTextFiles.java")
    command = [java(), "-cp", f"{kafka_jars()}/*", str(source), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    outcomes = Counter[tuple[str, bool]]()
    for line in printed:
        name, theirs = line.split("\t")
        data = (tmp_path / name).read_bytes()
        ours = _as_ours(name, data)
        # A version alone is nothing for Kafka; it was cut off.
        assert ours == theirs or (theirs, data.count(b"\n") < 2, ours) == ("", True, "refused"), (name, data)
        outcomes[name.split("-")[0], ours == "refused"] += 1
    print(outcomes)
    assert min(outcomes.values()) > 20
    assert len(outcomes) == 6


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK")
def test_a_broker_stops_at_the_names_that_it_may_not_find(tmp_path: Path) -> None:
    topics = ("orders", "a-b", "a.b", "-", "", ".kafkalog-x", "lost+found", "ck", "\u00e9 x")
    numbers = ("", "-", "-0", "--1", "-+1", "-01", "-x", "-1x", "-2147483647", "-2147483648", "-99999999999")
    endings = ("", ".abc-delete", ".abc-future", ".abc-stray", "-delete", "-stray", ".-delete", ".a b-delete")
    for name in {f"{t}{n}{e}" for t in topics for n in numbers for e in endings} - {""}:
        (tmp_path / name).mkdir()
    source = Path(__file__).with_name("ReadTextFiles.java")
    command = [java(), "-Dfile.encoding=UTF-8", "-cp", f"{kafka_jars()}/*", str(source), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    theirs = {name: found != "refused" for name, _, found in (line.partition("\t") for line in printed)}
    assert len(theirs) > 500
    assert {name for name, starts in theirs.items() if may_be_there(name) != starts} == set()
