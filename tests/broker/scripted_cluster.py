"""Two brokers and one partition: each answers by what it believes, as does a deposed leader."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataResponse

from pyspark_kafkalog.model import EARLIEST
from tests.broker.fake_broker import FETCH, METADATA, Asked, FakeBroker, framed, serving
from tests.log.partitions import batch

LIST_OFFSETS = 2
NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH, UNKNOWN_TOPIC, OUT_OF_RANGE = 6, 74, 75, 3, 1
UNKNOWN_TOPIC_ID = 100
AN_ID = uuid.UUID(int=7)


@dataclass
class Belief:
    """What a broker holds for true of the partition ``t-0``, a log of batches of ten records."""

    leader: int
    epoch: int
    start: int = 0
    end: int = 100
    topic_id: uuid.UUID | None = AN_ID
    """None as brokers before Kafka 2.8."""
    exists: bool = True
    most: int = 10
    """How many record batches an answer has, at most."""
    until: int | None = None
    """After how many answers it has heard the news, which are the other broker's belief."""


@dataclass
class ScriptedCluster:
    """Brokers 1 and 2, each with its belief; ``asked`` holds the broker and api key of each request."""

    beliefs: dict[int, Belief]
    versions: dict[int, tuple[int, int]] = field(
        default_factory=lambda: {18: (0, 3), METADATA: (0, 12), FETCH: (4, 13), LIST_OFFSETS: (1, 9)}
    )
    asked: list[tuple[int, int]] = field(default_factory=list)
    brokers: dict[int, FakeBroker] = field(default_factory=dict)
    dead: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Where other brokers should be, as these say."""

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers[node].address for node in sorted(self.brokers))

    def answer(self, node: int, asked: Asked) -> bytes | None:
        self.asked.append((node, asked.api_key))
        belief = self.beliefs[node]
        if belief.until is not None:
            belief.until -= 1
            if belief.until < 0:
                belief = self.beliefs[node] = self.beliefs[3 - node]
        kind = {METADATA: self._metadata, LIST_OFFSETS: self._offsets, FETCH: self._records}[asked.api_key]
        body, flexible = kind(node, belief, asked)
        return framed(asked.correlation_id, bytes(body.encode(version=asked.version)), flexible=flexible)

    def _metadata(self, node: int, belief: Belief, asked: Asked) -> tuple[Any, bool]:
        kind = MetadataResponse.MetadataResponseTopic
        partition = kind.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=belief.leader,
            leader_epoch=belief.epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
            offline_replicas=[],
        )
        topic = kind(
            error_code=0 if belief.exists else UNKNOWN_TOPIC,
            name="t",
            topic_id=belief.topic_id,
            is_internal=False,
            partitions=[partition] if belief.exists else [],
        )
        addresses = {number: its.address.split(":") for number, its in self.brokers.items()}
        response = MetadataResponse(
            throttle_time_ms=0,
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=n, host=host, port=int(port), rack=None)
                for n, (host, port) in {**addresses, **self.dead}.items()
            ],
            cluster_id="c",
            controller_id=1,
            topics=[topic],
        )
        return response, asked.version >= 9

    def _refusal(self, node: int, belief: Belief, epoch: int) -> int:
        if not belief.exists:
            return UNKNOWN_TOPIC
        if epoch > belief.epoch:
            return UNKNOWN_EPOCH
        if belief.leader != node:
            return NOT_LEADER
        return FENCED_EPOCH if -1 < epoch < belief.epoch else 0

    def _offsets(self, node: int, belief: Belief, asked: Asked) -> tuple[Any, bool]:
        request = ListOffsetsRequest.decode(asked.frame, version=asked.version, header=True)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        epoch = wanted.current_leader_epoch if asked.version >= 4 else -1
        code = self._refusal(node, belief, epoch)
        kind = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = kind.ListOffsetsPartitionResponse(
            partition_index=0,
            error_code=code,
            timestamp=-1,
            offset=belief.start if wanted.timestamp == EARLIEST else belief.end,
            leader_epoch=belief.epoch,
        )
        topics = [kind(name="t", partitions=[partition])]
        return ListOffsetsResponse(throttle_time_ms=0, topics=topics), asked.version >= 6

    def _records(self, node: int, belief: Belief, asked: Asked) -> tuple[Any, bool]:
        request = FetchRequest.decode(asked.frame, version=asked.version, header=True)
        (topic,) = request.topics
        (wanted,) = topic.partitions
        epoch = wanted.current_leader_epoch if asked.version >= 9 else -1
        code = self._refusal(node, belief, epoch)
        if asked.version >= 13 and topic.topic_id != belief.topic_id:
            code = UNKNOWN_TOPIC_ID
        if not code and not belief.start <= wanted.fetch_offset <= belief.end:
            code = OUT_OF_RANGE
        first = wanted.fetch_offset // 10 * 10
        kind = FetchResponse.FetchableTopicResponse
        partition = kind.PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=belief.end,
            last_stable_offset=belief.end,
            log_start_offset=belief.start,
            records=b"" if code else b"".join(map(batch, range(first, belief.end, 10)[: belief.most])),
        )
        responses = [kind(topic="t", topic_id=topic.topic_id, partitions=[partition])]
        body = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=responses)
        return body, asked.version >= 12


@contextmanager
def playing(cluster: ScriptedCluster) -> Iterator[ScriptedCluster]:
    with ExitStack() as stack:
        for node in cluster.beliefs:
            broker = serving(lambda asked, node=node: cluster.answer(node, asked), cluster.versions)
            cluster.brokers[node] = stack.enter_context(broker)
        yield cluster
