"""Calls to the brokers that coordinate groups or transactions (FindCoordinator; many at once by KIP-699).

Error codes are handled as in Kafka's AbstractCoordinator and CoordinatorStrategy:
a broker that is no longer the coordinator, or is unreachable, is looked up again,
and one that is still loading its partition of ``__consumer_offsets`` or
``__transaction_state`` is asked again after a pause. A coordinator that is silent for half
of the remaining time is also looked up again: a paused broker does not respond while another
one has taken over. So is one that says CONCURRENT_TRANSACTIONS for seconds: a broker that is cut off from the
controllers does not know that it was deposed, and can end nothing. Then others are asked who it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from pyspark_kafkalog.broker.cluster import metadata
from pyspark_kafkalog.broker.cluster.cluster import Cluster, Coordinator, at_once
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import (
    ErrorCode,
    Refused,
    error_of,
    is_retriable,
    wants_coordinator,
)
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError

_FIRST_WITH_MANY = 4
"""The first version of FindCoordinator that takes several names."""

Answer = TypeVar("Answer")


def call_coordinator(
    cluster: Cluster,
    name: str,
    make_request: Callable[[], Any],
    read: Callable[[Any], Answer | Refused],
    *,
    doing: str,
    deadline: Deadline,
    kind: CoordinatorType = CoordinatorType.GROUP,
    min_version: int = 0,
    max_version: int | None = None,
    stall: float | None = None,
) -> Answer | Refused:
    """Like :func:`call_coordinators`, for one name.

    :raises KafkaLogError: for a retriable error that lasted too long.
    """
    answers: dict[str, Answer | Refused] = call_coordinators(
        cluster,
        [name],
        lambda _: make_request(),
        lambda response, _: {name: read(response)},
        None,
        doing=doing,
        deadline=deadline,
        kind=kind,
        min_version=min_version,
        max_version=max_version,
        stall=stall,
    )
    return answers[name]


def call_coordinators(
    cluster: Cluster,
    names: Iterable[str],
    make_request: Callable[[Sequence[str]], Any],
    read: Callable[[Any, Sequence[str]], Mapping[str, Answer | Refused]],
    failures: dict[str, KafkaLogError] | None,
    *,
    doing: str,
    deadline: Deadline,
    kind: CoordinatorType = CoordinatorType.GROUP,
    min_version: int = 0,
    max_version: int | None = None,
    first_with_many: int = 0,
    stall: float | None = None,
) -> dict[str, Answer | Refused]:
    """Ask the coordinators of groups, each about all of its groups at once, and retry where that may help.

    :param names: the groups or, by ``kind``, transactional ids.
    :param make_request: makes the request to one broker about these names.
    :param read: finds each name's answer, or its error code, in the response to a request about these names.
    :param failures: takes the retriable error of each name that lasted until the deadline; None raises it.
    :param min_version: of the request, as ``max_version``.
    :param first_with_many: the first version that takes several names. Older brokers are asked name by name.
    :param deadline: for everything. A coordinator that is silent is asked again after half of it.
    :param stall: seconds without an answer after which a coordinator is asked again, if that is not
        request.timeout.ms.
    :returns: each other name's answer, or an error code that no retry cures.
    :raises UnsupportedVersionError: if a broker has the request in none of these versions.
    :raises BrokerConnectionError: if no broker tells who the coordinators are.
    """
    answers: dict[str, Answer | Refused] = {}
    tried: list[Address] = []
    believed_since = time.monotonic()

    def attempt(remaining: list[str]) -> dict[str, KafkaLogError]:
        nonlocal believed_since, tried
        unknown = [name for name in remaining if (kind, name) not in cluster.coordinators]
        for name in unknown:
            tried += cluster.doubted.pop((kind, name), ())
        errors: dict[str, KafkaLogError] = {}
        for name, code in _find(cluster, kind, unknown, deadline, tried).items():
            if is_retriable(code):
                errors[name] = error_of(code, f"{doing}: found no coordinator")
            else:
                answers[name] = Refused(code)
        by_coordinator = _by_coordinator(cluster, kind, remaining)

        def ask(coordinator: Coordinator) -> dict[str, Answer | Refused] | BrokerConnectionError:
            names, versions = by_coordinator[coordinator], (min_version, max_version, first_with_many)
            try:
                return _call(cluster, coordinator, names, make_request, read, deadline, versions, stall)
            except BrokerConnectionError as e:
                return e

        found_by = at_once(ask, by_coordinator)
        for (coordinator, coordinated), found in zip(by_coordinator.items(), found_by, strict=True):
            if isinstance(found, BrokerConnectionError):
                errors.update(dict.fromkeys(coordinated, found))
                forget(cluster, kind, coordinated)
                continue
            for name in coordinated:
                answer = found.get(name, Refused(-1))
                if not isinstance(answer, Refused) or not is_retriable(answer.error_code):
                    answers[name] = answer
                    continue
                errors[name] = error_of(answer.error_code, doing, broker=str(coordinator.address))
                if wants_coordinator(answer.error_code):
                    forget(cluster, kind, [name])
                elif (
                    answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
                    and time.monotonic() - believed_since >= metadata.PROVEN_AFTER
                ):
                    doubt(cluster, kind, name)
                    believed_since = time.monotonic()
        return errors

    cluster.new_backoff(deadline).repeat_each(names, attempt, failures)
    return answers


def _attempt(cluster: Cluster, deadline: Deadline) -> Deadline:
    """The deadline of one request: half of the time left, and not so short that its end says nothing."""
    return deadline.share(2, least=cluster.options.request_timeout_ms / 4000)


def forget(cluster: Cluster, kind: CoordinatorType, names: Iterable[str]) -> None:
    """Have the coordinators of these groups or transactional ids looked up before the next call."""
    for name in names:
        cluster.coordinators.pop((kind, name), None)


def doubt(cluster: Cluster, kind: CoordinatorType, name: str) -> None:
    """Like :func:`forget`; the next look-up asks the coordinator and the broker that named it last."""
    key = kind, name
    known, named_by = cluster.coordinators.pop(key, None), cluster.coordinators_named_by.pop(key, None)
    cluster.doubted[key] = list(filter(None, [named_by, known and known.address]))


def _by_coordinator(
    cluster: Cluster, kind: CoordinatorType, names: Iterable[str]
) -> dict[Coordinator, list[str]]:
    found: dict[Coordinator, list[str]] = {}
    for name in names:
        coordinator = cluster.coordinators.get((kind, name))
        if coordinator is not None:
            found.setdefault(coordinator, []).append(name)
    return found


def _call(
    cluster: Cluster,
    coordinator: Coordinator,
    names: Sequence[str],
    make_request: Callable[[Sequence[str]], Any],
    read: Callable[[Any, Sequence[str]], Mapping[str, Answer | Refused]],
    deadline: Deadline,
    versions: tuple[int, int | None, int],
    stall: float | None,
) -> dict[str, Answer | Refused]:
    """The answers of one coordinator about these names, in as many requests as its version needs."""
    min_version, max_version, first_with_many = versions
    connection = cluster.coordinator_connection(coordinator, deadline=_attempt(cluster, deadline))
    found: dict[str, Answer | Refused] = {}
    try:
        request = make_request(names)
        version = connection.version_of(request, min_version=min_version, max_version=max_version)
        pieces = [names] if version >= first_with_many else [[name] for name in names]
        for piece in pieces:
            response = connection.call(
                request if piece is names else make_request(piece),
                min_version=min_version,
                max_version=max_version,
                deadline=_attempt(cluster, deadline),
                stall=stall,
            )
            with connection.reading():
                found.update(read(response, piece))
        return found
    finally:
        cluster.release(connection)


def _find(
    cluster: Cluster, kind: CoordinatorType, names: Collection[str], deadline: Deadline, tried: list[Address]
) -> dict[str, int]:
    """Look up the coordinators of these names; returns the error codes of names without one.

    :param tried: brokers that were asked already: others are asked first.
    """
    if not names:
        return {}

    def attempt() -> dict[str, Any] | BrokerConnectionError:
        try:
            return _find_coordinators(cluster, kind, names, deadline, tried)
        except BrokerConnectionError as e:
            return e

    refused: dict[str, int] = {}
    backoff = cluster.new_backoff(deadline)
    answers = backoff.repeat(attempt, first_contact=lambda: not cluster.metadata.brokers)
    for name in names:
        answer = answers.get(name)
        if answer is None:  # a broken response
            refused[name] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif answer.error_code:
            refused[name] = answer.error_code
        else:
            address = Address(answer.host, answer.port)
            cluster.coordinators[kind, name] = Coordinator(answer.node_id, address)
            cluster.coordinators_named_by[kind, name] = tried[-1]
    return refused


def _find_coordinators(
    cluster: Cluster, kind: CoordinatorType, names: Collection[str], deadline: Deadline, tried: list[Address]
) -> dict[str, Any]:
    connection = cluster.any_connection(deadline=deadline, last=tried)
    tried[:] = [*(address for address in tried if address != connection.address), connection.address]
    try:
        if connection.version_of(FindCoordinatorRequest) >= _FIRST_WITH_MANY:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names))
            response = connection.call(request, deadline=_attempt(cluster, deadline))
            return {answer.key: answer for answer in response.coordinators}
        return {
            name: connection.call(
                FindCoordinatorRequest(key=name, key_type=kind), deadline=_attempt(cluster, deadline)
            )
            for name in names
        }
    finally:
        cluster.release(connection)
