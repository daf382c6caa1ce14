"""Calls to the brokers that coordinate groups (FindCoordinator; many groups at once by KIP-699).

What an error code means follows Kafka's AbstractCoordinator and CoordinatorStrategy:
a coordinator that says it is none, or can't be reached, is looked up again, and one
that loads its partition of ``__consumer_offsets`` is asked again after a pause. One that
is silent for half of the time that is left is looked up again, too: a broker that is
paused answers nothing, while another has become the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from pyspark_kafkalog.broker.cluster.cluster import Cluster, Coordinator
from pyspark_kafkalog.broker.wire.backoff import Backoff
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
    ask: Callable[[Sequence[str]], Any],
    read: Callable[[Any], Mapping[str, Answer | Refused]],
    *,
    doing: str,
    timeout: float,
    min_version: int = 0,
    max_version: int | None = None,
) -> dict[str, Answer | Refused]:
    """Ask the coordinators of groups, each once about all of its groups, and again where that may help.

    :param ask: makes the request to one broker, about these groups.
    :param read: tells each group's answer, or error code, from the response.
    :param min_version: of the request, and ``max_version``.
    :param timeout: seconds for all of it.
    :returns: each group's answer, or the error code that no retry mends.
    :raises UnsupportedVersionError: if a broker doesn't know the request in these versions.
    :raises KafkaLogError: for what a retry may mend, and has not in time.
    """
    backoff = Backoff(cluster.options, timeout)
    answers: dict[str, Answer | Refused] = {}
    asked: list[Address] = []
    remaining = sorted(set(groups))
    while remaining:
        unknown = [group for group in remaining if group not in cluster.coordinators]
        trouble: KafkaLogError | None = None
        for group, code in _find(cluster, unknown, backoff, asked).items():
            if is_retriable(code):
                trouble = error_of(code, f"{doing}: its coordinator is not found")
            else:
                answers[group] = Refused(code)
        for coordinator, its_groups in _by_coordinator(cluster, remaining).items():
            try:
                told = _ask_one(
                    cluster, coordinator, ask(its_groups), read, backoff, min_version, max_version
                )
            except BrokerConnectionError as e:
                trouble = e
                _forget(cluster, its_groups)
                continue
            for group in its_groups:
                answer = told.get(group, Refused(-1))
                if not isinstance(answer, Refused) or not is_retriable(answer.error_code):
                    answers[group] = answer
                    continue
                trouble = error_of(answer.error_code, doing, broker=str(coordinator.address))
                if answer.error_code in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                    _forget(cluster, [group])
        remaining = [group for group in remaining if group not in answers]
        if remaining and trouble is not None:
            backoff.pause(trouble)
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


def _ask_one(
    cluster: Cluster,
    coordinator: Coordinator,
    request: Any,
    read: Callable[[Any], Mapping[str, Answer | Refused]],
    backoff: Backoff,
    min_version: int,
    max_version: int | None,
) -> Mapping[str, Answer | Refused]:
    connection = cluster.coordinator_connection(coordinator, timeout=backoff.remaining / 2)
    try:
        response = connection.call(
            request, min_version=min_version, max_version=max_version, timeout=backoff.remaining / 2
        )
        with connection.reading():
            return read(response)
    finally:
        cluster.release(connection)


def _find(
    cluster: Cluster, groups: Collection[str], backoff: Backoff, asked: list[Address]
) -> dict[str, int]:
    """Look up the coordinators of these groups; the error codes of those that have none now.

    :param asked: brokers that were asked already, others are asked before them.
    """
    if not groups:
        return {}
    refused: dict[str, int] = {}
    try:
        answers = _find_coordinators(cluster, groups, backoff, asked)
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
    cluster: Cluster, groups: Collection[str], backoff: Backoff, asked: list[Address]
) -> dict[str, Any]:
    connection = cluster.any_connection(timeout=backoff.remaining, last=asked)
    asked[:] = [*(address for address in asked if address != connection.address), connection.address]
    try:
        if connection.version_of(FindCoordinatorRequest) >= _FIRST_WITH_MANY:
            request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP, coordinator_keys=list(groups))
            response = connection.call(request, timeout=backoff.remaining / 2)
            return {answer.key: answer for answer in response.coordinators}
        return {
            group: connection.call(
                FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP),
                timeout=backoff.remaining / 2,
            )
            for group in groups
        }
    finally:
        cluster.release(connection)
