"""The options about a consumer group: where a query starts from, and what it commits."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import EARLIEST, LATEST
from pyspark_kafkalog.options.user_options import UserOptions, log_once

_LONGEST_ID = 32767
"""Bytes: a group id travels with a length of 16 bits."""


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


def group_options(given: UserOptions, *, batch: bool) -> GroupOptions:
    """What the options say of a group. A batch commits nothing.

    :raises OptionError: for a group id that Kafka would refuse, and for ``commitOffsets`` without one.
    """
    strategies = {
        "auto": EARLIEST if batch else LATEST,
        "earliest": EARLIEST,
        "latest": LATEST,
        "error": None,
    }
    strategy = given.choice("startingOffsetsByCommittedStrategy", *strategies)
    group_id = given.text("kafka.group.id")
    if group_id is not None:
        _check_id(group_id)
        if "groupIdPrefix" in given:
            log_once(logging.WARNING, "Option groupIdPrefix is ignored, since kafka.group.id is set")
    word = "false" if group_id is None else "true"
    if "commitOffsets" in given:
        word = given.choice("commitOffsets", "true", "false", "required")
    commits = not batch and word != "false"
    if commits and group_id is None:
        group_id = _generated_id(given)
    return GroupOptions(group_id, commits, word == "required", strategies[strategy])


def _check_id(group_id: str) -> None:
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= _LONGEST_ID:
        raise OptionError(f"Option 'kafka.group.id' must have 1 to {_LONGEST_ID} bytes of UTF-8")


def _generated_id(given: UserOptions) -> str:
    name = given.trimmed("queryName")
    if name is None:
        raise OptionError(
            "Option 'commitOffsets' is set, and there is no group to commit to",
            hint="Give 'kafka.group.id', or 'queryName' to this reader, too:"
            " Spark does not tell a source the name of its query.",
        )
    group_id = f"{given.text('groupIdPrefix')}-{name}"
    _check_id(group_id)
    return group_id
