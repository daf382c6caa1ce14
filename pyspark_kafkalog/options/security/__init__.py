"""Logins to brokers, and the checks of TLS: the names of Kafka's SaslConfigs and SslConfigs.

The parsers here are those of the table of options. A log directory has no security, and loads no more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_kafkalog.options.security.jaas import LoginModule


def login_module(option: str, text: str) -> LoginModule:
    """See :func:`.jaas.parse_jaas`."""
    from pyspark_kafkalog.options.security.jaas import parse_jaas

    return parse_jaas(option, text)


def certificates(option: str, text: str) -> str:
    """See :func:`.pem.certificates`."""
    from pyspark_kafkalog.options.security import pem

    return pem.certificates(option, text)


def private_key(option: str, text: str) -> str:
    """See :func:`.pem.private_key`."""
    from pyspark_kafkalog.options.security import pem

    return pem.private_key(option, text)
