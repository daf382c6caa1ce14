"""A real broker that checks the tokens of clouds again, and ends sessions with them."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import by_value, connect
from pyspark_kafkalog.broker.wire import oauth
from pyspark_kafkalog.errors import AuthenticationError
from pyspark_kafkalog.extensions.clouds import aws
from tests.broker.producing import unused_topic
from tests.extensions.clouds.cloud_broker import SECRET, CloudBroker
from tests.extensions.clouds.metadata_services import MetadataServices, metadata_services
from tests.kafka_service import running

pytestmark = pytest.mark.broker

ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudBroker]:
    with running(CloudBroker(tmp_path_factory.mktemp("cloud") / "broker")) as broker:
        yield broker


@pytest.fixture
def services(broker: CloudBroker) -> Iterator[MetadataServices]:
    oauth._fetched.values.clear()
    aws._credentials_cache.values.clear()
    aws._session.cache_clear()
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-1"}
    with metadata_services() as server:
        server.token_seconds = 3600
        server.answers[f"{ACCOUNT}/"] = json.dumps({"email": "reader@demo", "scopes": []})
        platform = {
            "IDENTITY_ENDPOINT": f"http://{server.address}/msi/token",
            "IDENTITY_HEADER": "header-of-platform",
        }
        with mock.patch.dict(os.environ, {**keys, **platform}):
            yield server


def login(broker: CloudBroker, cloud: str, **options: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.provider": cloud,
        **options,
    }


@pytest.mark.long
@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_a_broker_takes_the_tokens(broker: CloudBroker, services: MetadataServices, cloud: str) -> None:
    topic = unused_topic()
    broker.create_topic(topic, 1)
    with connect(login(broker, cloud)) as cluster:
        cluster.write(pa.table({"value": [b"a", b"b"]}), topic)
        assert cluster.read(topic).read_all()["value"].to_pylist() == [b"a", b"b"]


def test_a_token_that_was_refused_is_not_used_again(broker: CloudBroker, services: MetadataServices) -> None:
    """As after its issuer has got other keys: it would be refused until its end, an hour later."""
    revoked = {"access_token": "revoked-token-4e", "expires_on": str(int(time.time()) + 3600)}
    services.answers["/msi/token"] = json.dumps(revoked)
    options = login(broker, "azure", **{"kafka.client.id": "refused"})
    with pytest.raises(AuthenticationError) as caught, connect(options) as cluster:
        cluster.topics.partitions()
    assert "revoked-token" not in str(caught.value)
    del services.answers["/msi/token"]
    with connect(options) as cluster:
        cluster.topics.partitions()


troubles: list[Exception] = []
asked: list[float] = []


def short_token() -> str:
    """One of six seconds, if there is no trouble."""
    asked.append(time.monotonic())
    if troubles:
        raise troubles.pop()
    return f"token.{int(time.time()) + 6}"


@pytest.mark.long
def test_a_session_that_can_not_be_renewed_at_once(broker: CloudBroker) -> None:
    """The source of tokens fails once, between two logins."""
    options = login(broker, "", **{"kafka.sasl.login.callback.handler.class": f"{__name__}:short_token"})
    del options["kafka.sasl.oauthbearer.provider"]
    with connect(options) as cluster:
        until = time.monotonic() + 60

        def ask(count: int) -> None:
            """Until so many tokens were asked for."""
            while len(asked) < count:
                assert time.monotonic() < until, "no session was renewed"
                cluster.topics.partitions()
                time.sleep(0.1)

        ask(1)
        troubles.append(RuntimeError("not now"))
        ask(len(asked) + 2)
        troubles.extend([RuntimeError("never")] * 9)
        with pytest.raises(AuthenticationError, match="never"):
            ask(len(asked) + 9)
    troubles.clear()


@pytest.mark.usefixtures("services")
def test_another_secret_is_refused_and_not_shown(broker: CloudBroker) -> None:
    with (
        mock.patch.dict(os.environ, {"AWS_SECRET_ACCESS_KEY": "another-secret-1"}),
        pytest.raises(AuthenticationError) as caught,
        connect(login(broker, "aws", **{"kafka.client.id": "another"})) as cluster,
    ):
        cluster.topics.partitions()
    assert "another-secret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.soak
def test_tokens_that_end_soon(
    spark: SparkSession, broker: CloudBroker, services: MetadataServices, tmp_path: Path
) -> None:
    """Tokens of 30 seconds, under a stream and a write of 5 minutes: no error, and no row is missing."""
    services.token_seconds = 30
    topic, seconds = unused_topic(), 300
    broker.create_topic(topic, 2)
    options = login(broker, "azure")
    url = f"http://{services.address}/msi/token"

    def token() -> str:
        """In Spark's workers, which don't have this process's environment."""
        request = urllib.request.Request(url, headers={"X-IDENTITY-HEADER": "header-of-platform"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["access_token"])

    handler = {"kafka.sasl.login.callback.handler.class": by_value(token)}
    given = {name: text for name, text in options.items() if "provider" not in name} | handler
    frame = spark.readStream.format("kafkalog").options(**given).option("subscribe", topic)
    query = (
        frame.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    written = 0

    def slowly() -> Iterator[pa.RecordBatch]:
        nonlocal written
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield pa.record_batch({"value": [b"%d" % number for number in range(written, written + 100)]})
            written += 100
            time.sleep(0.5)

    with connect(options) as cluster:
        schema = pa.schema({"value": pa.binary()})
        cluster.write(
            pa.RecordBatchReader.from_batches(schema, slowly()), topic, options={"kafka.batch.size": "1000"}
        )
    query.processAllAvailable()
    query.stop()
    values = [int(row.value) for row in spark.read.parquet(str(tmp_path / "rows")).select("value").collect()]
    assert sorted(values) == list(range(written))
    assert written > 100 * seconds
    assert len(services.asked) > seconds / 30
