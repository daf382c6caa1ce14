"""The first fields of kernels' tables of columns, one row a column."""

from __future__ import annotations

POSITION, COUNT, VALIDITY, SIZES, VALUES = range(5)
"""The number of the count that is the position in its list, or of its row; of the one that counts its bytes
or items; and where its validity, sizes, values or bytes lie, in elements of the block of memory."""
