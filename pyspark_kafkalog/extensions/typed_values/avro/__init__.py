"""Avro in its binary form, without a container: one datum in each value.

A caller parses schemas (:func:`.schema.parse`), pins the reader's, and makes a :class:`.decoder.DatumDecoder`
of it. Each writer's schema is added once, by its id, and gives an entry. All rows of a batch are decoded by
one call, whichever writers they are of: ``decode(data, starts, sizes, entries)``. It gives the column, and
the reason why each corrupt row is corrupt.

``schema.py`` parses. ``types.py`` gives Spark's types, as SchemaConverters of spark-avro does.
``resolution.py`` compiles a writer's and the reader's schema into a program, which ``kernels.py`` runs for
each row. ``encoder.py`` goes the other way, without a program: each type of a schema makes columns of bytes
of a column, which are joined row by row.
"""
