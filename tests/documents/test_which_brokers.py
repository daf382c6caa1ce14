"""The table of docs/install.md says from which version of Kafka on brokers have what a feature asks for."""

from __future__ import annotations

import re

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
from kafka.protocol.consumer import (
    FetchRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest

from pyspark_kafkalog.broker.fetch import epochs, list_offsets
from pyspark_kafkalog.broker.fetch import protocol as fetch
from pyspark_kafkalog.broker.produce import protocol as produce
from pyspark_kafkalog.broker.topics import requests as topics
from pyspark_kafkalog.broker.wire.apis import way_out
from pyspark_kafkalog.extensions.exactly_once import requests as exactly_once
from pyspark_kafkalog.extensions.membership import member
from pyspark_kafkalog.tools.try_out.jars import KAFKA_VERSION
from tests.documents.blocks import ROOT
from tests.kafka_jars import OLD_KAFKA_VERSION, OLDEST_KAFKA_VERSION

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
_, _, TEXT = PAGE.partition("## Which brokers\n")
ROWS = dict(re.findall(r"^\| (.+?) \| (\d+\.\d+) \| ", TEXT.partition("\n## ")[0], re.M))
"""The versions by what the first column says."""
OFFSET_DELETE, DESCRIBE_TRANSACTIONS = 47, 65
BY_REQUESTS = {
    "read, write": {
        ProduceRequest.API_KEY: produce.MIN_VERSION,
        FetchRequest.API_KEY: fetch.MIN_VERSION,
        ListOffsetsRequest.API_KEY: list_offsets.MIN_VERSION,
        DescribeConfigsRequest.API_KEY: 0,
        SaslAuthenticateRequest.API_KEY: 0,
        CreatePartitionsRequest.API_KEY: 0,
    },
    "delete a group": {DeleteGroupsRequest.API_KEY: 0},
    "[configurations of topics]": {IncrementalAlterConfigsRequest.API_KEY: 0},
    "static members": {JoinGroupRequest.API_KEY: member._FIRST_STATIC[JoinGroupRequest]},
    "`topics create` with": {CreateTopicsRequest.API_KEY: topics.FIRST_WITH_DEFAULTS},
    "`offsets delete`": {OFFSET_DELETE: 0},
    # Before version 9 of Metadata an epoch may be an old one (KAFKA-9212).
    "a log that was cut": {
        MetadataRequest.API_KEY: 9,
        OffsetForLeaderEpochRequest.API_KEY: epochs._MIN_VERSION,
    },
    "[exactly once]": {OffsetFetchRequest.API_KEY: exactly_once._FIRST_WITH_STABLE},
    "a recreated topic": {MetadataRequest.API_KEY: 10},
    "exactly once asks": {DESCRIBE_TRANSACTIONS: 0},
    "records are fetched by the id": {FetchRequest.API_KEY: fetch.FIRST_WITH_TOPIC_ID},
}
"""What features ask brokers for: the lowest version of each API, by its key."""
BY_KAFKA = {
    "logins by tokens": "2.0",  # KIP-255
    "`kafka.compression.type=zstd`": "2.1",  # KIP-110
    "read from the nearest replica": "2.4",  # KIP-392
    "`kafka.group.protocol=consumer`": "4.0",  # KIP-848, by default
}
"""What brokers do from a version on, whatever they are asked."""


def version_of(begins: str) -> str:
    (found,) = (version for feature, version in ROWS.items() if feature.startswith(begins))
    return found


def test_the_table_has_no_other_features() -> None:
    assert len(ROWS) == len(BY_REQUESTS) + len(BY_KAFKA)


@pytest.mark.parametrize("feature", BY_REQUESTS)
def test_brokers_have_what_a_feature_asks_for_from_this_version_on(feature: str) -> None:
    asked = BY_REQUESTS[feature]
    first = next(
        version
        for version, apis in BROKER_API_VERSIONS.items()
        if all(apis.get(key, (0, -1))[1] >= lowest for key, lowest in asked.items())
    )
    assert version_of(feature) == f"{first[0]}.{first[1]}"


@pytest.mark.parametrize("feature", BY_KAFKA)
def test_what_no_request_tells(feature: str) -> None:
    assert version_of(feature) == BY_KAFKA[feature]


def test_errors_name_the_same_versions() -> None:
    assert f"Kafka {version_of('read, write')} and newer" in way_out(ProduceRequest.API_KEY, 0)
    for feature in "delete a group", "[configurations of topics]", "`offsets delete`":
        (key,) = BY_REQUESTS[feature]
        assert f"needs Kafka {version_of(feature)}" in way_out(key, -1)


def test_the_brokers_of_the_tests_are_named() -> None:
    assert all(version in TEXT for version in (KAFKA_VERSION, OLD_KAFKA_VERSION, OLDEST_KAFKA_VERSION))


def test_readme_names_the_lowest_version() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Kafka {version_of('read, write')} or newer" in readme
    assert f"exactly once from {version_of('[exactly once]')}" in readme
