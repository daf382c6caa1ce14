"""Types as Spark writes them in DDL."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


def ddl(kind: pa.DataType) -> str:
    """Spark's type for an Arrow type; all parts are nullable."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        quoted = [f"`{field.name.replace('`', '``')}`: {ddl(field.type)}" for field in fields]
        return f"struct<{', '.join(quoted)}>"
    if pa.types.is_map(kind):
        return f"map<{ddl(kind.key_type)}, {ddl(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{ddl(kind.value_type)}>"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind]
