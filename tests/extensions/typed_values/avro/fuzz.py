"""Hostile Avro bodies: each gives a value or a corrupt row, and nothing else.

``python -m tests.extensions.typed_values.avro.fuzz --count 1000000 --seed 7`` tells what came of them.

Bodies of a few writers' schemas are mutated, and read with several readers' schemas, in batches of mixed
writers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.decoder import CORRUPT, DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from tests.extensions.typed_values import fuzzing
from tests.extensions.typed_values.avro import oracle
from tests.extensions.typed_values.avro.test_schema import fixed, logical, record

BATCH = 2000
_NODE = record(("text", "string"), ("left", ["null", "Node"]), ("right", ["null", "Node"]), name="Node")
_MONEY = {**fixed(9, precision=20, scale=2), "name": "Money"}
_ITEM = record(
    ("sku", "string"),
    ("count", "int"),
    ("price", "double"),
    ("weights", {"type": "array", "items": "float"}),
    name="Item",
)
_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}
WRITERS: list[oracle.Json] = [
    record(
        ("id", "long"),
        ("who", ["null", "string"]),
        ("at", logical("long", "timestamp-millis")),
        ("ok", "boolean"),
        ("small", "int"),
        ("score", "float"),
        ("colour", _COLOUR),
        ("money", _MONEY),
        ("price", logical("bytes", "decimal", precision=30, scale=5)),
        ("items", {"type": "array", "items": _ITEM}),
        ("tags", {"type": "map", "values": ["int", "null", "string", {"type": "array", "items": "long"}]}),
        ("raw", "bytes"),
        ("tree", _NODE),
    ),
    record(
        ("tags", {"type": "map", "values": "string"}),
        ("who", "bytes"),
        ("id", "int"),
        ("items", {"type": "array", "items": ["null", _ITEM]}),
        ("old", {"type": "map", "values": {"type": "array", "items": "Item"}}),
        ("money", ["null", _MONEY]),
    ),
    record(
        ("none", {"type": "array", "items": {"type": "array", "items": ["null", "int"]}}),
        ("nulls", {"type": "array", "items": "null"}),
        ("items", {"type": "array", "items": _ITEM}),
        ("id", "int"),
        ("tags", {"type": "map", "values": "null"}),
        ("empty", {"type": "array", "items": record(name="Empty")}),
    ),
]
_TAG = ["null", "string", "int", {"type": "array", "items": "long"}]
_LISTS = (
    {"name": "items", "type": {"type": "array", "items": ["null", _ITEM]}},
    {"name": "tags", "type": {"type": "map", "values": _TAG}},
    {"name": "old", "type": {"type": "map", "values": {"type": "array", "items": "Item"}}, "default": {}},
)
READERS: list[oracle.Json] = [
    record(
        {"name": "id", "type": "double"},
        {"name": "name", "aliases": ["who"], "type": ["null", "string"], "default": None},
        {"name": "at", "type": ["null", "long"], "default": None},
        {"name": "new", "type": {"type": "array", "items": "string"}, "default": ["a", "bc"]},
        {"name": "money", "type": ["null", _MONEY], "default": None},
        *_LISTS,
    ),
    record(
        {"name": "colour", "type": {**_COLOUR, "symbols": ["GREEN", "BLUE"]}, "default": "BLUE"},
        {"name": "price", "type": logical("bytes", "decimal", precision=10, scale=5), "default": "\u0001"},
        {"name": "score", "type": ["null", "double"], "default": None},
        {"name": "small", "type": "long", "default": 5},
        {"name": "ok", "type": ["boolean", "null"], "default": True},
        *_LISTS,
    ),
]
"""They read all lists, as fastavro skips a block by the size that it states, which may be wrong."""
_AT = {"name": "at", "type": ["null", logical("long", "timestamp-micros")], "default": None}
NOT_COMPARED: list[oracle.Json] = [record(_AT), record()]
"""fastavro has no timestamps after the year 9999."""
COMPARED = 2
"""Of the writers: fastavro would make 2 ** 60 nulls of the last one's."""
EXPLAINED = {
    kernels.TRAILING,
    kernels.VARINT,
    kernels.INT,
    kernels.BOOLEAN,
    kernels.SYMBOL,
    kernels.BRANCH,
    kernels.TIMESTAMP,
    kernels.DECIMAL,
    kernels.EMPTY_ITEMS,
    kernels.DEPTH,
}
"""Causes of rows that fastavro reads. It reads any number as an int, and counts symbols from behind."""


def _tree(rng: random.Random, depth: int) -> Any:
    left, right = (_tree(rng, depth - 1) if depth and rng.random() < 0.4 else None for _ in range(2))
    return {"text": rng.choice(["", "leaf"]), "left": left, "right": right}


def _item(rng: random.Random) -> Any:
    return {
        "sku": "x" * rng.choice([0, 3, 70]),
        "count": rng.randrange(-(2**31), 2**31),
        "price": rng.random(),
        "weights": [1.5] * rng.randrange(3),
    }


def value(rng: random.Random, writer: int) -> Any:
    """A value of one of the :data:`WRITERS`."""
    items = [_item(rng) for _ in range(rng.randrange(4))]
    if writer == 2:
        return {
            "none": [[None, 5]] * rng.randrange(3),
            "nulls": [None] * rng.randrange(5),
            "items": items,
            "id": 5,
            "tags": {"a": None},
            "empty": [{}] * rng.randrange(3),
        }
    money = rng.randrange(-(10**20) + 1, 10**20).to_bytes(9, "big", signed=True)
    if writer:
        return {
            "tags": {str(number): "ä" * number for number in range(rng.randrange(4))},
            "old": {"k": items},
            "who": b"some text",
            "id": rng.randrange(-(2**31), 2**31),
            "items": [rng.choice([item, None]) for item in items],
            "money": rng.choice([None, money]),
        }
    tags = [None, 5, "text", [1, 2**40]]
    return {
        "id": rng.randrange(-(2**63), 2**63) >> rng.randrange(64),
        "who": rng.choice([None, "someone"]),
        "at": rng.randrange(2**41),
        "ok": rng.random() < 0.5,
        "small": rng.randrange(-100, 100),
        "score": 0.5,
        "colour": rng.choice(_COLOUR["symbols"]),
        "money": money,
        "price": rng.randrange(-(10**9), 10**9).to_bytes(rng.randrange(4, 9), "big", signed=True),
        "items": items,
        "tags": {str(number): rng.choice(tags) for number in range(rng.randrange(4))},
        "raw": rng.randbytes(rng.randrange(5)),
        "tree": _tree(rng, 3),
    }


class Pair(NamedTuple):
    """A decoder for one reader, with the entries of the writers, and the same for fastavro."""

    decoder: DatumDecoder
    entries: list[int]
    reader: Any


@cache
def written() -> list[Any]:
    return [oracle.parsed(writer) for writer in WRITERS]


@cache
def pairs() -> list[Pair]:
    made = []
    for reader in [*READERS, *NOT_COMPARED]:
        decoder = DatumDecoder(parse(json.dumps(reader)))
        entries = [decoder.add(parse(json.dumps(writer))) for writer in WRITERS]
        made.append(Pair(decoder, entries, oracle.parsed(reader)))
    return made


@cache
def bodies() -> list[list[bytes]]:
    rng = random.Random(1)
    return [
        [oracle.encoded(schema, value(rng, number)) for _ in range(200)]
        for number, schema in enumerate(written())
    ]


def mutated(body: bytes, rng: random.Random) -> bytes:
    out = bytearray(body)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(8):
            case 0 if out:
                out[at % len(out)] ^= 1 << rng.randrange(8)
            case 1 if out:
                out[at % len(out)] = rng.choice((0, 1, 2, 3, 127, 128, 255))
            case 2:
                out[at:at] = rng.choice(
                    (b"\xff" * rng.randrange(1, 12), b"\x80" * 9 + b"\x01", b"\x00", b"\x01")
                )
            case 3:
                del out[at : at + rng.randrange(1, 5)]
            case 4:
                del out[at:]
            case 5:
                out += rng.randbytes(rng.randrange(1, 4))
            case 6:
                other = rng.choice(rng.choice(bodies()))
                out[at:] = other[rng.randrange(len(other)) :]
            case _:
                out[at : at + 2] = rng.randbytes(2)
    return bytes(out)


def run(seed: int, count: int, *, compared: int = 0) -> Counter[str]:
    """Decode mutated bodies; ``compared`` of each batch are held against fastavro.

    :raises AssertionError: if a row is not what it must be.
    """
    rng = random.Random(seed)
    outcome: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        rows = min(BATCH, count - first)
        writers = [rng.randrange(len(WRITERS)) for _ in range(rows)]
        hostile = [mutated(rng.choice(bodies()[writer]), rng) for writer in writers]
        sizes = np.array([len(body) for body in hostile], np.int64)
        starts = np.cumsum(sizes) - sizes
        data = np.frombuffer(b"".join(hostile), np.uint8)
        nulls = np.array([rng.random() < 0.02 for _ in range(rows)])
        for number, (decoder, entries, reader) in enumerate(pairs()):
            rows_of = np.array([entries[writer] for writer in writers], np.int64)
            rows_of[[rng.random() < 0.02 for _ in range(rows)]] = CORRUPT
            found = decoder.decode(data, starts, np.where(nulls, -1, sizes), rows_of)
            found.array.validate(full=True)
            assert len(found.array) == rows
            assert (found.array.is_null().to_numpy(zero_copy_only=False) == nulls).all()
            assert not found.causes[nulls].any()
            for field in found.array.flatten():
                assert field.take(pa.array(found.corrupt)).null_count == found.corrupt.size
            for row in found.corrupt:
                outcome[found.reason(row).rpartition(", at byte")[0].rpartition(": ")[2]] += 1
            outcome["values"] += rows - found.corrupt.size
            if number < len(READERS):
                shown = oracle.shown(found.array.slice(0, compared))
                for row in range(min(compared, rows)):
                    if not nulls[row] and rows_of[row] != CORRUPT and writers[row] < COMPARED:
                        _compare(
                            hostile[row],
                            writers[row],
                            reader,
                            READERS[number],
                            int(found.causes[row]),
                            shown[row],
                        )
                        outcome["compared"] += 1
    return outcome


def _compare(body: bytes, writer: int, parsed: Any, reader: oracle.Json, cause: int, ours: Any) -> None:
    if cause in (kernels.EMPTY_ITEMS, kernels.DEPTH):
        return  # fastavro would make a list of 2 ** 60 items
    try:
        found, used = oracle.read(body, written()[writer], parsed)
    except MemoryError:
        return
    except UnicodeDecodeError:
        return  # ours has U+FFFD there, or may be corrupt behind it
    except Exception as error:
        refused: Exception | None = error
    else:
        refused = None
    if refused is not None:
        assert cause != kernels.FINE, (body, ours, refused)
        return
    if cause == kernels.FINE:
        assert used == len(body)
        assert ours == oracle.expected(found, reader), (body, ours, found)
    else:
        # It skips what should be behind the end.
        is_cut = cause == kernels.SHORT and used >= len(body)
        assert cause in EXPLAINED or is_cut, (body, cause, found)


if __name__ == "__main__":
    fuzzing.main(run, f"fastavro {fastavro.__version__}")
