"""The configurations of a directory's topics, in a file of our own: Kafka keeps them in its metadata.

``.kafkalog-topics`` in the log root, which brokers ignore: JSON with a version, and for each topic its own
configurations by Kafka's names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping

from pyspark_kafkalog.errors import UNREADABLE, LogDirectoryError
from pyspark_kafkalog.filesystem.durable import replace
from pyspark_kafkalog.filesystem.folder import Folder
from pyspark_kafkalog.filesystem.locate import open_folder
from pyspark_kafkalog.log.layout import TOPIC_CONFIGS_FILE

_VERSION = 1


def read_topic_configs(root: Folder) -> dict[str, dict[str, str]]:
    """The configurations of each topic that has some.

    :raises LogDirectoryError: if the file can't be understood.
    """
    data = root.read(TOPIC_CONFIGS_FILE)
    if data is None:
        return {}
    try:
        content = json.loads(data)
        topics = content["topics"]
        if content["version"] != _VERSION:
            raise ValueError(content["version"])
        return {
            str(topic): {str(name): str(value) for name, value in configs.items()}
            for topic, configs in topics.items()
        }
    except UNREADABLE:
        raise LogDirectoryError(
            "Cannot understand the configurations of the topics",
            file=root.label(TOPIC_CONFIGS_FILE),
            hint="Use the version of the package that wrote them, or delete the file and set them again.",
        ) from None


def write_topic_configs(root: str, topics: Mapping[str, Mapping[str, str]]) -> None:
    """Replace all configurations; the caller holds the directory's lock."""
    content = {"version": _VERSION, "topics": {topic: dict(topics[topic]) for topic in sorted(topics)}}
    replace(os.path.join(root, TOPIC_CONFIGS_FILE), json.dumps(content, indent=1).encode())


def forget_topic_configs(root: str, topics: Collection[str]) -> None:
    """Take topics out of the file; the caller holds the directory's lock.

    :raises LogDirectoryError: if the file can't be understood.
    """
    configs = read_topic_configs(open_folder(root))
    if not configs.keys().isdisjoint(topics):
        write_topic_configs(root, {topic: configs[topic] for topic in configs.keys() - set(topics)})
