"""Ctrl-C while records are typed: the first ends the input, a second one the process."""

from __future__ import annotations

import io
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import pyarrow as pa

from pyspark_kafkalog.tools.records.input_lines import InputStopped, Readable


class FirstInterrupt:
    """A context in which the first SIGINT ends the input, and a later one raises KeyboardInterrupt.

    What was read before the first is still written: the signal breaks off no read, so nothing that a read has
    taken gets lost. Where a process is to ignore SIGINT, as in the background of a script, it still does.
    """

    def __init__(self) -> None:
        self.has_come = False
        self.rows = 0
        """The number of rows that have passed through :meth:`counted`."""
        self._readable, self._writable = os.pipe()
        self._before: Any = None

    def __enter__(self) -> FirstInterrupt:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, self._before)
        os.close(self._readable)
        os.close(self._writable)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True
        os.write(self._writable, b"x")  # wakes the wait for input

    def input(self, stream: Readable) -> Readable:
        """The stream, as far as it comes before the first interrupt."""
        return _Input(self, stream)

    def wait(self, stream: Readable) -> None:
        """Wait until there is something to read.

        :raises InputStopped: at the first interrupt, or if it has come.
        """
        try:
            waited_for = [self._readable, stream.fileno()]  # type: ignore[attr-defined]
        except (AttributeError, io.UnsupportedOperation):  # it is in memory
            waited_for = []
        if waited_for:
            select.select(waited_for, [], [])
        if self.has_come:
            raise InputStopped

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, whose rows are counted."""
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


class _Input:
    def __init__(self, interrupt: FirstInterrupt, stream: Readable) -> None:
        self._interrupt = interrupt
        self._stream = stream

    def read1(self, size: int = -1, /) -> bytes:
        self._interrupt.wait(self._stream)
        return self._stream.read1(size)
