"""The map of a restore as a translation: exact, as it knows where each record went."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_kafkalog.errors import KafkaLogError, OptionError, listed
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.tools.backup.restore_state import RestoreState
from pyspark_kafkalog.tools.checkpoint.translation import EXACT, UNKNOWN, Translated

_OTHER_FILE = "Give the file that kafkalog restore has written for this place (--state)."


class RestoreMap:
    """The translation by the file that a restore has written.

    :raises OptionError: if the file is not that of a restore.
    :raises KafkaLogError: if the restore is not done.
    """

    def __init__(self, path: str) -> None:
        state = RestoreState.find(path)
        if state is None:
            raise OptionError(f"There is no file {path}", hint=_OTHER_FILE)
        if not state.is_done:
            raise KafkaLogError(
                "The restore is not done, so some records have no place in the target yet",
                file=path,
                hint="Run it again until it ends.",
            )
        self._path, self._state = path, state
        self._partitions = {planned.source: planned for planned in state.plan.partitions}

    def check_source(self, topic_ids: Mapping[str, str]) -> Collection[str]:
        """See :meth:`.translation.Translation.check_source`."""
        restored = {partition.topic: partition.source_id for partition in self._state.plan.partitions}
        told = {topic for topic, read in topic_ids.items() if read and restored.get(topic)}
        others = sorted(topic for topic in told if restored[topic] != topic_ids[topic])
        if others:
            raise KafkaLogError(
                f"The restore was of other topics than the query has read: {listed(others, 5)}",
                file=self._path,
                hint="They were deleted and created again, or are those of another cluster, so their offsets"
                " mean other records.",
            )
        return told

    def check_target(self, cluster_id: str | None, topic_ids: Mapping[str, str]) -> None:
        """See :meth:`.translation.Translation.check_target`."""
        expected = self._state.plan.cluster_id
        if cluster_id != expected:
            raise KafkaLogError(
                f"The map is of a restore to cluster {expected}, and the place is cluster {cluster_id}",
                file=self._path,
                hint=_OTHER_FILE,
            )
        planned = {partition.target: partition.target_id for partition in self._state.plan.partitions}
        others = sorted(topic for topic, found in topic_ids.items() if planned.get(topic, "") != found)
        if others:
            raise KafkaLogError(
                f"The place has other topics than the restore has written: {listed(others, 5)}",
                file=self._path,
                hint="They were deleted and created again since.",
            )

    def translate(self, offsets: Offsets) -> Mapping[TopicPartition, Translated]:
        """See :meth:`.translation.Translation.translate`."""
        return {partition: self._translated(partition, offset) for partition, offset in offsets.items()}

    def _translated(self, partition: TopicPartition, offset: int) -> Translated:
        planned = self._partitions.get(partition)
        if planned is None:
            return Translated(partition, None, UNKNOWN, note="the restore has no copy of it")
        if offset < planned.start:
            note = f"offsets {offset} to {planned.start - 1} were not restored"
            return Translated(planned.destination, None, UNKNOWN, note=note)
        return Translated(planned.destination, self._state.maps[partition].target_of(offset), EXACT, 0)
