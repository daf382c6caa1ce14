"""The partitions that a stream reads of those that it subscribes to: all, unless an extension shares them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.model import Place, TopicPartition
from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing
from pyspark_kafkalog.options.offsets_json import Offsets
from pyspark_kafkalog.options.settings import PlaceOptions, ReadOptions
from pyspark_kafkalog.stream.subscription import Assignment

if TYPE_CHECKING:
    from pyspark_kafkalog.model.groups import CommittedOffsets, GroupOffsets, TakesCommits
    from pyspark_kafkalog.stream.committing import AsCommitted, OffsetCommitter


class Share:
    """The partitions of one run of a stream. Offsets are its own, except those that it knows from others.

    Each method does here what a stream does that reads all partitions.
    """

    has_others = False
    """Whether others read, and commit, the partitions that this stream does not."""

    def first(self, chosen: Callable[[], Offsets], subscribed: Callable[[], Assignment]) -> Offsets:
        """The start offsets of a new query.

        :param chosen: where it begins in all partitions, if nothing else is known of them.
        """
        return chosen()

    def begin(
        self,
        start: Offsets,
        subscribed: Callable[[], Assignment],
        default: Callable[[Collection[TopicPartition]], Offsets],
        reached: Callable[[TopicPartition], int],
        *,
        must_wait: bool,
    ) -> Offsets | None:
        """The positions of the partitions of the next micro-batch; None if there are none yet.

        They stay this stream's until :meth:`release`.

        :param start: the end of the last micro-batch, which has been processed and committed.
        :param default: where partitions begin of which nothing is known.
        :param reached: the offset up to which the query has read a partition, also before its checkpoint was
            set back; -1 if it has not.
        :param must_wait: wait until there are some.
        """
        return start

    def of(self, subscribed: Assignment) -> Assignment:
        """The partitions that it has since :meth:`begin`; the same object as long as they are the same."""
        return subscribed

    def only(self, offsets: Offsets, partitions: Collection[TopicPartition]) -> Offsets:
        """The ``offsets`` of its ``partitions``: others know more of the rest."""
        return offsets

    def topic_ids(self, topic_ids: Mapping[str, str], end: Offsets) -> Mapping[str, str]:
        """The ids of the topics that a micro-batch up to ``end`` reads."""
        return topic_ids

    @property
    def is_unconfirmed(self) -> bool:
        """Whether :meth:`confirm` is still to be called, also where there is nothing to read."""
        return False

    def confirm(self, begins: Offsets) -> bool:
        """Hear that these positions belong to the logs that are there. False if they were lost meanwhile."""
        return True

    def offer(self, end: Offsets, begins: Offsets) -> None:
        """Hear where the next micro-batch ends, and where its partitions begin."""

    def release(self) -> None:
        """Hear that there is nothing to read, or that all is processed and committed."""

    def ranges(self, start: Offsets, end: Offsets, *, is_replay: bool) -> tuple[Offsets, Offsets]:
        """The start and end offsets of a micro-batch, of the partitions that it reads."""
        return start, end

    def takes_commits(
        self, open_groups: Callable[[], GroupOffsets]
    ) -> tuple[TakesCommits, CommittedOffsets | None]:
        """The groups for the query's commits, and those with its earlier commits, if these may be ahead."""
        groups = open_groups()
        return groups, groups

    def own(self, end: Offsets) -> Offsets:
        """The part of a micro-batch's end to commit; the same object as long as it is the same."""
        return end

    def finished(self, committer: OffsetCommitter | None, end: Offsets, *, is_new: bool, wait: bool) -> None:
        """Commit the end of a micro-batch that is complete.

        :param is_new: whether it is where a new query begins, which has processed nothing.
        """
        if committer is not None and not is_new:
            committer.finished(end, wait=wait)

    def leave(self) -> None:
        """Hear that the stream has ended."""


@dataclass(frozen=True)
class StreamRun:
    """The run of a query that a share is opened for.

    :param groups: opens the query's groups, with the seconds for which to ask them.
    :param as_committed: gives what is committed for offsets below which everything is processed.
    :param begins: reads where the newest planned micro-batch began, as far as the one before ended elsewhere.
    :param store_begins: stores them for the micro-batch that is planned now.
    """

    options: ReadOptions
    place_options: PlaceOptions
    place: Place
    groups: Callable[[float], CommittedOffsets]
    as_committed: Callable[[], AsCommitted]
    begins: Callable[[], Offsets]
    store_begins: Callable[[Offsets], None]


class Sharing(ExtensionOptions):
    """The sharing of a stream's partitions with other streams. The core shares none."""

    __slots__ = ()

    @property
    def is_shared(self) -> bool:
        """Whether it does."""
        return False

    def open(self, run: StreamRun) -> Share:
        """The share of a run."""
        return Share()


def sharing_of(options: ReadOptions) -> Sharing:
    """The sharing of a stream with these options."""
    return implementing(Sharing, options.extensions)
