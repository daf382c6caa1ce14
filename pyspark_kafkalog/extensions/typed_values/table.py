"""The first fields of kernels' tables of columns, one row a column."""

from __future__ import annotations

POSITION, COUNT, VALIDITY, SIZES, VALUES = range(5)
"""Which count is the position in its list, or of its row; which one counts its bytes or its items; where its
validity, sizes, values or bytes lie, in elements of the block of memory."""
