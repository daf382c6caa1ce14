"""Optional features that the core calls, one folder each. This is the one way from options to them.

Each is loaded if one of its options is given, and gives an :class:`.contracts.ExtensionOptions`, which
implements the contracts by which the core calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.groups import OWN_PREFIX
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.broker.wire.clouds import Clouds
    from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
    from pyspark_kafkalog.log.sink import CleanUp
    from pyspark_kafkalog.model.groups import GroupOffsets
    from pyspark_kafkalog.options.brokers import ProduceOptions
    from pyspark_kafkalog.options.contracts import ExtensionOptions, OffsetsStore
    from pyspark_kafkalog.options.settings import WriteOptions
    from pyspark_kafkalog.read.ranges import Existing, SplitReader
    from pyspark_kafkalog.read.splits import Split
    from pyspark_kafkalog.spark.view import View


def of_read(user: UserOptions) -> tuple[ExtensionOptions, ...]:
    """The extensions that a read asks for, in the order in which its rows pass them.

    :raises OptionError: for malformed or contradictory options, and if one is not installed.
    """
    found: list[ExtensionOptions | None] = []
    if given := user.of_extension("large_messages"):
        with _installed("large_messages", f"Option {given[0]!r}"):
            from pyspark_kafkalog.extensions.large_messages.options import large_message_options
        found.append(large_message_options(user))
    found.append(_audit(user))
    if given := user.of_extension("typed_values"):
        with _installed("typed_values", f"Option {given[0]!r}"):
            from pyspark_kafkalog.extensions.typed_values.options import value_options
        found.append(value_options(user))
    found.append(_transform(user))
    found.append(offsets_store(user))
    if user.are_of_stream and (given := user.of_extension("membership")):
        with _installed("membership", f"Option {given[0]!r}"):
            from pyspark_kafkalog.extensions.membership.options import membership_options
        found.append(membership_options(user))
    return tuple(each for each in found if each is not None)


def of_write(user: UserOptions, write: WriteOptions) -> tuple[ExtensionOptions, ...]:
    """The extensions that a write asks for, in the order in which its rows pass them.

    :raises OptionError: for malformed or contradictory options, and if one is not installed.
    """
    found: list[ExtensionOptions | None] = [_transform(user)]
    if given := user.of_extension("typed_values"):
        with _installed("typed_values", f"Option {given[0]!r}"):
            from pyspark_kafkalog.extensions.typed_values.options import written_value_options
        found.append(written_value_options(user))
    found.append(_audit(user))
    if given := user.of_extension("large_messages"):
        with _installed("large_messages", f"Option {given[0]!r}"):
            from pyspark_kafkalog.extensions.large_messages.options import split_options
        found.append(split_options(user, write))
    if write.produce is not None:
        found.append(_transactions(user, write.produce))
    return tuple(each for each in found if each is not None)


def offsets_store(user: UserOptions) -> OffsetsStore | None:
    """The store in which the options say that groups keep their offsets; None for Kafka.

    :raises OptionError: for malformed or contradictory options, and if the extension is not installed.
    """
    given = user.of_extension("zookeeper")
    if not given:
        return None
    with _installed("zookeeper", f"Option {given[0]!r}"):
        from pyspark_kafkalog.extensions.zookeeper.options import zookeeper_offsets
    return zookeeper_offsets(user)


def check_no_marker(groups: GroupOffsets, group: str, changed: str) -> None:
    """Check that a group holds no marker of an exactly-once query, which is ``changed``, such as "moved".

    :raises GroupError: if it does.
    :raises OptionError: if it may, and the extension is not installed.
    """
    if not group.startswith(OWN_PREFIX):
        return
    with _installed("exactly_once", f"Group {group!r}"):
        from pyspark_kafkalog.extensions.exactly_once import group_marker
    group_marker.check_no_marker(groups, group, changed)


def without_reader_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records to write without what readers of large messages have put into their headers.

    Any write may be one of rows that were read so, also where no extension is asked for. Without the folder
    nothing tells such headers from the user's: then they are kept.
    """
    try:
        from pyspark_kafkalog.extensions.large_messages import segments
    except ModuleNotFoundError as e:
        if not _lacks("large_messages", e):
            raise
        return records
    return segments.without_reader_headers(records)


@dataclass(frozen=True, slots=True)
class WatchingReader:
    """A reader of single records which says so if it meets message segments, parts of large messages.

    The extension is loaded only for rows that have its mark: a value that begins as a message segment does,
    with a byte that no text begins with, or headers.
    """

    reader: SplitReader

    def read(self, split: Split, found: Existing | None = None) -> Iterator[pa.RecordBatch]:
        """See :meth:`.ranges.SplitReader.read`."""
        is_done = False
        for rows in self.reader.read(split, found):
            if not is_done and _may_have_segments(rows):
                is_done = _told_of_segments(rows, split.partition.topic)
            yield rows


def _may_have_segments(rows: pa.RecordBatch) -> bool:
    names = rows.schema.names
    if "value" not in names:
        return False
    if "headers" in names:
        return True
    from pyspark_kafkalog.codec.buffers import binary_column

    offsets, _, data = binary_column(rows.column("value"))
    starts = data[offsets[:-1][offsets[1:] > offsets[:-1]]]
    return bool(((starts - 1) >= 127).any())  # 0 or from 128 on


def _told_of_segments(rows: pa.RecordBatch, topic: str) -> bool:
    try:
        from pyspark_kafkalog.extensions.large_messages.watching import tell_of_segments
    except ModuleNotFoundError as e:
        if not _lacks("large_messages", e):
            raise
        return True
    return tell_of_segments(rows, topic)


def view(options: Mapping[str, str]) -> View | None:
    """The view that the options show instead of records; None for records.

    :raises OptionError: for malformed options, or those that it can't have, and if it is not installed.
    """
    if "view" not in UserOptions(options, Use.BATCH_READ):
        return None
    with _installed("views", "Option 'view'"):
        from pyspark_kafkalog.extensions.views.options import view_options
    return view_options(options)


def cloud_services() -> Clouds:
    """The services of clouds, for an option that names a cloud.

    :raises OptionError: if the extension is not installed.
    """
    with _installed("clouds", "A login or rack of a cloud"):
        from pyspark_kafkalog.extensions.clouds import services
    return services


def directory_groups() -> type[DirectoryGroups]:
    """The consumer groups of log directories.

    :raises OptionError: if the extension is not installed.
    """
    with _installed("log_groups", "A group of a log directory"):
        from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
    return DirectoryGroups


def commit_cleanup(delete_policy: str | None = None) -> CleanUp:
    """What runs after a write to a log directory, for the topics that it has written to.

    :param delete_policy: the import path of a function that names segments to delete.
    :raises OptionError: if it can't be imported, or the extension is not installed.
    """
    with _installed("cleanup", "A log directory's retention or compaction"):
        from pyspark_kafkalog.extensions.cleanup import after_commit
    return after_commit.CleanUp(delete_policy)


def _transactions(user: UserOptions, produce: ProduceOptions) -> ExtensionOptions | None:
    of_directories = [name for name in ("txnAppId", "failOnMissingMarker") if name in user]
    given = [*user.of_extension("exactly_once"), *of_directories]
    if not given:
        return None
    with _installed("exactly_once", f"Option {given[0]!r}"):
        from pyspark_kafkalog.extensions.exactly_once.options import transaction_options
    return transaction_options(user, produce)


def _transform(user: UserOptions) -> ExtensionOptions | None:
    given = user.of_extension("transform")
    if not given:
        return None
    with _installed("transform", f"Option {given[0]!r}"):
        from pyspark_kafkalog.extensions.transform.options import transform_options
    return transform_options(user)


def _audit(user: UserOptions) -> ExtensionOptions | None:
    given = user.of_extension("audit")
    if not given:
        return None
    with _installed("audit", f"Option {given[0]!r}"):
        from pyspark_kafkalog.extensions.audit.options import audit_options
    return audit_options(user)


@contextmanager
def _installed(name: str, needing: str) -> Iterator[None]:
    """Turn an import of an extension whose folder is missing into an error for the user."""
    try:
        yield
    except ModuleNotFoundError as e:
        if not _lacks(name, e):
            raise
        raise OptionError(
            f"{needing} needs {name}, which is not installed",
            hint=f"Leave it out, or install a pyspark-kafkalog that has the folder extensions/{name}.",
        ) from None


def _lacks(name: str, error: ModuleNotFoundError) -> bool:
    """Whether an import failed because the folder of this extension is missing."""
    return error.name is not None and error.name.startswith(f"{__name__}.{name}")
