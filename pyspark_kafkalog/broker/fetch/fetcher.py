"""The record batches of a range of one partition, from a broker (Kafka's Fetcher).

The next fetch is on its way before the bytes of the last one are handed out, so
that the broker works while they are decoded. Where it begins is known from the
headers of record batches alone. Only one partition is fetched at a time, for
which a fetch session (KIP-227) would save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import call_leaders
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.fetch.link import LARGEST_FETCH, AskAgain, FetchLink, PartitionGone, Wanted
from pyspark_kafkalog.broker.fetch.response import Fetched, FetchedPartition
from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.error_codes import (
    CORRUPT_MESSAGE,
    OFFSET_OUT_OF_RANGE,
    is_retriable,
    wants_refresh,
)
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, find_batch, walk
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    CorruptRecordError,
    DataLossError,
    KafkaLogError,
    UnconfirmedError,
)
from pyspark_kafkalog.model import OffsetRange, OnCorrupt, Origin, Slice, TopicPartition
from pyspark_kafkalog.options.brokers import FetchOptions

_SLACK = 64 << 10
"""Bytes to ask for beyond what the rest of a range is likely to take."""
_EMPTY_LOOKS = 3
"""How often nothing must come, at least, for a range to be held for empty."""
_ORIGIN = Origin()


def fetch(
    cluster: Cluster,
    options: FetchOptions,
    partition: TopicPartition,
    offsets: OffsetRange,
    *,
    read_committed: bool,
    on_corrupt: OnCorrupt | None = None,
    topic_id: str = "",
    confirm: bool = False,
) -> Iterator[Slice]:
    """Record batches that cover ``offsets``. See :meth:`pyspark_kafkalog.model.Place.fetch`.

    The first answer can ``confirm`` that all is as planned: it is asked for by ``topic_id`` (since
    Kafka 3.1), comes from the leader in the newest epoch that is known, and has a high watermark that is not
    below the end of ``offsets``.

    :raises UnconfirmedError: if it does not. Nothing is waited for, then.
    :raises DataLossError: if offsets of the range, or the topic, are gone.
    :raises KafkaLogError: if nothing comes for kafkaConsumer.pollTimeoutMs.
    """
    fetching = _Fetching(cluster, options, partition, offsets, read_committed, on_corrupt, topic_id)
    try:
        if confirm:
            fetching.confirm()
        yield from fetching.slices()
    finally:
        fetching.release()


def headers_at(
    cluster: Cluster,
    options: FetchOptions,
    partition: TopicPartition,
    offsets: OffsetRange,
    max_bytes: int,
) -> Batches | None:
    """The headers of the first record batches of ``offsets``; None if there are none.

    They take ``max_bytes`` at most, or it is one batch.
    """
    sample = replace(options, max_partition_fetch_bytes=max_bytes)
    fetching = _Fetching(cluster, sample, partition, offsets, False, None)
    try:
        fetched = fetching.records()
        return None if fetched is None else walk(fetched[0])
    finally:
        fetching.release()


class _Fetching:
    """The state of one call of :func:`fetch`: what was read, and how much patience is left."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        partition: TopicPartition,
        offsets: OffsetRange,
        read_committed: bool,
        on_corrupt: OnCorrupt | None,
        topic_id: str = "",
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._partition = partition
        self._position, self._end = offsets
        self._read_committed = read_committed
        self._on_corrupt = on_corrupt
        self._link = FetchLink(cluster, options, partition, topic_id)
        self._first: tuple[pa.Buffer, Fetched] | None = None
        """The answer that :meth:`confirm` got."""
        self._smallest = 0
        """Bytes to ask for at least, once a batch did not fit."""
        self._empty = 0
        self._stride = 1
        self._patience = self._new_patience()

    def release(self) -> None:
        """Give back the connection."""
        self._link.release()

    def confirm(self) -> None:
        """Ask for the first time, and see whether all is as planned.

        :raises UnconfirmedError: if the answer does not show it, or there is none.
        """
        trouble: Exception | None = None
        try:
            if self._link.connect():
                self._first = _, fetched = self._link.receive(self._wanted())
                found = None if fetched.error_code else fetched.partition
                if found is not None and not found.error_code and found.high_watermark >= self._end:
                    return
        except (AskAgain, PartitionGone, BrokerConnectionError) as e:
            trouble = e
        raise UnconfirmedError(
            "The leader does not show that its log is as it was planned for",
            topic_partition=self._partition,
            offset=self._position,
            broker=self._link.broker,
        ) from trouble

    def slices(self) -> Iterator[Slice]:
        """The record batches, each response as a slice or, where it is damaged in between, several."""
        while self._position < self._end:
            fetched = self.records()
            if fetched is not None:
                yield from self._sound(*fetched)
                self._patience = self._new_patience()

    def records(self) -> tuple[pa.Buffer, FetchedPartition] | None:
        """The next response with records in it; None if the rest of the range turned out to hold none."""
        while self._position < self._end:
            try:
                frame, fetched = self._first or self._link.receive(self._wanted())
                self._first = None
                found = self._with_records(fetched)
            except AskAgain as e:
                self._pause(e.trouble, refresh=e.refresh)
            except BrokerConnectionError as e:
                self._pause(e)
            except PartitionGone as e:
                raise self._lost(str(e)) from None
            else:
                if found is not None:
                    return frame.slice(found.position, found.size), found
        return None

    def _wanted(self) -> Wanted:
        """Enough for the rest of the range, going by what its offsets took so far."""
        if self._position >= self._end:  # to see the topic alone
            return Wanted(self._position, 1, self._read_committed, max_wait_ms=0)
        max_bytes = self._link.max_bytes
        mean = self._cluster.bytes_per_offset.get(self._partition)
        if mean is not None:
            max_bytes = min(max_bytes, math.ceil((self._end - self._position) * mean * 1.1) + _SLACK)
        max_bytes = max(max_bytes, self._smallest)
        return Wanted(self._position, max_bytes, self._read_committed, self._options.fetch_max_wait_ms)

    # What a response says

    def _with_records(self, fetched: Fetched) -> FetchedPartition | None:
        """The partition, if there is something to read; if not, sees to what is asked next."""
        found = fetched.partition
        if fetched.error_code:
            raise AskAgain(self._link.error(fetched.error_code), refresh=False)
        if found is None:
            raise AskAgain(self._trouble("The broker throttles, and answers nothing"), refresh=False)
        if found.error_code:
            self._refused(found.error_code)
            return None
        is_sent_away = found.preferred_read_replica >= 0
        if is_sent_away:
            self._link.go_to_replica(found.preferred_read_replica)
        if found.size:
            self._empty = 0
            return found
        if not is_sent_away:
            self._nothing(found.last_stable_offset if self._read_committed else found.high_watermark)
        return None

    def _nothing(self, end: int) -> None:
        """No records came, and those below ``end`` could."""
        self._empty += 1
        if end < self._end or self._empty < _EMPTY_LOOKS or self._empty < self._looks_until_empty():
            raise AskAgain(self._trouble(f"It has no records there, and ends at offset {end}"), refresh=False)
        self._position = self._end

    def _looks_until_empty(self) -> float:
        """How often nothing must come from below the end of the log for there to be nothing.

        Compaction leaves such a gap where the last records of a segment were
        overwritten, and nothing else does. But a fetch from tiered storage that
        took too long looks the same.
        """
        configs = self._cluster.topic_config(self._partition.topic)
        if configs is None:
            return 3 * _EMPTY_LOOKS
        is_tiered = configs.get("remote.storage.enable") == "true"
        return _EMPTY_LOOKS if "compact" in configs.get("cleanup.policy", "") and not is_tiered else math.inf

    def _refused(self, code: int) -> None:
        if code == OFFSET_OUT_OF_RANGE:
            if self._link.go_to_leader():  # a replica may lag behind it
                raise AskAgain(self._trouble("The replica does not have the offset"), refresh=False)
            raise self._out_of_range()
        if code == CORRUPT_MESSAGE:
            self._step_over(self._damaged("The broker finds damage there"))
        elif is_retriable(code):
            raise AskAgain(self._link.error(code), refresh=wants_refresh(code))
        else:
            raise self._link.error(code)

    def _out_of_range(self) -> Exception:
        """What to raise: loss is what the leader tells, asked anew in the newest epoch that is known."""
        bounds = call_leaders(
            self._cluster,
            [self._partition],
            list_offsets.bounds_requests,
            list_offsets.read_bounds,
            doing="Looking up offsets",
            min_version=list_offsets.MIN_VERSION,
            max_version=list_offsets.MAX_VERSION,
        ).get(self._partition)
        if bounds is None:
            return self._lost("the partition no longer exists")
        start, end = bounds.log_start_offset, bounds.high_watermark
        if self._position < start:
            return self._lost(f"the log now starts at offset {start}", next_offset=start)
        if self._position > end:  # it was there when the read was planned
            return AskAgain(self._lost(f"the log ends at offset {end}"))
        return AskAgain(self._trouble(f"The offset is refused, and the log has {start} to {end - 1}"))

    # The records of a response

    def _sound(self, records: pa.Buffer, found: FetchedPartition) -> Iterator[Slice]:
        begin: int | None = 0
        while begin is not None and self._position < self._end:
            batches = walk(records, begin)
            is_damaged = batches.status is WalkStatus.INVALID
            if not len(batches) and not is_damaged:
                if begin == 0:
                    self._widen(batches.needed or 2 * len(records))
                return
            piece = self._advance(batches, records)
            begin = find_batch(records, batches.end + 1, min_offset=self._position) if is_damaged else None
            if not is_damaged and self._position < self._end:
                self._link.ask_ahead(self._wanted())
            if piece is not None:
                yield Slice(*piece, _ORIGIN, found.aborted)
            if is_damaged and self._position < self._end:
                damaged = self._damaged("No record batch can be read here", batches.end)
                if begin is None:
                    self._step_over(damaged)
                else:
                    self._tell(damaged)

    def _advance(self, batches: Batches, records: pa.Buffer) -> tuple[pa.Buffer, np.ndarray] | None:
        """Move on behind the batches, and return the bytes and headers of those that the range needs."""
        last_offset = batches.last_offset
        first = int(np.searchsorted(last_offset, self._position))
        last = min(int(np.searchsorted(last_offset, self._end - 1)), len(batches) - 1)
        if first > last:
            return None
        begin = int(batches.position[first])
        size = int(batches.position[last] + batches.size[last]) - begin
        next_offset = int(last_offset[last]) + 1
        self._cluster.bytes_per_offset[self._partition] = size / (next_offset - self._position)
        self._position = next_offset
        self._smallest, self._stride = 0, 1
        return records.slice(begin, size), batches.headers_of(first, last)

    def _widen(self, needed: int) -> None:
        """The first batch did not fit, as may be with brokers that convert what they have for us."""
        if needed <= self._smallest:
            raise self._damaged(f"A record batch of {needed} bytes comes only in part")
        self._smallest = min(needed, LARGEST_FETCH)

    def _step_over(self, damaged: CorruptRecordError) -> None:
        """Try ever farther offsets: the broker finds its place in the log by its index."""
        if self._stride == 1:
            self._tell(damaged)
        self._position = min(self._position + self._stride, self._end)
        self._stride *= 2

    def _tell(self, damaged: CorruptRecordError) -> None:
        if self._on_corrupt is None:
            raise damaged
        self._on_corrupt(damaged)

    # Trouble

    def _new_patience(self) -> Backoff:
        return Backoff(self._cluster.options, self._options.poll_timeout_ms / 1000)

    def _pause(self, trouble: KafkaLogError, *, refresh: bool = True) -> None:
        if refresh:
            self._link.go_to_leader()
            self._cluster.forget([self._partition.topic])
        if isinstance(trouble, DataLossError):  # nothing has contradicted it for so long
            self._patience.pause(trouble)
            return
        given_up = KafkaLogError(
            f"No records came within kafkaConsumer.pollTimeoutMs = {self._options.poll_timeout_ms}."
            f" The last trouble: {trouble.message}",
            topic_partition=self._partition,
            offset=self._position,
            broker=trouble.broker,
            hint=trouble.hint or "See whether the partition's leader is up and reachable.",
        )
        given_up.__cause__ = trouble
        self._patience.pause(given_up)

    def _trouble(self, message: str) -> KafkaLogError:
        return KafkaLogError(message, topic_partition=self._partition, broker=self._link.broker)

    def _damaged(self, message: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(
            message,
            topic_partition=self._partition,
            offset=self._position,
            position=position,
            broker=self._link.broker,
            hint="With failOnDataLoss=false reading goes on at the next valid batch.",
        )

    def _lost(self, why: str, *, next_offset: int | None = None) -> DataLossError:
        last = min(next_offset or self._end, self._end) - 1
        return DataLossError(
            f"Offsets {self._position} to {last} are gone: {why}",
            topic_partition=self._partition,
            offset=self._position,
            next_offset=next_offset,
            broker=self._link.broker,
            hint="With failOnDataLoss=false reading goes on without them.",
        )
