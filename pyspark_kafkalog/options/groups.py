"""The options about a consumer group: where a query starts from, and what it commits."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import EARLIEST, LATEST
from pyspark_kafkalog.options.user_options import UserOptions, log_once
from pyspark_kafkalog.options.values import group_id


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The consumer group of a query, which may have none.

    ``none_committed`` is where a partition starts of which the group has committed
    nothing, EARLIEST or LATEST; None makes it an error.
    """

    group_id: str | None = None
    commits: bool = False
    required: bool = False
    none_committed: int | None = EARLIEST


def group_options(user: UserOptions, *, batch: bool) -> GroupOptions:
    """What the options say of a group. A batch commits nothing.

    :raises OptionError: for a group id that Kafka would refuse, and for ``commitOffsets`` without one.
    """
    strategies = {
        "auto": EARLIEST if batch else LATEST,
        "earliest": EARLIEST,
        "latest": LATEST,
        "error": None,
    }
    none_committed = strategies[user.value("startingOffsetsByCommittedStrategy")]
    group = user.value("kafka.group.id")
    if group is not None and "groupIdPrefix" in user:
        log_once(logging.WARNING, "Option groupIdPrefix is ignored, since kafka.group.id is set")
    commits = user.value("commitOffsets") or ("false" if group is None else "true")
    if batch or commits == "false":
        return GroupOptions(group, none_committed=none_committed)
    return GroupOptions(group or _generated_id(user), True, commits == "required", none_committed)


def _generated_id(user: UserOptions) -> str:
    name = user.value("queryName")
    if name is None:
        raise OptionError(
            "Option 'commitOffsets' is set, but no consumer group is given",
            hint="Give 'kafka.group.id', or give 'queryName' to this reader as well:"
            " Spark does not tell a source the name of its query.",
        )
    return group_id("groupIdPrefix", f"{user.value('groupIdPrefix')}-{name}")
