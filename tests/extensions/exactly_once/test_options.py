"""What exactly-once writes need, and what they rule out."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.exactly_once.options import TransactionOptions
from pyspark_kafkalog.options.contracts import Delivery, delivery_of
from pyspark_kafkalog.options.settings import write_options

BROKERS = {"kafka.bootstrap.servers": "b:1"}
ONCE = {**BROKERS, "delivery.guarantee": "exactly-once"}


def test_the_default_is_at_least_once() -> None:
    for options in (BROKERS, {**BROKERS, "delivery.guarantee": "at-least-once"}, {"path": "/log"}):
        assert type(delivery_of(write_options(options))) is Delivery
    # A directory always shows a micro-batch once.
    assert not write_options({"path": "/log", "delivery.guarantee": "exactly-once"}).extensions


def test_what_is_given() -> None:
    given = {
        "stagingLocation": "s3://key:secret@bucket/staging",
        "checkpointLocation": "/checkpoint",
        "failOnMissingMarker": "false",
        "kafka.transaction.timeout.ms": "90000",
        "kafka.group.id": "g",
        "commitSourceOffsets": "transaction",
    }
    transactions = delivery_of(write_options({**ONCE, **given}))
    assert transactions == TransactionOptions(
        90_000, False, "s3://key:secret@bucket/staging", "/checkpoint", "g", False
    )
    assert "secret" not in repr(transactions)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({**BROKERS, "stagingLocation": "/s"}, "'stagingLocation' needs delivery.guarantee=exactly-once"),
        ({**BROKERS, "txnAppId": "a", "txnVersion": "1"}, "'txnAppId' needs delivery.guarantee=exactly-once"),
        ({**BROKERS, "failOnMissingMarker": "false"}, "'failOnMissingMarker' needs delivery.guarantee"),
        ({**ONCE, "kafka.acks": "1"}, "exactly-once needs kafka.acks=all"),
        ({**ONCE, "kafka.enable.idempotence": "false"}, "exactly-once needs .*kafka.enable.idempotence=true"),
        ({**ONCE, "txnAppId": "a", "stagingLocation": "/s"}, "'txnAppId' needs 'txnVersion'"),
        ({**ONCE, "txnVersion": "1"}, "'txnVersion' needs 'txnAppId'"),
        ({**ONCE, "txnAppId": "a", "txnVersion": "1"}, "'txnAppId' needs 'stagingLocation'"),
        ({**ONCE, "txnVersion": "-1"}, "txnVersion"),
        ({**ONCE, "txnVersion": str(2**63 - 1)}, "txnVersion"),
        ({**ONCE, "commitSourceOffsets": "transaction"}, "'commitSourceOffsets' needs 'kafka.group.id'"),
        (
            {**ONCE, "commitSourceOffsets": "transaction", "kafka.group.id": "g"},
            "'commitSourceOffsets' needs 'checkpointLocation'",
        ),
        ({"path": "/log", "kafka.group.id": "g"}, "'kafka.group.id' is for reading only"),
        ({**ONCE, "delivery.guarantee": "at-most-once"}, "delivery.guarantee"),
    ],
)
def test_what_is_refused(options: dict[str, str], match: str) -> None:
    with pytest.raises(OptionError, match=match):
        write_options(options)


def test_a_job_s_batch_has_a_name_of_its_own_for_each_topic() -> None:
    def named(app: str, topic: str | None) -> str:
        options = {**ONCE, "txnAppId": app, "txnVersion": "7", "stagingLocation": "/s"}
        batch = write_options(options | ({"topic": topic} if topic else {})).batch
        assert batch is not None
        assert batch.batch_id == 7
        return batch.query_id

    names = [named("a", None), named("a", "t"), named("a", "u"), named("b", "t")]
    assert len({*names}) == 4
    assert names[1] == named("a", "t")
