"""Messages, the unit of a read: each record is one, unless an extension says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog import extensions
from pyspark_kafkalog.options.contracts import ExtensionOptions, implementing

if TYPE_CHECKING:
    from pyspark_kafkalog.model import CommittedOffset, Place, TopicPartition
    from pyspark_kafkalog.model.groups import CommittedOffsets
    from pyspark_kafkalog.options.offsets_json import Offsets
    from pyspark_kafkalog.options.settings import ReadOptions
    from pyspark_kafkalog.read.ranges import ReadRules, SplitReader

OnDropped = Callable[[Sequence[Any]], None]
"""Called with messages that can't be completed."""


class Messages(ExtensionOptions):
    """The step from records to messages, and where a group goes on. In the core each record is a message."""

    __slots__ = ()

    @property
    def are_joined(self) -> bool:
        """Whether a message may be several records."""
        return False

    @property
    def need_metadata(self) -> bool:
        """Whether a commit says in its metadata where the next message begins."""
        return False

    def load(self) -> None:
        """Import what the options name.

        :raises OptionError: if that can't be imported.
        """

    def check_start(self, options: ReadOptions, place: Place) -> None:
        """See that messages can be read from where the options start.

        :raises OptionError: naming the partition where they can't.
        """

    def reader(self, place: Place, rules: ReadRules, on_dropped: OnDropped | None = None) -> SplitReader:
        """The reader of messages.

        :param on_dropped: called with messages that can't be completed.
        """
        from pyspark_kafkalog.read.ranges import RecordReader

        return extensions.of_records(RecordReader(place, rules))

    def start_from(self, groups: CommittedOffsets) -> CommittedOffsets:
        """The committed offsets as offsets of the first messages that are wanted."""
        return groups

    def as_committed(
        self, open_place: Callable[[], Place], rules: ReadRules
    ) -> Callable[[Offsets], Mapping[TopicPartition, CommittedOffset]] | None:
        """The commits of a group that has processed all below some offsets; None for the offsets themselves.

        It imports now all that a thread which calls it needs.
        """
        return None


def messages_of(options: ReadOptions) -> Messages:
    """The messages of this read."""
    return implementing(Messages, options.extensions)
