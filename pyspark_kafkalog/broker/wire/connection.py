"""A blocking, authenticated connection to one broker.

The layouts of requests and responses are kafka-python's, and so are the SASL
mechanisms. Its event loop is not used: its transport reads 4 KiB at a time and
logs what it sends. Here a response is received into one buffer of its size.

A request is: size int32, header (api key, version, correlation id, client id),
body. Brokers respond in the order of the requests, each time with: size int32,
correlation id, body. From flexible versions on (KIP-482) both headers end in
tagged fields.
"""

from __future__ import annotations

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
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from pyspark_kafkalog._version import __version__
from pyspark_kafkalog.broker.wire import broken, frames, sockets
from pyspark_kafkalog.broker.wire.answers import UNREADABLE, read_body, read_header, response_of
from pyspark_kafkalog.broker.wire.apis import is_controller, way_out
from pyspark_kafkalog.broker.wire.deadline import SHORTEST_WAIT, Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of
from pyspark_kafkalog.broker.wire.frames import Pace
from pyspark_kafkalog.broker.wire.sockets import Address, Step, no_one
from pyspark_kafkalog.errors import (
    AuthenticationError,
    BrokerConnectionError,
    BrokerError,
    KafkaLogError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions

_OFTEN_REPEATED = (ListOffsetsRequest.API_KEY, MetadataRequest.API_KEY)
"""The APIs whose responses an idle stream gets, the same ones, ten times a second."""
_BEFORE_EPOCHS = 6
"""The version of Metadata to use instead of 7 and 8, whose leader epochs may be old (KAFKA-9212)."""
_REMEMBERED = 4
"""Responses that a connection remembers; with many partitions they take megabytes."""
_FIRST_FRAME = 1 << 20
"""The limit of the first responses: what claims to be larger is not Kafka's protocol."""
_LARGEST_FRAME = 100 << 20
"""The limit where the caller sets none: Kafka's default of socket.request.max.bytes."""
_SLOW_FRAME = 4
"""The time that a moving frame may take, in units of request.timeout.ms, where the caller sets no limit."""
_LONGEST_HEADER = 256
"""The most bytes of a response header, ample: none of its tagged fields is defined so far (KIP-482)."""
_DETAIL = 200
"""The characters of the reason why a response is unreadable that an error quotes."""


class _Expected(NamedTuple):
    correlation_id: int
    response: Any
    """kafka-python's response class."""
    version: int


class RawResponse(NamedTuple):
    """A response as received; if it broke off, the part that arrived."""

    buffer: Any
    """The memory that the caller's ``allocate`` made, as large as the whole response."""
    body: int
    """The position in the buffer at which the body begins."""
    size: int
    """The number of bytes that arrived."""
    broken: BrokerError | None
    """The error because of which no more arrived; the connection is then closed."""


class Connection:
    """A socket to a broker that belongs to one caller at a time. Made by :meth:`open`.

    Several requests may be in flight: responses come in the order of the
    requests. After any :class:`BrokerConnectionError` it is closed for good.
    """

    def __init__(
        self, sock: socket.socket, address: Address, options: ConnectionOptions, node_id: int | None
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.versions: dict[int, tuple[int, int]] = {}
        """The lowest and highest version that the broker supports, by api key."""
        self.last_used = time.monotonic()
        self._sock = sock
        self._options = options
        self._deadline: Deadline | None = None
        """The deadline of the current call."""
        self._expected: deque[_Expected] = deque()
        self._received: deque[tuple[_Expected, RawResponse]] = deque()
        """Responses taken off the socket before the caller wanted them."""
        self._correlation_id = 0
        self._last_response = ""
        self._repeated: dict[Any, tuple[Any, Any]] = {}
        """The last responses of a kind and size, as bytes and as read: equal bytes need not be read again."""
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
        deadline: Deadline | None = None,
        patience: float | None = None,
        begin: Callable[[Step], None] = no_one,
    ) -> Connection:
        """Connect, shake hands, ask for the broker's versions, and authenticate.

        :param deadline: for everything; by default each step has the timeout of its option.
        :param patience: seconds that connecting, TLS and the broker's first answer may take each, if that is
            less than their options say.
        :param begin: is told of each step as it begins.
        :raises BrokerConnectionError: if the broker cannot be reached now.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        setup = options.socket_connection_setup_timeout_ms / 1000
        setup = setup if patience is None else min(setup, patience)
        sock = sockets.open_socket(address, options, tls, setup, deadline, begin)
        connection = cls(sock, address, options, node_id)
        try:
            with connection._bounded(deadline):
                begin(Step.KAFKA)
                connection._ask_versions(patience)
                begin(Step.SASL)
                connection._authenticate()
        except BaseException:
            connection.close()
            raise
        return connection

    def _left(self) -> float:
        """Seconds that a whole frame may take from now on."""
        if self._deadline is None:
            return self._options.request_timeout_ms / 1000 * _SLOW_FRAME
        return max(self._deadline.left, SHORTEST_WAIT)

    def _pace(self, deadline: Deadline | None = None, stall: float | None = None) -> Pace:
        stall = self._options.request_timeout_ms / 1000 if stall is None else stall
        return Pace(stall, self._left() if deadline is None else deadline.left)

    @property
    def in_flight(self) -> int:
        """Requests whose responses have not been taken yet."""
        return len(self._expected) + len(self._received)

    @property
    def closed(self) -> bool:
        return self._closed

    def fileno(self) -> int:
        """The descriptor for ``select``; see :func:`readable`, which also sees what TLS has already read."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket; requests in flight are lost."""
        self._closed = True
        self._expected.clear()
        self._received.clear()
        sockets.close(self._sock)

    def version_of(self, api: Any, *, min_version: int = 0, max_version: int | None = None) -> int:
        """The version to use: the highest that the broker, kafka-python and ``max_version`` allow.

        :param api: kafka-python's request class, or a request.
        :raises UnsupportedVersionError: if no version suits all three.
        """
        ours: int = api.max_version if max_version is None else min(max_version, api.max_version)
        lowest, highest = self.versions.get(api.API_KEY, (0, -1))
        if highest < 0 and is_controller(self.versions):
            raise UnsupportedVersionError(
                "This is a KRaft controller, which serves no records",
                broker=str(self.address),
                hint="Give the port of the brokers' listener: see listeners in their configuration.",
            )
        if lowest > ours or highest < min_version:
            supported = f"{lowest} to {highest}" if highest >= 0 else "none"
            raise UnsupportedVersionError(
                f"Expected {api.name} in one of versions {min_version} to {ours}, the broker has {supported}",
                broker=str(self.address),
                hint=way_out(api.API_KEY, highest),
            )
        version = min(ours, highest)
        if api.API_KEY == MetadataRequest.API_KEY and version in (7, 8):
            return _BEFORE_EPOCHS
        return version

    def send(
        self,
        request: Any,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Send one of kafka-python's requests in the version of :meth:`version_of`, without waiting.

        :param deadline: for everything, including a pause that the broker asks for.
        :raises BrokerConnectionError: if it could not be sent; the connection is then closed.
        """
        with self._bounded(deadline):
            self._before_sending()
            self._send(request, self.version_of(request, min_version=min_version, max_version=max_version))

    def send_body(
        self,
        api: Any,
        version: int,
        body: Sequence[bytes | memoryview],
        *,
        expect_response: bool = True,
        deadline: Deadline | None = None,
    ) -> None:
        """Send a request whose body is already encoded, in pieces that are not copied.

        :param api: kafka-python's request class, for the header.
        :param expect_response: False for a request without a response (ProduceRequest with acks=0).
        :param deadline: as in :meth:`send`.
        :raises BrokerConnectionError: if it could not be sent; the connection is then closed.
        """
        with self._bounded(deadline):
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
            self._expected.append(_Expected(correlation_id, response_of(api)[version], version))

    def receive(self, *, deadline: Deadline | None = None, stall: float | None = None) -> Any:
        """The response to the oldest request in flight; see :func:`.answers.read_body`.

        :param deadline: for the whole response. By default one that keeps moving may take several
            times request.timeout.ms; it is always given up after that long without a byte.
        :param stall: seconds to wait for the next byte, if that is less.
        :raises BrokerConnectionError: if none comes; the connection is then closed.
        """
        return self._read(*self._next_answer(self._pace(deadline, stall), bytearray, _LARGEST_FRAME))

    def receive_frame(
        self, allocate: Callable[[int], Any], *, deadline: Deadline, stall: float, limit: int
    ) -> RawResponse:
        """The response to the oldest request in flight as received, even if only its beginning arrived.

        The caller passes the throttle time in it to :meth:`throttle`.

        :param allocate: makes a writable buffer of the given size.
        :param deadline: for the whole response.
        :param stall: seconds to wait for the next byte.
        :param limit: the largest response to accept, in bytes.
        :raises BrokerConnectionError: if nothing of it comes; the connection is then closed.
        """
        expected, answer = self._next_answer(self._pace(deadline, stall), allocate, limit)
        if answer.broken is not None and answer.size < _LONGEST_HEADER:
            raise answer.broken
        return answer._replace(body=self._body_of(expected, answer.buffer))

    def call(
        self,
        request: Any,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        deadline: Deadline | None = None,
        stall: float | None = None,
    ) -> Any:
        """Send a request and wait for its response. Nothing else may be in flight.

        :param deadline: for everything; by default each step has request.timeout.ms.
        :param stall: seconds to wait for the next byte of the response, if that is less.
        """
        with self._bounded(deadline):
            self.send(request, min_version=min_version, max_version=max_version)
            return self.receive(stall=stall)

    @contextmanager
    def _bounded(self, deadline: Deadline | None) -> Iterator[None]:
        """Bound all within by this deadline, or by that of the enclosing call if it is earlier."""
        enclosing = self._deadline
        self._deadline = enclosing if deadline is None else deadline.bounded_by(enclosing)
        try:
            yield
        finally:
            self._deadline = enclosing

    def throttle(self, throttle_time_ms: int) -> None:
        """Send nothing for this long, as the broker asks (KIP-219)."""
        if throttle_time_ms > 0:
            self._throttled_until = time.monotonic() + throttle_time_ms / 1000

    def is_usable(self, max_idle: float) -> bool:
        """Whether it can be used again: open, idle for less than ``max_idle`` seconds, nothing unread."""
        if self._closed or self.in_flight or time.monotonic() - self.last_used > max_idle:
            return False
        # A socket with something to read and nothing in flight was closed by the broker.
        return not readable([self], 0)

    def __del__(self) -> None:
        self._sock.close()

    def _ask_versions(self, patience: float | None) -> None:
        """ApiVersions, which every broker answers, if need be in version 0 (KIP-511)."""
        for version in (3, 0):
            self._send(
                ApiVersionsRequest(
                    client_software_name="pyspark-kafkalog", client_software_version=__version__
                ),
                version,
            )
            pace = self._pace(stall=patience)
            response = self._read(*self._next_answer(pace, bytearray, _FIRST_FRAME))
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        if response.error_code:
            raise error_of(response.error_code, "The broker refused ApiVersions", broker=str(self.address))
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        if not self._options.security.uses_sasl:
            return
        from pyspark_kafkalog.broker.wire.sasl import authenticate

        with self._bounded(Deadline.after(self._left())):
            lifetime_ms = authenticate(self._call_now, self.address, self._options.security)
        if lifetime_ms:  # log in again before the broker ends the session (KIP-368)
            self._authenticate_at = time.monotonic() + lifetime_ms / 1000 * random.uniform(0.85, 0.95)
        else:
            self._authenticate_at = None

    def _authenticate_again(self) -> None:
        """Log in again. If that fails, this connection ends, and another one shows whether it fails again."""
        try:
            self._authenticate()
        except AuthenticationError as e:
            raise self._broken(f"The login could not be renewed: {e.message}") from e
        except BaseException:
            self.close()
            raise

    def _call_now(self, request: Any, max_version: int) -> Any:
        self._send(request, self.version_of(request, max_version=max_version))
        return self._read(*self._read_answer(self._pace(), bytearray, _FIRST_FRAME))

    def _before_sending(self) -> None:
        if self._authenticate_at is not None and time.monotonic() >= self._authenticate_at:
            while self._expected:
                expected, answer = self._read_answer(self._pace(), bytearray, _LARGEST_FRAME)
                if answer.broken is not None:
                    raise answer.broken
                self._received.append((expected, answer))
            self._authenticate_again()
        wait = self._throttled_until - time.monotonic()
        if wait > self._left():
            raise self._broken(
                f"The broker asks for a pause of {wait:.0f} s, but only {self._left():.0f} s are left"
            )
        if wait > 0:
            time.sleep(wait)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _send(self, request: Any, version: int) -> None:
        request.API_VERSION = version
        correlation_id = self._next_correlation_id()
        request.with_header(correlation_id=correlation_id, client_id=self._options.client_id)
        self._write([request.encode(framed=True, header=True)])
        self._expected.append(_Expected(correlation_id, response_of(type(request))[version], version))

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        pace = self._pace()
        try:
            frames.write(self._sock, pieces, pace)
        except TimeoutError as e:
            sent = f", only {broken.amount(pace.bytes, sum(map(len, pieces)))}" if pace.bytes else ""
            raise self._broken(f"The broker did not take a request within {pace.limit_ms} ms{sent}") from e
        except OSError as e:
            raise self._broken(f"The connection broke while sending: {broken.text(e)}") from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()

    def _next_answer(
        self, pace: Pace, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, RawResponse]:
        return self._received.popleft() if self._received else self._read_answer(pace, allocate, limit)

    def _read_answer(
        self, pace: Pace, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, RawResponse]:
        if not self._expected:
            raise self._broken("No request is in flight")
        expected, buffer, size = self._expected[0], None, 0
        try:
            prefix = frames.read_size(self._sock, pace)
            size = int.from_bytes(prefix, "big", signed=True)
            if not 4 <= size <= limit:
                raise broken.wrong_size(self.address, prefix, size, limit, self._frames)
            buffer = allocate(size)
            frames.read_into(self._sock, memoryview(buffer).cast("B"), pace)
        except OSError as e:
            self.close()
            error = broken.no_answer(
                e,
                pace,
                size,
                address=self.address,
                protocol=self._options.security.protocol,
                frames=self._frames,
                known=self.node_id is not None,
            )
            if buffer is None:
                raise error from e
            error.__cause__ = e
            return expected, RawResponse(buffer, 0, pace.bytes - len(prefix), error)
        except MemoryError as e:
            self.close()
            raise BrokerError(
                f"Not enough memory for a response of {size} bytes",
                broker=str(self.address),
                hint="If this was a fetch, lower kafka.max.partition.fetch.bytes.",
            ) from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()
        self._frames += 1
        self._expected.popleft()
        return expected, RawResponse(buffer, 0, size, None)

    def _body_of(self, expected: _Expected, buffer: Any) -> int:
        self._last_response = expected.response.name
        with self.reading():
            correlation_id, body = read_header(
                expected.response, expected.version, memoryview(buffer).cast("B")[:_LONGEST_HEADER]
            )
        if correlation_id != expected.correlation_id:
            raise self._broken(
                f"The broker answered request {correlation_id} instead of {expected.correlation_id}"
            )
        return body

    def _read(self, expected: _Expected, answer: RawResponse) -> Any:
        if answer.broken is not None:
            raise answer.broken
        body = self._body_of(expected, answer.buffer)
        content = memoryview(answer.buffer)[body:]
        key = expected.response, expected.version, len(content)
        known, response = self._repeated.get(key, (None, None))
        if known != content:
            with self.reading():
                response = read_body(expected.response, expected.version, answer.buffer, body)
            if expected.response.API_KEY in _OFTEN_REPEATED:
                if len(self._repeated) == _REMEMBERED:
                    self._repeated.clear()
                self._repeated[key] = content, response
        self.throttle(getattr(response, "throttle_time_ms", 0))
        return response

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wraps the reading of the last response: one that makes no sense breaks the connection.

        :raises BrokerConnectionError: if the response is malformed or contradicts itself.
        """
        try:
            yield
        except KafkaLogError:
            raise
        except UNREADABLE as e:
            detail = str(e)[:_DETAIL] if type(e) is ValueError else type(e).__name__
            raise self._broken(f"{self._last_response} cannot be read: {detail}") from e

    def _broken(self, message: str) -> BrokerConnectionError:
        self.close()
        return BrokerConnectionError(message, broker=str(self.address))


def readable(connections: Iterable[Connection], timeout: float | None) -> list[Connection]:
    """The connections that broke or have a response to read; waits up to ``timeout`` seconds for one."""
    connections = list(connections)
    ready = [c for c in connections if c._received or c.closed or sockets.has_pending(c._sock)]
    poll = select.poll()
    by_descriptor = {c.fileno(): c for c in connections if c not in ready}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    wait = 0 if ready else None if timeout is None else max(timeout, 0) * 1000
    return ready + [by_descriptor[descriptor] for descriptor, _ in poll.poll(wait)]
