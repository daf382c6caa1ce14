"""Calls to the brokers that coordinate groups (FindCoordinator; many groups at once by KIP-699).

Error codes are handled as in Kafka's AbstractCoordinator and CoordinatorStrategy:
a broker that is no longer the coordinator, or is unreachable, is looked up again,
and one that is still loading its partition of ``__consumer_offsets`` is asked again
after a pause. A coordinator that is silent for half of the remaining time is also
looked up again: a paused broker does not respond while another one has taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster, Coordinator
from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    Refused,
    error_of,
    is_retriable,
)
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError

_FIRST_WITH_MANY = 4
"""The first version of FindCoordinator that takes several groups."""

Answer = TypeVar("Answer")


def call_coordinators(
    cluster: Cluster,
    groups: Iterable[str],
    make_request: Callable[[Sequence[str]], Any],
    read: Callable[[Any], Mapping[str, Answer | Refused]],
    *,
    doing: str,
    deadline: Deadline,
    min_version: int = 0,
    max_version: int | None = None,
) -> dict[str, Answer | Refused]:
    """Ask the coordinators of groups, each about all of its groups at once, and retry where that may help.

    :param make_request: makes the request to one broker about these groups.
    :param read: finds each group's answer, or its error code, in the response.
    :param min_version: of the request, as ``max_version``.
    :param deadline: for everything.
    :returns: each group's answer, or an error code that no retry cures.
    :raises UnsupportedVersionError: if a broker has the request in none of these versions.
    :raises KafkaLogError: for a retriable error that lasted too long.
    """
    backoff = Backoff(cluster.options, deadline)
    answers: dict[str, Answer | Refused] = {}
    tried: list[Address] = []
    remaining = sorted(set(groups))
    while remaining:
        unknown = [group for group in remaining if group not in cluster.coordinators]
        error: KafkaLogError | None = None
        for group, code in _find(cluster, unknown, backoff, tried).items():
            if is_retriable(code):
                error = error_of(code, f"{doing}: found no coordinator")
            else:
                answers[group] = Refused(code)
        for coordinator, coordinated in _by_coordinator(cluster, remaining).items():
            request = make_request(coordinated)
            try:
                found = _call(cluster, coordinator, request, read, deadline, min_version, max_version)
            except BrokerConnectionError as e:
                error = e
                _forget(cluster, coordinated)
                continue
            for group in coordinated:
                answer = found.get(group, Refused(-1))
                if not isinstance(answer, Refused) or not is_retriable(answer.error_code):
                    answers[group] = answer
                    continue
                error = error_of(answer.error_code, doing, broker=str(coordinator.address))
                if answer.error_code in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                    _forget(cluster, [group])
        remaining = [group for group in remaining if group not in answers]
        if remaining and error is not None:
            backoff.pause(error)
    return answers


def _forget(cluster: Cluster, groups: Iterable[str]) -> None:
    for group in groups:
        cluster.coordinators.pop(group, None)


def _by_coordinator(cluster: Cluster, groups: Iterable[str]) -> dict[Coordinator, list[str]]:
    found: dict[Coordinator, list[str]] = {}
    for group in groups:
        coordinator = cluster.coordinators.get(group)
        if coordinator is not None:
            found.setdefault(coordinator, []).append(group)
    return found


def _call(
    cluster: Cluster,
    coordinator: Coordinator,
    request: Any,
    read: Callable[[Any], Mapping[str, Answer | Refused]],
    deadline: Deadline,
    min_version: int,
    max_version: int | None,
) -> Mapping[str, Answer | Refused]:
    connection = cluster.coordinator_connection(coordinator, deadline=deadline.share(2))
    try:
        response = connection.call(
            request, min_version=min_version, max_version=max_version, deadline=deadline.share(2)
        )
        with connection.reading():
            return read(response)
    finally:
        cluster.release(connection)


def _find(
    cluster: Cluster, groups: Collection[str], backoff: Backoff, tried: list[Address]
) -> dict[str, int]:
    """Look up the coordinators of these groups; returns the error codes of groups without one.

    :param tried: brokers that were asked already: others are asked first.
    """
    if not groups:
        return {}
    refused: dict[str, int] = {}
    try:
        answers = _find_coordinators(cluster, groups, backoff.deadline, tried)
    except BrokerConnectionError as e:
        backoff.pause(e, first_contact=not cluster.metadata.brokers)
        return {}
    for group, answer in answers.items():
        if answer.error_code:
            refused[group] = answer.error_code
        else:
            address = Address(answer.host, answer.port)
            cluster.coordinators[group] = Coordinator(answer.node_id, address)
    return refused


def _find_coordinators(
    cluster: Cluster, groups: Collection[str], deadline: Deadline, tried: list[Address]
) -> dict[str, Any]:
    connection = cluster.any_connection(deadline=deadline, last=tried)
    tried[:] = [*(address for address in tried if address != connection.address), connection.address]
    try:
        if connection.version_of(FindCoordinatorRequest) >= _FIRST_WITH_MANY:
            request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=list(groups))
            response = connection.call(request, deadline=deadline.share(2))
            return {answer.key: answer for answer in response.coordinators}
        return {
            group: connection.call(
                FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP),
                deadline=deadline.share(2),
            )
            for group in groups
        }
    finally:
        cluster.release(connection)
