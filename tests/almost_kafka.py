"""Services that are almost Kafka: a real broker behind a proxy with fewer APIs, in old versions.

What Azure Event Hubs serves is from what clients have logged of it: in 2019, before it had idempotent
producers, https://github.com/Azure/azure-event-hubs-for-kafka/issues/69, and in 2023,
https://github.com/aio-libs/aiokafka/issues/945. Newer ApiVersions reset the connection then,
https://github.com/twmb/franz-go/issues/1025. Redpanda's versions are those of its handlers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

from tests.kafka import Broker, Listener
from tests.kafka_process import free_ports
from tests.kafka_proxy import API_VERSIONS, Link, Proxy

_REQUEST = struct.Struct(">ihhih")
"""Size, api key, api version, correlation id, and the length of the client id that follows."""
_API = struct.Struct(">hhh")
_FIRST_FLEXIBLE = 3

EVENT_HUBS_2023: Mapping[int, tuple[int, int]] = {
    0: (3, 7),  # Produce
    1: (4, 6),  # Fetch
    2: (0, 7),  # ListOffsets
    3: (0, 5),  # Metadata
    8: (0, 8),  # OffsetCommit
    9: (0, 8),  # OffsetFetch
    10: (0, 4),  # FindCoordinator
    11: (0, 7),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 4),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 5),  # DescribeGroups
    16: (0, 4),  # ListGroups
    17: (0, 1),  # SaslHandshake
    18: (0, 3),  # ApiVersions
    19: (0, 6),  # CreateTopics
    20: (0, 2),  # DeleteTopics
    22: (0, 1),  # InitProducerId
    23: (0, 0),  # OffsetForLeaderEpoch
    32: (0, 2),  # DescribeConfigs
    36: (0, 1),  # SaslAuthenticate
    37: (0, 1),  # CreatePartitions
    42: (0, 0),  # DeleteGroups
}
"""The lowest and highest version of each API, by api key."""

EVENT_HUBS_2019: Mapping[int, tuple[int, int]] = {
    0: (3, 5),
    1: (4, 6),
    2: (0, 2),
    3: (0, 5),
    8: (0, 3),
    9: (0, 3),
    10: (0, 1),
    11: (0, 2),
    12: (0, 1),
    13: (0, 1),
    14: (0, 1),
    15: (0, 1),
    16: (0, 1),
    17: (0, 0),
    18: (0, 3),  # it knew 1, and later clients ask in 3 first
    19: (0, 2),
    20: (0, 2),
    23: (0, 0),
}
"""The same without InitProducerId and DescribeConfigs."""


_TESTS_OWN = (b"kafka-python", b"rdkafka", b"adminclient", b"console-", b"consumer-", b"producer-")
"""How the ids of clients begin with which tests look at what the package did."""


REDPANDA: Mapping[int, tuple[int, int]] = {
    0: (0, 7),
    1: (4, 11),
    2: (0, 4),
    3: (0, 8),
    8: (1, 8),
    9: (1, 7),
    10: (0, 3),
    11: (0, 6),
    12: (0, 4),
    13: (0, 4),
    14: (0, 4),
    15: (0, 5),
    16: (0, 4),
    17: (0, 1),
    18: (0, 3),
    19: (0, 6),
    20: (0, 5),
    21: (0, 2),  # DeleteRecords
    22: (0, 3),
    23: (0, 4),
    24: (0, 3),  # AddPartitionsToTxn
    25: (0, 1),  # AddOffsetsToTxn
    26: (0, 3),  # EndTxn
    28: (0, 3),  # TxnOffsetCommit
    29: (0, 2),  # DescribeAcls
    30: (0, 2),  # CreateAcls
    31: (0, 2),  # DeleteAcls
    32: (0, 4),
    33: (0, 2),  # AlterConfigs
    35: (0, 2),  # DescribeLogDirs
    36: (0, 2),
    37: (0, 3),
    42: (0, 2),
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 0),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    47: (0, 0),  # OffsetDelete
    48: (0, 1),  # DescribeClientQuotas
    49: (0, 1),  # AlterClientQuotas
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 0),  # ListTransactions
}
"""Those of 24.3: no topic ids, and leader epochs that are not used (KAFKA-9212)."""

SERVICES = {"event-hubs": EVENT_HUBS_2023, "redpanda": REDPANDA}


class AlmostKafka(Proxy):
    """Forwards what ``versions`` has, and resets the connection at anything else.

    ``refused`` holds api key and version of each request that was not served. Other clients than
    the package's, by their default ids, meet the broker as it is.
    """

    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        super().__init__()
        self.versions = versions
        self.refused: list[tuple[int, int]] = []
        self._asked: dict[tuple[Link, int], int] = {}
        """Versions of ApiVersions requests, by link and correlation id."""

    def _ask(self, link: Link, frame: bytes) -> None:
        _, api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        if frame[_REQUEST.size : _REQUEST.size + max(length, 0)].startswith(_TESTS_OWN):
            super()._ask(link, frame)
            return
        lowest, highest = self.versions.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            self.refused.append((api_key, version))
            link.close(reset=True)
            return
        if api_key == API_VERSIONS:
            self._asked[link, correlation_id] = version
        super()._ask(link, frame)

    def _answer(self, link: Link, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[4:8], "big")
        version = self._asked.pop((link, correlation_id), None)
        super()._answer(link, frame if version is None else self._told(correlation_id, version))

    def _told(self, correlation_id: int, version: int) -> bytes:
        """A whole response to ApiVersions, which has the same header in every version (KIP-511)."""
        flexible, number = version >= _FIRST_FLEXIBLE, len(self.versions)
        tags = b"\0" if flexible else b""
        count = struct.pack(">B", number + 1) if flexible else struct.pack(">i", number)
        apis = b"".join(_API.pack(key, *versions) + tags for key, versions in self.versions.items())
        throttle = struct.pack(">i", 0) if version else b""
        body = struct.pack(">ih", correlation_id, 0) + count + apis + throttle + tags
        return struct.pack(">i", len(body)) + body


class AlmostKafkaBroker(Broker):
    """A broker that all its clients meet at the proxy."""

    def __init__(
        self,
        versions: Mapping[int, tuple[int, int]],
        folder: Path,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._proxy = AlmostKafka(versions)
        (self._proxy.target,) = free_ports(1)
        listener = Listener("PROXIED", "PLAINTEXT", self._proxy.target, self._proxy.address)
        super().__init__(folder, settings, listeners=[listener])
        self.bootstrap = self._proxy.address

    def discard(self) -> None:
        super().discard()
        self._proxy.stop()
