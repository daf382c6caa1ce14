"""Keeps the start offsets of a streaming query beside its checkpoint.

Spark asks a Python source for its initial offsets again after a crash in the
first micro-batch, and does not tell it where the checkpoint is (its own Kafka
source writes them to ``sources/0/0`` there). So the user may tell the reader
too, with the option ``checkpointLocation``.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable

from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.log.filesystem import locate
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
    folder = locate(checkpoint_location)
    digest = hashlib.sha256(repr(source).encode()).hexdigest()
    path = f"{folder.path}/kafkalog-start-offsets/{digest[:32]}.json"
    try:
        with folder.filesystem.open_input_stream(path) as stream:
            return parse_offsets(stream.read().decode(), option="kept start offsets")
    except FileNotFoundError:
        chosen = choose()
        folder.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        unfinished = f"{path}.{uuid.uuid4().hex}.tmp"
        with folder.filesystem.open_output_stream(unfinished) as stream:
            stream.write(to_text(chosen).encode())
        folder.filesystem.move(unfinished, path)
        return chosen
    except (OptionError, UnicodeDecodeError) as e:
        raise KafkaLogError(
            f"The kept start offsets are broken: {e}", file=path, hint="Delete the file to choose them anew."
        ) from e
