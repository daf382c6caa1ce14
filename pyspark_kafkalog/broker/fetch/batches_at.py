"""The headers of single record batches of many partitions: one round of fetches to each leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeGuard

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import call_leaders_once
from pyspark_kafkalog.broker.fetch.protocol import FIRST_WITH_TOPIC_ID, MIN_VERSION
from pyspark_kafkalog.broker.fetch.sampling import Nothing, batches_request, read_batches
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.codec.batch_identity import header_of
from pyspark_kafkalog.codec.walk import Batches
from pyspark_kafkalog.model import BatchHeader, TopicPartition

_LEAST_BYTES = 4 << 10
"""Bytes that are asked of a partition whose batches are of unknown size."""
_MOST_BYTES = 256 << 10
_REQUEST_BYTES = 1 << 20
"""Bytes that are asked of a broker in one request."""
_ALONE = 16
"""The most batches that are asked for one by one, as they did not fit: such a one comes whole (KIP-74)."""


class BatchLooks:
    """Looks at single record batches, and remembers their sizes, to ask for no more than one or two."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sizes: dict[TopicPartition, int] = {}

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
        """See :meth:`pyspark_kafkalog.model.Place.batches_at`.

        Two rounds: a partition of which nothing comes by then is left out, as one whose offset is gone.
        """
        found: dict[TopicPartition, Batches | Nothing] = {}
        deadline = Deadline.after_ms(self._cluster.options.request_timeout_ms)
        for is_alone in (False, True):
            wanted = [p for p in offsets if p not in found or _is_too_large(found[p])]
            if is_alone:
                wanted = wanted[:_ALONE]
            if wanted:
                found |= call_leaders_once(
                    self._cluster,
                    wanted,
                    partial(self._requests, offsets, is_alone),
                    _read,
                    min_version=MIN_VERSION,
                    max_version=FIRST_WITH_TOPIC_ID - 1,
                    deadline=deadline,
                )
        headers = {p: header_of(answer) for p, answer in found.items() if _is_batch(answer)}
        self._sizes |= {partition: header.size for partition, header in headers.items()}
        return {p: header for p, header in headers.items() if header.base_offset <= offsets[p]}

    def _requests(
        self, offsets: Mapping[TopicPartition, int], is_alone: bool, epochs: Mapping[TopicPartition, int]
    ) -> list[Any]:
        """Requests to one broker, each for as many partitions as fit into it, or for one."""
        requests, wanted, left = [], dict[TopicPartition, int](), _REQUEST_BYTES
        for partition in epochs:
            size = 1 if is_alone else min(max(2 * self._sizes.get(partition, 0), _LEAST_BYTES), _MOST_BYTES)
            if wanted and (is_alone or size > left):
                requests.append(batches_request(wanted, offsets, epochs, max_wait_ms=0))
                wanted, left = {}, _REQUEST_BYTES
            wanted[partition] = size
            left -= size
        return [*requests, batches_request(wanted, offsets, epochs, max_wait_ms=0)]


def _read(responses: Sequence[Any]) -> dict[TopicPartition, Any]:
    whole = [response for response in responses if not response.error_code]  # an error shows no batch
    return {p: answer for response in whole for p, answer in read_batches(response).items()}


def _is_batch(answer: Batches | Nothing) -> TypeGuard[Batches]:
    return not isinstance(answer, Nothing) and len(answer) > 0


def _is_too_large(answer: Batches | Nothing) -> bool:
    """Whether nothing came of a partition that has something there."""
    return not isinstance(answer, Nothing) and not len(answer)
