"""Offsets of groups as text and back."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.tools.groups.consumer_groups import GroupOffset, group_offsets
from pyspark_kafkalog.tools.groups.exchange import export_csv, export_json, parse, parse_ends
from tests.read.fake_groups import FakeGroups
from tests.read.fake_place import FakePlace

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {
    "g": {T0: CommittedOffset(23, 1, 'a "note"'), T1: CommittedOffset(5)},
    "h,x": {T0: CommittedOffset(7)},
}


def rows() -> list[GroupOffset]:
    return group_offsets(FakePlace({T0: (0, 30), T1: (0, 30)}), FakeGroups(OFFSETS))


def test_json_keeps_all() -> None:
    assert parse(export_json(rows())) == OFFSETS
    assert parse(export_json(rows()), group="g") == {"g": OFFSETS["g"]}


@pytest.mark.parametrize("text", ["", "\n", "[]", "{}"])
def test_a_file_without_offsets_is_refused(text: str) -> None:
    """An export that failed leaves such a file."""
    for read in parse, parse_ends:
        with pytest.raises(OptionError, match="The file has no offsets"):
            read(text)


def test_csv_is_that_of_kafkas_tool() -> None:
    several = export_csv(rows(), with_group=True)
    assert several == 'g,t,0,23\ng,t,1,5\n"h,x",t,0,7\n'
    assert {g: {p: o.offset for p, o in offsets.items()} for g, offsets in parse(several).items()} == {
        "g": {T0: 23, T1: 5},
        "h,x": {T0: 7},
    }
    csv = export_csv(rows()[:2], with_group=False)
    assert csv == "t,0,23\nt,1,5\n"
    assert parse(csv, group="z") == {"z": {T0: CommittedOffset(23), T1: CommittedOffset(5)}}
    with pytest.raises(OptionError, match="names no group"):
        parse(csv)


def test_sparks_offsets() -> None:
    assert parse(' {"t":{"0":23}}', group="g") == {"g": {T0: CommittedOffset(23)}}


def test_ends_of_partitions() -> None:
    ends = {T0: 23, T1: 5}
    of_one_group = rows()[:2]
    for text in ("t,0,23\nt,1,5", '{"t":{"0":23,"1":5}}', export_json(of_one_group)):
        assert parse_ends(text) == ends
    assert parse_ends(export_csv(of_one_group, with_group=True)) == ends
    with pytest.raises(OptionError, match="offsets of several groups: 'g', 'h,x'"):
        parse_ends(export_json(rows()))
    with pytest.raises(OptionError, match=r"The file has two offsets \(partition t-0\)"):
        parse_ends("t,0,1\nt,0,2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,0", "Line 1 of the file: expected"),
        ("t,0,1\n\nt,1,-1", "Line 3 of the file: expected"),
        ("t,x,1", "a partition and an offset"),
        ("t,0,99999999999999999999999999", "Line 1 of the file: expected"),
        ("a b,0,1", "Illegal topic name"),
        ("t,0,1\nt,0,2", r"two offsets for group 'g' \(partition t-0\)"),
        ("t,0,1\r2", "not valid CSV"),
        ("[1]", "Object 1 of the file: expected"),
        ('[{"topic":"t","partition":0,"offset":"1"}]', "Object 1 of the file: expected"),
        ('[{"topic":"t","partition":0,"offset":1,"metadata":null}]', "strings as group"),
        ("h,t,0,1\nz,t,0,1", "no offset of group 'g', but of 'h', 'z'"),
        ("[", "not valid JSON"),
        ("{", "not JSON"),
    ],
)
def test_other_texts_are_refused(text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(text, group="g")


@given(st.text() | st.text(alphabet='[{"}],:0123456789tgopic\n').map(lambda text: "[" + text))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(OptionError):
        parse(text, group="g")


def test_groups_and_plans_load_neither_arrow_nor_numba() -> None:
    code = (
        "import sys; from pyspark_kafkalog import connect\n"
        "from pyspark_kafkalog.tools.groups import exchange; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert not {"pyspark", "pyarrow", "numpy", "numba", "kafka"} & set(done.stdout.split())
