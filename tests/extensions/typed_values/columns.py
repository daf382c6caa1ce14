"""Columns of values, decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.codec.buffers import value_bounds


def decode_column(decoder: Any, column: pa.BinaryArray, entry: int | None = None) -> Any:
    """What a decoder of Avro or JSON makes of a column.

    :param entry: of Avro: that of the one writer's schema.
    """
    data, starts, sizes = value_bounds(column)
    of_writers = [] if entry is None else [np.full(sizes.size, entry, np.int64)]
    return decoder.decode(data, starts, sizes, *of_writers)
