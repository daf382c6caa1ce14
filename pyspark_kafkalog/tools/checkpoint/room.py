"""``kafka.checkpoints``: the checkpoints of streaming queries that read the place."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem.locate import without_secrets
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.rows import Rows
from pyspark_kafkalog.places import identity
from pyspark_kafkalog.tools.checkpoint import change, move, rewind, show
from pyspark_kafkalog.tools.checkpoint.change import CheckpointChange
from pyspark_kafkalog.tools.checkpoint.goals import RewindTo
from pyspark_kafkalog.tools.checkpoint.mirror_maker import MirrorMaker
from pyspark_kafkalog.tools.checkpoint.restore_map import RestoreMap
from pyspark_kafkalog.tools.checkpoint.show import CheckpointState
from pyspark_kafkalog.tools.checkpoint.translation import Translation
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

    @property
    def _where(self) -> str:
        return identity(self._kafka.place_options)[1]

    def show(self, location: Location) -> CheckpointState:
        """The state of a checkpoint beside the place: positions, lags, and what the next start will do.

        :raises KafkaLogError: if it isn't a checkpoint, or Spark's newest files in it can't be read.
        """
        return show.checkpoint_state(path_of(location), self._kafka.report_place, self._where)

    def offsets(
        self, locations: Location | Collection[Location], *, read_committed: bool = False
    ) -> list[GroupOffset]:
        """The positions of queries, each as the committed offsets of a group that is named like its location.

        A checkpoint that can't be read has a row without topic, whose ``note`` says why.

        :param read_committed: count lags to the last stable offsets, as read_committed readers do.
        """
        given = [locations] if isinstance(locations, str | os.PathLike) else locations
        rows: list[GroupOffset] = []
        place, where = self._kafka.report_place, self._where
        for location in map(path_of, given):
            try:
                rows += show.as_group_offsets(location, place, where, read_committed=read_committed)
            except KafkaLogError as e:
                rows.append(
                    GroupOffset(without_secrets(location), None, None, None, state=FAILED, note=str(e))
                )
        return Rows(GroupOffset, rows)

    def plan_rewind(
        self,
        location: Location,
        to: RewindTo | str,
        value: int | str | Mapping[TopicPartition, int] = 0,
        *,
        sources: Collection[str] | None = None,
        topics: Collection[TopicPartition | str] | None = None,
        with_state: bool = False,
        with_sink: Kafka | None = None,
    ) -> CheckpointChange:
        """The change that sets a query back, or forward; nothing is changed before :meth:`execute`.

        ::

            from pyspark_kafkalog import RewindTo, connect

            checkpoints = connect("host:9092").checkpoints
            change = checkpoints.plan_rewind("/checkpoints/orders", RewindTo.TIMESTAMP, 1796033623458)
            print(change.steps, change.notes)
            checkpoints.execute(change)

        :param value: milliseconds, the number of a micro-batch, the name of a group, or offsets by partition.
        :param sources: the names of those sources of the query that change, or their numbers as text.
        :param topics: the topics, or partitions, whose positions change.
        :param with_state: keep the state of stateful operators as it is, though it does not fit.
        :param with_sink: the place that the query writes to exactly once, by ``kafkalog``.
        :raises KafkaLogError: if the checkpoint can't be changed so, or its sink has another history.
        """
        return rewind.plan_rewind(
            path_of(location),
            _target(to),
            value,
            kafka=self._kafka,
            sources=sources,
            topics=topics,
            with_state=with_state,
            with_sink=with_sink,
        )

    def plan_move(
        self,
        location: Location,
        translation: Translation | str | os.PathLike[str],
        *,
        with_state: bool = False,
        with_sink: Kafka | None = None,
    ) -> CheckpointChange:
        """The change that moves a query to this place, which has copies of the records that it reads.

        Nothing is changed before :meth:`execute`. No record is left out. Where a translation is not exact,
        some are read again, which needs ``with_state`` if the query has state.

        :param translation: the path of the file of a restore to this place, which is exact; or
            :meth:`by_mirror_maker`.
        :raises KafkaLogError: if nothing tells where a partition goes on, or the place is another one.
        """
        if isinstance(translation, str | os.PathLike):
            translation = RestoreMap(os.fsdecode(translation))
        return move.plan_move(
            path_of(location),
            self._kafka,
            translation,
            with_state=with_state,
            with_sink=with_sink,
        )

    def by_mirror_maker(
        self,
        source: Kafka,
        *,
        prefix: str = "",
        syncs: str | None = None,
        unproven: bool = False,
    ) -> Translation:
        """The translation of :meth:`plan_move` by the offset syncs of a MirrorMaker 2 that copies here.

        ::

            from pyspark_kafkalog import connect

            with connect("old:9092") as source, connect("new:9092") as kafka:
                syncs = kafka.checkpoints.by_mirror_maker(source, prefix="old.")
                change = kafka.checkpoints.plan_move("/checkpoints/orders", syncs)
                kafka.checkpoints.execute(change)

        :param source: the cluster that it copies; if that is lost, this one once more.
        :param prefix: what the names of topics begin with here: the alias of the source and a dot, unless the
            replication policy is another.
        :param syncs: the topic of the syncs, if there are several in both clusters.
        :param unproven: believe syncs of topics of which the clusters share no record to compare.
        """
        return MirrorMaker(source, self._kafka, prefix=prefix, syncs=syncs, unproven=unproven)

    def execute(self, planned: CheckpointChange, *, stopped: bool = False) -> None:
        """Carry out a change. What was there is kept in ``planned.kept``, a folder in the checkpoint.

        :param stopped: that the query does not run, even if Spark has just written to its checkpoint.
        :raises KafkaLogError: if the checkpoint has changed since it was planned, or can't be written.
        """
        change.execute(planned, stopped=stopped)


def _target(to: RewindTo | str) -> RewindTo:
    try:
        return RewindTo(to)
    except ValueError:
        names = ", ".join(each.value for each in RewindTo)
        raise OptionError(f"Expected one of {names} to rewind to, got {to!r}") from None


def path_of(location: Location) -> str:
    """The text of a location.

    :raises OptionError: if it is anything else.
    """
    if not isinstance(location, str | os.PathLike):
        raise OptionError(f"Expected a path or a URI of a checkpoint, got {type(location).__name__}")
    return os.fsdecode(location)
