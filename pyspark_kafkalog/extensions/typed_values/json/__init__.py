"""JSON as Spark's ``from_json`` reads it: one text in each value.

``types.py`` says which types there are. A :class:`.decoder.Decoder` decodes all rows of a batch by one call
of ``kernels.py``, which leaves rows that are rare or corrupt to ``rows.py``. That makes values, as Spark
does, of the tokens of ``tokens.py``, which are Jackson's. ``times.py`` reads dates and timestamps.
"""
