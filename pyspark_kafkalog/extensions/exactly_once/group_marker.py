"""The marker of exactly-once writes, as a consumer group commits it: JSON in the metadata of an offset."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

from pyspark_kafkalog.errors import UNREADABLE, GroupError
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.model.groups import OWN_PREFIX, GroupOffsets


class MarkerDetails(NamedTuple):
    """The metadata of a marker; ``producer`` and ``epoch`` are those of its rows.

    ``epochs``: see :meth:`.marker.CommittedEpochs.numbers`; ``ends`` are three numbers for each
    :class:`.marker.RowsEnd`.
    """

    query: str
    cluster: str | None
    plan: str
    records: int
    producer: int
    epoch: int
    epochs: tuple[int, ...]
    ends: tuple[int, ...]


def marker_metadata(details: MarkerDetails) -> str:
    """The details as the metadata of a commit."""
    return json.dumps(details._asdict())


def marker_details(metadata: str) -> MarkerDetails | None:
    """The details in the metadata of a commit; None if they are not a marker's."""
    try:
        found = json.loads(metadata)
        query, cluster, plan = found["query"], found["cluster"], found["plan"]
        numbers = int(found["records"]), int(found["producer"]), int(found["epoch"])
        epochs, ends = (tuple(map(int, found[name])) for name in ("epochs", "ends"))
        details = MarkerDetails(query, cluster, plan, *numbers, epochs, ends)
    except UNREADABLE:
        return None
    is_valid = isinstance(query, str) and isinstance(plan, str) and isinstance(cluster, str | None)
    return details if is_valid else None


def may_have_marker(group: str) -> bool:
    """Whether the group's name is like that of a marker's group."""
    return group.startswith(OWN_PREFIX)


def marked_query(group: str, commits: Collection[CommittedOffset]) -> str | None:
    """The query whose marker the group holds; None for every other group."""
    if not may_have_marker(group):
        return None
    found = [marker_details(committed.metadata) for committed in commits]
    queries = {details.query for details in found if details is not None}
    return min(queries) if queries and None not in found else None


def check_no_marker(groups: GroupOffsets, group: str, changed: str) -> None:
    """Check that a group holds no marker of an exactly-once query, which is ``changed``, such as "moved".

    :raises GroupError: if it does.
    """
    query = marked_query(group, groups.committed(group).values())
    if query is not None:
        raise GroupError(
            f"Group {group!r} holds the marker of exactly-once query {query}. If it were {changed}, rows"
            " would be lost or doubled",
            hint="Leave it to the query. To let one write its batch again, see failOnMissingMarker.",
        )
