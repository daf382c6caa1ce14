"""The rack of this process, for ``kafka.client.rack``: each worker may be in another one (KIP-392).

Most racks are empty or written out: only the others need modules, which are loaded where they are used.
"""

from __future__ import annotations

import logging
import math
import os
import time
from functools import cache
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from pyspark_kafkalog.broker.wire.expiring_cache import ExpiringCache

ENVIRONMENT = "env:"
_log = logging.getLogger("pyspark_kafkalog")

_CLOUDS = ("aws", "gcp", "azure")
_ASK_AGAIN = 600.0
"""Seconds after which a rack that is not known is asked for again: a metadata service may have been busy."""


def rack_of(given: str) -> str:
    """The rack, empty for none: of one that is not known, records come from the leaders. Asked once.

    :param given: a rack; ``env:NAME``; ``aws``, ``gcp`` or ``azure``; or ``package.module:function``.
    :raises KafkaLogError: if the function fails, or returns something else than a rack.
    """
    if ":" not in given and given.lower() not in _CLOUDS:
        return given

    def ask() -> tuple[str, float, float]:
        rack = _found(given)
        until = math.inf if rack else time.time() + _ASK_AGAIN
        return rack, until, until

    return _racks().get(given, ask)


@cache
def _racks() -> ExpiringCache[str]:
    from pyspark_kafkalog.broker.wire.expiring_cache import ExpiringCache

    return ExpiringCache()


def _found(given: str) -> str:
    if given.startswith(ENVIRONMENT):
        name = given.removeprefix(ENVIRONMENT)
        return os.environ.get(name, "").strip() or _unknown(f"the environment has no {name}")
    if given.lower() in _CLOUDS:
        return _zone(given.lower())
    from pyspark_kafkalog.plugins import PlugIn

    function = PlugIn("kafka.client.rack", given)
    rack = function()
    if rack is None:
        return _unknown("its function returned None")
    if not isinstance(rack, str):
        raise function.error(f"returned a {type(rack).__name__}, expected a str")
    return rack.strip()


def _zone(cloud: str) -> str:
    from pyspark_kafkalog import extensions

    try:
        return extensions.cloud_services().zone_of(cloud)
    except KafkaLogError as e:
        return _unknown(e.message)


def _unknown(reason: str) -> str:
    _log.warning("The kafka.client.rack is not known here, so records come from the leaders: %s", reason)
    return ""
