"""Opens a place, its consumer groups and its sink."""

from __future__ import annotations

from pyspark_kafkalog.model import GroupOffsets, Place, Sink
from pyspark_kafkalog.options.settings import PlaceOptions, WriteOptions


def open_place(options: PlaceOptions, *, reached: bool = False) -> Place:
    """The place that the options name, for this thread. Brokers are contacted on first use.

    :param reached: whether the place has answered another process of the same query. Then brokers that
        don't answer are waited for, and the roots of a directory are not listed.
    """
    if options.brokers is not None:
        from pyspark_kafkalog.broker.cluster.pool import note_reached
        from pyspark_kafkalog.broker.place import Brokers

        if reached:
            note_reached(options.brokers)
        assert options.fetch is not None
        return Brokers(options.brokers, options.fetch)
    from pyspark_kafkalog.log.read.directory import LogDirectory

    return LogDirectory.open(options.paths, checked=reached)


def import_reading(options: PlaceOptions) -> None:
    """Import now what the place would import on its first read."""
    if options.brokers is not None:
        import pyspark_kafkalog.broker.fetch.fetcher  # noqa: F401


def open_groups(options: PlaceOptions, *, timeout: float | None = None) -> GroupOffsets:
    """The consumer groups of the place that the options name, for this thread.

    :param timeout: seconds that one call may take; None for the place's own settings. In a directory
        it bounds the wait for another writer.
    """
    if options.brokers is not None:
        from pyspark_kafkalog.broker.groups.groups import BrokerGroups

        return BrokerGroups(options.brokers, timeout=timeout)
    from pyspark_kafkalog.log.groups.groups import DirectoryGroups

    retention = options.offsets_retention_minutes
    if timeout is None:
        return DirectoryGroups.open(options.paths, retention_minutes=retention)
    return DirectoryGroups.open(options.paths, retention_minutes=retention, lock_timeout=timeout)


def open_sink(options: WriteOptions) -> Sink:
    """The sink that writes to the place that the options name.

    :raises LogDirectoryLockedError: if a broker runs on the directory.
    """
    if options.brokers is not None:
        from pyspark_kafkalog.broker.produce.sink import BrokerSink

        assert options.produce is not None
        return BrokerSink(options.brokers, options.produce, options.encode_settings)
    from pyspark_kafkalog.log.write.sink import DirectorySink

    sink = DirectorySink(options.root, options.num_partitions, options.encode_settings, options.log_settings)
    sink.check()
    return sink
