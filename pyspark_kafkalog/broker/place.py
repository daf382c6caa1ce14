"""A live cluster as a place to read from: see :class:`pyspark_kafkalog.model.Place`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster, cluster_of
from pyspark_kafkalog.broker.cluster.leaders import call_leaders, read_sizes, sizes_request
from pyspark_kafkalog.broker.cluster.metadata import Leader
from pyspark_kafkalog.broker.fetch import epochs as leader_epochs
from pyspark_kafkalog.broker.fetch import list_offsets
from pyspark_kafkalog.broker.fetch.list_offsets import EndOffsets
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import Refused, error_of
from pyspark_kafkalog.broker.wire.sockets import BrokenHandshakeError, NeverReachedError
from pyspark_kafkalog.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerConnectionError,
    BrokerError,
    DataLossError,
    KafkaLogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    no_such_partition,
)
from pyspark_kafkalog.model import (
    BatchHeader,
    Fetch,
    OffsetRange,
    Seen,
    Slice,
    StoredSize,
    TopicPartition,
    Watermarks,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions, FetchOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.fetch.batches_at import BatchLooks
    from pyspark_kafkalog.broker.fetch.first import FirstFetch
    from pyspark_kafkalog.broker.fetch.sampling import ByteReach

Answer = TypeVar("Answer")
_LOOKING_UP = "Looking up offsets"


class _Proof(NamedTuple):
    """The proof that the log of a partition ends before an end that a plan has seen."""

    leader: Leader
    since: float
    nodes: frozenset[int]
    """The brokers that say that this is the leader."""
    needed: int = 1
    """The least number of brokers that have to say it: one that is cut off lists itself only."""


class Brokers:
    """A cluster, over this thread's connections to it.

    The number of requests grows with the brokers, not with the partitions.
    Lookups are tried fetchOffset.numRetries times, fetchOffset.retryIntervalMs apart.
    """

    def __init__(
        self, connection: ConnectionOptions, fetch: FetchOptions, *, forgetful: bool = False
    ) -> None:
        self._cluster: Cluster = cluster_of(connection)
        if forgetful:
            self._cluster.start_over()
        self._options = fetch
        self._expected: dict[TopicPartition, Seen] = {}
        """The ends of logs that plans have seen, until a leader confirms them."""
        self._first_fetches: dict[Fetch, FirstFetch] = {}
        """The answers that :meth:`prefetch` got for :meth:`fetch`."""
        self._end_offsets = EndOffsets(self._cluster)
        self._agreement = max(connection.request_timeout_ms, fetch.poll_timeout_ms / fetch.num_retries) / 1000
        """Seconds for brokers to agree on a topic, in each attempt."""

    def topics(self, names: Collection[str] | None = None) -> Mapping[str, tuple[int, ...]]:
        """Every topic, internal ones too, with its partition numbers in order; or those of ``names``.

        Looked up each time.

        :raises AuthorizationError: if ACLs hide one of ``names``.
        """
        return self._with_retries(lambda: self._cluster.topics(names, agreement=self._agreement))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """See :meth:`pyspark_kafkalog.model.Place.topic_ids`; looked up each time."""
        return self._with_retries(lambda: self._cluster.topic_ids(topics, agreement=self._agreement))

    def watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Watermarks]:
        """Bounds of those partitions that exist. See :meth:`pyspark_kafkalog.model.Place.watermarks`.

        If a log ends before the end that a plan has seen, see :meth:`expect`, other brokers are asked
        for its leader, and that leader is asked again, for kafkaConsumer.pollTimeoutMs, or until it is
        certain that the leader lacks the records. If its topic proves to have been recreated, the partition
        does not exist.
        """
        make_requests = partial(list_offsets.bounds_requests, read_committed=read_committed)
        bounds: dict[TopicPartition, Watermarks] = {}
        backoff = self._cluster.new_backoff(Deadline.after_ms(self._options.poll_timeout_ms))
        short = set(partitions)
        proofs: dict[TopicPartition, _Proof] = {}
        while True:
            bounds.update(self._list_offsets(short, make_requests, list_offsets.read_bounds))
            short = {
                partition
                for partition in short & bounds.keys() & self._expected.keys()
                if bounds[partition].high_watermark < self._expected[partition].end
            }
            for partition in [p for p in short if self._is_recreated(p)]:
                short.remove(partition)
                del bounds[partition]
            short -= {partition for partition in short if self._is_certain(proofs.get(partition))}
            for partition in set(partitions) - short if self._expected else ():
                self._expected.pop(partition, None)
            if not short:
                return bounds
            first = min(short)
            try:
                backoff.pause(
                    DataLossError(
                        f"The log ends at offset {bounds[first].high_watermark}, but ended at"
                        f" {self._expected[first].end} when the read was planned",
                        topic_partition=first,
                    )
                )
            except DataLossError:  # nothing contradicted it in all this time
                for partition in short:
                    del self._expected[partition]
                return bounds
            leaders = {leader.node_id for p in short if (leader := self._cluster.metadata.leader(p))}
            self._cluster.refresh({p.topic for p in short}, avoid=leaders)
            self._prove(short, proofs)

    def _prove(self, short: Collection[TopicPartition], proofs: dict[TopicPartition, _Proof]) -> None:
        """Note who says, after a look at metadata, which leader has lost the records that a plan has seen.

        The high watermark proves nothing: that of a new leader rises only when followers report. But what
        is not in its log, it will never have.
        """
        epochs = self.leader_epochs(short)
        for partition, (_, log_end) in (self.epoch_ends(epochs) if epochs else {}).items():
            leader = self._cluster.metadata.leader(partition)
            proof = proofs.get(partition)
            needed = 1 if proof is None else proof.needed
            if leader is None or not 0 <= log_end < self._expected[partition].end:
                proofs.pop(partition, None)
                continue
            if proof is None or proof.leader != leader:
                proof = _Proof(leader, time.monotonic(), frozenset({leader.node_id}))
            others = self._cluster.metadata.contradicting_brokers({partition.topic})
            node = self._cluster.answered_by
            if node is not None and node not in others:
                proof = proof._replace(nodes=proof.nodes | {node})
            needed = max(needed, self._cluster.metadata.needed(time.monotonic()))
            proof = proof._replace(needed=needed)
            proofs[partition] = proof

    def _is_certain(self, proof: _Proof | None) -> bool:
        """Whether the brokers have agreed for long enough, two of them if there are two."""
        return (
            proof is not None
            and len(proof.nodes) >= proof.needed
            and time.monotonic() - proof.since >= metadata.PROVEN_AFTER
        )

    def try_watermarks(
        self, partitions: Collection[TopicPartition], *, read_committed: bool = False
    ) -> tuple[dict[TopicPartition, Watermarks], dict[TopicPartition, KafkaLogError]]:
        """See :meth:`pyspark_kafkalog.model.Place.try_watermarks`: for request.timeout.ms.

        A broker that is silent takes none of the others' time.
        """
        asked, failures = self._existing(partitions)
        bounds: dict[TopicPartition, Watermarks] = {}
        deadline = None
        while asked:
            missing: dict[TopicPartition, KafkaLogError] = {}
            bounds |= call_leaders(
                self._cluster,
                asked,
                partial(list_offsets.bounds_requests, read_committed=read_committed),
                list_offsets.read_bounds,
                doing=_LOOKING_UP,
                min_version=list_offsets.MIN_VERSION,
                max_version=list_offsets.MAX_VERSION,
                failures=missing,
                deadline=deadline,
                separately=True,
            )
            failures |= missing
            silent = {p for p, error in missing.items() if isinstance(error, BrokerConnectionError)}
            # The time that a silent broker has taken was that of the others' retries: they get one more.
            asked = [p for p in missing if p not in silent] if silent and deadline is None else []
            failures = {p: error for p, error in failures.items() if p not in asked}
            deadline = Deadline.after(0)
        return bounds, failures

    def _existing(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaLogError]]:
        """The partitions that exist, and the error of each whose topic can't be described."""
        names = {partition.topic for partition in partitions}
        known = self._with_retries(lambda: self._cluster.described(names, agreement=self._agreement))
        failures: dict[TopicPartition, KafkaLogError] = {
            p: error_of(known[p.topic].error_code, _LOOKING_UP, topic_partition=p)
            for p in partitions
            if p.topic in known and known[p.topic].error_code and not known[p.topic].leaders
        }
        found = [p for p in partitions if p.topic in known and p.partition in known[p.topic].leaders]
        return found, failures

    def end_offsets(
        self, partitions: Collection[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.end_offsets`; the same object while no records come."""
        if self._expected:  # a plan has seen more than a leader has confirmed
            bounds = self.watermarks(partitions, read_committed=read_committed)
            return {p: bounds[p].end(read_committed=read_committed) for p in sorted(bounds)}
        return self._with_retries(
            lambda: self._end_offsets.look_up(partitions, read_committed=read_committed)
        )

    def leader_epochs(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.leader_epochs`; no broker is asked."""
        leaders = {partition: self._cluster.metadata.leader(partition) for partition in partitions}
        return {p: leader.epoch for p, leader in leaders.items() if leader is not None and leader.epoch >= 0}

    def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.leaders`."""
        found = ((partition, self._cluster.metadata.leader(partition)) for partition in partitions)
        return {p: leader.node_id for p, leader in found if leader is not None and leader.node_id >= 0}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """The largest epoch in the log of each partition's leader that is not above the given one, and the
        offset after its last record; both -1 if there is none. Empty before Kafka 2.3.
        """
        return self._with_retries(lambda: leader_epochs.epoch_ends(self._cluster, epochs))

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, BatchHeader]:
        """See :meth:`pyspark_kafkalog.model.Place.batches_at`: one round of fetches, of a few KiB each."""
        return self._batch_looks.batches_at(offsets) if offsets else {}

    @cached_property
    def _batch_looks(self) -> BatchLooks:
        from pyspark_kafkalog.broker.fetch.batches_at import BatchLooks

        return BatchLooks(self._cluster)

    def expect(self, partition: TopicPartition, seen: Seen) -> None:
        """See :meth:`pyspark_kafkalog.model.Place.expect`."""
        self._cluster.metadata.expect(partition, seen.topic_id, seen.leader_epoch)
        if seen.end:
            self._expected[partition] = seen
        else:
            self._expected.pop(partition, None)

    def _is_recreated(self, partition: TopicPartition) -> bool:
        """Whether the topic that a plan has seen is known to have been recreated."""
        topic_id = self._expected[partition].topic_id
        return self._cluster.metadata.is_recreated(partition.topic, topic_id)

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The offset of the first record with timestamp >= the given ms, or None.

        :raises UnknownTopicOrPartitionError: if a partition does not exist.
        """
        make_requests = partial(list_offsets.times_requests, times=times)
        found = self._list_offsets(times, make_requests, list_offsets.read_offsets)
        for partition in times:
            if partition not in found:
                raise no_such_partition([partition])
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def newest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.newest_timestamps`; empty before Kafka 3.4."""
        try:
            found = self._list_offsets(
                partitions,
                list_offsets.newest_requests,
                list_offsets.read_newest,
                list_offsets.FIRST_WITH_NEWEST,
                failures={},
            )
        except UnsupportedVersionError:
            return {}
        return {partition: newest for partition, newest in found.items() if newest is not None}

    def oldest_timestamps(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.oldest_timestamps`."""
        make_requests = partial(list_offsets.times_requests, times=dict.fromkeys(partitions, 0))
        return self._list_offsets(partitions, make_requests, list_offsets.read_timestamps, failures={})

    def stored_sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredSize]:
        """See :meth:`pyspark_kafkalog.model.Place.stored_sizes`: the sizes on the leaders.

        Brokers give sizes only to users who may describe the cluster, and never the number of segments.
        """
        try:
            sizes = call_leaders(
                self._cluster,
                partitions,
                lambda epochs: [sizes_request(epochs)],
                lambda responses: read_sizes(responses[0]),
                doing="Looking up sizes",
                default=-1,
                failures={},
            )
        except (AuthorizationError, UnsupportedVersionError):
            return {}
        return {partition: StoredSize(size) for partition, size in sizes.items() if size >= 0}

    def mean_record_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """See :meth:`pyspark_kafkalog.model.Place.mean_record_bytes`: of the last fetch of a partition, else
        over all of it, with sizes as in :meth:`stored_sizes`.
        """
        fetched = self._cluster.bytes_per_offset
        known = {partition: fetched[partition] for partition in partitions if partition in fetched}
        return known | self._mean_stored_bytes([p for p in partitions if p not in known])

    def _mean_stored_bytes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        sizes = {p: stored.stored_bytes for p, stored in self.stored_sizes(partitions).items()}
        bounds = self.watermarks([p for p, size in sizes.items() if size > 0], read_committed=False)
        counts = {p: bound.high_watermark - bound.log_start_offset for p, bound in bounds.items()}
        return {p: sizes[p] / count for p, count in counts.items() if count > 0}

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """See :meth:`pyspark_kafkalog.model.Place.topic_config`; empty if ACLs hide it."""
        return self._cluster.topic_config(topic) or {}

    def topic_overrides(self, topic: str) -> Mapping[str, str] | None:
        """The configs that were set for this topic alone; None if ACLs hide them, or it is too new."""
        return self._cluster.topic_config(topic, overrides_only=True)

    def cluster_id(self) -> str | None:
        """The cluster's id; None before Kafka 0.10.1."""
        deadline = Deadline.after_ms(self._cluster.options.request_timeout_ms)
        return self._cluster.identity((), deadline=deadline).cluster_id

    def prefetch(self, wanted: Collection[Fetch], *, max_bytes: int) -> None:
        """See :meth:`pyspark_kafkalog.model.Place.prefetch`: one request to each leader.

        ``max_bytes`` bounds what one of them sends; its first record batch comes whole, however large.
        """
        from pyspark_kafkalog.broker.fetch.first import fetch_first

        self._first_fetches = fetch_first(self._cluster, self._options, wanted, max_bytes=max_bytes)

    def fetch(self, wanted: Fetch) -> Iterator[Slice]:
        """See :meth:`pyspark_kafkalog.model.Place.fetch`, and :class:`.fetcher.Fetcher`.

        A slice has at most max.partition.fetch.bytes, or one larger batch.
        """
        # Planning needs neither the decoder nor pyarrow.
        from pyspark_kafkalog.broker.fetch.fetcher import Fetcher

        return Fetcher(self._cluster, self._options, wanted, self._first_fetches.pop(wanted, None)).slices()

    def offsets_after_bytes(
        self, ranges: Mapping[TopicPartition, OffsetRange], max_bytes: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """See :meth:`pyspark_kafkalog.model.Place.offsets_after_bytes`: estimates from a few samples."""
        return self._with_retries(lambda: self._byte_reach.offsets_after(ranges, max_bytes))

    @cached_property
    def _byte_reach(self) -> ByteReach:
        from pyspark_kafkalog.broker.fetch.sampling import ByteReach

        return ByteReach(self._cluster, self._options)

    def _list_offsets(
        self,
        partitions: Collection[TopicPartition],
        make_requests: Callable[[Mapping[TopicPartition, int]], Sequence[Any]],
        read: Callable[[Sequence[Any]], Mapping[TopicPartition, Answer | Refused]],
        min_version: int = list_offsets.MIN_VERSION,
        failures: dict[TopicPartition, KafkaLogError] | None = None,
    ) -> dict[TopicPartition, Answer]:
        return self._with_retries(
            lambda: call_leaders(
                self._cluster,
                partitions,
                make_requests,
                read,
                doing=_LOOKING_UP,
                min_version=min_version,
                max_version=list_offsets.MAX_VERSION,
                failures=failures,
            )
        )

    def _with_retries(self, call: Callable[[], Answer]) -> Answer:
        pause = self._options.retry_interval_ms / 1000
        one = self._cluster.options.request_timeout_ms / 1000 + pause
        with self._cluster.repeating((self._options.num_retries - 1) * one) as repeated:
            for _ in range(self._options.num_retries - 1):
                try:
                    return call()
                except (AuthenticationError, AuthorizationError, UnsupportedVersionError):
                    raise
                except (BrokerError, UnknownTopicOrPartitionError) as e:
                    # Before any broker has answered, a wrong option is likelier than a failure.
                    if isinstance(e, NeverReachedError) or (
                        isinstance(e, BrokenHandshakeError) and not self._cluster.metadata.brokers
                    ):
                        raise
                    time.sleep(pause)
                    repeated.more -= one
            return call()
