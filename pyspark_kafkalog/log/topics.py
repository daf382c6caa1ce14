"""The topics of a log directory: see :class:`pyspark_kafkalog.model.topics.Topics`."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from pyspark_kafkalog import extensions
from pyspark_kafkalog.errors import LogDirectoryError, OptionError
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import locate
from pyspark_kafkalog.log.obeyed_configs import check_obeyed, refused_by_brokers
from pyspark_kafkalog.log.publish import topics as on_disk
from pyspark_kafkalog.log.read.directory import LogDirectory
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.topics import (
    OWN_CONFIG,
    ConfigEntry,
    NewTopic,
    TopicDescription,
    TopicPartitionInfo,
)

_log = logging.getLogger("pyspark_kafkalog")


class DirectoryTopics:
    """The topics of a directory, which only a single local root lets be changed."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.configs`."""
        directory = LogDirectory.open(self._paths)
        return {topic: dict(directory.topic_config(topic)) for topic in directory.topics(topics)}

    def describe(self, topics: Collection[str]) -> list[TopicDescription]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.describe`."""
        directory = LogDirectory.open(self._paths)
        found = directory.topics(topics)
        partitions = [TopicPartition(topic, number) for topic in found for number in found[topic]]
        ids, epochs = directory.topic_ids(found), directory.leader_epochs(partitions)
        sizes = directory.stored_sizes(partitions)
        described = []
        for topic in sorted(found):
            configs = directory.topic_config(topic)
            own = tuple(ConfigEntry(topic, name, configs[name], OWN_CONFIG) for name in sorted(configs))
            rows = []
            for partition in (TopicPartition(topic, number) for number in found[topic]):
                size = sizes[partition]
                rows.append(
                    TopicPartitionInfo(
                        *partition,
                        leader_epoch=epochs.get(partition),
                        stored_bytes=size.stored_bytes,
                        segments=None if size.segments is None else len(size.segments),
                    )
                )
            described.append(TopicDescription(topic, ids.get(topic, ""), own, tuple(rows)))
        return described

    def config_names(self) -> Collection[str]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.config_names`: none, as no broker is asked."""
        return ()

    def create(self, new: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.create`.

        :raises OptionError: for a configuration that no directory can obey, even when one is changed.
        :raises LogDirectoryLockedError: if a broker runs on the directory, as for every change.
        """
        for topic in new:
            check_obeyed(topic.configs)
            if (topic.replication_factor or 1) != 1:
                raise OptionError(
                    f"Topic {topic.topic}: a log directory has one replica, not {topic.replication_factor}",
                    hint="Leave out the replication factor.",
                )
        root = self._root()
        on_disk.create_topics(
            root,
            {topic.topic: (topic.partitions or 1, topic.configs) for topic in new},
            partial(extensions.commit_tombstones, root),
            validate_only=validate_only,
        )
        if not validate_only:
            for topic in new:
                _warn_of_brokers(topic.topic, topic.configs)

    def delete(self, topics: Collection[str]) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.delete`. Groups lose their offsets, as on brokers.

        :raises GroupError: if a group that may be reading them has live members; then nothing is deleted.
        """
        root = self._root()
        on_disk.delete_topics(root, topics, partial(extensions.commit_tombstones, root))

    def add_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.add_partitions`."""
        on_disk.add_partitions(self._root(), topic, count, validate_only=validate_only)

    def alter_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.alter_configs`."""
        check_obeyed({**self.configs([topic]).get(topic, {}), **changes}, changes)
        on_disk.alter_configs(self._root(), topic, changes, validate_only=validate_only)
        if not validate_only:
            _warn_of_brokers(topic, changes)

    def _root(self) -> str:
        """The path of the one root, for a change.

        :raises LogDirectoryError: if there are several, or it is not on a disk or mount of this machine.
        """
        folders: list[Folder] = [locate(path) for path in self._paths]
        if len(folders) > 1 or not folders[0].is_local:
            raise LogDirectoryError(
                "Topics can be changed in a single local log directory only",
                file=", ".join(folder.label() for folder in folders),
                hint="Name one local folder of Kafka's log.dirs.",
            )
        return folders[0].path


def _warn_of_brokers(topic: str, configs: Mapping[str, str | None]) -> None:
    for name, why in refused_by_brokers(configs).items():
        _log.warning(
            "Topic %s: %s=%s is obeyed here, but %s: leave it out of a restore by --set %s=",
            *(topic, name, configs[name], why, name),
        )
