"""What the options of a reader mean for every split of a read, with Spark or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark_kafkalog.codec.decode import DecodeLimits
from pyspark_kafkalog.model import Place
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.reading.ranges import ReadRules, RecordReader, SplitReader

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_kafkalog.largemessage.assembler import Dropped


def read_rules(options: ReadOptions, schema: pa.Schema) -> ReadRules:
    """The rules for rows of ``schema``."""
    return ReadRules(
        schema=schema,
        read_committed=options.read_committed,
        fail_on_data_loss=options.fail_on_data_loss,
        limits=DecodeLimits(check_crcs=options.check_crcs),
    )


def split_reader(
    place: Place,
    options: ReadOptions,
    rules: ReadRules,
    on_dropped: Callable[[Sequence[Dropped]], None] | None = None,
) -> SplitReader:
    """The reader of records, or of whole large messages.

    :param on_dropped: called with large messages that can't be completed.
    """
    if not options.large_messages.enabled:
        return RecordReader(place, rules)
    from pyspark_kafkalog.reading.whole_messages import WholeMessageReader

    return WholeMessageReader(place, rules, options.large_messages, on_dropped)
