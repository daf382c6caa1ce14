"""Row classes, and what views, JSON and tables show of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_kafkalog.model.rows import (
    BIGINT,
    NOTE,
    SIZE,
    STRING,
    TIMESTAMP,
    column,
    plain,
    size_text,
    sql_types,
    table_columns,
    time_text,
)


@dataclass(frozen=True)
class Stored:
    topic: str = field(metadata=column(STRING, "TOPIC"))
    created_ms: int | None = field(metadata=column(TIMESTAMP, "CREATED", wide=True, rank=1))
    stored_bytes: int | None = field(metadata=column(SIZE, "SIZE"))
    lost: int = field(default=0, metadata=column(BIGINT, "LOST", if_any=True))
    note: str = field(default="", metadata=column(NOTE, "NOTE", if_any=True))
    path: str = "/x"


ROWS = [Stored("a", 1_600_000_000_006, 1024), Stored("b", None, None)]


def shown(rows: list[Stored], *, wide: bool) -> list[list[object]]:
    columns = table_columns(Stored, rows, wide=wide)
    return [[one.title for one in columns], *([one.cell(row, wide=wide) for one in columns] for row in rows)]


def test_a_table_has_the_columns_of_the_class() -> None:
    assert shown(ROWS, wide=False) == [["TOPIC", "SIZE"], ["a", "1.0 KiB"], ["b", None]]
    assert shown(ROWS, wide=True) == [
        ["TOPIC", "SIZE", "LOST", "NOTE", "CREATED"],
        ["a", "1.0 KiB", 0, None, "2020-09-13T12:26:40.006Z"],
        ["b", None, 0, None, None],
    ]
    assert shown([], wide=False) == [["TOPIC", "SIZE"]]


def test_a_column_is_left_out_only_where_no_row_has_a_value() -> None:
    lost = [*ROWS, Stored("c", None, None, lost=3)]
    assert shown(lost, wide=False)[0] == ["TOPIC", "SIZE", "LOST"]
    assert [row[-1] for row in shown(lost, wide=False)[1:]] == [0, 0, 3]
    assert shown([*ROWS, Stored("c", None, None, note="gone")], wide=False)[1:] == [
        ["a", "1.0 KiB", None],
        ["b", None, None],
        ["c", None, "gone"],
    ]


def test_json_has_all_fields_and_views_those_with_a_column() -> None:
    row = {"topic": "b", "createdMs": None, "storedBytes": None, "lost": 0, "note": "", "path": "/x"}
    assert plain({"rows": ROWS[1:]}) == {"rows": [row]}
    assert sql_types(Stored) == {
        "topic": "string",
        "createdMs": "timestamp",
        "storedBytes": "bigint",
        "lost": "bigint",
        "note": "string",
    }


def test_times_and_sizes() -> None:
    assert time_text(1_600_000_000_006) == "2020-09-13T12:26:40.006Z"
    assert time_text(2**62) == str(2**62)
    assert [size_text(n) for n in (0, 1023, 1024, 5 << 40)] == ["0 B", "1023 B", "1.0 KiB", "5.0 TiB"]
