"""A session with ZooKeeper: the only importer of kazoo, which the extra ``zookeeper`` brings.

Requests are sent many at a time. What a lost connection breaks off is asked again until a deadline: reads,
and writes that lead to the same state however often they are made.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pyspark_kafkalog.broker.wire.backoff import Backoff
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.errors import OptionError, ZooKeeperError
from pyspark_kafkalog.extensions.zookeeper.options import ZooKeeperOptions
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.values import ZooKeeperAddress
from pyspark_kafkalog.tls import tls_context

try:
    from kazoo.client import KazooClient, TransactionRequest
    from kazoo.exceptions import (
        AuthFailedError,
        ConnectionClosedError,
        ConnectionLoss,
        KazooException,
        NoAuthError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
        OperationTimeoutError,
        RolledBackError,
        RuntimeInconsistency,
        SessionExpiredError,
    )
    from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
    from kazoo.protocol.states import KazooState, KeeperState
except ImportError as e:
    raise OptionError(
        f"ZooKeeper needs kazoo, which can't be imported: {e}",
        hint="Run: pip install kazoo pure-sasl",
    ) from e

_SESSION_SECONDS = 6.0
"""The defaults of zookeeper.session.timeout.ms and zookeeper.connection.timeout.ms in Kafka's consumers."""
_QUIET_SECONDS = 1.0
"""The time for a first connection. After it the servers are tried one by one, to say what is wrong."""
_RECONNECTING = {"max_tries": -1, "max_delay": 1.0}
"""Pauses in seconds; kazoo's own grow to a minute."""
_AT_ONCE = 500
"""Requests that wait for an answer, and znodes that one transaction writes: far below 1 MB."""
_BROKEN_OFF = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, OperationTimeoutError)
_MEANWHILE = (NodeExistsError, NoNodeError, NotEmptyError)
"""The errors that show that another client has made or deleted a znode since we looked."""

_log_of_kazoo = logging.getLogger("pyspark_kafkalog.kazoo")
_log_of_kazoo.setLevel(logging.CRITICAL)  # our errors say all of it

Answer = TypeVar("Answer")


class Znode(NamedTuple):
    """The content of a znode, and when it was written (ms)."""

    data: bytes
    modified: int


class ZooKeeper:
    """One ZooKeeper, below its chroot. A session begins with the first request in a ``with`` block, and ends
    with the outermost one: else its threads would live on in idle processes.

    :param brokers: whose retry.backoff.ms and retry.backoff.max.ms count for it, too.
    :param timeout: seconds for a call with all its retries.
    """

    def __init__(self, options: ZooKeeperOptions, brokers: ConnectionOptions, timeout: float) -> None:
        self.address = options.address
        self._options = options
        self._brokers = brokers
        self._timeout = timeout
        self._client: KazooClient | None = None
        self._entered = 0
        self._is_synced = False
        """Whether the session's server knows all that was written before: a follower may be late."""
        self._reached = False
        """Whether it has once answered: then calls wait for it, as it may have another leader, or restart."""
        self._is_refused = False
        """Whether a server refused the login, which kazoo tells apart from other ends for a moment only."""

    def __enter__(self) -> ZooKeeper:
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            self._leave()

    def read(self, paths: Iterable[str]) -> dict[str, Znode | ZooKeeperError]:
        """The znodes that exist, or the error of one that ACLs hide."""
        found = self._each(paths, lambda client, path: client.get_async(path))
        return {
            path: answer if isinstance(answer, ZooKeeperError) else Znode(answer[0] or b"", answer[1].mtime)
            for path, answer in found.items()
        }

    def children(self, paths: Iterable[str]) -> dict[str, list[str] | ZooKeeperError]:
        """The names of the children of those of these znodes that exist, sorted; or an error as above."""
        found = self._each(paths, lambda client, path: client.get_children_async(path))
        return {
            path: answer if isinstance(answer, ZooKeeperError) else sorted(answer)
            for path, answer in found.items()
        }

    def write(self, values: Mapping[str, bytes]) -> None:
        """Write these znodes, up to 500 at once, all or none; with their parents those that don't exist.

        :raises ZooKeeperError: if ACLs deny one.
        """
        for paths in _shares(sorted(values)):
            self._repeat(partial(self._write, paths=paths, values=values))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete these znodes and all below them, up to 500 at once, all or none; missing ones are ignored.

        :raises ZooKeeperError: if ACLs deny one.
        """
        for path in paths:
            self._repeat(partial(self._delete, path=path))

    def where(self, path: str) -> str:
        """The name of a znode in errors."""
        return f"{self.address}{path}"

    def _each(self, paths: Iterable[str], request: Callable[[KazooClient, str], Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for share in _shares(list(paths)):
            found.update(self._repeat(partial(self._ask, paths=share, request=request)))
        return found

    def _ask(
        self,
        client: KazooClient,
        deadline: Deadline,
        paths: Sequence[str],
        request: Callable[[KazooClient, str], Any],
    ) -> dict[str, Any]:
        asked = {path: request(client, path) for path in paths}
        found: dict[str, Any] = {}
        for path, answer in asked.items():
            try:
                found[path] = answer.get(timeout=deadline.left)
            except NoNodeError:
                continue
            except NoAuthError:
                found[path] = self._denied(path)
        return found

    def _write(
        self, client: KazooClient, deadline: Deadline, paths: Sequence[str], values: Mapping[str, bytes]
    ) -> None:
        wanted = sorted({above for path in paths for above in _with_parents(path)})
        existing = self._ask(client, deadline, wanted, lambda client, path: client.exists_async(path))
        transaction, named = client.transaction(), []
        for path in wanted:
            if existing[path] is None:
                transaction.create(path, values.get(path, b""))
            elif path in values:
                transaction.set_data(path, values[path])
            else:
                continue
            named.append(path)
        self._carry_out(transaction, named, deadline)

    def _delete(self, client: KazooClient, deadline: Deadline, path: str) -> None:
        tree: list[str] = []
        level = [path]
        while level:
            found = self._ask(client, deadline, level, lambda client, path: client.get_children_async(path))
            for answer in found.values():
                if isinstance(answer, ZooKeeperError):
                    raise answer
            tree += found
            level = [f"{above}/{name}" for above, names in found.items() for name in names]
        for paths in _shares(tree[::-1]):
            transaction = client.transaction()
            for each in paths:
                transaction.delete(each)
            self._carry_out(transaction, paths, deadline)

    def _carry_out(self, transaction: TransactionRequest, paths: Sequence[str], deadline: Deadline) -> None:
        """Carry out a transaction whose operations are on these paths, all or none of them."""
        outcomes = transaction.commit_async().get(timeout=deadline.left)
        for path, outcome in zip(paths, outcomes, strict=True):
            if isinstance(outcome, NoAuthError):
                raise self._denied(path)
            if isinstance(outcome, Exception) and not isinstance(
                outcome, RolledBackError | RuntimeInconsistency
            ):
                raise outcome

    def _denied(self, path: str) -> ZooKeeperError:
        return ZooKeeperError(
            "ZooKeeper's ACLs deny it",
            file=self.where(path),
            hint="Let the user that logs in read it, and write it to commit there."
            if self._options.sasl or self._options.digest
            else "No login is given: let world:anyone read it, and write it to commit there.",
        )

    def _repeat(self, attempt: Callable[[KazooClient, Deadline], Answer]) -> Answer:
        """The result of ``attempt``, which is repeated if the connection breaks."""
        deadline = Deadline.after(self._timeout)

        def tried() -> Answer | ZooKeeperError:
            try:
                client = self._connected(deadline)
            except ZooKeeperError as e:
                if not self._reached:
                    raise
                return e
            try:
                if not self._is_synced:
                    client.sync_async("/").get(timeout=deadline.left)
                    self._is_synced = True
                return attempt(client, deadline)
            except (*_BROKEN_OFF, *_MEANWHILE, KazooTimeoutError) as e:
                if self._is_refused:
                    raise _login_failed(self.address) from None
                if isinstance(e, ConnectionClosedError):  # kazoo does not connect this client again
                    self._leave()
                return ZooKeeperError(f"ZooKeeper did not answer: {type(e).__name__}", file=str(self.address))
            except AuthFailedError:
                raise _login_failed(self.address) from None
            except KazooException as e:
                raise ZooKeeperError(
                    f"ZooKeeper refuses: {type(e).__name__} {e}".rstrip(), file=str(self.address)
                ) from e

        return Backoff(self._brokers, deadline).repeat(tried)

    def _leave(self) -> None:
        """End the session, if there is one."""
        client, self._client = self._client, None
        self._is_synced = False
        if client is not None:
            _stop(client)

    def _connected(self, deadline: Deadline) -> KazooClient:
        assert self._entered
        if self._client is not None:
            return self._client
        address, login = self.address, self._options
        context = tls_context(login.tls, "zookeeper.ssl", "keystore.password")
        handler = SequentialThreadingHandler() if context is None else TlsHandler(context)
        client = KazooClient(
            f"{','.join(address.servers)}{address.chroot}",
            timeout=_SESSION_SECONDS,
            handler=handler,
            connection_retry=dict(_RECONNECTING),
            auth_data=[] if login.digest is None else [("digest", login.digest)],
            sasl_options=_sasl_options(login),
            logger=_log_of_kazoo,
        )
        self._is_refused = False

        def listen(_: KazooState) -> None:
            self._is_refused = self._is_refused or client.client_state == KeeperState.AUTH_FAILED

        client.add_listener(listen)
        started = client.start_async()
        if not started.wait(min(_QUIET_SECONDS, deadline.left)):
            reasons = _unreachable(address.servers) or getattr(handler, "trouble", "")
            if reasons or not started.wait(min(_SESSION_SECONDS, deadline.left)):
                _stop(client)
                if self._is_refused:
                    raise _login_failed(address)
                reasons = reasons or "its servers accept connections, but no session"
                raise ZooKeeperError(
                    f"Cannot connect to ZooKeeper: {reasons}",
                    file=str(address),
                    hint="Check host and port, and that it is ZooKeeper: brokers have another port. TLS needs"
                    " zookeeper.ssl.client.enable=true.",
                )
        self._client, self._reached = client, True
        return client


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with connections by TLS. Its own always trust the system's authorities, too, and wait
    for the network where answers are left in a record that was read.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self.trouble = ""
        """The reason why TLS made the last connection fail, if it did."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **_: object
    ) -> ssl.SSLSocket:
        """A connection to a server, whose certificate is checked."""
        connection = socket.create_connection(address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            return self._context.wrap_socket(connection, server_hostname=hostname.strip("[]"))
        except ssl.SSLError as e:
            connection.close()
            self.trouble = f"TLS fails: {getattr(e, 'verify_message', '') or e.reason}"
            raise
        except OSError:
            connection.close()
            raise

    def select(self, readers: Sequence[Any], *others: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """The sockets that kazoo's select gives, and those of which TLS has read more than was taken."""
        if ready := [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]:
            return ready, [], []
        found: tuple[list[Any], list[Any], list[Any]] = super().select(readers, *others)
        return found


def _sasl_options(login: ZooKeeperOptions) -> dict[str, str] | None:
    if login.sasl is None:
        return None
    if importlib.util.find_spec("puresasl") is None:
        raise OptionError(
            "SASL to ZooKeeper needs pure-sasl, which can't be imported",
            hint="Run: pip install kazoo pure-sasl",
        )
    username, password = login.sasl
    return {"mechanism": "DIGEST-MD5", "username": username, "password": password}


def _login_failed(address: ZooKeeperAddress) -> ZooKeeperError:
    return ZooKeeperError(
        "ZooKeeper does not accept the login",
        file=str(address),
        hint="Check zookeeper.sasl.jaas.config, and that the servers know the user.",
    )


def _stop(client: KazooClient) -> None:
    """End the session, but wait no longer than a second for a server that does not answer."""

    def stop() -> None:
        with suppress(Exception):
            client.stop()
            client.close()

    thread = threading.Thread(target=stop, name="kafkalog-zookeeper", daemon=True)
    thread.start()
    thread.join(_QUIET_SECONDS)


def _unreachable(servers: Iterable[str]) -> str:
    """The reason why none of these servers can be connected to; empty if one can."""
    reasons = []
    for server in servers:
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_QUIET_SECONDS).close()
        except OSError as e:
            reasons.append(f"{server}: {e}")
        else:
            return ""
    return "; ".join(reasons)


def _shares(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[begin : begin + _AT_ONCE] for begin in range(0, len(paths), _AT_ONCE))


def _with_parents(path: str) -> list[str]:
    """``/a/b``: ``/a`` and ``/a/b``."""
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(1, len(parts))]
