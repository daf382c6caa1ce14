"""Optional features that the core calls, one folder each. This is the one way from options to them.

Each is loaded if one of its options is given, and gives an :class:`.contracts.ExtensionOptions`, which
implements the contracts by which the core calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.groups import OWN_PREFIX
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pyspark_kafkalog.broker.wire.clouds import Clouds
    from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
    from pyspark_kafkalog.log.sink import CleanUp
    from pyspark_kafkalog.model import TopicPartition
    from pyspark_kafkalog.model.groups import GroupOffsets
    from pyspark_kafkalog.options.brokers import ProduceOptions
    from pyspark_kafkalog.options.contracts import ExtensionOptions, OffsetsStore
    from pyspark_kafkalog.options.settings import WriteOptions
    from pyspark_kafkalog.read.ranges import SplitReader
    from pyspark_kafkalog.spark.view import View


def of_read(user: UserOptions) -> tuple[ExtensionOptions, ...]:
    """The extensions that a read asks for, in the order in which its rows pass them.

    :raises OptionError: for malformed or contradictory options, and if one is not installed.
    """
    found: list[ExtensionOptions | None] = []
    if given := user.of_extension("large_messages"):
        _check_installed("large_messages", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.large_messages.options import large_message_options

        found.append(large_message_options(user))
    found.append(_audit(user))
    if given := user.of_extension("typed_values"):
        _check_installed("typed_values", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.typed_values.options import value_options

        found.append(value_options(user))
    found.append(_transform(user))
    found.append(offsets_store(user))
    if user.are_of_stream and (given := user.of_extension("membership")):
        _check_installed("membership", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.membership.options import membership_options

        found.append(membership_options(user))
    return tuple(each for each in found if each is not None)


def of_write(user: UserOptions, write: WriteOptions) -> tuple[ExtensionOptions, ...]:
    """The extensions that a write asks for, in the order in which its rows pass them.

    :raises OptionError: for malformed or contradictory options, and if one is not installed.
    """
    found: list[ExtensionOptions | None] = [_transform(user)]
    if given := user.of_extension("typed_values"):
        _check_installed("typed_values", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.typed_values.options import written_value_options

        found.append(written_value_options(user))
    found.append(_audit(user))
    if given := user.of_extension("large_messages"):
        _check_installed("large_messages", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.large_messages.options import split_options

        found.append(split_options(user, write))
    if given := user.of_extension("callbacks"):
        _check_installed("callbacks", f"Option {given[0]!r}")
        from pyspark_kafkalog.extensions.callbacks.options import callback_options

        found.append(callback_options(user))
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
    _check_installed("zookeeper", f"Option {given[0]!r}")
    from pyspark_kafkalog.extensions.zookeeper.options import zookeeper_offsets

    return zookeeper_offsets(user)


def check_no_marker(groups: GroupOffsets, group: str, changed: str) -> None:
    """Check that a group holds no marker of an exactly-once query, which is ``changed``, such as "moved".

    :raises GroupError: if it does.
    :raises OptionError: if it may, and the extension is not installed.
    """
    if not group.startswith(OWN_PREFIX):
        return
    _check_installed("exactly_once", f"Group {group!r}")
    from pyspark_kafkalog.extensions.exactly_once import group_marker

    group_marker.check_no_marker(groups, group, changed)


def without_reader_headers(records: pa.RecordBatch) -> pa.RecordBatch:
    """Records to write without what readers of large messages have put into their headers.

    Any write may be one of rows that were read so, also where no extension is asked for. Without the folder
    nothing tells such headers from the user's: then they are kept.
    """
    if not _is_installed("large_messages"):
        return records
    from pyspark_kafkalog.extensions.large_messages import segments

    return segments.without_reader_headers(records)


def of_records(reader: SplitReader, tell: Callable[[str], None] | None = None) -> SplitReader:
    """The reader of single records, where no extension makes messages of them.

    It says so if some of them are parts of large messages. Without that folder nothing does.

    :param tell: see :class:`.watching.WatchingReader`.
    """
    if not _is_installed("large_messages"):
        return reader
    from pyspark_kafkalog.extensions.large_messages.watching import WatchingReader

    return WatchingReader(reader) if tell is None else WatchingReader(reader, tell)


def view(options: Mapping[str, str]) -> View | None:
    """The view that the options show instead of records; None for records.

    :raises OptionError: for malformed options, or those that it can't have, and if it is not installed.
    """
    if "view" not in UserOptions(options, Use.BATCH_READ):
        return None
    _check_installed("views", "Option 'view'")
    from pyspark_kafkalog.extensions.views.options import view_options

    return view_options(options)


def cloud_services() -> Clouds:
    """The services of clouds, for an option that names a cloud.

    :raises OptionError: if the extension is not installed.
    """
    _check_installed("clouds", "A login or rack of a cloud")
    from pyspark_kafkalog.extensions.clouds import services

    return services


def directory_groups() -> type[DirectoryGroups]:
    """The consumer groups of log directories.

    :raises OptionError: if the extension is not installed.
    """
    _check_installed("log_groups", "A group of a log directory")
    from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups

    return DirectoryGroups


def commit_tombstones(
    root: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, np.ndarray]:
    """The record batches that delete what groups have committed for partitions of a log directory.

    They are by the partition of ``__consumer_offsets`` to append to. The caller holds the directory's lock.

    :raises GroupError: if a group that may be reading one of ``partitions`` has live members.
    """
    from pyspark_kafkalog.model.topics import OFFSETS_TOPIC

    if not any(name.startswith(f"{OFFSETS_TOPIC}-") for name in os.listdir(root)):
        return {}
    return directory_groups().open(root, lock_timeout=None).tombstones(partitions)


def commit_cleanup(delete_policy: str | None = None) -> CleanUp:
    """The cleanup after a write to a log directory, of the topics that it has written to.

    :param delete_policy: the import path of a function that names segments to delete.
    :raises OptionError: if it can't be imported, or the extension is not installed.
    """
    _check_installed("cleanup", "A log directory's retention or compaction")
    from pyspark_kafkalog.extensions.cleanup import after_commit

    return after_commit.AfterCommit(delete_policy)


def _transactions(user: UserOptions, produce: ProduceOptions) -> ExtensionOptions | None:
    of_directories = [name for name in ("txnAppId", "failOnMissingMarker") if name in user]
    given = [*user.of_extension("exactly_once"), *of_directories]
    if not given:
        return None
    _check_installed("exactly_once", f"Option {given[0]!r}")
    from pyspark_kafkalog.extensions.exactly_once.options import transaction_options

    return transaction_options(user, produce)


def _transform(user: UserOptions) -> ExtensionOptions | None:
    given = user.of_extension("transform")
    if not given:
        return None
    _check_installed("transform", f"Option {given[0]!r}")
    from pyspark_kafkalog.extensions.transform.options import transform_options

    return transform_options(user)


def _audit(user: UserOptions) -> ExtensionOptions | None:
    given = user.of_extension("audit")
    if not given:
        return None
    _check_installed("audit", f"Option {given[0]!r}")
    from pyspark_kafkalog.extensions.audit.options import audit_options

    return audit_options(user)


def _check_installed(name: str, needing: str) -> None:
    """Refuse what needs an extension whose folder is missing.

    :raises OptionError: naming the extension.
    """
    if not _is_installed(name):
        raise OptionError(
            f"{needing} needs {name}, which is not installed",
            hint=f"Leave it out, or install a pyspark-kafkalog that has the folder extensions/{name}.",
        )


def _is_installed(name: str) -> bool:
    """Whether the folder of an extension is there, and not only what Python has left of it."""
    spec = find_spec(f"{__name__}.{name}")
    return spec is not None and spec.origin is not None
