"""Two brokers and one partition: each responds by what it believes, as a deposed leader does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from pyspark_kafkalog.model import EARLIEST
from tests.broker.fake_broker import (
    FETCH,
    LIST_OFFSETS,
    METADATA,
    VERSIONS,
    FakeBroker,
    Received,
    encoded,
    fetch_response,
    metadata_response,
    offset_response,
    serving,
    topic_metadata,
)
from tests.log.partitions import batch

NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC, OUT_OF_RANGE = 6, 74, 75, 3, 1
UNKNOWN_TOPIC_ID = 100
EPOCH_ENDS = 23
WITH_EPOCH_ENDS = {**VERSIONS, EPOCH_ENDS: (2, 4)}
"""Versions of brokers that tell where leader epochs end."""
AN_ID = uuid.UUID(int=7)


@dataclass
class Belief:
    """What a broker believes about the partition ``t-0``, a log of batches of ten records."""

    leader: int
    epoch: int
    start: int = 0
    end: int = 100
    topic_id: uuid.UUID | None = AN_ID
    """None before Kafka 2.8."""
    exists: bool = True
    log_end: int | None = None
    """Where the log itself ends, if that is not its high watermark."""
    most: int = 10
    """How many record batches an answer has, at most."""
    until: int | None = None
    """After how many responses the broker adopts the other broker's belief."""


@dataclass
class ScriptedCluster:
    """Brokers 1 and 2, each with its belief; ``requests`` holds node id and api key of each request."""

    beliefs: dict[int, Belief]
    versions: Mapping[int, tuple[int, int]] = field(default_factory=lambda: VERSIONS)
    requests: list[tuple[int, int]] = field(default_factory=list)
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    """Addresses of other brokers, in metadata only."""

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers[node].address for node in sorted(self.brokers))

    def answer(self, node: int, received: Received) -> bytes | None:
        self.requests.append((node, received.api_key))
        belief = self.beliefs[node]
        if belief.until is not None:
            belief.until -= 1
            if belief.until < 0:
                belief = self.beliefs[node] = self.beliefs[3 - node]
        respond = {
            METADATA: self._metadata,
            LIST_OFFSETS: self._offsets,
            FETCH: self._records,
            EPOCH_ENDS: self._epoch_ends,
        }[received.api_key]
        return encoded(received, respond(node, belief, received))

    def _metadata(self, node: int, belief: Belief, received: Received) -> Any:
        topic = topic_metadata(
            "t",
            {0: (belief.leader, belief.epoch)} if belief.exists else {},
            topic_id=belief.topic_id,
            error_code=0 if belief.exists else UNKNOWN_TOPIC,
        )
        addresses = {node_id: broker.address for node_id, broker in self.brokers.items()}
        return metadata_response({**addresses, **self.dead}, [topic])

    def _refusal(self, node: int, belief: Belief, epoch: int) -> int:
        if not belief.exists:
            return UNKNOWN_TOPIC
        if epoch > belief.epoch:
            return UNKNOWN_EPOCH
        if belief.leader != node:
            return NOT_LEADER
        return FENCED_EPOCH if -1 < epoch < belief.epoch else 0

    def _offsets(self, node: int, belief: Belief, received: Received) -> Any:
        request = ListOffsetsRequest.decode(received.frame, version=received.version, header=True)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        epoch = wanted.current_leader_epoch if received.version >= 4 else -1
        offset = belief.start if wanted.timestamp == EARLIEST else belief.end
        return offset_response(offset, error_code=self._refusal(node, belief, epoch), epoch=belief.epoch)

    def _epoch_ends(self, node: int, belief: Belief, received: Received) -> Any:
        request = OffsetForLeaderEpochRequest.decode(received.frame, version=received.version, header=True)
        (wanted,) = request.topics[0].partitions
        topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        answer = topic.EpochEndOffset(
            error_code=self._refusal(node, belief, wanted.current_leader_epoch),
            partition=0,
            leader_epoch=belief.epoch,
            end_offset=belief.end if belief.log_end is None else belief.log_end,
        )
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0, topics=[topic(topic="t", partitions=[answer])]
        )

    def _records(self, node: int, belief: Belief, received: Received) -> Any:
        request = FetchRequest.decode(received.frame, version=received.version, header=True)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        epoch = wanted.current_leader_epoch if received.version >= 9 else -1
        code = self._refusal(node, belief, epoch)
        if received.version >= 13 and topic.topic_id != belief.topic_id:
            code = UNKNOWN_TOPIC_ID
        if not code and not belief.start <= wanted.fetch_offset <= belief.end:
            code = OUT_OF_RANGE
        first = wanted.fetch_offset // 10 * 10
        offsets = range(first, belief.end, 10)[: belief.most]
        partition = {
            "error_code": code,
            "high_watermark": belief.end,
            "last_stable_offset": belief.end,
            "log_start_offset": belief.start,
            "records": b"" if code else b"".join(batch(offset) for offset in offsets),
        }
        return fetch_response(topic.topic_id, partition)


@contextmanager
def playing(cluster: ScriptedCluster) -> Iterator[ScriptedCluster]:
    with ExitStack() as stack:
        for node in cluster.beliefs:
            broker = serving(lambda received, node=node: cluster.answer(node, received), cluster.versions)
            cluster.brokers[node] = stack.enter_context(broker)
        yield cluster
