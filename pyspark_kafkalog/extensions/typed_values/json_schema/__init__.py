"""JSON Schema, by which registries describe JSON: the types that its values are read and written as.

``documents.py`` finds what ``$ref`` names. ``shapes.py`` says what values a schema allows, by a few shapes,
and how two of them are one. ``types.py`` makes a type of that; ``conversion.py`` makes its values of what the
JSON kernels read, and back. ``writing.py`` makes a schema of a type, and says whether a column fits one.
"""
