"""One blocking, authenticated connection to one broker.

The layouts of requests and responses are kafka-python's, and so are the SASL
mechanisms; its event loop is not used, as its transport reads 4 KiB at a time
and logs what it sends. Here a response is received into one buffer of its size.

A request is sent as: size int32, header (api key, version, correlation id,
client id), body. Brokers answer in the order of the requests, each time with:
size int32, correlation id, body; from flexible versions on (KIP-482) both
headers end in tagged fields.
"""

from __future__ import annotations

import io
import random
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafka.protocol.api_header import RequestHeader
from kafka.protocol.metadata import ApiVersionsRequest

from pyspark_kafkalog import __version__
from pyspark_kafkalog.broker import sockets
from pyspark_kafkalog.broker.error_codes import UNSUPPORTED_VERSION, error_of
from pyspark_kafkalog.broker.sasl import authenticate
from pyspark_kafkalog.broker.sockets import Address
from pyspark_kafkalog.errors import BrokerConnectionError, BrokerError, UnsupportedVersionError
from pyspark_kafkalog.options.brokers import ConnectionOptions

_FIRST_FRAME = 1 << 20
"""No answer to the first request is as large; what seems so is not of Kafka's protocol."""
_LARGEST_FRAME = 100 << 20
"""Of a response whose caller sets no other limit; that of Kafka's socket.request.max.bytes."""
_PIECES_AT_ONCE = 512
"""Below IOV_MAX of all systems."""
_TLS_ALERT_OR_HANDSHAKE = (0x1503, 0x1603)


class _Expected(NamedTuple):
    correlation_id: int
    response: Any
    """kafka-python's response class of the request's version."""


class Connection:
    """A socket to a broker that belongs to one caller at a time. Made by :meth:`open`.

    Several requests may be in flight: answers come in the order of the
    requests. After any :class:`BrokerConnectionError` it is closed for good.
    """

    def __init__(
        self, sock: socket.socket, address: Address, options: ConnectionOptions, node_id: int | None
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.versions: dict[int, tuple[int, int]] = {}
        """Lowest and highest version that the broker understands, by api key."""
        self.last_used = time.monotonic()
        self._sock = sock
        self._options = options
        self._deadline: float | None = None
        """When the call that is under way must have ended."""
        self._expected: deque[_Expected] = deque()
        self._received: deque[tuple[_Expected, Any]] = deque()
        """Answers taken off the socket before they were asked for."""
        self._correlation_id = 0
        self._frames = 0
        self._throttled_until = 0.0
        self._authenticate_at: float | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        address: Address,
        options: ConnectionOptions,
        *,
        tls: ssl.SSLContext | None = None,
        node_id: int | None = None,
        timeout: float | None = None,
    ) -> Connection:
        """Connect, shake hands, ask for the broker's versions, and authenticate.

        :param timeout: seconds for all of it; by default each step has that of the options.
        :raises BrokerConnectionError: if the broker cannot be reached now.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        begun = time.monotonic()
        setup_timeout = options.socket_connection_setup_timeout_ms / 1000
        if timeout is not None:
            setup_timeout = min(setup_timeout, max(timeout, 0.001))
        sock = sockets.open_socket(address, options, tls, timeout=setup_timeout)
        connection = cls(sock, address, options, node_id)
        if timeout is not None:
            timeout -= time.monotonic() - begun
        try:
            with connection._ending(timeout):
                connection._ask_versions()
                connection._authenticate()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _timeout(self) -> float:
        """The longest wait for one answer from now on, in seconds."""
        longest = self._options.request_timeout_ms / 1000
        if self._deadline is not None:
            longest = min(longest, max(self._deadline - time.monotonic(), 0.001))
        return longest

    @property
    def in_flight(self) -> int:
        """Requests whose answers were not taken yet."""
        return len(self._expected) + len(self._received)

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        """For ``select``; see :func:`readable`, which also knows what TLS has read already."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket; what is in flight is lost."""
        self._closed = True
        self._expected.clear()
        self._received.clear()
        sockets.close(self._sock)

    def version_of(self, api: Any, *, min_version: int = 0, max_version: int | None = None) -> int:
        """The version to use: the highest that the broker, kafka-python and ``max_version`` allow.

        :param api: kafka-python's request class, or a request.
        :raises UnsupportedVersionError: if there is none.
        """
        ours = api.max_version if max_version is None else min(max_version, api.max_version)
        lowest, highest = self.versions.get(api.API_KEY, (0, -1))
        if lowest > ours or highest < min_version:
            has = f"versions {lowest} to {highest}" if highest >= 0 else "no such request"
            raise UnsupportedVersionError(
                f"The broker does not know {api.name} in versions {min_version} to {ours}: it has {has}",
                broker=str(self.address),
                hint="Kafka 1.0 and newer are supported.",
            )
        return min(ours, highest)

    def send(
        self,
        request: Any,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Send one of kafka-python's requests in the version of :meth:`version_of`, and wait for no answer.

        :param timeout: seconds for all of it, also to wait where the broker asks for a pause.
        :raises BrokerConnectionError: if it could not be sent; the connection is closed then.
        """
        with self._ending(timeout):
            self._before_sending()
            self._send(request, self.version_of(request, min_version=min_version, max_version=max_version))

    def send_body(
        self,
        api: Any,
        version: int,
        body: Sequence[bytes | memoryview],
        *,
        expect_response: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Send a request whose body is encoded already, in pieces that are not copied.

        :param api: kafka-python's request class, for the header.
        :param expect_response: False for a request that brokers do not answer (ProduceRequest with acks=0).
        :param timeout: as of :meth:`send`.
        :raises BrokerConnectionError: if it could not be sent; the connection is closed then.
        """
        with self._ending(timeout):
            self._send_body(api, version, body, expect_response=expect_response)

    def _send_body(
        self, api: Any, version: int, body: Sequence[bytes | memoryview], *, expect_response: bool
    ) -> None:
        self._before_sending()
        correlation_id = self._next_correlation_id()
        header = RequestHeader(
            request_api_key=api.API_KEY,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self._options.client_id,
        )
        encoded = header.encode(flexible=api.flexible_version_q(version))
        size = len(encoded) + sum(len(piece) for piece in body)
        self._write([struct.pack(">i", size) + encoded, *body])
        if expect_response:
            self._expected.append(_Expected(correlation_id, header.get_response_class()))

    def receive(self, *, timeout: float | None = None) -> Any:
        """The answer to the oldest request in flight, as kafka-python's response.

        :param timeout: seconds to wait from now on, request.timeout.ms if None.
        :raises BrokerConnectionError: if none comes; the connection is closed then.
        """
        expected, frame = self._next_frame(timeout, bytearray, _LARGEST_FRAME)
        return self._decode(expected, memoryview(frame))

    def receive_frame(self, allocate: Callable[[int], Any], *, timeout: float, limit: int) -> tuple[Any, int]:
        """The answer to the oldest request in flight as it came, and where in it the body begins.

        The caller tells the throttle time in it to :meth:`throttle`.

        :param allocate: makes the writable buffer for so many bytes.
        :param limit: the largest answer to take, in bytes.
        :raises BrokerConnectionError: if none comes; the connection is closed then.
        """
        expected, frame = self._next_frame(timeout, allocate, limit)
        return frame, self._body_of(expected, memoryview(frame))

    def call(
        self,
        request: Any,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send a request and wait for its answer. Nothing else may be in flight.

        :param timeout: seconds for all of it; by default each step has request.timeout.ms.
        """
        with self._ending(timeout):
            self.send(request, min_version=min_version, max_version=max_version)
            return self.receive()

    @contextmanager
    def _ending(self, timeout: float | None) -> Iterator[None]:
        """All within ends after so many seconds."""
        if timeout is None:
            yield
            return
        self._deadline = time.monotonic() + timeout
        try:
            yield
        finally:
            self._deadline = None

    def throttle(self, throttle_time_ms: int) -> None:
        """Send nothing for so long, as the broker asks (KIP-219)."""
        if throttle_time_ms > 0:
            self._throttled_until = time.monotonic() + throttle_time_ms / 1000

    def is_usable(self, max_idle: float) -> bool:
        """Whether it may be taken up again: open, not idle for ``max_idle`` seconds, nothing unread."""
        if self._closed or self.in_flight or time.monotonic() - self.last_used > max_idle:
            return False
        # A socket with something to read when nothing is in flight was closed by the broker.
        return not readable([self], 0)

    def __del__(self) -> None:
        self._sock.close()

    def _ask_versions(self) -> None:
        """ApiVersions, which a broker of any version answers, if need be in version 0 (KIP-511)."""
        for version in (3, 0):
            self._send(
                ApiVersionsRequest(
                    client_software_name="pyspark-kafkalog", client_software_version=__version__
                ),
                version,
            )
            expected, frame = self._next_frame(None, bytearray, _FIRST_FRAME)
            response = self._decode(expected, memoryview(frame))
            if response.error_code != UNSUPPORTED_VERSION:
                break
        if response.error_code:
            raise error_of(response.error_code, "The broker refuses ApiVersions", broker=str(self.address))
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        lifetime_ms = authenticate(self._call_now, self.address, self._options.security)
        if lifetime_ms:  # before the broker ends the session (KIP-368)
            self._authenticate_at = time.monotonic() + lifetime_ms / 1000 * random.uniform(0.85, 0.95)
        else:
            self._authenticate_at = None

    def _call_now(self, request: Any, max_version: int) -> Any:
        self._send(request, self.version_of(request, max_version=max_version))
        return self._decode(*self._read_answer(self._timeout, bytearray, _FIRST_FRAME))

    def _before_sending(self) -> None:
        if self._authenticate_at is not None and time.monotonic() >= self._authenticate_at:
            while self._expected:
                self._received.append(self._read_answer(self._timeout, bytearray, _LARGEST_FRAME))
            self._authenticate()
        wait = self._throttled_until - time.monotonic()
        if wait > 0:
            time.sleep(wait if self._deadline is None else min(wait, self._timeout))

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _send(self, request: Any, version: int) -> None:
        request.API_VERSION = version
        correlation_id = self._next_correlation_id()
        request.with_header(correlation_id=correlation_id, client_id=self._options.client_id)
        self._write([request.encode(framed=True, header=True)])
        self._expected.append(_Expected(correlation_id, request.header.get_response_class()))

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        timeout = self._timeout
        deadline = time.monotonic() + timeout
        views = [memoryview(piece) for piece in pieces]
        try:
            if isinstance(self._sock, ssl.SSLSocket):
                self._write_all(views, deadline)
            else:
                for first in range(0, len(views), _PIECES_AT_ONCE):
                    self._write_some(views[first : first + _PIECES_AT_ONCE], deadline)
        except TimeoutError as e:
            raise self._broken(f"The broker did not take a request within {round(timeout * 1000)} ms") from e
        except OSError as e:
            raise self._broken(f"The connection broke while sending: {_text(e)}") from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()

    def _write_some(self, pieces: list[memoryview], deadline: float) -> None:
        self._set_deadline(deadline)
        sent = self._sock.sendmsg(pieces)
        for piece in pieces:
            if sent < len(piece):
                self._write_all([piece[sent:]], deadline)
            sent = max(sent - len(piece), 0)

    def _write_all(self, pieces: list[memoryview], deadline: float) -> None:
        # Not sendall: through TLS its timeout is that of each part, and a broker may take little at a time.
        for piece in pieces:
            rest = piece
            while len(rest):
                self._set_deadline(deadline)
                rest = rest[self._sock.send(rest) :]

    def _set_deadline(self, deadline: float) -> None:
        self._sock.settimeout(max(deadline - time.monotonic(), 0.001))

    def _next_frame(
        self, timeout: float | None, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, Any]:
        if self._received:
            return self._received.popleft()
        return self._read_answer(self._timeout if timeout is None else timeout, allocate, limit)

    def _read_answer(
        self, timeout: float, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, Any]:
        if not self._expected:
            raise self._broken("No request is in flight")
        deadline = time.monotonic() + timeout
        try:
            prefix = bytearray(4)
            self._read_into(memoryview(prefix), deadline)
            (size,) = struct.unpack(">i", prefix)
            if not 4 <= size <= limit:
                raise self._bad_size(prefix, size, limit)
            frame = allocate(size)
            self._read_into(memoryview(frame), deadline)
        except OSError as e:
            raise self._why_broken(e, timeout) from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()
        self._frames += 1
        return self._expected.popleft(), frame

    def _read_into(self, view: memoryview, deadline: float) -> None:
        view = view.cast("B")
        while len(view):
            self._set_deadline(deadline)
            received = self._sock.recv_into(view)
            if not received:
                raise ConnectionResetError("the broker closed it")
            view = view[received:]

    def _body_of(self, expected: _Expected, frame: memoryview) -> int:
        # Of the tagged fields of a header none is known so far: KIP-482 came with none.
        header = io.BytesIO(frame[:256])
        correlation_id = expected.response.parse_header(header).correlation_id
        if correlation_id != expected.correlation_id:
            raise self._broken(
                f"The broker answered request {correlation_id} instead of {expected.correlation_id}"
            )
        return header.tell()

    def _decode(self, expected: _Expected, frame: Any) -> Any:
        frame = memoryview(frame)
        body = self._body_of(expected, frame)
        try:
            response = expected.response.decode(frame[body:])
        except (ValueError, IndexError, struct.error) as e:
            raise self._broken(f"An answer cannot be understood: {type(e).__name__}") from e
        self.throttle(getattr(response, "throttle_time_ms", 0) or 0)
        return response

    def _broken(self, message: str, *, hint: str | None = None) -> BrokerConnectionError:
        self.close()
        kind = sockets.BrokenHandshakeError if hint else BrokerConnectionError
        return kind(message, broker=str(self.address), hint=hint)

    def _bad_size(self, prefix: bytearray, size: int, limit: int) -> BrokerError:
        self.close()
        broker = str(self.address)
        if int.from_bytes(prefix[:2], "big") in _TLS_ALERT_OR_HANDSHAKE:
            return BrokerError(
                "The broker answers in TLS",
                broker=broker,
                hint="Set kafka.security.protocol to SSL or SASL_SSL.",
            )
        if not self._frames:
            return BrokerError(
                "What listens there does not speak Kafka's protocol",
                broker=broker,
                hint="See kafka.bootstrap.servers.",
            )
        return BrokerError(
            f"The broker answers with {size} bytes, and {limit} are allowed",
            broker=broker,
            hint="Raise kafka.fetch.max.bytes, if it is a fetch.",
        )

    def _why_broken(self, error: OSError, timeout: float) -> BrokerError:
        if isinstance(error, TimeoutError):
            return self._broken(f"The broker did not answer within {round(timeout * 1000)} ms")
        # With TLS 1.3 a client's certificate is refused after the handshake.
        if isinstance(error, ssl.SSLError) and not self._frames and "ALERT" in (error.reason or ""):
            self.close()
            return sockets.refused_by_tls(self.address, error)
        return self._broken(f"The connection broke: {_text(error)}", hint=self._hint())

    def _hint(self) -> str | None:
        protocol = self._options.security.protocol
        if self._frames == 0 and protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
            return "If the listener speaks TLS, set kafka.security.protocol to SSL or SASL_SSL."
        if self._frames == 1 and protocol in ("PLAINTEXT", "SSL"):
            return (
                "If the listener asks for SASL, set kafka.security.protocol to SASL_PLAINTEXT or SASL_SSL,"
                " and kafka.sasl.mechanism."
            )
        return None


def _text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def readable(connections: Iterable[Connection], timeout: float | None) -> list[Connection]:
    """Those connections that broke or have the beginning of an answer; waits ``timeout`` seconds for one."""
    connections = list(connections)
    ready = [c for c in connections if c._received or c.closed or sockets.has_pending(c._sock)]
    poll = select.poll()
    by_descriptor = {c.fileno(): c for c in connections if c not in ready}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    wait = 0 if ready else None if timeout is None else max(timeout, 0) * 1000
    return ready + [by_descriptor[descriptor] for descriptor, _ in poll.poll(wait)]
