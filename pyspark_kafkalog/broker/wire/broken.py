"""Explains broken connections: turns what was seen on a socket into an error with a hint."""

from __future__ import annotations

import ssl

from pyspark_kafkalog.broker.wire.frames import Pace
from pyspark_kafkalog.broker.wire.sockets import (
    Address,
    BrokenHandshakeError,
    OutOfTimeError,
    refused_by_tls,
)
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError

_TLS_ALERT_OR_HANDSHAKE = (0x1503, 0x1603)
_SILENT = (
    "Check kafka.bootstrap.servers: something other than a broker may listen there, or a listener for TLS or"
    " SASL, which kafka.security.protocol would have to name."
)


def wrong_size(address: Address, prefix: bytes, size: int, limit: int, frames: int) -> BrokerError:
    """The error for a frame of an impossible size, or of one beyond the limit.

    :param prefix: the four bytes that gave the size.
    :param frames: how many frames were read before.
    """
    broker = str(address)
    if int.from_bytes(prefix[:2], "big") in _TLS_ALERT_OR_HANDSHAKE:
        return BrokerError(
            "The broker answers in TLS",
            broker=broker,
            hint="Set kafka.security.protocol to SSL or SASL_SSL.",
        )
    if not frames:
        what = "speaks HTTP, not Kafka's protocol" if prefix == b"HTTP" else "does not speak Kafka's protocol"
        return BrokerError(f"The listener {what}", broker=broker, hint="Check kafka.bootstrap.servers.")
    return BrokerError(
        f"The broker sent a response of {size} bytes; the limit is {limit}",
        broker=broker,
        hint="If this was a fetch, raise kafka.fetch.max.bytes.",
    )


def no_answer(
    error: OSError, pace: Pace, size: int, *, address: Address, protocol: str, frames: int, known: bool
) -> BrokerError:
    """The error for a response that did not arrive, or only in part.

    :param size: of the whole frame; 0 if unknown.
    :param protocol: the value of kafka.security.protocol.
    :param frames: how many frames were read before.
    :param known: whether a cluster has named the broker: if not, it may be something else.
    """
    broker = str(address)
    part = amount(pace.bytes, size + 4) if size else f"{pace.bytes} bytes"
    if isinstance(error, TimeoutError):
        if not pace.bytes:
            message = f"The broker did not answer within {pace.limit_ms} ms"
        elif pace.is_stalled:
            message = f"{part} of a response arrived, then nothing for {pace.limit_ms} ms"
        else:
            message = f"Only {part} of a response arrived within {pace.limit_ms} ms"
        if not pace.is_stalled:
            return OutOfTimeError(f"{message}, which were left of the time for all", broker=broker)
        if not pace.bytes and not frames and not known:
            return BrokenHandshakeError(message, broker=broker, hint=_SILENT)
        return BrokerConnectionError(message, broker=broker)
    # TLS 1.3 rejects a client's certificate after the handshake.
    if isinstance(error, ssl.SSLError) and not frames and "ALERT" in (error.reason or ""):
        return refused_by_tls(address, error)
    after = f" after {part} of a response" if pace.bytes else ""
    hint = _hint(protocol, frames)
    kind = BrokenHandshakeError if hint else BrokerConnectionError
    return kind(f"The connection broke{after}: {text(error)}", broker=broker, hint=hint)


def _hint(protocol: str, frames: int) -> str | None:
    if frames == 0 and protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        return "If the listener speaks TLS, set kafka.security.protocol to SSL or SASL_SSL."
    if frames == 1 and protocol in ("PLAINTEXT", "SSL"):
        return (
            "If the listener asks for SASL, set kafka.security.protocol to SASL_PLAINTEXT or SASL_SSL,"
            " and kafka.sasl.mechanism."
        )
    return None


def text(error: OSError) -> str:
    """The message of a system error."""
    return error.strerror or str(error) or type(error).__name__


def amount(part: int, whole: int) -> str:
    """A part of a whole, such as ``5.9 of 8.4 MB``."""
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if whole >= unit:
            return f"{part / unit:.1f} of {whole / unit:.1f} {name}"
    return f"{part} of {whole} bytes"
