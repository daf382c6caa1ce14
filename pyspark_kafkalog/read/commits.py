"""Whether a group's commits belong to the logs that are there now, and whether they may be changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import GroupError, KafkaLogError, OptionError
from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition
from pyspark_kafkalog.model.groups import GroupOffsets

_LOOKS = 3
_PAUSE = 0.5
"""Seconds between looks: a new leader may not know its end yet, and an old one not that it is deposed."""
_INACTIVE = ("Empty", "Dead")

_log = logging.getLogger("pyspark_kafkalog")


def check_commits(
    place: Place,
    group: str,
    commits: Mapping[TopicPartition, CommittedOffset],
    *,
    fail_on_data_loss: bool,
) -> None:
    """Refuse commits that were made for other records than those that are there.

    A commit knows no topic id. What it shares with a log is the offset, which must not be above the end, and
    the leader epoch of the record before, which must not be one that ends earlier, or that the log's leader
    has never had (KIP-320). A commit without an epoch, and one below the end of a log that has grown
    past it in the same epochs, are believed: nothing tells them from right ones.

    :raises GroupError: naming the partition, unless ``fail_on_data_loss`` is false: then it is logged.
    """
    for number in range(_LOOKS):
        if number:
            time.sleep(_PAUSE)
        found = _foreign(place, commits)
        if not found:
            return
    for partition, why in sorted(found.items()):
        committed = commits[partition]
        error = GroupError(
            f"Group {group!r} has committed offset {committed.offset}, but {why}",
            topic_partition=partition,
            hint="The topic was recreated, or its log was cut or replaced: the group's offsets are those of"
            f" the old log. Set them with kafkalog offsets reset --group {group}, or start at other offsets.",
        )
        if fail_on_data_loss:
            raise error
        _log.warning("Continuing, because failOnDataLoss=false: %s", error.with_hint(None))


def check_inactive(groups: GroupOffsets, group: str) -> None:
    """See that the offsets of a group may be changed.

    :raises GroupError: if it has live members, or holds the marker of an exactly-once query.
    """
    if not group:
        raise OptionError("The group id is empty")
    known = groups.describe([group]).get(group)
    if isinstance(known, KafkaLogError):
        raise known
    if known is not None and known.state not in _INACTIVE:
        state = f"it is {known.state}" if known.state else "its state is unknown"
        raise GroupError(
            f"Offsets of group {group!r} can be changed only while it is inactive, but {state}",
            hint="Stop its consumers first.",
        )
    extensions.check_no_marker(groups, group, "moved")


def _foreign(place: Place, commits: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, str]:
    """The reason why a commit does not belong to the log that is there; for those that do not."""
    ends = place.end_offsets(commits, read_committed=False)
    found = {
        partition: f"the log ends at {ends[partition]}"
        for partition, committed in commits.items()
        if partition in ends and committed.offset > ends[partition]
    }
    epochs = {
        partition: commits[partition].leader_epoch
        for partition in ends.keys() - found.keys()
        if commits[partition].leader_epoch >= 0 and commits[partition].offset > 0
    }
    ended = place.epoch_ends(epochs) if epochs else {}
    unknown = [partition for partition, (epoch, _) in ended.items() if epoch < 0]
    bounds = place.watermarks(unknown, read_committed=False) if unknown else {}
    for partition, (epoch, end) in ended.items():
        committed = commits[partition]
        after = f"after a record of leader epoch {committed.leader_epoch}, "
        if epoch < 0:
            # The record is gone, and Redpanda before 23.1 may have forgotten its epoch with it.
            if partition in bounds and committed.offset <= bounds[partition].log_start_offset:
                continue
            found[partition] = f"{after}which the log's leader has never had"
        elif end < committed.offset:
            found[partition] = f"{after}and the log's records of that epoch end at {end}"
    return found
