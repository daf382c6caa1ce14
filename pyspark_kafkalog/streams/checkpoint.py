"""Stores in a streaming query's checkpoint what Spark does not store for a Python source.

After a crash in the first micro-batch Spark asks a Python source for its initial
offsets again (its own Kafka source writes them to ``sources/0/0`` of the checkpoint).
And offsets alone do not show that a topic was deleted and recreated. Spark does not
tell the source where the checkpoint is, so the user may give the reader the option
``checkpointLocation``, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.filesystem import Folder, locate
from pyspark_kafkalog.options.offsets_json import Offsets, parse_offsets, to_text


def kept_start_offsets(
    checkpoint_location: str | None, source: object, choose: Callable[[], Offsets]
) -> Offsets:
    """The start offsets of a query: those stored before, else ``choose()``, which are then stored.

    :param checkpoint_location: path or URI; None stores nothing.
    :param source: its repr distinguishes the sources of a query.
    :raises KafkaLogError: if the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return choose()
    file = _File.of(checkpoint_location, "kafkalog-start-offsets", source)
    text = file.read()
    if text is None:
        chosen = choose()
        file.write(to_text(chosen))
        return chosen
    try:
        return parse_offsets(text, option="stored start offsets")
    except OptionError as e:
        raise KafkaLogError(
            f"The stored start offsets are corrupt: {e}",
            file=file.path,
            hint="Delete the file to choose them again.",
        ) from e


def kept_topic_ids(checkpoint_location: str | None, source: object) -> dict[str, str]:
    """The ids of the topics that a query has read, as :func:`keep_topic_ids` stored them.

    :raises KafkaLogError: if the stored file can't be parsed.
    """
    if checkpoint_location is None:
        return {}
    file = _File.of(checkpoint_location, "kafkalog-topic-ids", source)
    try:
        ids = json.loads(file.read() or "{}")
        if isinstance(ids, dict) and all(isinstance(topic_id, str) for topic_id in ids.values()):
            return ids
    except (ValueError, RecursionError):
        pass
    raise KafkaLogError(
        "The stored topic ids are corrupt",
        file=file.path,
        hint="Delete the file. Topics recreated since the last run then go unnoticed.",
    )


def keep_topic_ids(checkpoint_location: str | None, source: object, topic_ids: Mapping[str, str]) -> None:
    """Store the ids of the topics whose records a query has processed, for its next run."""
    if checkpoint_location is not None:
        file = _File.of(checkpoint_location, "kafkalog-topic-ids", source)
        file.write(json.dumps(dict(sorted(topic_ids.items()))))


class _File(NamedTuple):
    folder: Folder
    name: str

    @classmethod
    def of(cls, checkpoint_location: str, kind: str, source: object) -> _File:
        digest = hashlib.sha256(repr(source).encode()).hexdigest()
        return cls(locate(checkpoint_location).child(kind), f"{digest[:32]}.json")

    @property
    def path(self) -> str:
        return self.folder.label(self.name)

    def read(self) -> str | None:
        """The stored text; None if there is no file."""
        data = self.folder.read_replaced(self.name)
        return None if data is None else data.decode(errors="replace")

    def write(self, text: str) -> None:
        """Replace the file atomically."""
        self.folder.replace(self.name, text.encode())
