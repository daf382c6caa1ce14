"""The connections that a process keeps to the brokers of one cluster."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.connection import Connection
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.sockets import Address, NeverReachedError, UnknownHostError
from pyspark_kafkalog.errors import BrokerConnectionError
from pyspark_kafkalog.options.brokers import ConnectionOptions

_TRIED_IF_SILENT = 4
"""The least number of bootstrap servers that are tried if all keep silent."""

_reached: set[ConnectionOptions] = set()
"""The clusters of which a broker has answered this process, or an earlier one."""


def note_reached(options: ConnectionOptions) -> None:
    """Brokers of this cluster have answered: if they become unreachable, wait, as they may come back."""
    _reached.add(options)


class ConnectionPool:
    """Connections by address. Each belongs to the caller that took it until it is released.

    Then it stays here for the next caller, for connections.max.idle.ms at most.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._idle: dict[Address, list[Connection]] = {}
        self._unreachable: set[Address] = set()
        """Addresses at which the last attempt to connect failed."""
        self._tls: ssl.SSLContext | None = None
        if options.security.uses_sasl:
            # Now, since deadlines run while a connection is opened.
            import pyspark_kafkalog.broker.wire.sasl  # noqa: F401

    def take(
        self,
        address: Address,
        node_id: int | None,
        *,
        deadline: Deadline | None = None,
        patience: float | None = None,
    ) -> Connection:
        """An idle connection, or a new one. One attempt.

        :param deadline: for the attempt, and ``patience``: see :meth:`.Connection.open`.
        :raises BrokerConnectionError: if the broker cannot be reached now.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            is_other_node = None not in (node_id, connection.node_id) and connection.node_id != node_id
            if not is_other_node and connection.is_usable(self._options.connections_max_idle_ms / 1000):
                connection.node_id = connection.node_id if node_id is None else node_id
                return connection
            connection.close()
        if self._tls is None and self._options.security.tls is not None:
            from pyspark_kafkalog.tls import tls_context

            self._tls = tls_context(self._options.security.tls)
        self._unreachable.add(address)
        connection = Connection.open(
            address,
            self._options,
            tls=self._tls,
            node_id=node_id,
            deadline=deadline,
            patience=patience,
        )
        self._unreachable.remove(address)
        note_reached(self._options)
        return connection

    def take_any(
        self,
        brokers: Mapping[int, Address],
        *,
        deadline: Deadline | None = None,
        last: Sequence[Address] = (),
    ) -> Connection:
        """A connection to one of these brokers, or to a bootstrap server.

        All are tried, for request.timeout.ms; of brokers that hang only two, as each takes that long.
        If no broker has ever answered, the limit is half of socket.connection.setup.timeout.ms, and
        each server gets its share.

        :param last: addresses to try after all others, in this order.
        :param deadline: for everything, if that is earlier.
        :raises BrokerConnectionError: if none can be reached.
        :raises AuthenticationError: if credentials or certificates are not accepted.
        """
        if self._options not in _reached:
            return self._first_contact(deadline)
        timeout_ms = self._options.request_timeout_ms
        backoff = Backoff(self._options, deadline or Deadline.after_ms(timeout_ms), reconnecting=True)
        last_attempt = deadline or Deadline.after_ms(2 * timeout_ms)
        while True:
            error: BrokerConnectionError | None = None
            for node_id, address in self._candidates(brokers, last):
                # A broker that hangs must leave time for another.
                count = min(len(brokers or self._options.bootstrap_servers), 2)
                try:
                    return self.take(address, node_id, deadline=deadline and deadline.share(count))
                except BrokerConnectionError as e:
                    error = e
                    if last_attempt.expired:
                        raise
            assert error is not None, "there is at least one bootstrap server"
            backoff.pause(error)

    def _first_contact(self, deadline: Deadline | None) -> Connection:
        options = self._options
        timeout_ms = min(options.socket_connection_setup_timeout_ms / 2, options.request_timeout_ms)
        patience = Deadline.after_ms(timeout_ms).bounded_by(deadline)
        shortest = timeout_ms / 1000 / _TRIED_IF_SILENT
        backoff = Backoff(options, patience, reconnecting=True)
        while True:
            error: BrokerConnectionError | None = None
            servers = list(self._candidates({}, ()))
            for number, (_, address) in enumerate(servers):
                share = max(patience.left / (len(servers) - number), shortest)
                try:
                    return self.take(address, None, deadline=deadline, patience=share)
                except BrokerConnectionError as e:
                    if error is None or not isinstance(e, UnknownHostError):
                        error = e
                if patience.expired:
                    break
            assert error is not None, "there is at least one bootstrap server"
            try:
                backoff.pause(error, first_contact=True)
            except BrokerConnectionError as e:
                count = len(servers) - 1
                others = (
                    f"; nor do the other {count} bootstrap servers answer"
                    if count > 1
                    else "; nor does the other bootstrap server answer"
                )
                message = e.message + (others if len(servers) > 1 else "")
                raise NeverReachedError(message, broker=e.broker, hint=e.hint) from e

    def retain(self, brokers: Collection[Address]) -> None:
        """Close idle connections to addresses that no longer belong to brokers."""
        known = {Address.parse(server) for server in self._options.bootstrap_servers} | set(brokers)
        self._unreachable &= known
        for address in self._idle.keys() - known:
            for connection in self._idle.pop(address):
                connection.close()

    def release(self, connection: Connection) -> None:
        """Return a connection; one with requests in flight is closed."""
        if connection.in_flight or connection.closed:
            connection.close()
        else:
            self._idle.setdefault(connection.address, []).append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _candidates(
        self, brokers: Mapping[int, Address], last: Sequence[Address]
    ) -> Iterable[tuple[int | None, Address]]:
        """Connected brokers, other brokers, bootstrap servers, the ``last`` and unreachable addresses."""
        unreachable = frozenset(self._unreachable)
        nodes = {address: node_id for node_id, address in brokers.items()}
        yield from (broker for broker in self._in_order(brokers) if broker[1] not in {*last, *unreachable})
        yield from ((nodes.get(address), address) for address in last if address not in unreachable)
        yield from (broker for broker in self._in_order(brokers) if broker[1] in unreachable)

    def _in_order(self, brokers: Mapping[int, Address]) -> Iterable[tuple[int | None, Address]]:
        known: list[tuple[int | None, Address]] = list(brokers.items())
        random.shuffle(known)
        known.sort(key=lambda broker: not self._idle.get(broker[1]))
        yield from known
        servers = [Address.parse(server) for server in self._options.bootstrap_servers]
        random.shuffle(servers)
        nodes = {address: node_id for node_id, address in known}
        for server in servers:
            yield from ((nodes.get(address), address) for address in self._canonical(server))

    def _canonical(self, server: Address) -> list[Address]:
        """The server's canonical names, which Kerberos knows, if the options want them (KIP-235)."""
        if self._options.client_dns_lookup != "resolve_canonical_bootstrap_servers_only":
            return [server]
        try:
            found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        except OSError:
            return [server]
        return [Address(socket.getfqdn(str(where[0])), server.port) for *_, where in found]
