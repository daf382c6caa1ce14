"""Metrics of a write: of one task, or the sum of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(slots=True)
class WriteMetrics:
    """Counts of what a write did, of one task or several.

    ``records``, ``batches`` and ``bytes`` are those of record batches that brokers acknowledged, or that were
    staged for the commit; ``uncompressed_bytes`` is what these batches would have without compression.
    ``requests`` counts those sent to brokers, ``retries`` how often a record batch waited to be sent again,
    and ``errors`` the record batches that were given up. ``throttle_ms`` sums the times for which brokers
    wanted no requests (a quota). ``acknowledgements`` are record batches that brokers acknowledged in
    responses, and the latency of each is the time from its last send until the response was read.
    """

    records: int = 0
    batches: int = 0
    bytes: int = 0
    uncompressed_bytes: int = 0
    requests: int = 0
    retries: int = 0
    errors: int = 0
    throttle_ms: int = 0
    acknowledgements: int = 0
    latency_total_ms: float = 0.0
    latency_max_ms: float = 0.0

    @property
    def compression_ratio(self) -> float | None:
        """Bytes before compression for each byte that is stored; None without bytes."""
        return self.uncompressed_bytes / self.bytes if self.bytes else None

    @property
    def latency_avg_ms(self) -> float | None:
        """Mean latency of a record batch, in ms; None without acknowledgements."""
        return self.latency_total_ms / self.acknowledgements if self.acknowledgements else None

    @classmethod
    def total(cls, several: Iterable[WriteMetrics]) -> WriteMetrics:
        """The sum of several; its greatest latency is the greatest of theirs."""
        total = cls()
        for one in several:
            greatest = max(total.latency_max_ms, one.latency_max_ms)
            for field in fields(cls):
                setattr(total, field.name, getattr(total, field.name) + getattr(one, field.name))
            total.latency_max_ms = greatest
        return total

    def __str__(self) -> str:
        """The metrics as a line of the log."""
        ratio, average = self.compression_ratio, self.latency_avg_ms
        said = [f"{self.records} records, {self.bytes} bytes in {self.batches} record batches"]
        if ratio is not None:
            said.append(f"compression ratio {ratio:.2f}")
        if self.requests:
            said.append(f"{self.requests} requests, {self.retries} retries, {self.errors} errors")
            said.append(f"throttled for {self.throttle_ms} ms")
        if average is not None:
            said.append(f"latency {average:.1f} ms on average, {self.latency_max_ms:.1f} ms at most")
        return "; ".join(said)
