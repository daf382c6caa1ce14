"""Decodes JSON by the type that a JSON Schema has, and tells of each corrupt row why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pyspark_kafkalog.extensions.typed_values.columns import inner_type
from pyspark_kafkalog.extensions.typed_values.json.decoder import DecodedJson, Decoder
from pyspark_kafkalog.extensions.typed_values.json.times import Zone
from pyspark_kafkalog.extensions.typed_values.json_schema.conversion import Faults, converted
from pyspark_kafkalog.extensions.typed_values.json_schema.types import JsonType


@dataclass(frozen=True, eq=False)
class DecodedBySchema:
    """The values decoded from some rows, as :class:`.decoder.DecodedJson` has them."""

    array: pa.Array
    corrupt: np.ndarray
    slow: Counter[str]
    _read: DecodedJson
    _faults: Faults

    def reason(self, row: int) -> str:
        """The reason why a row is corrupt."""
        if row in self._faults.reasons:
            path, why = self._faults.reasons[row]
            return f"{path}: {why}"
        return self._read.reason(row)


class SchemaDecoder:
    """Decodes JSON by one type, whatever the schemas of its writers. For one thread at a time.

    :param zone: of times without one.
    :param corrupt: the field that gets the text of corrupt rows, if the struct has it.
    """

    def __init__(self, kind: JsonType, zone: Zone, corrupt: str) -> None:
        self._type = kind.type
        self._decoder = Decoder(kind.read_as, zone, corrupt)

    def decode(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> DecodedBySchema:
        """See :meth:`.decoder.Decoder.decode`."""
        read, faults = self._decoder.decode(data, starts, sizes), Faults()
        array = converted(read.array, self._type, faults)
        corrupt = read.corrupt
        if faults.reasons:
            corrupt = np.union1d(corrupt, np.fromiter(faults.reasons, np.int64))
        return DecodedBySchema(array, corrupt, read.slow, read, faults)


def part_of(whole: JsonType, wanted: pa.DataType) -> JsonType:
    """A part of a type, as :func:`.columns.check_part` allows it; ``wanted`` may have other fields, too."""
    return replace(whole, type=wanted, read_as=_part(whole.read_as, whole.type, wanted))


def _part(read_as: pa.DataType, kind: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if read_as == kind or wanted == kind:
        return wanted if read_as == kind else read_as
    if pa.types.is_struct(kind):
        known = {field.name: (read_as.field(field.name).type, field.type) for field in kind}
        return pa.struct(
            [
                field.with_type(_part(*known[field.name], field.type)) if field.name in known else field
                for field in wanted
            ]
        )
    if pa.types.is_map(kind) and pa.types.is_map(read_as):
        return pa.map_(pa.string(), _part(inner_type(read_as), inner_type(kind), inner_type(wanted)))
    if pa.types.is_map(kind):
        entry = read_as.value_type
        value = _part(entry.field("value").type, kind.item_type, wanted.item_type)
        return pa.list_(pa.field("element", pa.struct([entry.field("key"), ("value", value)])))
    return pa.list_(pa.field("element", _part(read_as.value_type, kind.value_type, wanted.value_type)))
