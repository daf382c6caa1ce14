"""The options of ZooKeeper: how it is reached, who logs in there, and what TLS checks.

The names are those of Kafka's brokers (KIP-515) as far as they have one. ``zookeeper.sasl.jaas.config`` has
what their JAAS file has as ``Client``, ``zookeeper.addauth`` what follows that command in ZooKeeper's shell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model.groups import GroupOffsets
from pyspark_kafkalog.options.brokers import ConnectionOptions
from pyspark_kafkalog.options.contracts import OffsetsStore
from pyspark_kafkalog.options.security.jaas import LoginModule
from pyspark_kafkalog.options.security.tls import TlsOptions, check_pem
from pyspark_kafkalog.options.settings import ReadOptions
from pyspark_kafkalog.options.table import ZOOKEEPER, Where
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import ZOOKEEPER_LOGIN, ZooKeeperAddress
from pyspark_kafkalog.read.messages import messages_of
from pyspark_kafkalog.stream.share import sharing_of

_JAAS = "zookeeper.sasl.jaas.config"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_ADDAUTH = "zookeeper.addauth"
_TLS = "zookeeper.ssl.client.enable"
_TRUST, _KEYS = "zookeeper.ssl.truststore.location", "zookeeper.ssl.keystore.location"
_DIGEST = re.compile(r"digest\s+(?P<login>[^:\s]+:.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class ZooKeeperOptions:
    """The options to reach one ZooKeeper.

    ``sasl`` are a user and a password for DIGEST-MD5, ``digest`` is ``user:password`` for the scheme digest.
    No repr shows them. Without ``tls`` connections are not encrypted.
    """

    address: ZooKeeperAddress
    sasl: tuple[str, str] | None = None
    digest: str | None = None
    tls: TlsOptions | None = None

    def __repr__(self) -> str:
        return f"ZooKeeperOptions({str(self.address)!r}, ...)"


@dataclass(frozen=True, slots=True)
class ZooKeeperOffsets(OffsetsStore):
    """Offsets of groups in ZooKeeper; with ``is_dual`` in Kafka, too. ``option`` is the one that says so."""

    zookeeper: ZooKeeperOptions
    option: str
    is_dual: bool = False

    @property
    def is_alone(self) -> bool:
        """See :class:`.contracts.OffsetsStore`."""
        return not self.is_dual

    def bootstrap_servers(self, brokers: ConnectionOptions) -> tuple[str, ...]:
        """See :meth:`.contracts.OffsetsStore.bootstrap_servers`."""
        from pyspark_kafkalog.extensions.zookeeper.registry import registered_brokers

        return registered_brokers(self.zookeeper, brokers)

    def open_groups(self, brokers: ConnectionOptions, *, timeout: float | None) -> GroupOffsets:
        """See :meth:`.contracts.OffsetsStore.open_groups`."""
        from pyspark_kafkalog.extensions.zookeeper.groups import DualGroups, ZooKeeperGroups

        groups = ZooKeeperGroups(self.zookeeper, brokers, timeout=timeout)
        return DualGroups(brokers, groups, timeout=timeout) if self.is_dual else groups

    def check(self, read: ReadOptions) -> None:
        """See :meth:`.contracts.ExtensionOptions.check`."""
        if read.group.group_id is None:
            raise OptionError(
                f"Option {self.option!r} is set, but no consumer group is given",
                hint="Give the group as option 'kafka.group.id'.",
            )
        if sharing_of(read).is_shared:
            raise OptionError(
                f"Option {self.option!r} can't be set with groupMembership",
                hint="A member commits to Kafka alone. Leave out one of both.",
            )
        if messages_of(read).need_metadata:
            raise OptionError(
                f"Option {self.option!r} can't be set for large messages",
                hint="ZooKeeper keeps no metadata, which says where the next message begins. Leave it out.",
            )


def zookeeper_offsets(user: UserOptions) -> ZooKeeperOffsets | None:
    """The ZooKeeper in which the options say that groups keep their offsets, if they do.

    :raises OptionError: for a directory, and for options that need another one.
    """
    is_dual = user.value("dual.commit.enabled")
    is_stored = user.value("offsets.storage") == "zookeeper"
    option = "dual.commit.enabled" if is_dual else "offsets.storage" if is_stored else None
    if user.where is Where.DIRECTORY:
        if option is not None:
            raise OptionError(
                f"Option {option!r} is for brokers, but 'path' names a log directory",
                hint="Leave it out. kafkalog offsets export and import copy the offsets of groups.",
            )
        return None
    zookeeper = zookeeper_options(user)
    if zookeeper is None:
        if option is not None:
            raise OptionError(
                f"Option {option!r} needs {ZOOKEEPER!r}",
                hint="Give it as consumers with offsets in ZooKeeper have it:"
                " host:port[,host:port][/chroot].",
            )
        return None
    if user.is_zookeeper:
        return ZooKeeperOffsets(zookeeper, ZOOKEEPER)
    return None if option is None else ZooKeeperOffsets(zookeeper, option, is_dual)


def zookeeper_options(user: UserOptions) -> ZooKeeperOptions | None:
    """The options to reach the ZooKeeper that ``zookeeper.connect`` names; None if it names none.

    :raises OptionError: for options that need another one, never showing a value that may be secret.
    """
    if ZOOKEEPER not in user:
        user.refuse_without(ZOOKEEPER, *ZOOKEEPER_LOGIN)
        return None
    return ZooKeeperOptions(user.value(ZOOKEEPER), _sasl(user), _digest(user), _tls(user))


def _sasl(user: UserOptions) -> tuple[str, str] | None:
    module: LoginModule | None = user.value(_JAAS)
    if module is None:
        return None
    name, password = module.options.get("username"), module.options.get("password")
    if module.name != _MODULE or name is None or password is None:
        raise OptionError(
            f"Option {_JAAS!r}: expected the login module of SASL DIGEST-MD5 with a user, got another",
            hint=f'Write it as {_MODULE} required username="..." password="...";'
            " SASL GSSAPI (Kerberos) is not supported.",
        )
    return name, password


def _digest(user: UserOptions) -> str | None:
    text = user.value(_ADDAUTH)
    if text is None:
        return None
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"Option {_ADDAUTH!r}: expected the scheme digest and a user",
            hint="Write digest user:password, as after addauth in ZooKeeper's shell.",
        )
    return match["login"]


def _tls(user: UserOptions) -> TlsOptions | None:
    if not user.value(_TLS):
        user.refuse_without(f"{_TLS}=true", "zookeeper.ssl.")
        return None
    check_pem(user, _TRUST, _KEYS)
    return TlsOptions(
        truststore_location=user.value(_TRUST),
        keystore_location=user.value(_KEYS),
        key_password=user.value("zookeeper.ssl.keystore.password") or None,
        check_hostname=user.value("zookeeper.ssl.endpoint.identification.algorithm"),
    )
