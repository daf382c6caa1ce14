"""Inputs of the kinds of protobuf's conformance suite: values and refusals are those of google.protobuf."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from pyspark_kafkalog.extensions.typed_values.protobuf.decoder import MessageDecoder
from pyspark_kafkalog.extensions.typed_values.protobuf.schema import MessageType, parse
from pyspark_kafkalog.extensions.typed_values.protobuf_options import ProtobufOptions
from tests.extensions.typed_values.columns import decode_column
from tests.extensions.typed_values.protobuf import oracle
from tests.extensions.typed_values.protobuf.conformance import inputs
from tests.extensions.typed_values.protobuf.schemas import SCHEMAS

OPTIONS = ProtobufOptions(3)
DIFFERENCES = {
    r"ValidDataMap\..*\.(UnknownInMapEntry|OtherWireTypes)": "upb leaves out an entry with an unknown field",
    r"ValidDataMap\.by_name\.UnknownEnum": "so it does if a closed enum has no such number",
    r"RejectInvalidUtf8\..*\.MapValue": "Java checks the text of maps in each syntax",
}
"""What differs, by the names of inputs, and why; in all of it a Java DynamicMessage is as here."""


def compare(message: MessageType, kind: type[Any]) -> tuple[int, dict[str, str]]:
    """How many inputs a message has, and what differs: the name of each, and both outcomes."""
    given = inputs(message)
    decoder = MessageDecoder(message, options=OPTIONS)
    decoded = decode_column(decoder, pa.array([*given.values()], pa.binary()), decoder.add(message))
    decoded.array.validate(full=True)
    rows, found = oracle.rows(decoded.array), dict[str, str]()
    for row, (name, text) in enumerate(given.items()):
        ours = decoded.reason(row) if decoded.causes[row] else None
        try:
            read = oracle.expected(kind.FromString(text), decoder.type, OPTIONS)
        except (DecodeError, UnicodeDecodeError) as e:
            if ours is None:
                found[name] = f"here a value, google.protobuf: {e}"
            continue
        if ours is not None:
            found[name] = f"here {ours}, google.protobuf: a value"
        elif rows[row] != read:
            differs = {each: (rows[row][each], read[each]) for each in read if read[each] != rows[row][each]}
            found[name] = f"here and there {differs}"
    return len(given), found


@pytest.mark.parametrize("name", SCHEMAS)
def test_inputs_are_read_as_google_reads_them(name: str) -> None:
    kind = oracle.class_of(oracle.compiled({"all.proto": SCHEMAS[name]}), name)
    count, found = compare(parse(SCHEMAS[name]).message(name), kind)
    assert count > 500
    unexplained = {each: why for each, why in found.items() if not re.fullmatch("|".join(DIFFERENCES), each)}
    assert not unexplained
