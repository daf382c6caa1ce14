"""The options of a place whose topics and groups go into another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions


def source_options(options: Mapping[str, str]) -> PlaceOptions:
    """Where to copy from. Offsets of groups in a directory count at any age, unless the user says otherwise.

    A backup is no running cluster, in which the age of an offset would mean that nobody needs it.

    :raises OptionError: for invalid options.
    """
    user = UserOptions(options, Use.ADMIN)
    user.check_names()
    place = place_options(options)
    if "offsets.retention.minutes" in user:
        return place
    return replace(place, offsets_retention_minutes=None)
