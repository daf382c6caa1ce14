"""The requests of one transactional id to the coordinators of its transactions and of its groups (KIP-98).

Each is repeated while that may help, as Kafka's TransactionManager does: a coordinator that has moved is
looked up again, and one that still ends an earlier transaction is asked again. The versions are those
before KIP-890's second part, so that id and epoch stay the same throughout a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster
from pyspark_kafkalog.broker.cluster.coordinator import call_coordinator
from pyspark_kafkalog.broker.cluster.leaders import by_topic
from pyspark_kafkalog.broker.groups.offset_fetch import (
    BEFORE_TOPIC_IDS,
    offset_fetch_request,
    offsets_by_topic,
    read_offset_fetch,
)
from pyspark_kafkalog.broker.groups.protocol import group_error
from pyspark_kafkalog.broker.produce.ids import KIP_360, ProducerId
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, error_of, is_retriable, name_of
from pyspark_kafkalog.errors import (
    BrokerError,
    KafkaLogError,
    UnsupportedVersionError,
    listed,
)
from pyspark_kafkalog.extensions.exactly_once.commit import (
    EndedTransactionError,
    Outcome,
    PendingOffsetError,
)
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from pyspark_kafkalog.model.groups import OWN_PREFIX

FENCED_HINT = (
    "Another run of this query took over, or the transaction was open for longer than"
    " kafka.transaction.timeout.ms. Nothing of this attempt is visible. Run a query only once at a time."
)
_LAST_OF_CLIENTS = 3
"""The last version of AddPartitionsToTxn for clients; later ones of the others select KIP-890's protocol."""
_FIRST_WITH_STABLE = 7
"""The first version of OffsetFetch that waits for open transactions (KIP-447; Kafka 2.5)."""
_ENDED: Mapping[int, str] = {
    ErrorCode.INVALID_TXN_STATE: "The transaction was ended meanwhile, by a coordinator that was paused or by"
    " an operator. Run the query again.",
    ErrorCode.TRANSACTION_ABORTABLE: "The brokers could not go on with the transaction. Run the query again.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The cluster has forgotten the transactional id"
    " (transactional.id.expiration.ms). Run the query again.",
}
_OUTCOMES = {
    "Ongoing": Outcome.OPEN,
    "PrepareCommit": Outcome.ENDING,
    "PrepareAbort": Outcome.ENDING,
    "PrepareEpochFence": Outcome.ENDING,
    "CompleteCommit": Outcome.COMMITTED,
    "CompleteAbort": Outcome.ABORTED,
}
"""The outcomes by Kafka's TransactionState; Empty and Dead say nothing about earlier transactions."""


class Described(NamedTuple):
    """The description of a transactional id by its coordinator: the newest transaction and epoch."""

    outcome: Outcome
    producer_id: int = -1
    epoch: int = -1


_Answer = TypeVar("_Answer")


class _SentBeforeError(Exception):
    """A request that may be sent only once would be repeated."""


class Requests:
    """Asks for one transactional id. Every ``deadline`` is for all attempts of a request."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self._cluster = cluster
        self.transactional_id = transactional_id

    def init_producer_id(
        self, timeout_ms: int, *, deadline: Deadline, current: ProducerId | None = None
    ) -> tuple[int, int]:
        """The producer id with a new epoch, once an open transaction of an older epoch is over.

        :param current: only if this is still the newest epoch, else a FencedError (KIP-360). Not repeated
            while the open transaction is ended: a newer one may be open by then, which it would end, too.
        """
        wait = current is None
        producer = {"producer_id": current.id, "producer_epoch": current.epoch} if current else {}
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **producer
        )

        def read(response: Any) -> tuple[int, int] | Refused:
            if response.error_code and (wait or response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS):
                return Refused(response.error_code)
            return response.producer_id, response.producer_epoch

        return self._ask(
            request,
            read,
            f"Taking over transactional id {self.transactional_id}",
            deadline,
            min_version=KIP_360 if current else 0,
            max_version=4,
        )

    def abort_open(self, timeout_ms: int, *, deadline: Deadline) -> None:
        """Have the open transaction aborted, by InitProducerId; it may be open still if no answer came.

        Sent only once: when the transaction is over the same request takes a new epoch, and the coordinator
        forgets how it ended.
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )

        def read(response: Any) -> int | Refused:
            code = response.error_code
            return Refused(code) if code and code != ErrorCode.CONCURRENT_TRANSACTIONS else 0

        doing = f"Aborting the transaction of {self.transactional_id}"
        with suppress(_SentBeforeError):
            self._ask(request, read, doing, deadline, max_version=4, once=True)

    def describe(self, *, deadline: Deadline) -> Described:
        """The outcome of the newest transaction (DescribeTransactions)."""

        def read(response: Any) -> Described | Refused:
            (state,) = response.transaction_states
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return Described(Outcome.NOT_KNOWN)
            if state.error_code:
                return Refused(state.error_code)
            outcome = _OUTCOMES.get(state.transaction_state, Outcome.NOT_KNOWN)
            return Described(outcome, state.producer_id, state.producer_epoch)

        doing = f"Looking up the newest transaction of {self.transactional_id}"
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        try:
            return self._ask(request, read, doing, deadline, max_version=0)
        except UnsupportedVersionError:
            return Described(Outcome.NOT_TOLD)

    def add_partitions(
        self, producer: ProducerId, partitions: Collection[TopicPartition], *, deadline: Deadline
    ) -> None:
        """Add partitions to the open transaction, or begin one with them."""
        kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                kind(name=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
            ],
        )
        self._ask_partitions(
            request,
            lambda response: [
                answer.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for answer in topic.results_by_partition
            ],
            f"Adding {listed(partitions, 5)} to a transaction",
            deadline,
            max_version=_LAST_OF_CLIENTS,
        )

    def add_offsets(self, producer: ProducerId, group: str, *, deadline: Deadline) -> None:
        """Add a group's offsets to the open transaction, or begin one with them."""
        self._ask(
            AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                group_id=group,
            ),
            _is_done,
            f"Adding group {group} to a transaction",
            deadline,
            group=group,
            max_version=_LAST_OF_CLIENTS,
        )

    def commit_offsets(
        self,
        producer: ProducerId,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        deadline: Deadline,
    ) -> None:
        """Commit offsets of a group without members that was added, as a part of the open transaction."""
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        self._ask_partitions(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                topics=offsets_by_topic(kind, kind.TxnOffsetCommitRequestPartition, offsets),
            ),
            lambda response: [answer.error_code for topic in response.topics for answer in topic.partitions],
            f"Committing offsets of group {group} for {listed(offsets, 5)} in a transaction",
            deadline,
            group=group,
            kind=CoordinatorType.GROUP,
            max_version=_LAST_OF_CLIENTS,
        )

    def end(self, producer: ProducerId, *, commit: bool, deadline: Deadline) -> None:
        """Commit or abort the transaction; the same request may be repeated, as its effect is the same."""
        self._ask(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                committed=commit,
            ),
            _is_done,
            f"{'Committing' if commit else 'Aborting'} the transaction of {self.transactional_id}",
            deadline,
            max_version=_LAST_OF_CLIENTS,
        )

    def committed(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        *,
        deadline: Deadline,
        require_stable: bool = True,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of ``group`` for these or all partitions, after every finished transaction.

        :param require_stable: wait for transactions that are not over; else ignore them.
        :raises PendingOffsetError: if a transaction that commits one of them stays open.
        :raises UnsupportedVersionError: before Kafka 2.5.
        """

        def attempt() -> dict[TopicPartition, CommittedOffset] | PendingOffsetError:
            found = self.committed_now(group, partitions, deadline=deadline, require_stable=require_stable)
            return pending_error(group) if found is None else found

        return self._cluster.new_backoff(deadline).repeat(attempt)

    def committed_now(
        self,
        group: str,
        partitions: Collection[TopicPartition] | None,
        *,
        deadline: Deadline,
        require_stable: bool = True,
    ) -> dict[TopicPartition, CommittedOffset] | None:
        """Like :meth:`committed`, but None if a transaction that commits one of them is not over."""
        doing = f"Reading the offsets of group {group}"
        answer = self._ask(
            offset_fetch_request(group, partitions, require_stable=require_stable),
            read_offset_fetch,
            doing,
            deadline,
            group=group,
            kind=CoordinatorType.GROUP,
            min_version=_FIRST_WITH_STABLE,
            max_version=BEFORE_TOPIC_IDS,
        )
        if answer is None:
            return None
        if partitions is not None and not set(partitions) <= answer.keys():
            raise BrokerError(f"{doing}: the answer lacks a partition of the request")
        for partition, offset in answer.items():
            if isinstance(offset, Refused):
                raise group_error(offset.error_code, doing, group, partition)
        return {p: offset for p, offset in answer.items() if isinstance(offset, CommittedOffset)}

    def _ask(
        self,
        request: Any,
        read: Callable[[Any], _Answer | Refused],
        doing: str,
        deadline: Deadline,
        *,
        group: str | None = None,
        kind: CoordinatorType = CoordinatorType.TRANSACTION,
        min_version: int = 0,
        max_version: int,
        once: bool = False,
    ) -> _Answer:
        repeats = count()

        def make() -> Any:
            if next(repeats) and once:
                raise _SentBeforeError
            return request

        name = self.transactional_id if kind is CoordinatorType.TRANSACTION else group
        assert name is not None
        try:
            answer = call_coordinator(
                self._cluster,
                name,
                make,
                read,
                doing=doing,
                deadline=deadline,
                kind=kind,
                min_version=min_version,
                max_version=max_version,
            )
        except UnsupportedVersionError as e:
            hint = "Exactly-once writes need Kafka 2.5. Use delivery.guarantee=at-least-once."
            raise UnsupportedVersionError(e.message, broker=e.broker, hint=hint) from None
        if isinstance(answer, Refused):
            raise self._error(answer.error_code, doing, group)
        return answer

    def _ask_partitions(
        self,
        request: Any,
        codes_in: Callable[[Any], list[int]],
        doing: str,
        deadline: Deadline,
        *,
        group: str | None = None,
        kind: CoordinatorType = CoordinatorType.TRANSACTION,
        max_version: int,
    ) -> None:
        """Ask about partitions, each of which has a code in the response."""
        started = time.monotonic()

        def read(response: Any) -> int | Refused:
            codes = [
                code for code in codes_in(response) if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)
            ]
            is_proven = time.monotonic() - started >= metadata.PROVEN_AFTER
            for code in codes:
                # Brokers learn of a new partition one after the other.
                if is_retriable(code) and not (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and is_proven):
                    return Refused(code)
            return codes[0] if codes else 0

        code = self._ask(
            request,
            read,
            doing,
            deadline,
            group=group,
            kind=kind,
            max_version=max_version,
        )
        if code:
            raise self._error(code, doing, group)

    def _error(self, code: int, doing: str, group: str | None) -> KafkaLogError:
        if code in _ENDED:
            return EndedTransactionError(f"{doing}: {name_of(code)}", hint=_ENDED[code])
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
            return error_of(code, doing, hint=FENCED_HINT)
        if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            right = f"Write on transactional id {self.transactional_id}, or on all that begin with"
            right += f" {OWN_PREFIX!r},"
        elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            right = f"Read on group {group}"
            if group == self.transactional_id:
                right += f", or on all groups that begin with {OWN_PREFIX!r},"
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            right = "Write on the topics, Read on the one that the marker names,"
        else:
            return error_of(code, doing)
        return error_of(code, doing, hint=f"Grant the principal {right} in the cluster's ACLs.")


def pending_error(group: str) -> PendingOffsetError:
    """The error of a marker whose commit stays pending, while nothing says how it was decided."""
    return PendingOffsetError(
        f"A commit of the marker of group {group} stays pending, and the cluster does not tell whether its"
        " rows were committed",
        hint="Brokers before Kafka 3.0 can't tell, and later ones not if a transaction of another"
        " transactional id holds it: kafka-transactions.sh find-hanging shows that one. Otherwise"
        " failOnMissingMarker=false, for one run, takes the rows for aborted and writes the batch: look first"
        " whether read_committed readers see some of them.",
    )


def _is_done(response: Any) -> bool | Refused:
    """Reads a response that only has an error code."""
    return Refused(response.error_code) if response.error_code else True
