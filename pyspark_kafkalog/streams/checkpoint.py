"""Keeps beside a streaming query's checkpoint what Spark's does not hold of a Python source.

Spark asks a Python source for its initial offsets again after a crash in the
first micro-batch (its own Kafka source writes them to ``sources/0/0`` of the
checkpoint); and offsets do not tell a topic from one made anew under its name.
Spark does not tell the source where the checkpoint is, so the user may tell the
reader too, with the option ``checkpointLocation``.
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
    """The start offsets of a query: those kept before, else ``choose()``, which are then kept.

    :param checkpoint_location: path or URI; None keeps nothing.
    :param source: its repr tells one source of a query from another.
    :raises KafkaLogError: if the file that keeps them can't be understood.
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
        return parse_offsets(text, option="kept start offsets")
    except OptionError as e:
        raise KafkaLogError(
            f"The kept start offsets are broken: {e}",
            file=file.path,
            hint="Delete the file to choose them anew.",
        ) from e


def kept_topic_ids(checkpoint_location: str | None, source: object) -> dict[str, str]:
    """The ids of the topics that a query has read, as :func:`keep_topic_ids` left them.

    :raises KafkaLogError: if the file that keeps them can't be understood.
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
        "The kept topic ids are broken",
        file=file.path,
        hint="Delete the file: topics that were made anew since the last run are then not noticed.",
    )


def keep_topic_ids(checkpoint_location: str | None, source: object, topic_ids: Mapping[str, str]) -> None:
    """Keep the ids of the topics whose records a query has processed, for its next run."""
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
        """The text that was written last; None if there is no file."""
        data = self.folder.read_replaced(self.name)
        return None if data is None else data.decode(errors="replace")

    def write(self, text: str) -> None:
        self.folder.replace(self.name, text.encode())
