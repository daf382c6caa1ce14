"""Opens the place that the options name, its topics, consumer groups and sink."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import BrokerConnectionError, together
from pyspark_kafkalog.model import QueryBatch, TopicPartition
from pyspark_kafkalog.options.contracts import delivery_of
from pyspark_kafkalog.options.settings import PlaceOptions, WriteOptions

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.place import Brokers
    from pyspark_kafkalog.log.read.directory import LogDirectory
    from pyspark_kafkalog.model.groups import GroupOffsets
    from pyspark_kafkalog.model.sinks import Sink
    from pyspark_kafkalog.model.topics import ClusterTopics, Topics
    from pyspark_kafkalog.options.brokers import ConnectionOptions

if sys.platform == "win32":  # which has neither fork nor fcntl
    raise ImportError("pyspark-kafkalog runs on Linux and macOS, not on Windows")


def open_place(
    options: PlaceOptions, *, reached: bool = False, forgetful: bool = False
) -> Brokers | LogDirectory:
    """The place that the options name, for this thread. It connects to brokers on first use.

    Of a store of offsets alone it is the brokers of its cluster, which are looked up now.

    :param reached: whether the place has answered another process of the same query: then this one waits
        for brokers that don't answer, and lists the roots of a directory only if it has to.
    :param forgetful: whether to believe what brokers say next, whatever they have said to this thread before.
    """
    if options.brokers is not None:
        from pyspark_kafkalog.broker.cluster.pool import note_reached
        from pyspark_kafkalog.broker.place import Brokers

        brokers = _brokers(options, options.brokers)
        if reached:
            note_reached(brokers)
        assert options.fetch is not None
        return Brokers(brokers, options.fetch, forgetful=forgetful)
    from pyspark_kafkalog.log.read.directory import LogDirectory

    return LogDirectory.open(options.paths, check=not reached)


def _brokers(options: PlaceOptions, brokers: ConnectionOptions) -> ConnectionOptions:
    """The brokers that the options name, or those of the cluster of their store of offsets."""
    if brokers.bootstrap_servers:
        return brokers
    assert options.offsets_store is not None
    return replace(brokers, bootstrap_servers=options.offsets_store.bootstrap_servers(brokers))


def cluster_id(brokers: ConnectionOptions) -> str | None:
    """The id of a cluster; None before Kafka 0.10.1."""
    from pyspark_kafkalog.broker.cluster.cluster import cluster_of
    from pyspark_kafkalog.broker.wire.deadline import Deadline

    deadline = Deadline.after_ms(brokers.request_timeout_ms)
    return cluster_of(brokers).identity((), deadline=deadline).cluster_id


def identity(options: PlaceOptions) -> tuple[str | None, str]:
    """The id of the cluster that the options name, and what tells the place from others, however it is
    addressed: that id, or the directories. Only a cluster without an id is told by its addresses.
    """
    if options.brokers is None:
        from pyspark_kafkalog.log.read.directory import resolved

        return None, f"directories {resolved(options.paths)}"
    brokers = _brokers(options, options.brokers)
    found = cluster_id(brokers)
    return found, f"cluster {found}" if found else f"brokers {sorted(brokers.bootstrap_servers)}"


def open_report(options: PlaceOptions) -> Brokers | LogDirectory:
    """The place for one report, which asks once, and believes the answers: to a reader, a topic that it knows
    has to be proved gone.
    """
    return open_place(options.of_report, forgetful=True)


def check_usable(options: PlaceOptions, partitions: Collection[TopicPartition]) -> None:
    """Look, as a report does, for what would make a reader of all these partitions wait in vain.

    If brokers are only silent, that is left to the work itself, which waits for as long as the options say.

    :raises KafkaLogError: if one has no leader or is refused; it names all that can't be used.
    """
    if options.brokers is None or not partitions:
        return
    try:
        _, failures = open_report(options).try_watermarks(partitions)
    except BrokerConnectionError:
        return
    if not all(isinstance(error, BrokerConnectionError) for error in failures.values()):
        raise together(failures)


def import_reading(options: PlaceOptions) -> None:
    """Import now the modules that the place needs for its first read."""
    if options.brokers is not None:
        import pyspark_kafkalog.broker.fetch.fetcher  # noqa: F401


def open_groups(options: PlaceOptions, *, timeout: float | None = None) -> GroupOffsets:
    """The consumer groups of the place that the options name, for this thread, where they keep their offsets.

    :param timeout: seconds that one call may take, in a directory the wait for another writer; None for the
        place's own settings.
    """
    if options.brokers is not None:
        from pyspark_kafkalog.broker.groups.groups import BrokerGroups

        if options.offsets_store is None:
            return BrokerGroups(options.brokers, timeout=timeout)
        return options.offsets_store.open_groups(options.brokers, timeout=timeout)
    groups, retention = extensions.directory_groups(), options.offsets_retention_minutes
    if timeout is None:
        return groups.open(options.paths, retention_minutes=retention)
    return groups.open(options.paths, retention_minutes=retention, lock_timeout=timeout)


def open_topics(options: PlaceOptions) -> Topics:
    """The topics of the place that the options name, to make, change and delete, for this thread."""
    if options.brokers is not None:
        return open_cluster_topics(options)
    from pyspark_kafkalog.log.topics import DirectoryTopics

    return DirectoryTopics(options.paths)


def open_cluster_topics(options: PlaceOptions) -> ClusterTopics:
    """The topics of the brokers that the options name, for this thread."""
    from pyspark_kafkalog.broker.topics.topics import BrokerTopics

    assert options.brokers is not None
    return BrokerTopics(options.brokers)


def open_sink(options: WriteOptions, batch: QueryBatch | None = None) -> Sink[Any]:
    """The sink of the place that the options name.

    :param batch: of a job, which begins now; None for a query.
    :raises OptionError: if the checkpoint is in the directory, or a plug-in can't be imported.
    :raises LogDirectoryLockedError: if a broker runs on the directory.
    :raises LogDirectoryError: if it can't be written to.
    """
    if options.brokers is not None:
        sink = delivery_of(options).open_sink(options, batch)
        if sink is not None:
            return sink
        from pyspark_kafkalog.broker.produce.sink import BrokerSink

        assert options.produce is not None
        return BrokerSink(options.brokers, options.produce, options.encode_settings)
    from pyspark_kafkalog.log.sink import DirectorySink

    return DirectorySink.on_driver(
        options.root,
        options.num_partitions,
        options.encode_settings,
        options.topic_configs,
        is_job=options.batch is not None,
        required=options.fail_on_missing_marker,
        checkpoint_location=options.checkpoint_location,
        delete_policy=options.delete_policy,
    )
