"""A small broker that responds as a test says, for what no real broker does; and its responses."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeProducersResponse
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 1, 2, 3, 18
VERSIONS = {API_VERSIONS: (0, 3), METADATA: (0, 12), FETCH: (4, 13), LIST_OFFSETS: (1, 9)}
"""The versions that a broker has unless a test says otherwise, by api key."""


class Received(NamedTuple):
    """A request: its header, and the bytes from the header on."""

    api_key: int
    version: int
    correlation_id: int
    frame: bytes


Answer = Callable[[Received], bytes | None]
"""The bytes to send for a request; None closes the connection, and b"" sends nothing."""


def framed(correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    payload = struct.pack(">i", correlation_id) + (b"\0" if flexible else b"") + body
    return struct.pack(">i", len(payload)) + payload


def encoded(received: Received, response: Any) -> bytes:
    """One of kafka-python's responses, encoded in the version of the request."""
    flexible = response.API_KEY != API_VERSIONS and response.flexible_version_q(received.version)
    return framed(
        received.correlation_id, bytes(response.encode(version=received.version)), flexible=flexible
    )


def api_versions(received: Received, versions: Mapping[int, tuple[int, int]] = VERSIONS) -> bytes:
    """The answer to ApiVersions in version 0 to 3; its header is never flexible."""
    kind: Any = ApiVersionsResponse.ApiVersion
    response = ApiVersionsResponse(
        error_code=0,
        api_keys=[kind(api_key=k, min_version=low, max_version=high) for k, (low, high) in versions.items()],
        throttle_time_ms=0,
    )
    return encoded(received, response)


def metadata(received: Received, *, throttle_time_ms: int = 0, cluster_id: str | None = None) -> bytes:
    """The encoded response of a cluster without brokers and topics."""
    return encoded(received, metadata_response({}, cluster_id=cluster_id, throttle_time_ms=throttle_time_ms))


def metadata_response(
    brokers: Mapping[int, str],
    topics: Sequence[Any] = (),
    *,
    cluster_id: str | None = "c",
    throttle_time_ms: int = 0,
) -> Any:
    """Brokers by node id, each with its ``host:port``, and topics as :func:`topic_metadata` makes them."""
    kind = MetadataResponse.MetadataResponseBroker
    addresses = {node_id: address.rpartition(":") for node_id, address in brokers.items()}
    return MetadataResponse(
        throttle_time_ms=throttle_time_ms,
        brokers=[
            kind(node_id=node_id, host=host, port=int(port), rack=None)
            for node_id, (host, _, port) in addresses.items()
        ],
        cluster_id=cluster_id,
        controller_id=-1,
        topics=list(topics),
    )


def topic_metadata(
    name: str,
    leaders: Mapping[int, tuple[int, int]],
    *,
    topic_id: uuid.UUID | None = None,
    error_code: int = 0,
) -> Any:
    """A topic; ``leaders`` are node id and epoch by partition."""
    kind = MetadataResponse.MetadataResponseTopic
    partitions = [
        kind.MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=node_id,
            leader_epoch=epoch,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for number, (node_id, epoch) in leaders.items()
    ]
    return kind(error_code=error_code, name=name, topic_id=topic_id, is_internal=False, partitions=partitions)


def producers_response(topic: str, partition: int = 0, *, epoch: int = 0) -> Any:
    """DescribeProducers' answer for one partition: producer 9 has a transaction open there, of this epoch."""
    kind = DescribeProducersResponse.TopicResponse
    state = kind.PartitionResponse.ProducerState(
        producer_id=9,
        producer_epoch=epoch,
        last_sequence=0,
        last_timestamp=0,
        coordinator_epoch=0,
        current_txn_start_offset=5,
    )
    described = kind.PartitionResponse(
        partition_index=partition, error_code=0, error_message=None, active_producers=[state]
    )
    return DescribeProducersResponse(throttle_time_ms=0, topics=[kind(name=topic, partitions=[described])])


def offset_response(offset: int, *, error_code: int = 0, epoch: int = -1) -> Any:
    """ListOffsets' answer for partition t-0."""
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = kind.ListOffsetsPartitionResponse(
        partition_index=0, error_code=error_code, timestamp=-1, offset=offset, leader_epoch=epoch
    )
    return ListOffsetsResponse(throttle_time_ms=0, topics=[kind(name="t", partitions=[partition])])


def fetch_response(
    topic_id: uuid.UUID | None, partition: Mapping[str, Any] | None, *, throttle_time_ms: int = 0
) -> Any:
    """Fetch's answer for partition t-0, by default without records, ending at 100; None for none."""
    kind = FetchResponse.FetchableTopicResponse
    responses = []
    if partition is not None:
        fields = {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 100,
            "last_stable_offset": 100,
            "log_start_offset": 0,
            "records": b"",
            **partition,
        }
        responses = [kind(topic="t", topic_id=topic_id, partitions=[kind.PartitionData(**fields)])]
    return FetchResponse(throttle_time_ms=throttle_time_ms, error_code=0, session_id=0, responses=responses)


class FakeBroker:
    """Listens on loopback at ``address``; ``requests`` holds what came."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.requests: list[Received] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # A mere close would leave its threads in accept and read, and with them the sockets open.
        for sock in (self._listener, *self._connections):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            try:
                while prefix := stream.read(4):
                    frame = stream.read(*struct.unpack(">i", prefix))
                    received = Received(*struct.unpack_from(">hhi", frame), frame)
                    self.requests.append(received)
                    answer = self._answer(received)
                    if answer is None:
                        return
                    connection.sendall(answer)
            except (OSError, ValueError, struct.error):
                return


@contextmanager
def serving(
    answer: Answer, versions: Mapping[int, tuple[int, int]] = VERSIONS, port: int = 0
) -> Iterator[FakeBroker]:
    """A broker that answers ApiVersions itself, and everything else as the test says."""

    def answer_all(received: Received) -> bytes | None:
        return api_versions(received, versions) if received.api_key == API_VERSIONS else answer(received)

    broker = FakeBroker(answer_all, port)
    try:
        yield broker
    finally:
        broker.close()
