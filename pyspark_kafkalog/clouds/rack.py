"""The rack of this process, for ``kafka.client.rack``: each worker may be in another one (KIP-392)."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Mapping

from pyspark_kafkalog.clouds import metadata
from pyspark_kafkalog.clouds.kept import Kept
from pyspark_kafkalog.plugins import PlugIn

ENVIRONMENT = "env:"
_log = logging.getLogger("pyspark_kafkalog")

_ZONES: Mapping[str, Callable[[], str]] = {
    "aws": lambda: metadata.of_aws("placement/availability-zone-id"),
    "gcp": lambda: metadata.of_gcp("instance/zone").rpartition("/")[2],
    "azure": lambda: metadata.of_azure("instance/compute/zone?api-version=2021-02-01&format=text"),
}
"""What brokers of each cloud take for their racks: MSK's have the id of the zone, use1-az1, not its name."""

_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_racks: Kept[str] = Kept()


def rack_of(given: str) -> str:
    """The rack, empty for none: of one that is not known, records come from the leaders. Asked once.

    :param given: a rack; ``env:NAME``; ``aws``, ``gcp`` or ``azure``; or ``package.module:function``.
    :raises KafkaLogError: if the function fails, or returns something else than a rack.
    """
    return _racks.get(given, lambda: (_found(given), math.inf, math.inf))


def _found(given: str) -> str:
    if given.startswith(ENVIRONMENT):
        name = given.removeprefix(ENVIRONMENT)
        return os.environ.get(name, "").strip() or _unknown(f"the environment has no {name}")
    if given in _ZONES:
        try:
            zone = _ZONES[given]()
        except metadata.MetadataError as e:
            return _unknown(f"{given} does not tell the zone of this machine: {e}")
        return zone if _ZONE.fullmatch(zone) else _unknown(f"{given} tells no zone of this machine")
    if ":" not in given:
        return given
    function = PlugIn("kafka.client.rack", given)
    rack = function()
    if rack is None:
        return _unknown("its function returned None")
    if not isinstance(rack, str):
        raise function.error(f"returned a {type(rack).__name__}, expected a str")
    return rack.strip()


def _unknown(reason: str) -> str:
    _log.warning("The kafka.client.rack is not known here, so records come from the leaders: %s", reason)
    return ""
