"""Values of JSON for a type: common ones, odd ones, and hostile ones."""

from __future__ import annotations

import json
import random

import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.columns import inner_type


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


_ITEM = pa.struct([("sku", pa.string()), ("count", pa.int32()), ("price", pa.float64())])
KINDS: list[pa.StructType] = [
    pa.struct(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("amount", pa.float64()),
            ("note", pa.string()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("_corrupt_record", pa.string()),
        ]
    ),
    pa.struct(
        [
            ("b", pa.int8()),
            ("h", pa.int16()),
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("ok", pa.bool_()),
            ("price", pa.decimal128(10, 2)),
            ("big", pa.decimal128(38, 10)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
        ]
    ),
    pa.struct(
        [
            ("items", _list(_ITEM)),
            ("tags", pa.map_(pa.string(), pa.string())),
            (
                "inner",
                pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string()), ("ä", pa.int64())]))]),
            ),
            ("lists", _list(_list(pa.int64()))),
            ("by name", pa.map_(pa.string(), _list(_ITEM))),
            ("id", pa.int64()),
            ("_corrupt_record", pa.string()),
        ]
    ),
    pa.struct([("maps", _list(pa.map_(pa.string(), pa.struct([("a", pa.int32())])))), ("text", pa.string())]),
]
"""Types that values are made for and read as."""

_LEAVES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
    *(pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")),
]
_NAMES = [*"abcdef", "id", "Id", "name", "ä", "日本", "a b", "x" * 70, 'a"b', "a\\nb", "a\nb", "\ufffd"]
_WORDS = ["", "a", "user-17", "naïve", "日本", "😀", "x" * 70, "\u2028", "\x7f", "a b"]
_ESCAPES = [
    r"\n",
    r"\"",
    r"\\",
    r"\/",
    r"\b\f\r\t",
    r"\u00e9",
    r"\u0000",
    r"\ud83d\ude00",
    r"\uD83D",
    r"\udc00x",
]
_ODD_ESCAPES = [r"\q", r"\u12", r"\uZZZZ", r"\'", "\\", "\t", "\n"]
_ODD = [
    *("NaN", "-INF", "+INF", "Infinity", "-Infinity", "+Infinity", "+1", ".5", "1.", "01", "-", "1e", "1e+"),
    *("tru", "truex", "nul", "True", "'a'", "''", "undefined", '""', '"NaN"', '"-Infinity"', '"1"', '" 1"'),
    *("[]", "{}", "[1]", '{"a":1}', "[[{}]]", "null", "true", "1e400", "-0", "-0.0", "1.50", "0e99999999999"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "12345678901234567890123", "1E5"),
    *("2147483648", "128", "255", "256", "-129", "40000", "1.7976931348623157e308", "4.9e-324", "2.5e-324"),
    *(
        "16777217",
        "1.00000017881393432617187499",
        "3.4028235677973366e38",
        "1e-45",
        "7e-46",
        "1.17549429e-38",
    ),
    *("9007199254740993", "0.1", "123456.789e3", "1" * 40, "1" * 1001, "0.000001", "1e23", "8.5e22"),
    *('"1,000.5"', '"1e2"', '"x"', '"1."', "99999999.995", "0.005", "-0.005", "12.345", "12.355"),
]
_TIMES = [
    *("2024-02-29", "2023-02-29", "2024-1-2", "2024", "2024-13-01", "1500-01-01", "0000-01-01", "9999-12-31"),
    *("2024-01-02 ", "2024-01-02T", "2024-01-02 x", "5", "-5", "12345678", "+2024-01-02", "-0001-01-01"),
    *("2024-01-02T03:04:05", "2024-01-02 03:04:05.1", "2024-01-02T03:04:05.123456789Z", "2024-01-02T3:4:5Z"),
    *("2024-01-02T03:04:05+01:00", "2024-01-02T03:04:05-18:00", "2024-01-02T03:04:05+18:01"),
    *(
        "2024-01-02T03:04:05+1",
        "2024-01-02T03:04:05+01:60",
        "2024-01-02T03:04:05+01:",
        "2024-01-02T03:04:05+01:0",
    ),
    *(
        "2024-01-02T24:00:00Z",
        "2024-01-02T03:60:00Z",
        "2024-01-02T03:04:05 Europe/Berlin",
        "2024-01-02T03:04Z",
    ),
    *("2024-03-31T02:30:00", "2024-10-27T02:30:00", "1890-01-01T00:00:00", "2060-07-01T00:00:00"),
    *(
        "2024-01-02T03:04:05GMT+02:00",
        "2024-01-02T03:04:05+0100",
        "2024-01-02T03:04:05PST",
        "",
        "Z",
        "T",
        "-",
    ),
    *(
        "2024-01-02T03:04:05.",
        "2024-01-02T03:04:05.Z",
        "2024-01-02T03:04:05,5Z",
        "10000-01-01",
        "2024-01-02T03",
    ),
]


_AS_TEXT = [
    *_LEAVES,
    pa.decimal128(7, 2),
    pa.map_(pa.string(), pa.string()),
    _ITEM,
    _list(_ITEM),
    _list(pa.string()),
]
"""What is read as a string, too."""
_ZONES = [
    "+01:00",
    "-05:30",
    "+0100",
    "-0930",
    "+02",
    " UTC",
    "GMT",
    " +0100",
    "+18:00",
    " Europe/Berlin",
    "PST",
    "UTC+1",
]


def made_type(rng: random.Random) -> pa.StructType:
    """Any type that JSON is read as, not too large; half of them want the text of corrupt rows."""
    fields = list(_struct(rng, 3))
    if rng.random() < 0.5:
        fields.insert(rng.randrange(len(fields) + 1), pa.field("_corrupt_record", pa.string()))
    return pa.struct(fields)


def _struct(rng: random.Random, depth: int) -> pa.StructType:
    names = rng.sample(_NAMES, rng.randrange(1, 6))
    return pa.struct([(name, _any(rng, depth - 1)) for name in names])


def _any(rng: random.Random, depth: int) -> pa.DataType:
    match rng.randrange(8 if depth else 5):
        case 5:
            return _struct(rng, depth)
        case 6:
            return _list(_any(rng, depth - 1))
        case 7:
            return pa.map_(pa.string(), _any(rng, depth - 1))
        case 4:
            precision = rng.randrange(1, 39)
            return pa.decimal128(precision, rng.randrange(precision + 1))
    return rng.choice(_LEAVES)


def text(rng: random.Random, kind: pa.DataType, odd: float) -> str:
    """JSON for a type; ``odd`` is the share of parts that are something else."""
    if rng.random() < odd:
        return rng.choice(_ODD) if rng.random() < 0.7 else _quoted(rng, rng.choice(_TIMES))
    if rng.random() < 0.05:
        return "null"
    if rng.random() < odd:
        return text(rng, rng.choice([*_LEAVES, pa.decimal128(7, 2), _ITEM, _list(_ITEM)]), odd)
    if pa.types.is_struct(kind):
        fields = [(field.name, text(rng, field.type, odd)) for field in kind if rng.random() < 0.9]
        if rng.random() < 0.3:
            rng.shuffle(fields)
        if rng.random() < 0.3:
            other = text(rng, rng.choice([pa.string(), pa.int64(), _ITEM, _list(_ITEM)]), odd)
            fields.insert(
                rng.randrange(len(fields) + 1), (rng.choice(["other", "Id", "", "nam", "names"]), other)
            )
        if fields and rng.random() < 0.05:
            name, _ = rng.choice(fields)
            fields.append((name, text(rng, kind.field(name).type if name in kind.names else pa.int64(), odd)))
        return _object(rng, fields)
    if pa.types.is_map(kind):
        keys = [rng.choice(_WORDS) for _ in range(rng.randrange(4))]
        return _object(rng, [(key, text(rng, kind.item_type, odd)) for key in keys])
    if pa.types.is_list(kind):
        items = [text(rng, inner_type(kind), odd) for _ in range(rng.randrange(4))]
        space = rng.choice(["", "", " ", "\n"])
        return f"[{space}{f',{space}'.join(items)}{space}]"
    if pa.types.is_string(kind):
        if rng.random() < 0.2:
            return text(rng, rng.choice(_AS_TEXT), odd)
        return _quoted(rng, rng.choice(_WORDS), escapes=0.2)
    if pa.types.is_boolean(kind):
        return rng.choice(["true", "false"])
    if pa.types.is_integer(kind):
        return str(rng.getrandbits(kind.bit_width - 1) * rng.choice([1, -1]) >> rng.randrange(kind.bit_width))
    if pa.types.is_floating(kind):
        return rng.choice(["NaN", "Infinity", "-Infinity"]) if rng.random() < 0.05 else _number(rng)
    if pa.types.is_decimal(kind):
        digits = rng.choice([(7, 2)] * 9 + [(38, 38)])
        limits = zip((kind.precision - kind.scale, kind.scale), digits, strict=True)
        whole, fraction = (rng.randrange(10 ** min(limit)) for limit in limits)
        number = rng.choice(["", "-"]) + f"{whole}.{fraction}"
        if rng.random() < 0.3:
            return (
                f'"{rng.choice(["", "", "+", "0"])}{number}{rng.choice(["", "", "E-3", "e2", "E+0", "E99"])}"'
                if rng.random() < 0.5
                else f'"{whole:,}.{fraction}"'
            )
        return number + rng.choice([""] * 20 + ["e-2", "e3"])
    digits = rng.choice(["02", "02", "02", "01"])
    day = f"{rng.randrange(1900, 2100):04}-{rng.randrange(1, 13):{digits}}-{rng.randrange(1, 30):{digits}}"
    if rng.random() < 0.1:
        return f'"{day[: rng.choice([4, 7, 10])]}"'
    if pa.types.is_date(kind):
        return f'"{day}{rng.choice(["", "", "", " ", "T03:04:05Z", " x", "T", "GMT"])}"'
    if kind.tz is not None and rng.random() < 0.1:
        return str(rng.randrange(-(10**10), 10**10) * rng.choice([1, 1, 1, 10**9]))
    parts = rng.choice([3, 3, 3, 3, 2, 1])
    time = ":".join(f"{rng.randrange(limit):{digits}}" for limit in (24, 60, 60)[:parts])
    if parts < 3 and rng.random() < 0.9:
        return f'"{day}{rng.choice("T ")}{time}"'
    fraction = rng.choice(["", f".{rng.randrange(1000):03}", f".{rng.randrange(10**6):06}", "."])
    zone = "" if kind.tz is None else rng.choice(["Z", "Z", *_ZONES, ""])
    return f'"{day}{rng.choice("T ")}{time}{fraction}{zone}"'


def _number(rng: random.Random) -> str:
    match rng.randrange(5):
        case 0:
            return str(rng.randrange(-1000, 1000))
        case 1:
            return repr(rng.uniform(-1e6, 1e6))
        case 2:
            return f"{rng.getrandbits(63)}e{rng.randrange(-400, 400)}"
        case 3:
            return f"{rng.randrange(-(10**6), 10**6) / 100}"
        case _:
            return f"{rng.getrandbits(rng.randrange(1, 90))}.{rng.getrandbits(rng.randrange(1, 60))}"


def _quoted(rng: random.Random, word: str, escapes: float = 0.0) -> str:
    if rng.random() < escapes:
        word += rng.choice(_ESCAPES) + rng.choice(_WORDS)
    if rng.random() < escapes / 20:
        word += rng.choice(_ODD_ESCAPES)
    if rng.random() < escapes / 20:
        return f"'{word}'"
    return f'"{word}"'


def _object(rng: random.Random, fields: list[tuple[str, str]]) -> str:
    between = rng.choice([(",", ":"), (",", ":"), (", ", ": "), (" ,\n", "\t: ")])
    quoted = []
    for name, each in fields:
        escaped = json.dumps(name, ensure_ascii=False)
        shown = rng.choice([escaped] * 5 + [f'"{name}"', json.dumps(name)])
        quoted.append(shown + between[1] + each)
    around = rng.choice(["", "", " ", "\r\n"])
    return f"{{{around}{between[0].join(quoted)}{around}}}"


def value(rng: random.Random, kind: pa.DataType) -> bytes:
    """A value that is mostly of a type."""
    odd = rng.choice([0.0, 0.0, 0.01, 0.05])
    made = text(rng, kind, odd)
    if rng.random() < 0.1:
        made = made.translate(_SWAPPED)
    made = rng.choice(["", "", "", " ", "\n"]) + made + rng.choice(["", "", "", " ", "}", " x", "\0"])
    return made.encode("utf-8", "surrogatepass")


_SWAPPED = str.maketrans("\"'", "'\"")
"""The two kinds of quotes in place of each other."""
_PIECES = [
    *(
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"'",
        b"\0",
        b"\n",
        b" ",
        b"/",
        b"#",
        b"-",
        b"0",
        b"e",
        b".",
    ),
    *(
        b"null",
        b"true",
        b'""',
        b"{}",
        b"[]",
        b'{"',
        b'":',
        b"\xff",
        b"\xc3",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf0",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\\u",
        b"\\ud83d",
        b"NaN",
        b'"id":',
        b'"id":1,',
        b"[" * 70,
        b'{"a":' * 70,
        b"\xf4\x90\x80\x80",
    ),
]


def mutated(body: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """``body`` with some bytes changed, gone or added."""
    out = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(7):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1 | 2:
                out[at:at] = rng.choice(_PIECES)
            case 3:
                del out[at : at + rng.randrange(1, 5)]
            case 4 if rng.random() < 0.5:
                del out[at:]
            case 5:
                piece = rng.choice(_PIECES)
                out[at : at + len(piece)] = piece
            case _:
                other = rng.choice(others)
                begin = rng.randrange(len(other) + 1)
                out[at:] = other[begin:]
    return bytes(out)
