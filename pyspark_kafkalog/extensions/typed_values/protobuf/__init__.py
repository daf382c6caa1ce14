"""Protobuf messages, one in each value.

A caller parses schemas (:func:`.schema.parse`), takes the reader's message, and makes a
:class:`.decoder.MessageDecoder` of it. Each writer's message is added once, by the id of its schema and its
indexes (:mod:`.indexes`), and gives an entry. All rows of a batch are decoded by one call, whichever writers
they are of: ``decode(data, starts, sizes, entries)``. It gives the column, and the reason why each corrupt
row is corrupt.

``schema.py`` makes messages of declarations (``declarations.py``), which are in the text of .proto files
(``text.py``), in descriptors (``descriptors.py``) or well known (``well_known.py``). ``types.py`` gives
Spark's types, as SchemaConverters of spark-protobuf does. ``resolution.py`` compiles a writer's message and
the reader's shape into a program, which ``kernels.py`` runs for each row. ``encoder.py`` goes the other way.
"""
