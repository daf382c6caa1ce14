"""Restores topics into a cluster: see :mod:`pyspark_kafkalog.backups.restore`."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.admin.source_options import source_options
from pyspark_kafkalog.backups.restore import Restore, RestoreSettings
from pyspark_kafkalog.backups.restore_groups import RestoredOffset
from pyspark_kafkalog.backups.restore_records import Progress
from pyspark_kafkalog.backups.restore_rows import Restored, RestoredPartition
from pyspark_kafkalog.options.settings import place_options, write_options

__all__ = ["RestoreSettings", "Restored", "RestoredOffset", "RestoredPartition", "restore"]


def restore(
    source: Mapping[str, str],
    target: Mapping[str, str],
    settings: RestoreSettings | None = None,
    *,
    execute: bool = False,
    progress: Progress = lambda done, total=None: None,
) -> Restored:
    """Write the records of ``source`` to the cluster of ``target``, and commit its groups' offsets there.

    It can be killed, and run again with the same arguments: nothing is written twice.

    :param source: options of any place: ``path``, or ``kafka.bootstrap.servers``. Offsets of a directory's
        groups count at any age, unless ``offsets.retention.minutes`` is given.
    :param target: ``kafka.bootstrap.servers``, and other options of a writer.
    :param execute: without it the source is read, and the result says what would be restored.
    :param progress: called with the bytes read since the last call, and their total where it is known.
    :raises OptionError: for settings that don't fit, before anything is written.
    :raises KafkaLogError: if it fails; what was restored stays, and the next run goes on from there.
    """
    work = Restore(
        source_options(source), write_options(target), place_options(target), settings or RestoreSettings()
    )
    return work.run(execute=execute, progress=progress)
