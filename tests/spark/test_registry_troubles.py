"""Registries that fail while tasks ask them: errors with places, waits, and no secret anywhere."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_kafkalog import connect
from tests.confluent import body, record
from tests.registries import AWS_CREDENTIALS, FormatRegistry, answer, endless, refusal

pytestmark = pytest.mark.broker
OLD, NEW = record("Order", id="long"), record("Order", id="long", name=("string", "none"))
SECRETS = "user", "pass-word-4b", "token-of-tests-91bd", AWS_CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Orders:
    """A topic with values of an older schema than the reader's, from its second offset on."""

    def __init__(self, spark: SparkSession, found: FormatRegistry, root: str) -> None:
        self.found, self.root, self.topic = found, root, f"orders-{uuid.uuid4().hex[:8]}"
        self._spark = spark
        old, new = (found.register(self.topic, schema, "AVRO") for schema in (OLD, NEW))
        bodies = [(new, body(NEW, {"id": 0, "name": "x"}))]
        bodies += [(old, body(OLD, {"id": number})) for number in range(1, 5)]
        values, headers = zip(*(found.framed(key, each) for key, each in bodies), strict=True)
        connect(root).write(pa.table({"value": values, "headers": pa.array(headers, _HEADERS)}), self.topic)
        login = (
            {"basic.auth.user.info": f"user:{SECRETS[1]}"} if found.name in ("confluent", "apicurio") else {}
        )
        self.given: dict[str, Any] = {
            "value.format": f"{found.name}-avro",
            "value.schema": json.dumps(NEW),
            "subscribe": self.topic,
            **found.options,
            **login,
        }

    @property
    def batch(self) -> DataFrame:
        return self._spark.read.format("kafkalog").options(**self.given).load(self.root)

    def run(self, checkpoint: Path) -> None:
        reader = self._spark.readStream.format("kafkalog").options(**self.given, startingOffsets="earliest")
        writer = reader.load(self.root).writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


REGISTRIES = pytest.mark.parametrize("of", ["confluent", "glue", "apicurio", "azure"])


@pytest.mark.long
@REGISTRIES
def test_refused(
    spark: SparkSession,
    registry_of: Callable[[str], FormatRegistry],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    of: str,
) -> None:
    """An expired login, a redirect, and an answer without end fail a query at once, where it is told."""
    orders = Orders(spark, registry_of(of), str(tmp_path / "log"))
    expired = (
        (refusal(400, "ExpiredTokenException"), ": ExpiredTokenException (partition ")
        if of == "glue"
        else (answer(401, SECRETS[2].encode()), "does not accept the login (HTTP status 401)")
    )
    said = ""
    for fault, text in (
        expired,
        (answer(302, b""), "HTTP status 302"),
        (endless, "gave more than 16777216 bytes"),
    ):
        orders.found.relay.fault = fault
        began = time.monotonic()
        with pytest.raises(PySparkException) as batch:
            orders.batch.select("value.id").collect()
        with pytest.raises(PySparkException) as stream:
            orders.run(tmp_path / "checkpoint")
        assert time.monotonic() - began < 40
        for caught in str(batch.value), str(stream.value):
            assert text in caught
            assert f"(partition {orders.topic}-0, offset " in caught
            said += caught
    orders.found.relay.fault = None
    said += orders.batch._jdf.queryExecution().toString()
    orders.run(tmp_path / "checkpoint")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    out, err = capfd.readouterr()
    everything = said + stored.decode(errors="replace") + out + err
    assert not [secret for secret in SECRETS[1:] if secret in everything]


@pytest.mark.long
@REGISTRIES
def test_asked_again(
    spark: SparkSession, registry_of: Callable[[str], FormatRegistry], tmp_path: Path, of: str
) -> None:
    """A registry that throttles for a while costs time."""
    orders = Orders(spark, registry_of(of), str(tmp_path / "log"))
    relay = orders.found.relay
    fault = refusal(400, "ThrottlingException") if of == "glue" else answer(429, b"")

    def thrice(handler: BaseHTTPRequestHandler) -> None:
        if len(relay.requests) == 3:
            relay.fault = None
        fault(handler)

    relay.requests.clear()
    relay.fault = thrice
    assert orders.batch.where("value.name = 'none'").count() == 4
    assert relay.fault is None


@pytest.mark.soak
@pytest.mark.parametrize("trouble", ["throttled", "down", "silent", "unknown"])
@REGISTRIES
def test_given_up(
    spark: SparkSession,
    registry_of: Callable[[str], FormatRegistry],
    tmp_path: Path,
    of: str,
    trouble: str,
) -> None:
    """After a minute the query fails, at a place, and not later than the time of one more request."""
    orders = Orders(spark, registry_of(of), str(tmp_path / "log"))
    relay, root = orders.found.relay, orders.root
    text = "gave no answer for"
    if trouble == "throttled":
        relay.fault = refusal(400, "ThrottlingException") if of == "glue" else answer(429, b"")
    elif trouble == "down":
        orders.given |= {
            name: str(value).replace(relay.url, "http://127.0.0.1:1") for name, value in orders.given.items()
        }
    elif trouble == "silent":
        relay.fault = lambda handler: time.sleep(100)
    else:
        value, headers = orders.found.framed(orders.found.unknown, body(OLD, {"id": 1}))
        connect(root).write(
            pa.table({"value": [value], "headers": pa.array([headers], _HEADERS)}), orders.topic
        )
        text = "does not know"
    began = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        orders.batch.select("value.id").collect()
    assert 55 < time.monotonic() - began < 100
    assert text in str(caught.value)
    assert f"(partition {orders.topic}-0, offset " in str(caught.value)
