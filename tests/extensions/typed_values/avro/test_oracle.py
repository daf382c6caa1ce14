"""Rows equal fastavro's own, for any schema, any value and any reader's schema that has evolved."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from fastavro.read import SchemaResolutionError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_kafkalog.extensions.typed_values.avro import kernels
from pyspark_kafkalog.extensions.typed_values.avro.decoder import DatumDecoder
from pyspark_kafkalog.extensions.typed_values.avro.schema import parse
from tests.extensions.typed_values.avro import oracle
from tests.extensions.typed_values.avro.strategies import Case, cases
from tests.extensions.typed_values.columns import decode_column

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


def decoder_of(reader: oracle.Json, columns: pa.DataType | None = None) -> DatumDecoder:
    return DatumDecoder(parse(json.dumps(reader)), columns)


@settings(max_examples=400, suppress_health_check=SLOW)
@given(cases(), st.data())
def test_rows_are_those_of_fastavro(case: Case, data: st.DataObject) -> None:
    writer, reader = oracle.parsed(case.writer), oracle.parsed(case.reader)
    bodies = [oracle.encoded(writer, value) for value in case.values]
    decoder = decoder_of(case.reader)
    entry = decoder.add(parse(json.dumps(case.writer)))
    decoded = decode_column(decoder, pa.array(bodies, pa.binary()), entry)
    decoded.array.validate(full=True)
    rows = oracle.shown(decoded.array)
    for number, body in enumerate(bodies):
        try:
            value, _ = oracle.read(body, writer, reader)
        except SchemaResolutionError:
            assert decoded.causes[number] in (kernels.NO_BRANCH, kernels.NO_SYMBOL), decoded.reason(number)
            continue
        assert decoded.causes[number] == kernels.FINE, decoded.reason(number)
        assert rows[number] == oracle.expected(value, case.reader)
    wanted = data.draw(some_of(decoder.type))
    pruned = decoder_of(case.reader, wanted)
    entry = pruned.add(parse(json.dumps(case.writer)))
    some = decode_column(pruned, pa.array(bodies, pa.binary()), entry).array
    some.validate(full=True)
    assert some.type == wanted
    fine = [number for number in range(len(bodies)) if decoded.causes[number] == kernels.FINE]
    assert [oracle.shown(some)[number] for number in fine] == [part(rows[number], wanted) for number in fine]


@st.composite
def some_of(draw: Any, kind: pa.DataType) -> pa.DataType:
    """A part of a type."""
    if pa.types.is_struct(kind):
        fields = draw(st.permutations([*kind]))[: draw(st.integers(0, kind.num_fields))]
        return pa.struct([pa.field(field.name, draw(some_of(field.type))) for field in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, draw(some_of(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", draw(some_of(kind.value_type))))
    return kind


def part(row: Any, kind: pa.DataType) -> Any:
    """What is left of a row."""
    if row is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: part(row[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {key: part(item, kind.item_type) for key, item in row.items()}
    if pa.types.is_list(kind):
        return [part(item, kind.value_type) for item in row]
    return row
