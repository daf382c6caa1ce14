"""The record batches of a range of one partition, from a broker (Kafka's Fetcher).

The next fetch is sent before the bytes of the last one are handed out, so that the
broker works while they are decoded. The headers of record batches are enough to
tell where it begins. Only one partition is fetched at a time, for which a fetch
session (KIP-227) would save nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.leaders import call_leaders
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.fetch.first import FirstFetch
from pyspark_kafkalog.broker.fetch.link import (
    MAX_FETCH_BYTES,
    FetchLink,
    FetchParams,
    LogWentBack,
    PartitionGone,
    RetryFetch,
)
from pyspark_kafkalog.broker.fetch.protocol import Fetched, FetchedPartition
from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, is_retriable, wants_refresh
from pyspark_kafkalog.codec.walk import Batches, WalkStatus, find_batch, walk
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    CorruptRecordError,
    DataLossError,
    KafkaLogError,
    UnconfirmedError,
)
from pyspark_kafkalog.model import TO_NEXT_BATCH, Fetch, OffsetRange, Origin, Slice, lost, went_back
from pyspark_kafkalog.model.topics import cleanup_policies
from pyspark_kafkalog.options.brokers import FetchOptions

_SLACK = 64 << 10
"""Bytes to request beyond what the rest of a range is likely to take."""
_MIN_EMPTY = 3
"""The least number of responses without records that proves a range empty."""
_SILENCE = (
    "The broker may be throttling. If compaction removed the records, the next one that is written to the"
    " partition ends the wait."
)
_ORIGIN = Origin()


class Fetcher:
    """Gets what is ``wanted`` of one partition: what was read so far, and how long to keep retrying.

    :param first: the first response, if it has been fetched already.
    """

    def __init__(
        self, cluster: Cluster, options: FetchOptions, wanted: Fetch, first: FirstFetch | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._partition = wanted.partition
        self._position, self._end = wanted.offsets
        self._link = FetchLink(cluster, options, wanted, first.broker if first else None)
        self._first = None if first is None else (first.frame, first.fetched)
        """The first response, fetched already or by :meth:`_confirm`."""
        self._smallest = 0
        """Bytes to request at least, after a batch did not fit."""
        self._empty = 0
        self._stride = 1
        self._patience = self._new_patience()

    def slices(self) -> Iterator[Slice]:
        """The record batches: one slice for each response, or several if it is corrupt in between.

        :raises UnconfirmedError: if the first response does not confirm what was planned; it does not wait
            for that.
        :raises DataLossError: if offsets of the range, or the topic, are gone.
        :raises KafkaLogError: if nothing comes for kafkaConsumer.pollTimeoutMs.
        """
        try:
            if self._wanted.confirm:
                self._confirm()
            while self._position < self._end:
                fetched = self._records()
                if fetched is not None:
                    yield from self._valid_slices(*fetched)
                    self._patience = self._new_patience()
        finally:
            self._link.release()

    def _confirm(self) -> None:
        """Fetch for the first time, and check that the log is as planned.

        The request names the topic id (since Kafka 3.1), so the response comes from the leader of this topic
        in the newest known epoch. Its high watermark must not be below the end of the range.
        """
        error: Exception | None = None
        try:
            if self._first or self._link.connect():
                self._first = _, fetched = self._first or self._link.receive(self._next_params())
                found = None if fetched.error_code else fetched.partition
                if found is not None and not found.error_code and found.high_watermark >= self._end:
                    return
        except (RetryFetch, PartitionGone, LogWentBack, BrokerConnectionError) as e:
            error = e
        raise UnconfirmedError(
            "The leader does not confirm that its log is as planned",
            topic_partition=self._partition,
            offset=self._position,
            broker=self._link.broker,
        ) from error

    def _records(self) -> tuple[pa.Buffer, FetchedPartition] | None:
        """The next response with records; None if the rest of the range proves empty."""
        while self._position < self._end:
            try:
                frame, fetched = self._first or self._link.receive(self._next_params())
                self._first = None
                found = self._with_records(fetched)
            except RetryFetch as e:
                self._pause(e.error, refresh=e.refresh, has_paused=e.has_paused)
            except BrokerConnectionError as e:
                self._pause(e)
            except PartitionGone as e:
                raise self._lost(str(e)) from None
            except LogWentBack as e:
                broker = self._link.broker
                raise went_back(self._partition, self._position, *e.args, broker=broker) from None
            else:
                if found is not None:
                    return frame.slice(found.position, found.size), found
        return None

    def _next_params(self) -> FetchParams:
        """Parameters to fetch the rest of the range, judging by what its offsets took so far."""
        if self._position >= self._end:  # only to confirm the topic
            return FetchParams(self._position, 1, max_wait_ms=0)
        max_bytes = self._link.max_bytes
        mean = self._cluster.bytes_per_offset.get(self._partition)
        if mean is not None:
            max_bytes = min(max_bytes, math.ceil((self._end - self._position) * mean * 1.1) + _SLACK)
        max_bytes = max(max_bytes, self._smallest)
        return FetchParams(self._position, max_bytes, self._options.fetch_max_wait_ms)

    # What a response says

    def _with_records(self, fetched: Fetched) -> FetchedPartition | None:
        """The partition if it has records to read; if not, decides what happens next."""
        found = fetched.partition
        if fetched.error_code:
            raise RetryFetch(self._link.error(fetched.error_code), refresh=False)
        if found is None:
            raise self._throttled(fetched)
        if found.error_code:
            self._handle_error(found.error_code)
            return None
        is_redirected = found.preferred_read_replica >= 0
        if is_redirected:
            self._link.go_to_replica(found.preferred_read_replica)
        if found.size:
            self._empty = 0
            return found
        if not is_redirected:
            if fetched.throttle_time_ms:  # Azure Event Hubs throttles so
                raise self._throttled(fetched)
            is_stable = self._wanted.read_committed
            self._check_empty(found.last_stable_offset if is_stable else found.high_watermark)
        return None

    def _throttled(self, fetched: Fetched) -> RetryFetch:
        error = self._error("The broker throttles this client and returned no records")
        hint = "Raise the client's quota (consumer_byte_rate), or kafkaConsumer.pollTimeoutMs."
        return RetryFetch(error.with_hint(hint), refresh=False, has_paused=fetched.throttle_time_ms > 0)

    def _check_empty(self, end: int) -> None:
        """Count a response without records, although the broker could have sent any below ``end``."""
        self._empty += 1
        if end < self._end or self._empty < _MIN_EMPTY or self._empty < self._empty_until_gap():
            error = self._error(f"The log has no records there and ends at offset {end}")
            if not self._link.says_when_it_throttles:
                error = error.with_hint(_SILENCE)
            raise RetryFetch(error, refresh=False)
        self._position = self._end

    def _empty_until_gap(self) -> float:
        """The number of responses without records, from below the end of the log, that proves a gap.

        Only compaction leaves such a gap, where the last records of a segment were
        overwritten. But a fetch from tiered storage that took too long looks the same, and so may
        a throttled one of a broker that does not say so.
        """
        if not self._link.says_when_it_throttles:
            return math.inf
        configs = self._cluster.topic_config(self._partition.topic)
        if configs is None:
            return 3 * _MIN_EMPTY
        is_tiered = configs.get("remote.storage.enable") == "true"
        is_compacted = "compact" in cleanup_policies(configs)
        return _MIN_EMPTY if is_compacted and not is_tiered else math.inf

    def _handle_error(self, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._link.go_to_leader():  # a replica may lag behind
                raise RetryFetch(self._error("The replica does not have the offset"), refresh=False)
            raise self._out_of_range()
        if code == ErrorCode.CORRUPT_MESSAGE:
            self._step_over(self._corrupt_record("The broker reports corrupt records"))
        elif is_retriable(code):
            raise RetryFetch(self._link.error(code), refresh=wants_refresh(code))
        else:
            raise self._link.error(code)

    def _out_of_range(self) -> Exception:
        """The error to raise: only the leader in the newest known epoch can prove loss, by its bounds."""
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
        if self._position > end:  # it existed when the read was planned
            return RetryFetch(self._lost(f"the log ends at offset {end}"))
        return RetryFetch(self._error(f"The broker refused the offset, but the log has {start} to {end - 1}"))

    # The records of a response

    def _valid_slices(self, records: pa.Buffer, found: FetchedPartition) -> Iterator[Slice]:
        begin: int | None = 0
        while begin is not None and self._position < self._end:
            batches = walk(records, begin)
            is_corrupt = batches.status is WalkStatus.INVALID
            if not len(batches) and not is_corrupt:
                if begin == 0:
                    self._widen(batches.needed or 2 * len(records))
                return
            piece = self._advance(batches, records)
            begin = find_batch(records, batches.end + 1, min_offset=self._position) if is_corrupt else None
            if not is_corrupt and self._position < self._end:
                self._link.prefetch(self._next_params())
            if piece is not None:
                yield Slice(*piece, _ORIGIN, found.aborted)
            if is_corrupt and self._position < self._end:
                error = self._corrupt_record("No record batch can be read here", batches.end)
                if begin is None:
                    self._step_over(error)
                else:
                    self._report(error)

    def _advance(self, batches: Batches, records: pa.Buffer) -> tuple[pa.Buffer, np.ndarray] | None:
        """Move the position past the batches; return the bytes and headers of those that the range needs."""
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
        """Ask for more bytes: a first batch did not fit, as may happen with brokers that convert records."""
        if needed <= self._smallest:
            raise self._corrupt_record(f"Only part of a record batch of {needed} bytes arrived")
        self._smallest = min(needed, MAX_FETCH_BYTES)

    def _step_over(self, error: CorruptRecordError) -> None:
        """Try ever farther offsets: the broker finds its place in the log by its index."""
        if self._stride == 1:
            self._report(error)
        self._position = min(self._position + self._stride, self._end)
        self._stride *= 2

    def _report(self, error: CorruptRecordError) -> None:
        if self._wanted.on_corrupt is None:
            raise error
        self._wanted.on_corrupt(error)

    # Errors

    def _new_patience(self) -> Backoff:
        return self._cluster.new_backoff(Deadline.after_ms(self._options.poll_timeout_ms))

    def _pause(self, error: KafkaLogError, *, refresh: bool = True, has_paused: bool = False) -> None:
        if refresh:
            self._link.go_to_leader()
            self._cluster.forget([self._partition.topic])
        if isinstance(error, DataLossError):  # nothing contradicted it in all this time
            self._patience.pause(error)
            return
        timed_out = KafkaLogError(
            f"No records came within kafkaConsumer.pollTimeoutMs = {self._options.poll_timeout_ms}."
            f" Last error: {error.message}",
            topic_partition=self._partition,
            offset=self._position,
            broker=error.broker,
            hint=error.hint or "Check that the partition's leader is up and reachable.",
        )
        timed_out.__cause__ = error
        self._patience.pause(timed_out, grow=not has_paused)

    def _error(self, message: str) -> KafkaLogError:
        return KafkaLogError(message, topic_partition=self._partition, broker=self._link.broker)

    def _corrupt_record(self, message: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(
            message,
            topic_partition=self._partition,
            offset=self._position,
            position=position,
            broker=self._link.broker,
            hint=TO_NEXT_BATCH if self._wanted.on_corrupt is None else None,
        )

    def _lost(self, why: str, *, next_offset: int | None = None) -> DataLossError:
        gone = OffsetRange(self._position, min(next_offset or self._end, self._end))
        return lost(self._partition, gone, why, next_offset=next_offset, broker=self._link.broker)
