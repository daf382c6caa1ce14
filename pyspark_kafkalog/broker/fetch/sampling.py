"""The reach of bytes in many partitions, by the headers of sampled batches: one Fetch a broker and sample.

A Fetch bounds the bytes that come in all, and those of each partition. Only the first batch of the first
partition that has one comes whole, however large; a larger one of another partition does not come at all
(KIP-74). So what did not come is asked for again, ever more of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import call_leaders
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.fetch.protocol import FIRST_WITH_TOPIC_ID, MIN_VERSION, Wanted, fetch_request
from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, error_of
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, walk
from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.model import OffsetRange, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_SAMPLES = 4
_SAMPLE_BYTES = 256 << 10
_LEAST_SAMPLE = 4 << 10
"""The fewest bytes to ask of a partition while the size of its batches is unknown."""
_FIRST_REQUEST = 1 << 20
_LARGEST_REQUEST = 16 << 20
"""Bytes that are asked of a broker at once: more where answers are quick, but it has to fit into memory."""
_FACTOR = 4
"""The factor by which a request grows or shrinks."""
_MIN_EMPTY = 3
"""The number of answers without records that proves that a partition has none there; see fetcher.py."""
_DOING = "Sampling record batches"


class Nothing(Enum):
    """Answers without batches."""

    NOT_ASKED = auto()
    """The partition did not fit into the request, or the broker throttles."""
    OUT_OF_RANGE = auto()
    """The log begins later, or ends sooner."""
    UNREADABLE = auto()
    """The reader will handle it."""


_Answer = Batches | Nothing


class ByteReach:
    """The reach of bytes in partitions. It remembers how much a broker can be asked for at once, and the
    sizes of batches, so that the next look asks neither too often nor for too much.
    """

    def __init__(self, cluster: Cluster, options: FetchOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._largest = min(_LARGEST_REQUEST, options.fetch_max_bytes)
        self._request_bytes = min(_FIRST_REQUEST, self._largest)
        self._batch_bytes: dict[TopicPartition, int] = {}

    def offsets_after(
        self, ranges: Mapping[TopicPartition, OffsetRange], max_bytes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """An end within each of ``ranges``; exact for few bytes. Partitions that are gone are left out.

        :raises KafkaLogError: if nothing comes for kafkaConsumer.pollTimeoutMs.
        """
        searches = {
            partition: _Search(offsets, max_bytes[partition], self._batch_bytes.get(partition))
            for partition, offsets in ranges.items()
        }
        ends: dict[TopicPartition, int] = {}
        patience = self._new_patience()
        while searches:
            has_progressed = False
            firsts: set[TopicPartition] = set()
            answers = self._ask(searches, firsts)
            out_of_range = [p for p, answer in answers.items() if answer is Nothing.OUT_OF_RANGE]
            answers |= self._move_to_start({p: searches[p] for p in out_of_range})
            for partition in list(searches):
                if partition not in answers:
                    del searches[partition]
                    continue
                search, answer = searches[partition], answers[partition]
                if answer is Nothing.NOT_ASKED:
                    continue
                if search.take(answer, is_first=partition in firsts):
                    has_progressed = True
                if search.is_done:
                    ends[partition] = searches.pop(partition).found
                    self._batch_bytes[partition] = search.least
            if has_progressed:
                patience = self._new_patience()
            elif searches:
                patience.pause(self._timed_out(min(searches)))
        return ends

    def _ask(
        self, searches: Mapping[TopicPartition, _Search], firsts: set[TopicPartition]
    ) -> dict[TopicPartition, _Answer]:
        """A sample of each partition that fits into one request to its leader; see which is first in one."""

        def make_requests(epochs: Mapping[TopicPartition, int]) -> Sequence[Any]:
            wanted = self._wanted(epochs, searches)
            firsts.add(next(iter(wanted)))
            positions = {partition: searches[partition].position for partition in wanted}
            return [batches_request(wanted, positions, epochs, max_wait_ms=self._options.fetch_max_wait_ms)]

        began = time.monotonic()
        found: dict[TopicPartition, _Answer] = call_leaders(
            self._cluster,
            searches,
            make_requests,
            lambda responses: read_batches(responses[0]),
            doing=_DOING,
            min_version=MIN_VERSION,
            max_version=FIRST_WITH_TOPIC_ID - 1,
            default=Nothing.NOT_ASKED,
        )
        self._fit_to_link(time.monotonic() - began)
        return found

    def _wanted(
        self, partitions: Mapping[TopicPartition, int], searches: Mapping[TopicPartition, _Search]
    ) -> dict[TopicPartition, int]:
        """The bytes to ask of the first of the partitions, as many as fit into one request."""
        share = max(self._request_bytes // len(partitions), _LEAST_SAMPLE)
        wanted: dict[TopicPartition, int] = {}
        left = self._request_bytes
        for partition in partitions:
            size = min(searches[partition].wanted(share), self._request_bytes)
            if wanted and size > left:
                break
            wanted[partition] = size
            left -= size
        return wanted

    def _fit_to_link(self, seconds: float) -> None:
        """Ask for less at once if answers are slow or beyond a quota, and for more if they are quick."""
        share = seconds / (self._cluster.options.request_timeout_ms / 1000)
        if share > 1 / 2:
            self._request_bytes = max(self._request_bytes // _FACTOR, min(_LEAST_SAMPLE, self._largest))
        elif share < 1 / 8:
            self._request_bytes = min(self._request_bytes * _FACTOR, self._largest)

    def _move_to_start(self, searches: Mapping[TopicPartition, _Search]) -> dict[TopicPartition, _Answer]:
        """Go on where the logs begin now; the answers for those that don't begin later."""
        if not searches:
            return {}
        bounds = call_leaders(
            self._cluster,
            searches,
            list_offsets.bounds_requests,
            list_offsets.read_bounds,
            doing=_DOING,
            min_version=list_offsets.MIN_VERSION,
            max_version=list_offsets.MAX_VERSION,
        )
        answers: dict[TopicPartition, _Answer] = {}
        for partition, search in searches.items():
            start = bounds[partition].log_start_offset if partition in bounds else 0
            if search.position < start < search.end:
                search.begin_at(start)
                answers[partition] = Nothing.NOT_ASKED
            else:
                answers[partition] = Nothing.UNREADABLE
        return answers

    def _new_patience(self) -> Backoff:
        return self._cluster.new_backoff(Deadline.after_ms(self._options.poll_timeout_ms))

    def _timed_out(self, partition: TopicPartition) -> KafkaLogError:
        return KafkaLogError(
            "No record batches came within kafkaConsumer.pollTimeoutMs ="
            f" {self._options.poll_timeout_ms}, to see how far maxBytesPerTrigger reaches",
            topic_partition=partition,
            hint="Check that the partition's leader is up and reachable, and its quotas.",
        )


class _Search:
    """The end of a range. Each sample stands for an equal share of the bytes that earlier ones have left."""

    def __init__(self, offsets: OffsetRange, max_bytes: int, least: int | None) -> None:
        self.position, self.end = offsets
        self.is_done = False
        self.least = least or _LEAST_SAMPLE
        """The fewest bytes to ask for: the size of the largest batch so far, or more while none comes."""
        self._start = self.position
        self._bytes_left = max_bytes
        self._samples_left = _SAMPLES
        self._empty = 0

    @property
    def found(self) -> int:
        """The end, once it is done."""
        return min(max(self.position, self._start + 1), self.end)

    def wanted(self, share: int) -> int:
        """The bytes to ask for, where the partition's share of a request is ``share``."""
        return max(min(self._bytes_left, _SAMPLE_BYTES, share), self.least)

    def begin_at(self, start: int) -> None:
        """The log begins there, after the start of the range."""
        self.position = self._start = start

    def take(self, answer: _Answer, *, is_first: bool) -> bool:
        """Move the position, or ask for more the next time; whether one of these was possible.

        :param is_first: whether a batch would have come whole, however large.
        """
        if isinstance(answer, Nothing) or (not len(answer) and answer.status is WalkStatus.INVALID):
            self._finish()
            return True
        if not len(answer):
            self.least = min(2 * self.least, _LARGEST_REQUEST)
            self._empty += is_first
            if self._empty == _MIN_EMPTY:
                self._finish()
            return not is_first
        self.least, self._empty = int(answer.size.max()), 0
        taken = np.cumsum(answer.size)
        fitting = int(np.searchsorted(taken, self._bytes_left, side="right"))
        if fitting < len(answer):
            if self.position == self._start:
                fitting = max(fitting, 1)
            if fitting:
                self.position = int(answer.last_offset[fitting - 1]) + 1
            self.is_done = True
            return True
        next_offset = int(answer.last_offset[-1]) + 1
        size = int(taken[-1])
        bytes_per_offset = size / max(next_offset - min(self.position, int(answer.base_offset[0])), 1)
        jump = int((self._bytes_left - size) / self._samples_left / bytes_per_offset)
        self.position = next_offset + jump
        self._bytes_left -= size + int(jump * bytes_per_offset)
        self._samples_left -= 1
        self.is_done = not self._samples_left or self._bytes_left <= 0 or self.position >= self.end
        return True

    def _finish(self) -> None:
        self.position, self.is_done = self.end, True


def batches_request(
    wanted: Mapping[TopicPartition, int],
    positions: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
) -> Any:
    """A request for the batches at ``positions``, of each partition so many bytes as are ``wanted``.

    :param epochs: of the leaders.
    """
    return fetch_request(
        (
            Wanted(partition, "", epochs[partition], positions[partition], size)
            for partition, size in wanted.items()
        ),
        max_bytes=sum(wanted.values()),
        max_wait_ms=max_wait_ms,
    )


def read_batches(response: Any) -> dict[TopicPartition, _Answer | Refused]:
    """The headers of the batches in a response, by partition."""
    if response.error_code:
        raise error_of(response.error_code, _DOING)
    return {
        TopicPartition(topic.topic, answer.partition_index): _answer(answer)
        for topic in response.responses
        for answer in topic.partitions
    }


def _answer(answer: Any) -> _Answer | Refused:
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Nothing.OUT_OF_RANGE
    if answer.error_code == ErrorCode.CORRUPT_MESSAGE:
        return Nothing.UNREADABLE
    return Refused(answer.error_code) if answer.error_code else walk(answer.records or b"")
