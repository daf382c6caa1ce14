"""What people do with JSON, as values for :mod:`tests.benchmarks.json`: one idiom a line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import NamedTuple


class Idiom(NamedTuple):
    """``fields`` is the schema that values are read by, as DDL; ``make`` gives the value of a number."""

    name: str
    fields: str
    make: Callable[[int], str]


def _day(number: int) -> str:
    return f"2024-{1 + number % 12:02}-{1 + number % 28:02}"


def _time(number: int) -> str:
    return f"{number % 24:02}:{number % 60:02}:{number * 7 % 60:02}"


def _order(number: int, *, share: int = 7) -> dict[str, object]:
    lines = [
        {"sku": f"sku-{number % 97}-{line}", "count": line + 1, "price": number / share} for line in range(3)
    ]
    return {
        "order": number * 7919,
        "lines": lines,
        "note": f'said "{number}"\n',
        "paid": number % 2 == 0,
        "ref": None,
    }


def cloud_event(number: int) -> str:
    event = {"specversion": "1.0", "id": f"e-{number}", "source": "/orders", "type": "order.placed"}
    return json.dumps({**event, "time": f"{_day(number)}T{_time(number)}Z", "data": _order(number)})


def webhook(number: int) -> str:
    """1.8 kB, as GitHub sends them."""
    user = {"login": f"user-{number % 1000}", "id": number, "url": f"https://api.example.com/users/{number}"}
    commits = [
        {"sha": f"{number * 7919 + each:040x}", "author": user, "message": "Fix it\n\nWell."}
        for each in range(6)
    ]
    payload = {
        "push_id": number * 31,
        "size": 6,
        "ref": "refs/heads/main",
        "commits": commits,
        "distinct": True,
    }
    return json.dumps(
        {"id": str(number), "type": "PushEvent", "actor": user, "payload": payload, "public": True}
    )


def envelope(number: int) -> str:
    row = {
        "id": number,
        "name": f"user-{number}",
        "amount": f"{number % 100_000}.{number % 100:02}",
        "at": number * 10**6,
    }
    source = {
        "version": "2.5",
        "connector": "mysql",
        "name": "db",
        "ts_ms": number,
        "db": "shop",
        "table": "orders",
    }
    before = None if number % 2 else row
    return json.dumps(
        {"before": before, "after": row, "source": source, "op": "u", "ts_ms": number, "transaction": None}
    )


def _other_shape(number: int) -> str:
    amount: object = {"value": number, "unit": "EUR"} if number % 20 == 0 else number / 7
    return json.dumps({"id": number, "amount": amount, "name": f"user-{number}", "tags": ["a", "b"]})


def _wide(number: int) -> str:
    return json.dumps(
        {f"field_{each}": number + each if each % 2 else f"text {number}" for each in range(500)}
    )


def _long(size: int) -> Callable[[int], str]:
    def make(number: int) -> str:
        lines = [
            {"sku": f"sku-{number}-{line}", "count": line, "price": line / 7} for line in range(size // 60)
        ]
        return json.dumps({"id": number, "lines": lines, "note": "x" * (size // 60)})

    return make


def _cut(number: int) -> str:
    return f'{{"id":{number},"name":"user-{number}","at":"{_day(number)}T{_time(number)}Z"}}'


def _text(number: int) -> str:
    line = f'2024-01-02 "GET /{number}"\tC:\\logs\\{number} naïve → ok\n'
    return json.dumps({"id": number, "message": line * 20})


_LINES = "array<struct<sku: string, count: int, price: double>>"
_DEEP = "[" * 70 + "1" + "]" * 70
_RANDOM = random.Random(1)
_NOISE = [_RANDOM.uniform(-1e3, 1e3) for _ in range(1000)]

IDIOMS = [
    Idiom(
        "CloudEvents, all typed",
        "id string, source string, type string, time timestamp,"
        f" data struct<order: bigint, lines: {_LINES}, note: string, paid: boolean>",
        cloud_event,
    ),
    Idiom(
        "CloudEvents, data as string",
        "id string, source string, type string, time timestamp, data string",
        cloud_event,
    ),
    Idiom("webhooks of 1.8 kB, payload as string", "id string, type string, payload string", webhook),
    Idiom(
        "decimals in quotes",
        "id bigint, amount decimal(10,2)",
        lambda n: f'{{"id":{n},"amount":"{n % 9999}.{n % 100:02}"}}',
    ),
    Idiom(
        "decimals of 38 digits",
        "id bigint, amount decimal(38,18)",
        lambda n: f'{{"id":{n},"amount":{n}.{n % 10**6:06}}}',
    ),
    Idiom(
        "numbers as string",
        "id string, amount string",
        lambda n: f'{{"id":{n},"amount":{_NOISE[n % 1000]!r}}}',
    ),
    Idiom(
        "booleans as string",
        "id bigint, ok string",
        lambda n: f'{{"id":{n},"ok":{("true", "false")[n % 2]}}}',
    ),
    Idiom(
        "times with +0000",
        "id bigint, at timestamp",
        lambda n: f'{{"id":{n},"at":"{_day(n)}T{_time(n)}.123+0000"}}',
    ),
    Idiom(
        "times with UTC", "id bigint, at timestamp", lambda n: f'{{"id":{n},"at":"{_day(n)} {_time(n)} UTC"}}'
    ),
    Idiom(
        "times with a region",
        "id bigint, at timestamp",
        lambda n: f'{{"id":{n},"at":"{_day(n)} {_time(n)} {("Europe/Paris", "America/New_York")[n % 2]}"}}',
    ),
    Idiom("dates as timestamp", "id bigint, at timestamp", lambda n: f'{{"id":{n},"at":"{_day(n)}"}}'),
    Idiom(
        "times without seconds",
        "id bigint, at timestamp",
        lambda n: f'{{"id":{n},"at":"{_day(n)} {_time(n)[:5]}"}}',
    ),
    Idiom("times as dates", "id bigint, at date", lambda n: f'{{"id":{n},"at":"{_day(n)}T{_time(n)}Z"}}'),
    Idiom(
        "dates with one digit",
        "id bigint, at date",
        lambda n: f'{{"id":{n},"at":"2024-{1 + n % 12}-{1 + n % 28}"}}',
    ),
    Idiom(
        "seconds as timestamp", "id bigint, at timestamp", lambda n: f'{{"id":{n},"at":{1_700_000_000 + n}}}'
    ),
    Idiom(
        "not wanted, 70 deep",
        "id bigint, name string",
        lambda n: f'{{"id":{n},"x":{_DEEP},"name":"user-{n}"}}',
    ),
    Idiom(
        "a name twice",
        "id bigint, name string",
        lambda n: f'{{"id":{n},"name":"user","x":1,"name":"user-{n}"}}',
    ),
    Idiom(
        "escapes in names",
        "id bigint, `größe` bigint",
        lambda n: json.dumps({"id": n, "größe": n, "ä": n}),
    ),
    Idiom(
        "single quotes, as Python shows a dict",
        "id bigint, name string",
        lambda n: str({"id": n, "name": f"user-{n}", "x": "O'Brien"}),
    ),
    Idiom(
        "an object as string, with numbers beyond a double's",
        "id bigint, data string",
        lambda n: f'{{"id":{n},"data":{{"low":{_NOISE[n % 1000]},"high":1e400,"n":[1.50,{n}e-400]}}}}',
    ),
    Idiom(
        "lines of a log", "id bigint, name string", lambda n: f"{_day(n)} {_time(n)} INFO user-{n} started"
    ),
    Idiom("cut off", "id bigint, name string, at timestamp", lambda n: _cut(n)[: 12 + n % 40]),
    Idiom(
        "no comma",
        "id bigint, name string, at timestamp",
        lambda n: _cut(n).replace(',"at', '"at' if n % 2 else ',"at'),
    ),
    Idiom("5 % of another shape", "id bigint, amount double, name string, tags array<string>", _other_shape),
    Idiom(
        "a map with string keys",
        "id bigint, tags map<string, string>",
        lambda n: json.dumps({"id": n, "tags": {f"key-{each}": f"value {n} {each}" for each in range(8)}}),
    ),
    Idiom("an array of structs", f"order bigint, lines {_LINES}", lambda n: json.dumps(_order(n))),
    Idiom(
        "Debezium envelopes",
        "before struct<id: bigint, name: string, amount: decimal(10,2), at: bigint>,"
        " after struct<id: bigint, name: string, amount: decimal(10,2), at: bigint>, op string, ts_ms bigint",
        envelope,
    ),
    Idiom(
        "Debezium envelopes, rows as string", "before string, after string, op string, ts_ms bigint", envelope
    ),
    Idiom("long strings with escapes", "id bigint, message string", _text),
    Idiom("2 of 500 fields", "field_17 bigint, field_400 string", _wide),
    Idiom("values of 1 kB", f"id bigint, lines {_LINES}, note string", _long(1000)),
    Idiom("values of 100 kB", f"id bigint, lines {_LINES}, note string", _long(100_000)),
    Idiom("values of 5 MB", f"id bigint, lines {_LINES}, note string", _long(5_000_000)),
    Idiom("values of 5 MB, lines as string", "id bigint, lines string", _long(5_000_000)),
]
