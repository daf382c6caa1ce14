"""Columns of record headers, changed for many rows at a time: take lists, remove and append headers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class HeaderLists:
    """The headers of some rows: those of row i are ``headers[starts[i] : starts[i] + counts[i]]``.

    :param headers: structs of ``key`` and ``value``.
    :param dense: whether ``headers`` holds only these, in the order of the rows.
    """

    def __init__(
        self, headers: pa.StructArray, starts: np.ndarray, counts: np.ndarray, *, dense: bool = False
    ) -> None:
        self._headers, self._starts, self._counts, self._dense = headers, starts, counts, dense

    @staticmethod
    def of(column: pa.ListArray) -> HeaderLists:
        """The headers of a column; a null list counts as an empty one."""
        offsets = column.offsets.to_numpy().astype(np.int64)
        counts = np.diff(offsets)
        if column.null_count:
            counts = np.where(column.is_valid().to_numpy(zero_copy_only=False), counts, 0)
        return HeaderLists(column.values, offsets[:-1], counts)

    @property
    def bytes(self) -> np.ndarray:
        """About how many bytes the headers of each row take."""
        if not self._counts.any():
            return np.zeros(self._counts.size, np.int64)
        sizes = sum(
            pc.binary_length(self._headers.field(name)).fill_null(0).to_numpy().astype(np.int64)
            for name in ("key", "value")
        )
        ends = np.concatenate(([0], np.cumsum(sizes + _HEADER_OVERHEAD)))
        taken: np.ndarray = ends[self._starts + self._counts] - ends[self._starts]
        return taken

    def rows_with(self, name: str) -> np.ndarray:
        """A bool for each row: whether it has a header of this name."""
        if not self._counts.any():
            return np.zeros(self._counts.size, bool)
        found = np.concatenate(([0], np.cumsum(self._are_named(name))))
        named: np.ndarray = found[self._starts + self._counts] > found[self._starts]
        return named

    def take(self, rows: np.ndarray) -> HeaderLists:
        """The lists of ``rows``, which may repeat."""
        counts = self._counts[rows]
        taken = HeaderLists(self._headers, self._starts[rows], counts)
        headers = self._headers.take(pa.array(taken._indices()))
        return HeaderLists(headers, np.cumsum(counts) - counts, counts, dense=True)

    def without(self, name: str, rows: np.ndarray) -> HeaderLists:
        """The lists without headers of this name in the rows where ``rows`` is true."""
        changed = rows & self.rows_with(name)
        if not changed.any():
            return self
        indices = self._indices()
        retained = ~(self._are_named(name)[indices] & np.repeat(changed, self._counts))
        ends = np.concatenate(([0], np.cumsum(retained)))
        counts = np.diff(ends[np.concatenate(([0], np.cumsum(self._counts)))])
        return HeaderLists(
            self._headers.take(pa.array(indices[retained])), np.cumsum(counts) - counts, counts
        )

    def with_last(self, name: str, values: np.ndarray, rows: np.ndarray) -> HeaderLists:
        """The lists with one more header at the end, in the rows where ``rows`` is true.

        :param values: the bytes of the header of each of these rows: a row of a uint8 matrix.
        """
        if not len(values):
            return self
        new = _headers(name, values)
        first_new = len(self._headers)
        counts = self._counts + rows
        ends = np.cumsum(counts)
        starts = ends - counts
        if ends[-1] == len(new):
            return HeaderLists(new, starts, counts, dense=True)
        indices = np.empty(int(ends[-1]), np.int64)
        last = np.zeros(indices.size, bool)
        last[(starts + counts - 1)[rows]] = True
        indices[last] = first_new + np.arange(len(new))
        indices[~last] = self._indices()
        headers = pa.concat_arrays([self._headers, new]).take(pa.array(indices))
        return HeaderLists(headers, starts, counts, dense=True)

    def column(self) -> pa.ListArray:
        """The lists as an Arrow column."""
        headers = self._headers if self._dense else self._headers.take(pa.array(self._indices()))
        offsets = np.zeros(self._counts.size + 1, np.int32)
        np.cumsum(self._counts, out=offsets[1:])
        return pa.ListArray.from_arrays(pa.array(offsets), headers)

    def _are_named(self, name: str) -> np.ndarray:
        found = pc.equal(self._headers.field("key"), name).fill_null(False)
        named: np.ndarray = found.to_numpy(zero_copy_only=False)
        return named

    def _indices(self) -> np.ndarray:
        """The numbers of all rows' headers, in the order of the rows."""
        counts = self._counts
        behind = np.repeat(np.cumsum(counts) - counts, counts)
        indices: np.ndarray = np.repeat(self._starts, counts) + np.arange(behind.size) - behind
        return indices


_HEADER_OVERHEAD = 16
"""About the memory of a header besides its bytes."""


def _headers(name: str, values: np.ndarray) -> pa.StructArray:
    """Headers of one name, with these values: the rows of a uint8 matrix."""
    count, size = values.shape
    names = np.frombuffer(name.encode() * count, np.uint8)
    return pa.StructArray.from_arrays(
        [_fixed(pa.string(), names.reshape(count, -1)), _fixed(pa.binary(), values.reshape(count, size))],
        ["key", "value"],
    )


def _fixed(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    count, size = values.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, count, buffers)
