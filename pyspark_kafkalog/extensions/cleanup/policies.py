"""Delete policies: functions of the user's that name segments to delete, beside Kafka's own rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark_kafkalog.errors import LogDirectoryError
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.plugins import PlugIn

_HINT = (
    "Nothing was deleted from the partition. Return a list of the first of the given segments: a log has no"
    " gaps, and begins where its oldest segment does."
)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """A segment of a partition, as a delete policy gets it."""

    base_offset: int
    """No record in it has a lower offset."""
    last_offset: int
    """No record in it has a higher offset; without any record, it is below ``base_offset``."""
    size_in_bytes: int
    """Bytes of its ``.log``."""
    largest_timestamp: int
    """The largest timestamp of its records, or else the file's own time; ms since 1970."""
    is_active: bool
    """Whether it is the last one, to which writers append: this one can't be deleted."""


class DeletePolicy:
    """A delete policy, by the option ``deletePolicy``.

    The function takes the partition, its segments from the oldest to the active one, and the time in ms since
    1970. It returns those of the segments that are to be deleted: the oldest ones, or none.

    :param path: its import path, ``package.module:function``.
    :raises OptionError: if it can't be imported or is not callable.
    """

    def __init__(self, path: str) -> None:
        self._function = PlugIn("delete policy", path)
        self._function.check_takes("partition", "segments", "now_ms")

    def count(
        self, partition: TopicPartition, segments: Sequence[LogSegment], now_ms: int, *, folder: str
    ) -> int:
        """The number of oldest segments that it names.

        :param folder: the partition's, for errors.
        :raises LogDirectoryError: if it raises anything, names what is not one of the segments, or the active
            one, or leaves out an older one.
        """

        def wrong(did: str) -> LogDirectoryError:
            error = self._function.error(
                did, kind=LogDirectoryError, hint=_HINT, topic_partition=partition, file=folder
            )
            assert isinstance(error, LogDirectoryError)
            return error

        found = self._function(
            partition,
            list(segments),
            now_ms,
            kind=LogDirectoryError,
            hint="Nothing was deleted from the partition.",
            topic_partition=partition,
            file=folder,
        )
        if not isinstance(found, Collection) or isinstance(found, (str, bytes)):
            raise wrong(f"returned {found!r:.100}, not a list of segments")
        named = list(found)
        foreign = next((each for each in named if each not in segments), None)
        if foreign is not None:
            raise wrong(f"returned {foreign!r:.100}, which is not one of the segments")
        bases = {segment.base_offset for segment in named}
        if segments and segments[-1].base_offset in bases:
            raise wrong(f"named the active segment, at offset {segments[-1].base_offset}: leave it out")
        for segment in segments[: len(bases)]:
            if segment.base_offset not in bases:
                raise wrong(f"named later segments, but not the one at offset {segment.base_offset}")
        return len(bases)
