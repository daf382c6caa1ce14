"""``kafka.checkpoints``: the checkpoints of streaming queries that read the place."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.model.rows import Rows
from pyspark_kafkalog.tools.checkpoint import show
from pyspark_kafkalog.tools.checkpoint.show import CheckpointState
from pyspark_kafkalog.tools.groups.consumer_groups import FAILED, GroupOffset

if TYPE_CHECKING:
    from pyspark_kafkalog.client.kafka import Kafka

Location = str | os.PathLike[str]


class CheckpointAdmin:
    """``kafka.checkpoints``: checkpoints of queries that read the place, by ``kafka`` or ``kafkalog``.

    A location is a path or URI, as the query has it.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._kafka.name})"

    def show(self, location: Location) -> CheckpointState:
        """The state of a checkpoint beside the place: positions, lags, and what the next start will do.

        :raises KafkaLogError: if it is no checkpoint, or Spark's newest files in it can't be read.
        """
        return show.checkpoint_state(path_of(location), self._kafka.report_place)

    def offsets(
        self, locations: Location | Collection[Location], *, read_committed: bool = False
    ) -> list[GroupOffset]:
        """The positions of queries, each as the committed offsets of a group that is named like its location.

        A checkpoint that can't be read has a row without topic, whose ``note`` says why.

        :param read_committed: count lags to the last stable offsets, as read_committed readers do.
        """
        given = [locations] if isinstance(locations, str | os.PathLike) else locations
        rows: list[GroupOffset] = []
        place = self._kafka.report_place
        for location in map(path_of, given):
            try:
                rows += show.as_group_offsets(location, place, read_committed=read_committed)
            except KafkaLogError as e:
                rows.append(GroupOffset(location, None, None, None, state=FAILED, note=str(e)))
        return Rows(GroupOffset, rows)


def path_of(location: Location) -> str:
    """The text of a location.

    :raises OptionError: if it is anything else.
    """
    if not isinstance(location, str | os.PathLike):
        raise OptionError(f"Expected a path or a URI of a checkpoint, got {type(location).__name__}")
    return os.fsdecode(location)
