"""From the user's security options to Python's TLS and kafka-python's SASL mechanisms."""

from __future__ import annotations

import ssl
from typing import Any

from pyspark_kafkalog.options.security import SecurityOptions


def tls_context(security: SecurityOptions) -> ssl.SSLContext | None:
    """What TLS is to check and to show; None for a protocol without TLS."""
    if security.protocol not in ("SSL", "SASL_SSL"):
        return None
    return ssl.create_default_context()


def sasl_configs(security: SecurityOptions) -> dict[str, Any]:
    """What kafka-python's SASL mechanisms are told."""
    return {
        "security_protocol": security.protocol,
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
    }
