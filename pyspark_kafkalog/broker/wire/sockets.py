"""TCP and TLS sockets to a broker, and what their failures mean."""

from __future__ import annotations

import contextlib
import enum
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspark_kafkalog.broker.wire.deadline import SHORTEST_WAIT, Deadline
from pyspark_kafkalog.errors import AuthenticationError, BrokerConnectionError, BrokerError
from pyspark_kafkalog.options.brokers import ConnectionOptions

NO_TLS_THERE = (
    "The listener does not seem to speak TLS: check the port, or set kafka.security.protocol to PLAINTEXT"
    " or SASL_PLAINTEXT."
)
_TOO_OLD = (
    "This machine's OpenSSL offers no protocol of kafka.ssl.enabled.protocols: name TLSv1.2 or TLSv1.3, as"
    " TLSv1 and TLSv1.1 need a lower security level of OpenSSL."
)


class UnknownHostError(BrokerConnectionError):
    """A host name that cannot be resolved."""


class ClosedPortError(BrokerConnectionError):
    """A port on which nothing listens."""


class NeverReachedError(BrokerConnectionError):
    """No broker has ever answered, and each bootstrap server had its chance: waiting longer is useless."""


class BrokenHandshakeError(BrokerConnectionError):
    """A connection that broke before the first responses, as when client and listener differ in protocol."""


class OutOfTimeError(BrokerConnectionError):
    """A wait that the caller's deadline ended, before a timeout of its own: it says little of the broker."""


class Step(str, enum.Enum):
    """The steps to a connection that can be used, in their order."""

    DNS = "DNS"
    TCP = "TCP"
    TLS = "TLS"
    KAFKA = "Kafka"
    """The first request, which every broker answers."""
    SASL = "SASL"


def no_one(step: Step) -> None:
    """Ignore the step that begins: for callers that don't ask."""


class Address(NamedTuple):
    """The address on which a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse ``host:port``, with an IPv6 address in brackets."""
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


def open_socket(
    address: Address,
    options: ConnectionOptions,
    tls: ssl.SSLContext | None,
    patience: float,
    deadline: Deadline | None,
    begin: Callable[[Step], None] = no_one,
) -> socket.socket:
    """A connected socket, with TLS if a context is given.

    Every address of the host name is tried (client.dns.lookup=use_all_dns_ips). Each of several
    gets its share of the time left.

    :param patience: seconds that connecting may take, and then the TLS handshake.
    :param deadline: for both.
    :param begin: is told of each step as it begins.
    :raises BrokerConnectionError: if the broker cannot be reached now.
    :raises AuthenticationError: if a certificate is not accepted.
    """
    begin(Step.DNS)
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as e:  # impossible names and ports raise others
        raise UnknownHostError(
            f"The host name cannot be resolved: {_reason(e)}",
            broker=str(address),
            hint="Check kafka.bootstrap.servers, and the broker's advertised.listeners.",
        ) from e
    begin(Step.TCP)
    errors: list[Exception] = []
    limit = Deadline.after(patience).bounded_by(deadline)
    for number, (family, kind, protocol, _, where) in enumerate(found):
        share = limit.left / (len(found) - number)
        try:
            sock = _connected(
                socket.socket(family, kind, protocol), where, options, max(share, SHORTEST_WAIT)
            )
        except (OSError, OverflowError) as e:
            errors.append(e)
            continue
        if tls is None:
            return sock
        begin(Step.TLS)
        limit = Deadline.after(patience).bounded_by(deadline)
        sock.settimeout(max(limit.left, SHORTEST_WAIT))
        return _with_tls(sock, address, tls, is_cut=limit is deadline)
    refused = all(isinstance(error, ConnectionRefusedError) for error in errors)
    is_cut = limit is deadline and isinstance(errors[-1], TimeoutError)
    raise (ClosedPortError if refused else OutOfTimeError if is_cut else BrokerConnectionError)(
        f"Cannot connect to the broker: {_reason(errors[-1])}",
        broker=str(address),
        hint="Check that it runs, and that nothing blocks the way. If host or port are wrong, correct"
        " kafka.bootstrap.servers, or the broker's advertised.listeners.",
    ) from errors[-1]


def _reason(error: Exception) -> str:
    """The words of an error of the system, without its number."""
    return getattr(error, "strerror", None) or str(error)


def _connected(
    sock: socket.socket, where: tuple[Any, ...], options: ConnectionOptions, timeout: float
) -> socket.socket:
    try:
        _set_options(sock, options)
        sock.settimeout(timeout)
        sock.connect(where)
    except BaseException:
        sock.close()
        raise
    return sock


def _set_options(sock: socket.socket, options: ConnectionOptions) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, size in (
        (socket.SO_RCVBUF, options.receive_buffer_bytes),
        (socket.SO_SNDBUF, options.send_buffer_bytes),
    ):
        if size is not None and size >= 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)


def _with_tls(sock: socket.socket, address: Address, tls: ssl.SSLContext, *, is_cut: bool) -> socket.socket:
    """The socket with TLS.

    :param is_cut: whether the handshake's time ends by the caller's deadline.
    """
    try:
        return tls.wrap_socket(sock, server_hostname=address.host.rstrip("."))
    except ssl.SSLCertVerificationError as e:
        sock.close()
        raise AuthenticationError(
            f"The broker's certificate is not accepted: {e.verify_message}",
            broker=str(address),
            hint="Check that kafka.ssl.truststore.certificates (or .location) holds the authority that"
            " signed it, and that it names the host;"
            " kafka.ssl.endpoint.identification.algorithm='' skips the host name check.",
        ) from e
    except ssl.SSLError as e:
        sock.close()
        if e.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            raise BrokerError(f"TLS failed: {e.reason}", broker=str(address), hint=NO_TLS_THERE) from e
        if e.reason in ("NO_CIPHERS_AVAILABLE", "NO_PROTOCOLS_AVAILABLE"):
            raise BrokerError(f"TLS failed: {e.reason}", broker=str(address), hint=_TOO_OLD) from e
        if e.reason is not None and "ALERT" in e.reason:
            raise refused_by_tls(address, e) from e
        raise BrokenHandshakeError(f"TLS failed: {e}", broker=str(address), hint=NO_TLS_THERE) from e
    except OSError as e:
        sock.close()
        if is_cut and isinstance(e, TimeoutError):
            raise OutOfTimeError(f"TLS failed: {e}", broker=str(address)) from e
        raise BrokenHandshakeError(f"TLS failed: {e}", broker=str(address), hint=NO_TLS_THERE) from e


def refused_by_tls(address: Address, error: ssl.SSLError) -> AuthenticationError:
    """The error for an alert that the broker sent."""
    return AuthenticationError(
        f"The broker refused the TLS connection: {error.reason}",
        broker=str(address),
        hint="Check kafka.ssl.keystore.* (the broker may require a client certificate) and"
        " kafka.ssl.enabled.protocols.",
    )


def has_pending(sock: socket.socket) -> bool:
    """Whether a TLS socket holds bytes that are already decrypted, which select does not see."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


def close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.close()
