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

from pyspark_kafkalog import __version__
from pyspark_kafkalog.broker.wire import broken, frames, sockets
from pyspark_kafkalog.broker.wire.answers import UNREADABLE, read_body, read_header
from pyspark_kafkalog.broker.wire.error_codes import UNSUPPORTED_VERSION, error_of
from pyspark_kafkalog.broker.wire.frames import Pace
from pyspark_kafkalog.broker.wire.sasl import authenticate
from pyspark_kafkalog.broker.wire.sockets import Address
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaLogError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions

_OFTEN_REPEATED = (ListOffsetsRequest.API_KEY, MetadataRequest.API_KEY)
"""An idle stream gets the same answers ten times a second."""
_REMEMBERED = 4
"""Answers that a connection remembers; those of many partitions take megabytes."""
_FIRST_FRAME = 1 << 20
"""No answer to the first request is as large; what seems so is not of Kafka's protocol."""
_LARGEST_FRAME = 100 << 20
"""Of a response whose caller sets no other limit; that of Kafka's socket.request.max.bytes."""
_MOVING = 4
"""Of request.timeout.ms: how long a frame may move in all, where the caller has no limit."""
_LONGEST_HEADER = 256
"""Of tagged fields in a header none is known so far: KIP-482 came with none."""
_DETAIL = 200
"""Characters that an error shows of why an answer cannot be understood."""


class _Expected(NamedTuple):
    correlation_id: int
    response: Any
    """kafka-python's response class."""
    version: int


class Answer(NamedTuple):
    """An answer as it came; what came of it, if it broke off."""

    buffer: Any
    """As large as all of it is; what a caller's ``allocate`` made."""
    body: int
    """Where in it the body begins."""
    size: int
    """Bytes that are there."""
    broken: BrokerError | None
    """Why there are no more. The connection is closed then."""


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
        self._received: deque[tuple[_Expected, Answer]] = deque()
        """Answers taken off the socket before they were asked for."""
        self._correlation_id = 0
        self._last_response = ""
        self._repeated: dict[Any, tuple[Any, Any]] = {}
        """The last answers of a kind and size, and what was read of them: the same, for the same bytes."""
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
        first_answer: float | None = None,
    ) -> Connection:
        """Connect, shake hands, ask for the broker's versions, and authenticate.

        :param timeout: seconds for all of it; by default each step has that of the options.
        :param first_answer: seconds until a broker must have told its versions, if that is less.
        :raises BrokerConnectionError: if the broker cannot be reached now.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        begun = time.monotonic()
        limits = [limit for limit in (timeout, first_answer) if limit is not None]
        setup_timeout = min([options.socket_connection_setup_timeout_ms / 1000, *limits])
        sock = sockets.open_socket(address, options, tls, timeout=max(setup_timeout, 0.001))
        connection = cls(sock, address, options, node_id)
        taken = time.monotonic() - begun
        try:
            with connection._ending(None if timeout is None else timeout - taken):
                with connection._ending(None if first_answer is None else first_answer - taken):
                    connection._ask_versions()
                connection._authenticate()
        except BaseException:
            connection.close()
            raise
        return connection

    def _left(self) -> float:
        """Seconds that a frame may take from now on, in all."""
        if self._deadline is None:
            return self._options.request_timeout_ms / 1000 * _MOVING
        return max(self._deadline - time.monotonic(), 0.001)

    def _pace(self, total: float | None = None, stall: float | None = None) -> Pace:
        stall = self._options.request_timeout_ms / 1000 if stall is None else stall
        return Pace(stall, self._left() if total is None else total)

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
        ours: int = api.max_version if max_version is None else min(max_version, api.max_version)
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
            self._expected.append(_Expected(correlation_id, header.get_response_class(), version))

    def receive(self, *, timeout: float | None = None, stall: float | None = None) -> Any:
        """The answer to the oldest request in flight; see :func:`.answers.read_body`.

        :param timeout: seconds to wait from now on. By default an answer that moves may take some times
            request.timeout.ms; in any case it is lost when no byte of it came for that long.
        :param stall: seconds to wait for the next byte, if that is less.
        :raises BrokerConnectionError: if none comes; the connection is closed then.
        """
        return self._read(*self._next_answer(self._pace(timeout, stall), bytearray, _LARGEST_FRAME))

    def receive_frame(
        self, allocate: Callable[[int], Any], *, timeout: float, stall: float, limit: int
    ) -> Answer:
        """The answer to the oldest request in flight as it came; also if only the beginning of it came.

        The caller tells the throttle time in it to :meth:`throttle`.

        :param allocate: makes the writable buffer for so many bytes.
        :param timeout: seconds to wait from now on, and ``stall`` for the next byte.
        :param limit: the largest answer to take, in bytes.
        :raises BrokerConnectionError: if nothing of it comes; the connection is closed then.
        """
        expected, answer = self._next_answer(self._pace(timeout, stall), allocate, limit)
        if answer.broken is not None and answer.size < _LONGEST_HEADER:
            raise answer.broken
        return answer._replace(body=self._body_of(expected, answer.buffer))

    def call(
        self,
        request: Any,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        timeout: float | None = None,
        stall: float | None = None,
    ) -> Any:
        """Send a request and wait for its answer. Nothing else may be in flight.

        :param timeout: seconds for all of it; by default each step has request.timeout.ms.
        :param stall: seconds to wait for the next byte of the answer, if that is less.
        """
        with self._ending(timeout):
            self.send(request, min_version=min_version, max_version=max_version)
            return self.receive(stall=stall)

    @contextmanager
    def _ending(self, timeout: float | None) -> Iterator[None]:
        """All within ends after so many seconds, or earlier if what is around it does."""
        around = self._deadline
        if timeout is not None:
            deadline = time.monotonic() + timeout
            self._deadline = deadline if around is None else min(deadline, around)
        try:
            yield
        finally:
            self._deadline = around

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
            response = self._read(*self._next_answer(self._pace(), bytearray, _FIRST_FRAME))
            if response.error_code != UNSUPPORTED_VERSION:
                break
        if response.error_code:
            raise error_of(response.error_code, "The broker refuses ApiVersions", broker=str(self.address))
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self) -> None:
        with self._ending(self._left()):
            lifetime_ms = authenticate(self._call_now, self.address, self._options.security)
        if lifetime_ms:  # before the broker ends the session (KIP-368)
            self._authenticate_at = time.monotonic() + lifetime_ms / 1000 * random.uniform(0.85, 0.95)
        else:
            self._authenticate_at = None

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
            self._authenticate()
        wait = self._throttled_until - time.monotonic()
        if wait > self._left():
            raise self._broken(
                f"The broker asks for a pause of {wait:.0f} s, and {self._left():.0f} s are left"
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
        self._expected.append(_Expected(correlation_id, request.header.get_response_class(), version))

    def _write(self, pieces: list[bytes | memoryview]) -> None:
        pace = self._pace()
        try:
            frames.write(self._sock, pieces, pace)
        except TimeoutError as e:
            sent = f" but for {broken.amount(pace.bytes, sum(map(len, pieces)))}" if pace.bytes else ""
            raise self._broken(f"The broker did not take a request within {pace.limit_ms} ms{sent}") from e
        except OSError as e:
            raise self._broken(f"The connection broke while sending: {broken.text(e)}") from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()

    def _next_answer(
        self, pace: Pace, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, Answer]:
        return self._received.popleft() if self._received else self._read_answer(pace, allocate, limit)

    def _read_answer(
        self, pace: Pace, allocate: Callable[[int], Any], limit: int
    ) -> tuple[_Expected, Answer]:
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
            return expected, Answer(buffer, 0, pace.bytes - len(prefix), error)
        except MemoryError as e:
            self.close()
            raise BrokerError(
                f"There is no memory for an answer of {size} bytes",
                broker=str(self.address),
                hint="Lower kafka.max.partition.fetch.bytes, if it is a fetch.",
            ) from e
        except BaseException:
            self.close()
            raise
        self.last_used = time.monotonic()
        self._frames += 1
        self._expected.popleft()
        return expected, Answer(buffer, 0, size, None)

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

    def _read(self, expected: _Expected, answer: Answer) -> Any:
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
        """Within, what was received last is read: an answer that makes no sense breaks the connection.

        :raises BrokerConnectionError: for what the answer does not hold, or holds against all sense.
        """
        try:
            yield
        except KafkaLogError:
            raise
        except UNREADABLE as e:
            detail = str(e)[:_DETAIL] if type(e) is ValueError else type(e).__name__
            raise self._broken(f"{self._last_response} cannot be understood: {detail}") from e

    def _broken(self, message: str) -> BrokerConnectionError:
        self.close()
        return BrokerConnectionError(message, broker=str(self.address))


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
