"""Why a connection broke, in words for people: from what was seen on the socket to an error with a hint."""

from __future__ import annotations

import ssl

from pyspark_kafkalog.broker.wire.frames import Pace
from pyspark_kafkalog.broker.wire.sockets import Address, BrokenHandshakeError, refused_by_tls
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError

_TLS_ALERT_OR_HANDSHAKE = (0x1503, 0x1603)
_SILENT = (
    "See kafka.bootstrap.servers: something else than a broker may listen there, or a listener that speaks"
    " TLS or SASL, as kafka.security.protocol would have to say."
)


def wrong_size(address: Address, prefix: bytes, size: int, limit: int, frames: int) -> BrokerError:
    """The error for a frame that cannot be, or not be so large.

    :param prefix: the four bytes that told the size.
    :param frames: how many were read before.
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
        return BrokerError(f"What listens there {what}", broker=broker, hint="See kafka.bootstrap.servers.")
    return BrokerError(
        f"The broker answers with {size} bytes, and {limit} are allowed",
        broker=broker,
        hint="Raise kafka.fetch.max.bytes, if it is a fetch.",
    )


def no_answer(
    error: OSError, pace: Pace, size: int, *, address: Address, protocol: str, frames: int, known: bool
) -> BrokerError:
    """The error for an answer that did not come, or not all of it.

    :param size: of the whole frame; 0 if that was not told.
    :param protocol: of kafka.security.protocol.
    :param frames: how many were read before.
    :param known: whether a cluster has named the broker: else it may be something else.
    """
    broker = str(address)
    part = amount(pace.bytes, size + 4) if size else f"{pace.bytes} bytes"
    if isinstance(error, TimeoutError):
        if not pace.bytes:
            message = f"The broker did not answer within {pace.limit_ms} ms"
            if not frames and not known:
                return BrokenHandshakeError(message, broker=broker, hint=_SILENT)
        elif pace.is_stalled:
            message = f"{part} of an answer came, then nothing for {pace.limit_ms} ms"
        else:
            message = f"Only {part} of an answer came within {pace.limit_ms} ms"
        return BrokerConnectionError(message, broker=broker)
    # With TLS 1.3 a client's certificate is refused after the handshake.
    if isinstance(error, ssl.SSLError) and not frames and "ALERT" in (error.reason or ""):
        return refused_by_tls(address, error)
    after = f" after {part} of an answer" if pace.bytes else ""
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
    """What an error of the system says."""
    return error.strerror or str(error) or type(error).__name__


def amount(part: int, whole: int) -> str:
    """How much of how much, as ``5.9 of 8.4 MB``."""
    for unit, name in ((1_000_000, "MB"), (1_000, "kB")):
        if whole >= unit:
            return f"{part / unit:.1f} of {whole / unit:.1f} {name}"
    return f"{part} of {whole} bytes"
