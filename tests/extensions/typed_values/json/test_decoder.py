"""What the kernel decodes is what the slow path decodes; what is corrupt, and why; and rules of the types."""

from __future__ import annotations

import json
import random
import struct
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.codec.fields import text_of
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.typed_values.columns import lay_out
from pyspark_kafkalog.extensions.typed_values.ddl import parse_ddl
from pyspark_kafkalog.extensions.typed_values.json import kernels, times
from pyspark_kafkalog.extensions.typed_values.json.decoder import DecodedJson, Decoder
from pyspark_kafkalog.extensions.typed_values.json.rows import as_float
from pyspark_kafkalog.extensions.typed_values.json.times import Zone, date, timestamp, zone
from pyspark_kafkalog.extensions.typed_values.json.types import check_type
from tests.benchmarks.json_idioms import IDIOMS, Idiom
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.json import fuzz, oracle
from tests.extensions.typed_values.json.cases import CASES, KIND, WITHOUT_A_ZONE
from tests.extensions.typed_values.json.fuzz import hostile
from tests.extensions.typed_values.json.values import KINDS, made_type, value

LIST = pa.list_(pa.field("element", pa.int64()))


def decoded(values: list[bytes | None], kind: pa.StructType = KIND, of: Zone = 0) -> DecodedJson:
    found = decode_column(Decoder(kind, of, "_corrupt_record"), pa.array(values, pa.binary()))
    found.array.validate(full=True)
    return found


def rows(values: list[bytes | None], **fields: pa.DataType) -> list[Any]:
    return list(decoded(values, pa.struct(list(fields.items()))).array.to_pylist())


def is_rare(values: list[bytes], **fields: pa.DataType) -> list[bool]:
    """Which the kernel leaves."""
    decoder = Decoder(pa.struct(list(fields.items())), fuzz.zone_of("Europe/Berlin"), "_corrupt_record")
    sizes = np.array([len(each) for each in values], np.int64)
    data = np.frombuffer(b"".join(values), np.uint8)
    _, marks = decoder._common(data, np.cumsum(sizes) - sizes, sizes)
    return list(marks >= kernels.RARE)


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "+05:30"])
def test_the_kernel_gives_what_the_slow_path_gives(name: str) -> None:
    of = zone(name)
    assert of is not None
    values = [*CASES, *WITHOUT_A_ZONE]
    found = decoded(values, KIND, of)
    expected, corrupt = oracle.slow(values, KIND, of)
    for body, one, other in zip(values, oracle.shown(found.array), expected, strict=True):
        assert one == other, body
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]


@pytest.mark.long
def test_hostile_values_are_those_of_the_slow_path(seed: int) -> None:
    outcome = fuzz.run(seed, 8000)
    assert outcome["compared"] == 8000
    assert outcome["values"] > 1000
    assert outcome["corrupt"] > 1000


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_any_value_of_any_type_is_that_of_the_slow_path(rng: random.Random) -> None:
    kind = made_type(rng)
    values = hostile(rng, kind, rng.randrange(1, 5))
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected, (kind, values)
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]


def test_common_values_need_no_slow_path() -> None:
    rng = random.Random(1)
    for kind in KINDS:
        fields = {field.name: field.type for field in kind if field.name != "_corrupt_record"}
        made = [value(rng, kind) for _ in range(300)]
        assert sum(is_rare(made, **fields)) < 220
    texts = [
        b'{"id": 1234567890123456789, "s": "a\\u00e9\\ud83d\\ude00\\n\\"", "d": 0.14285714285714285}',
        b'{"s":null,"other":{"a":[1,{"b":"}"}],"c":-1.5e-3},"d":1e22,"id":-9223372036854775807}',
        b' {"d" : 1.7976931348623157e308, "at": "2024-01-02T03:04:05.678+01:00"} and more',
        b"",
        b" ",
    ]
    kinds = {"id": pa.int64(), "s": pa.string(), "d": pa.float64(), "at": pa.timestamp("us", tz="UTC")}
    assert is_rare(texts, **kinds) == [False] * 5


def test_null_and_blank_values_are_null() -> None:
    found = decoded([None, b"", b" \n\t", b"{}", b"null"])
    assert [row is None for row in found.array.to_pylist()] == [True, True, True, False, False]
    assert found.corrupt.tolist() == [4]


def test_no_rows_and_slices() -> None:
    assert len(decoded([]).array) == 0
    column = pa.array([b"no", b'{"i":1}', None, b'{"i":2}'], pa.binary())[1:3]
    found = decode_column(Decoder(KIND, 0, "_corrupt_record"), column)
    assert [row and row["i"] for row in found.array.to_pylist()] == [1, None]


def test_good_fields_of_corrupt_rows_are_kept() -> None:
    kind = pa.struct([("i", pa.int32()), ("bad", pa.string()), ("s", pa.string())])
    found = decode_column(
        Decoder(kind, 0, "bad"),
        pa.array(
            [b'{"i":"x","s":"kept"}', b'{"i":1', b'{"i":1}', b'{"bad":"x"}', b'\xff{"i":2}'], pa.binary()
        ),
    )
    assert found.array.to_pylist() == [
        {"i": None, "bad": '{"i":"x","s":"kept"}', "s": "kept"},
        {"i": None, "bad": '{"i":1', "s": None},
        {"i": 1, "bad": None, "s": None},
        {"i": None, "bad": None, "s": None},
        {"i": None, "bad": '\ufffd{"i":2}', "s": None},
    ]
    assert found.corrupt.tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"i":"x"}', "i: expected a whole number of 32 bits, at byte 5"),
        ('{"s":"ä😀","st":{"a":1.5}}'.encode(), "st.a: expected a whole number of 32 bits, at byte 24"),
        (b'{"ao":[{"a":1},{"a":true}]}', "ao.a: expected a whole number of 32 bits, at byte 20"),
        (b'{"mo":{"k":{"a":[]}}}', "mo.a: expected a whole number of 32 bits, at byte 16"),
        (b'{"i":1', "the value ends too early, at byte 6"),
        (b'{"i":1 "s":2}', "expected a comma, at byte 7"),
        (b'{"i":01}', "expected no zero before other digits, at byte 5"),
        (b"[]", "expected an object, at byte 0"),
        (b"null", "expected an object, at byte 0"),
        (b'{"dec":123456789.5}', "dec: expected a number that fits into decimal(10,2), at byte 7"),
        (b'{"ts":"soon"}', "ts: expected a timestamp, at byte 6"),
        (b'\xff{"i":1}', "expected a value, at byte 0"),
    ],
)
def test_reasons_name_field_and_byte(body: bytes, reason: str) -> None:
    found = decoded([b"{}", body])
    assert found.corrupt.tolist() == [1]
    assert found.reason(1) == reason


def test_more_items_and_bytes_than_there_was_room_for() -> None:
    many = b'{"l":[' + b",".join(b"%d" % n for n in range(5000)) + b'],"s":"' + b"x" * 100_000 + b'"}'
    values = [b'{"l":[1,2],"s":"a"}', many, b'{"l":[],"s":null}', many[:-1], many, b'{"s":"z","l":[7]}']
    found = decoded(values * 3, pa.struct([("l", LIST), ("s", pa.string())]))
    assert [None if row["l"] is None else len(row["l"]) for row in found.array[:6].to_pylist()] == [
        *(2, 5000, 0, None, 5000, 1)
    ]
    assert found.array[6:12].to_pylist() == found.array[:6].to_pylist()
    assert found.array[1].as_py() == {"l": list(range(5000)), "s": "x" * 100_000}


def test_room_of_many_columns_grows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[int] = []

    def counted(columns: Any, table: np.ndarray, room: np.ndarray) -> np.ndarray:
        laid_out.append(int(room[-1]))
        return lay_out(columns, table, room)

    monkeypatch.setattr("pyspark_kafkalog.extensions.typed_values.json.decoder.lay_out", counted)
    fields = {f"f{number}": pa.string() for number in range(100)}
    body = dict.fromkeys(fields, "x" * 100)
    (first, *_) = rows([json.dumps(body).encode()] * 2000, **fields)
    assert first == body
    assert len(laid_out) < 10


def test_long_rows_need_no_slow_path() -> None:
    items = b'{"l":[' + b'"abcdefgh",' * 1_600_000 + b'1],"s":"'
    of_18_mb = [items + b'a"}', b'{"s":"' + b"a" * 18_000_000 + b'"}', b'{"s":"' + b"a" * 20_000_001 + b'"}']
    assert is_rare(of_18_mb, s=pa.string()) == [False, False, True]


def test_nothing_of_a_rare_row_stays() -> None:
    """The next row's items lie where those of the rare one were."""
    values = [b'{"l":[1,2,3],"s":"abc"', b'{"l":[null,null],"s":"d"}', b'{"s":1}', b"{}"]
    assert rows(values, l=LIST, s=pa.string()) == [
        {"l": None, "s": None},
        {"l": [None, None], "s": "d"},
        {"l": None, "s": "1"},
        {"l": None, "s": None},
    ]


def test_values_end_where_they_end() -> None:
    """The bytes behind a value are those of the next one."""
    values = [b'{"i":1', b'2,"s":"a"}', b'{"i":12', b"}", b'{"s":"a', b'"}', b'{"s":"\\', b'n"}']
    values += [b'{"s":"\\u00', b'e9"}', b'{"d":1.', b"5}", b'{"z":tru', b"e}", b'{"x":{"y":', b"1}}"]
    found = decoded(values)
    assert found.corrupt.tolist() == list(range(len(values)))


def test_names_are_told_apart() -> None:
    fields = {f"field{number}": pa.int64() for number in range(40)} | {"": pa.int64(), "ä": pa.int64()}
    body = "{" + ",".join(f'"{name}":{number}' for number, name in enumerate(reversed(fields))) + "}"
    (row,) = rows([body.encode()], **fields)
    assert row == {name: number for number, name in enumerate(reversed(fields))}
    assert rows([b'{"A":1,"aa":2,"\\u0061":3}'], a=pa.int64()) == [{"a": 3}]
    assert rows([b'{"a":1,"a":2}', b'{"a":1,"a":"x"}', b'{"a":1,"a":null}'], a=pa.int64()) == [
        {"a": 2},
        {"a": 1},
        {"a": None},
    ]
    nested = pa.struct([("a", pa.struct([("a", pa.int64())]))])
    assert decoded([b'{"a":{"a":1},"a":{"a":2}}'], nested).array.to_pylist() == [{"a": {"a": 2}}]


def test_the_last_one_of_a_name_counts() -> None:
    """Also in the slow path's view; nothing of those before is left in the columns."""
    inner = pa.struct([("a", pa.int64()), ("l", LIST), ("s", pa.string())])
    lists = pa.list_(pa.field("element", LIST))
    kind = pa.struct([("l", lists), ("m", pa.map_(pa.string(), LIST)), ("s", pa.string()), ("a", inner)])
    parts = [
        '"l":[[1,2],[3]]',
        '"l":[[4]]',
        '"l":null',
        '"m":{"x":[1],"y":[2,3]}',
        '"m":{"z":[]}',
        '"s":"abc"',
    ]
    parts += [
        '"s":"d"',
        '"s":{"x":[1.50]}',
        '"a":{"a":1,"l":[1,2],"s":"e"}',
        '"a":{"s":"f","s":"gh"}',
        '"a":null',
    ]
    rng = random.Random(1)
    values: list[bytes | None] = [f"{{{','.join(rng.choices(parts, k=12))}}}".encode() for _ in range(300)]
    found = decoded(values, kind)
    assert oracle.shown(found.array) == oracle.slow(values, kind, 0)[0]
    assert not found.slow.total()


@pytest.mark.parametrize(
    "idiom", [each for each in IDIOMS if "MB" not in each.name], ids=lambda each: each.name
)
def test_idioms_need_no_slow_path(idiom: Idiom) -> None:
    values: list[bytes | None] = [idiom.make(number).encode() for number in range(41)]
    kind = parse_ddl(idiom.fields)
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert not found.slow.total()


def test_fields_of_another_type_need_no_slow_path() -> None:
    fields = {"i": pa.int32(), "b": pa.int8(), "h": pa.int16(), "z": pa.bool_(), "d": pa.float64()}
    fields |= {"dec": pa.decimal128(5, 2), "dt": pa.date32(), "ts": pa.timestamp("us", tz="UTC"), "l": LIST}
    fields |= {"m": pa.map_(pa.string(), pa.int32()), "st": pa.struct([("a", pa.int32())]), "s": pa.string()}
    others = [
        '"x"',
        '""',
        "true",
        "{}",
        '{"a":[1,"x"]}',
        "[]",
        '[{"a":1}]',
        "1.5",
        "99999999999",
        '"1"',
        "256",
    ]
    values: list[bytes | None] = [
        f'{{"s":"k","{name}":{other},"s":"l"}}'.encode() for name in fields for other in others
    ]
    kind = pa.struct(list(fields.items()))
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert not found.slow.total()


def test_items_of_another_type_need_no_slow_path() -> None:
    """Their array or map is null, and what is behind it is not; one whose name was there before is left."""
    inner = "struct<a: int, b: array<int>>"
    kind = parse_ddl(
        f"l array<int>, ll array<array<date>>, m map<string, int>, o array<{inner}>, mo map<string, {inner}>,"
        " ml map<string, array<int>>, lm array<map<string, int>>, s string"
    )
    parts = {
        "l": ["[1,2]", '[1,"x",3]', '["x"]', "[{},[],2]", "[1.5]", "[null,true]", "{}"],
        "ll": ['[["2024-01-02"],["x",1,{}],["2024-01-03"]]', '[["2024-01-02"],3]', "[[[]],[]]"],
        "m": ['{"a":1,"b":"x","c":[{"d":1}]}', '{"a":1}', '{"a":[1],"b":2}', "[1]"],
        "o": ['[{"a":1},2,{"a":3}]', '[{"a":"x","b":[1,"x"]},{"b":[2,null]}]', '["x",{"a":1}]'],
        "mo": ['{"k":{"a":1,"b":["x"]},"l":{"b":[1]}}', '{"k":1,"l":{"a":1}}', '{"k":[{"a":1}]}'],
        "ml": ['{"a":[1,"x",{"b":[2]},3],"b":[4]}', '{"a":"x"}', '{"a":[[1],2],"b":[]}'],
        "lm": ['[{"a":1},{"b":"x","c":2},{"d":3}]', '["x",{"a":1}]', '[{"a":[1]}]'],
        "s": ['"k"', "1", '{"a":["x"]}'],
    }
    rng = random.Random(1)
    values: list[bytes | None] = []
    for _ in range(2000):
        fields = [f'"{name}":{rng.choice(parts[name])}' for name in rng.sample([*parts], 5)]
        values.append(f"{{{','.join(fields)}}}".encode())
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert not found.slow.total()
    again: list[bytes | None] = [b'{"l":[1],"l":[2,"x"],"s":"k"}', b'{"m":{"a":1},"m":{"a":"x"}}']
    assert oracle.shown(decoded(again, kind).array) == oracle.slow(again, kind, 0)[0]


_TIME_PARTS = [*"0123456789", *"0123", *"+-:./, TZG", "GMT", "\\n", "é", "\x7f", "\u0661", "00", "29", "[x]"]


def test_strings_that_are_no_times_or_numbers_need_no_slow_path(seed: int) -> None:
    """Of many made of what times have, whatever they are; and of those that people have, none is left."""
    rng = random.Random(seed)
    usual = ["Thu, 04 Jan 2024 10:00:00 GMT", "04/01/2024 10:00", "2024/01/04", "04.01.2024", "0000-00-00"]
    usual += ["2024-02-30T10:00:00Z", "2024-01-04 24:00:00", "2024-01-04 10:00:00,123", "20240104T101010Z"]
    usual += ["1700000000", "1700000000000", "N/A", "-", "", " ", "None", "T", "$1.50", "1.50 EUR"]
    usual += [
        " 1.5",
        "-1.5",
        "1,5",
        "NaN",
        "-Infinity",
        "+Infinity",
        "Infinity",
        "+INF",
        "-INF",
        "INF",
        "+NaN",
    ]
    usual += [
        "2024-01-04T10:00:00+01:00[Europe/Paris]",
        "20240104",
        "--Infinity",
        "2024-13-01",
        "7",
        "2023-02-29",
    ]
    starts = ["2024-01-04T10:00:00.5Z", "2024-02-29", "-1.5e3", "10:11:12", "Infinity"]
    made = []
    for _ in range(20_000):
        text = rng.choice([*starts, *usual])
        for _ in range(rng.randrange(3)):
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(_TIME_PARTS) + text[place + rng.randrange(3) :]
        made.append(text)
    kinds = {
        "ts": pa.timestamp("us", tz="UTC"),
        "tn": pa.timestamp("us"),
        "dt": pa.date32(),
        "d": pa.float64(),
    }
    kinds |= {"f": pa.float32(), "dec": pa.decimal128(10, 2), "s": pa.string()}
    kind = pa.struct(list(kinds.items()))
    for texts, may_be_slow in ((usual, False), (made, True)):
        values: list[bytes | None] = [
            f'{{"{name}":"{text}","s":"k"}}'.encode()
            for text in texts
            for name in ([rng.choice([*kinds])] if may_be_slow else kinds)
        ]
        found = decoded(values, kind)
        expected, corrupt = oracle.slow(values, kind, 0)
        for one, other, body in zip(oracle.shown(found.array), expected, values, strict=True):
            assert one == other, body
        assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
        assert may_be_slow or not found.slow.total(), found.slow


def test_what_no_string_may_have_needs_no_slow_path() -> None:
    """A control character, or another escape than JSON's, ends from_json's row, but not in inner objects."""
    kind = parse_ddl("i int, s string, d double, at timestamp, l array<string>, t struct<a: int, s: string>")
    around = [("s", "", ""), ("x", "", ""), ("d", "", ""), ("at", "", ""), ("i", "", ""), ("l", "[", "]")]
    around += [("x", "[", "]"), ("s", "[", "]"), ("t", '{"s":', "}"), ("x", '{"', '":1}')]
    odd = ["\t", "\n", "\\p", "\\u12", "\\u12x4", "\\'", "\\"]
    values: list[bytes | None] = [
        f'{{"i":1,"{name}":{opening}"a{bad}{behind}"{closing},"t":{{"a":1}}}}'.encode()
        for bad in odd
        for behind in ("b", "", " ,", "}", ' } , "i":2')
        for name, opening, closing in around
    ]
    values += [f'{{"i":1,"a{bad}b":2,"s":"k"}}'.encode() for bad in odd]
    words = [
        "None",
        "True",
        "undefined",
        "nul",
        "007",
        "+1",
        "-",
        "1.",
        "1e",
        "Nan",
        "ja",
        "<",
        "}",
        ",",
        "é",
        "Inf",
    ]
    values += [
        f'{{"i":1,"{name}":{word},"s":"k"}}'.encode()
        for word in words
        for name in ("x", "s", "i", "t", "l", "d")
    ]
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    for one, other, body in zip(oracle.shown(found.array), expected, values, strict=True):
        assert one == other, body
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    usual = [b'{"i":1,"s":"a\tb"}', b'{"i":1,"x":"a\nb"}', b'{"i":1,"s":"C:\\path"}', b'{"i":1,"s":None}']
    usual += [b'{"i":1,"s":"C:\\users"}', b'{"i":007}', b'{"x":undefined,"i":1}', b'{"s":"it\\\'s"}']
    assert not any(is_rare(usual, i=pa.int32(), s=pa.string()))


def test_skipped_values_may_be_as_deep_as_jackson_lets_them() -> None:
    values = [
        f'{{"x":{"[" * depth}{"]" * depth},"s":{"[" * depth}{"]" * depth}}}' for depth in (61, 999, 1000)
    ]
    assert is_rare([each.encode() for each in values], s=pa.string()) == [False, False, True]
    found = decoded([each.encode() for each in values], pa.struct([("s", pa.string())]))
    assert [row["s"] and len(row["s"]) for row in found.array.to_pylist()] == [122, 1998, None]
    assert found.corrupt.tolist() == [2]


def test_numbers_are_javas_as_texts(seed: int) -> None:
    rng = random.Random(seed)
    numbers = [repr(struct.unpack("<d", rng.randbytes(8))[0]) for _ in range(4000)]
    numbers += [repr(rng.choice([-1, 1]) * rng.random() * 10.0 ** rng.randrange(-6, 10)) for _ in range(4000)]
    numbers += [f"{rng.getrandbits(rng.randrange(1, 62))}e{rng.randrange(-330, 310)}" for _ in range(4000)]
    numbers += [repr(2.0**power) for power in range(-1074, 1024)] + [
        f"1e{power}" for power in range(-323, 309)
    ]
    numbers += [
        "0.0",
        "-0.0",
        "0e5",
        "-0",
        "0",
        "9999999.0",
        "1e7",
        "1e-3",
        "9.99e-4",
        "123456789012345678901234",
    ]
    numbers = [number for number in numbers if number not in ("nan", "inf", "-inf")]
    values: list[bytes | None] = [f'{{"s":[{number}]}}'.encode() for number in numbers]
    kind = pa.struct([("s", pa.string())])
    found = decoded(values, kind)
    assert oracle.shown(found.array) == oracle.slow(values, kind, 0)[0]
    assert found.slow.total() < 600


def test_values_that_are_not_quite_json_need_no_slow_path() -> None:
    """NaN, half of a surrogate pair, bytes that are not UTF-8, and many digits."""
    fields = {"d": pa.float64(), "f": pa.float32(), "s": pa.string(), "m": pa.map_(pa.string(), pa.string())}
    fields |= {"dec": pa.decimal128(38, 18), "short": pa.decimal128(6, 2)}
    values: list[bytes | None] = [
        b'{"d":NaN,"f":-Infinity,"x":[NaN,-Infinity,{"y":Infinity}],"s":"k"}',
        b'{"d":Infinity,"f":NaN}',
        rb'{"s":"a\ud83d","m":{"\ude00b\ud83d\ud83d\ude00":"\ud83dx"}}',
        b'{"s":"caf\xe9 \xf0\x9f \xed\xa0\x80","m":{"\xff":"\xc3"},"d":1.5}',
        b'{"s":["\xe9\xe9"],"d":"\xe9"}',
        b'{"d":0.12345678901234567890123456789,"f":12345678901234567890123.5,"s":1.2345678901234567890123}',
        b'{"dec":12345678901234567890.123456789012345678,"short":1234.5}',
        b'{"dec":"-12,345,678,901,234,567,890.123456789012345678","short":"00000000000000000000001234.50"}',
        b'{"dec":123456789012345678901,"short":1234567890123456789012}',
    ]
    kind = pa.struct(list(fields.items()))
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert found.slow.total() == 1, "the corrupt one"


def test_numbers_of_every_size_need_no_slow_path() -> None:
    """Also beyond a double's or a float's, and in texts; and decimals with an exponent in quotes."""
    numbers = ["1e400", "-1e400", "1e-400", "-1e-400", "1e99999999999", "0e999", "-0.0", "3.5e38", "1e-50"]
    numbers += ["1" * 200 + "e150", "3.4e38", "1.7976931348623157e308", "1e309", "-2e308"]
    quoted = ["1E+3", "1.5e-2", "-12.345E1", "0E-10", "1E99", "1E-99", "123456789012345678901E2"]
    values: list[bytes | None] = [f'{{"d":{n},"f":{n},"s":{{"a":[{n},1.5]}}}}'.encode() for n in numbers]
    values += [f'{{"dec":"{n}","short":"{n}"}}'.encode() for n in quoted]
    fields = {"d": pa.float64(), "f": pa.float32(), "s": pa.string()}
    kind = pa.struct([*fields.items(), ("dec", pa.decimal128(38, 10)), ("short", pa.decimal128(6, 2))])
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert not found.slow.total(), found.slow


def test_strings_in_single_quotes_need_no_slow_path() -> None:
    """As Python shows a dict, with quotes of both kinds, escapes, and bytes that are not UTF-8."""
    values: list[bytes | None] = [
        b"{'id':1,'s':'a','m':{'k':'v'},'x':['y',{'z':''}]}",
        b"""{'id':2,"s":"O'Brien",'m':{"it's":'say "no"'},'x':'"'}""",
        rb"""{'id':3,'s':'it\'s \u00e9\n\"','m':{'\ud83d\ude00':'\\'}}""",
        b"{'id':4,'s':{'a':['b',1.50]},'other':'\xe9'}",
        b"{'id':5,'s':'caf\xe9 \xed\xa0\x80 \xf0\x9f '}",
        b"{'id':'6','s':None}",
        b"{'id':7,'m':{'k':'v'}",
        b"{'id':8 's':'a'}",
        None,
    ]
    kind = pa.struct({"id": pa.int64(), "s": pa.string(), "m": pa.map_(pa.string(), pa.string())})
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    assert oracle.shown(found.array) == expected
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)]
    assert not found.slow.total(), found.slow
    broken = [b"{'id':1,'s':'a", b"{'id':1,'s':'a\nb'}", rb"{'id':1,'s':'\q'}"]
    found = decoded([*broken], kind)
    assert oracle.shown(found.array) == oracle.slow([*broken], kind, 0)[0]
    assert found.slow.total() == len(broken), "Jackson reads such a string before anybody asks for it"


def test_malformed_bytes_are_those_of_java() -> None:
    """One U+FFFD for as many bytes as a character may begin with, or for half of a surrogate pair."""
    rng = np.random.default_rng(7)
    usual = np.frombuffer(b"\xed\xa0\x80\xbf\xf0\x9f\x98\xf4\x8f\x90\xe0\x9f\xc1\xc3\xf5a", np.uint8)
    values = [b'{"s":"%s"}' % rng.choice(usual, 12).tobytes() for _ in range(20_000)]
    found = decoded([*values], pa.struct({"s": pa.string()}))
    assert found.array.field("s").to_pylist() == [text_of(value[6:-2]) for value in values]
    assert not found.slow.total()


def test_texts_that_grow() -> None:
    """A number or a character may take more bytes than it had."""
    values: list[bytes | None] = [
        f'{{"s":["{"😀" * count}",{",".join(["1e6"] * count)}],"t":{{"{"😀" * count}":1e9}}}}'.encode()
        for count in (1, 100, 6000, 7)
    ]
    kind = pa.struct([("s", pa.string()), ("t", pa.string())])
    long_names = decoded(values, kind)
    assert oracle.shown(long_names.array) == oracle.slow(values, kind, 0)[0]
    assert long_names.slow.total() == 1  # a name of 24,000 bytes


def test_names_that_are_not_utf8() -> None:
    values: list[bytes | None] = [b'{"\xff":1}', '{"\ufffd":2}'.encode(), None, b""]
    assert rows(values, **{"\ufffd": pa.int64()}) == [{"\ufffd": 1}, {"\ufffd": 2}, None, None]


@pytest.mark.parametrize(
    ("name", "body"), [("a\\nb", r'{"a\nb":1}'), ("a\nb", '{"a\nb":1}'), ('a"b', '{"a"b":1}')]
)
def test_names_that_are_escapes(name: str, body: str) -> None:
    values: list[bytes | None] = [body.encode(), json.dumps({name: 2}).encode()]
    assert rows(values, **{name: pa.int64()}) == [{name: None}, {name: 2}]


def test_maps_keep_keys_that_repeat() -> None:
    assert rows([b'{"m":{"a":1,"a":2,"b":null}}'], m=pa.map_(pa.string(), pa.int32())) == [
        {"m": [("a", 1), ("a", 2), ("b", None)]}
    ]


def test_doubles_are_the_nearest(seed: int) -> None:
    rng = random.Random(seed)
    numbers = [repr(struct.unpack("<d", rng.randbytes(8))[0]) for _ in range(5000)]
    numbers += [f"{rng.getrandbits(63)}e{rng.randrange(-345, 310)}" for _ in range(5000)]
    numbers += [f"{2**53 + rng.randrange(100)}{'0' * rng.randrange(3)}.5" for _ in range(1000)]
    numbers = [number for number in numbers if number not in ("nan", "inf", "-inf")]
    found = rows([f'{{"d":{number}}}'.encode() for number in numbers], d=pa.float64())
    assert [row["d"].hex() for row in found] == [float(number).hex() for number in numbers]


def test_floats_are_the_nearest(seed: int) -> None:
    rng = random.Random(seed)
    numbers = ["1.00000017881393432617187499", "1.000000178813934326171875", "1.00000017881393432617187501"]
    numbers += ["3.4028235677973367e38", "3.4028235677973366e38", "7.0064923216240854e-46", "7e-46", "1e39"]
    expected = [*("0x1.000002p+0", "0x1.000004p+0", "0x1.000004p+0", "inf", "0x1.fffffep+127")]
    expected += ["0x1p-149", "0x0.0p+0", "inf"]
    found = rows([f'{{"f":{number}}}'.encode() for number in numbers], f=pa.float32())
    assert [float.hex(row["f"]) for row in found] == [float.fromhex(x).hex() for x in expected]
    numbers = [repr(struct.unpack("<f", rng.randbytes(4))[0]) for _ in range(3000)]
    numbers = [number for number in numbers if number not in ("nan", "inf", "-inf")]
    found = rows([f'{{"f":{number}}}'.encode() for number in numbers], f=pa.float32())
    assert [row["f"] for row in found] == [float(number) for number in numbers]
    assert as_float("-1e-60") == 0.0


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        *(("UTC", 0), ("Z", 0), ("GMT+1", 3600), ("+5", 18000), ("-0530", -19800), ("+05:30:15", 19815)),
        *(("UT-01:00", -3600), ("EST", -18000), ("+1:30", 5400), ("+01:3", 3780), ("GMT0", "GMT0")),
        *(
            ("z", None),
            ("+19", None),
            ("+01:60", None),
            ("+18:01", None),
            ("posix/UTC", None),
            ("No/Where", None),
        ),
        *(("+", None), ("+1234567", None), ("+01:3000", None), ("../etc/passwd", None), ("", None)),
        *(("PST", "America/Los_Angeles"), ("Europe/Berlin", "Europe/Berlin")),
    ],
)
def test_zones_have_javas_names(name: str, seconds: int | str | None) -> None:
    found = zone(name)
    assert (found if isinstance(found, int | None) else found.key) == seconds


def test_what_is_no_object_or_ends_too_early_needs_no_slow_path() -> None:
    """But behind the name of an inner field, from where Spark goes on."""
    fields = "i int, s string, a array<int>, m map<string, int>, t struct<x: int, d: array<date>>, r string"
    kind = parse_ddl(fields)
    body = (
        b' {"i" : 12, "s" : "a\\n\xc3\xa9", "a" : [1 , 2], "m" : {"k" : 1 , "l" : null},'
        b' "t" : {"x" : 1.5, "d" : ["2024-01-02"]}, "other" : [{"y" : true}, -1e5],'
        b' "r" : {"z" : [1 , "w" , {}]}, "i" : 3}'
    )
    cut = [body[:size] for size in range(2, len(body))]
    others = [
        b'{"i":1 "s":"a"}',
        b'{"i":1]',
        b'{"i" 1}',
        b'{"i":1,}',
        b"{,}",
        b"{i:1}",
        b'{"i"}',
        b"[1]",
        b"2026-01-01 INFO started",
        b"null",
        b'"text"',
        b"1",
        b"\xef\xbb\xbf{}",
        b"\x01{}",
        b"\xff",
    ]
    values: list[bytes | None] = [*cut, *others]
    found = decoded(values, kind)
    expected, corrupt = oracle.slow(values, kind, 0)
    for one, other, text in zip(oracle.shown(found.array), expected, values, strict=True):
        assert one == other, text
    assert found.corrupt.tolist() == [*np.flatnonzero(corrupt)] == [*range(len(values))]
    assert found.reason(0) == "the value ends too early, at byte 2"
    left = [
        each for each, rare in zip(cut, is_rare(cut, **{f.name: f.type for f in kind}), strict=True) if rare
    ]
    assert 0 < len(left) < len(cut) // 4
    assert not any(is_rare(others, i=pa.int32()))


def test_no_region_changes_its_clocks_twice_in_three_days() -> None:
    """In Freetown it was after less than four days, in June 1939."""
    begin, end = (int(datetime(year, 6, 1, tzinfo=UTC).timestamp()) for year in (1939, 1940))
    freetown = np.arange(begin, end, 1800)
    rng = np.random.default_rng(1)
    spread = rng.integers(-3_000_000_000, 2_600_000_000, 300)
    names = ("Africa/Freetown", "Africa/Casablanca", "Asia/Gaza", "America/St_Johns", "Antarctica/Troll")
    for of in map(fuzz.zone_of, names):
        for seconds in (spread, freetown):
            expected = [times.seconds_east(of, int(each)) for each in seconds]
            assert times.seconds_east_of_clocks(of, seconds).tolist() == expected


def test_many_times_in_a_region() -> None:
    """Offsets are found by months: in St. John's clocks were changed at 00:01."""
    names = ("Europe/Berlin", "America/New_York", "America/St_Johns")
    rng = random.Random(1)
    days = [
        f"{rng.randrange(1850, 2100)}-{month:02}-{rng.randrange(1, 29):02}" for month in range(1, 13)
    ] * 20
    days += ["1990-04-01", "1990-10-28"] * 50 + [
        "2024-03-31",
        "2024-10-27",
        "2024-03-10",
        "2024-11-03",
        "1980-04-06",
        "1945-05-24",
    ] * 50
    texts = [f"{day}T{rng.randrange(4):02}:{rng.randrange(60):02}:{rng.randrange(60):02}.5" for day in days]
    kind = pa.struct([("l", pa.list_(pa.field("element", pa.timestamp("us", tz="UTC"))))])
    for of in map(fuzz.zone_of, names):
        found = decoded(
            [f'{{"l":["{text}",null,"2024-01-01T00:00:00Z"]}}'.encode() for text in texts], kind, of
        )
        rows = [row["l"] for row in oracle.shown(found.array)]
        assert rows == [[timestamp(text, of), None, 1_704_067_200_000_000] for text in texts]
    assert not is_rare([b'{"at":"2024-07-01T12:00:00"}'], at=pa.timestamp("us", tz="UTC"))[0]


_TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize("of", ["UTC", "Asia/Kolkata"])
def test_zones_that_times_name_are_met_once(of: str) -> None:
    """The kernel learns them; clocks are put forward in Berlin at 02:00, and back in New York at 02:00."""
    names = [
        " Europe/Berlin",
        "America/New_York",
        "PST",
        "UTC+1",
        "GMT-05:30",
        "+1",
        "Mars/Base",
        "[UTC]",
        "",
    ]
    texts = [
        f"{day}T0{n % 4}:30:{n % 60:02}.25{names[n % len(names)]}"
        for n in range(900)
        for day in ("2024-03-31", "2024-11-03", "1890-01-01")
    ]
    kind = pa.struct([("at", _TIME), ("more", pa.list_(pa.field("element", _TIME)))])
    clock = fuzz.zone_of(of)
    decoder = Decoder(kind, clock, "_corrupt_record")
    values = [f'{{"at":"{text}","more":[null,"{text}"]}}'.encode() for text in texts]
    for _ in range(2):
        found = decode_column(decoder, pa.array(values, pa.binary()))
        assert [row["at"] for row in oracle.shown(found.array)] == [timestamp(text, clock) for text in texts]
        is_unknown = ["Mars" in text or "[" in text for text in texts]
        assert found.corrupt.tolist() == np.flatnonzero(is_unknown).tolist()
        assert sum(found.slow.values()) == sum("Mars" in text for text in texts)
        good = [
            row["more"] for row, bad in zip(oracle.shown(found.array), is_unknown, strict=True) if not bad
        ]
        right = [
            [None, timestamp(text, clock)] for text, bad in zip(texts, is_unknown, strict=True) if not bad
        ]
        assert good == right


def test_zones_that_times_name_are_few() -> None:
    """Each is a byte in the kernel, and those behind the last one take the slow path."""
    names = [f"UTC{sign}{hour:02}:{minute:02}" for sign in "+-" for hour in range(12) for minute in range(20)]
    decoder = Decoder(pa.struct([("at", _TIME)]), 0, "_corrupt_record")
    values = [f'{{"at":"2024-01-01T12:00:00{name}"}}'.encode() for name in names]
    for _ in range(2):
        found = decode_column(decoder, pa.array(values, pa.binary()))
        assert found.corrupt.size == 0
        assert sum(found.slow.values()) == len(names) - kernels.MOST_ZONES
        expected = [timestamp(f"2024-01-01T12:00:00{name}", 0) for name in names]
        assert [row["at"] for row in oracle.shown(found.array)] == expected
    assert is_rare([b'{"at":"2024-01-01T12:00:00' + b"A" * 100 + b'"}'], at=_TIME) == [True]


def test_long_names_of_zones_are_not_kept() -> None:
    kept = times._zone.cache_info().currsize
    assert timestamp("2024-01-02 03:04:05 " + "A" * 100, 0) is None
    assert times._zone.cache_info().currsize == kept


def test_times_in_a_region() -> None:
    """In a gap it is later by its length, where two are meant the first; as ZonedDateTime.of has it."""
    berlin = zone("Europe/Berlin")
    texts = ("2024-03-31T02:30:00", "2024-10-27T02:30:00", "12024-07-01", "2024-07-01T00:00:00Z")
    found = [timestamp(text, berlin) for text in texts]
    seconds = [None if micros is None else micros // 10**6 for micros in found]
    assert seconds == [1711848600, 1729989000, 317289304800, 1719792000]
    assert date("2024-02-30") is None
    assert timestamp("12:30", None) is None
    assert (timestamp("T12:30", 0) or 0) % (86_400 * 10**6) == 45_000 * 10**6


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (pa.binary(), "JSON is read as a struct, got binary"),
        (pa.struct([]), "has no field"),
        (pa.struct([("a", pa.int32()), ("a", pa.int32())]), "has two fields 'a'"),
        (pa.struct([("a", pa.binary())]), "can't be read as binary, the type of 'a'"),
        (
            pa.struct([("a", pa.list_(pa.duration("us")))]),
            r"can't be read as interval day to second, the type of 'a'",
        ),
        (
            pa.struct([("a", pa.map_(pa.int32(), pa.int32()))]),
            "Keys of maps in JSON are strings: 'a' has int",
        ),
        (pa.struct([("bad", pa.int32())]), "Field 'bad' gets the text of corrupt values"),
    ],
)
def test_types_that_are_refused(kind: pa.DataType, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        check_type(kind, "bad")
