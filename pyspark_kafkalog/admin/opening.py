"""From options, as Spark's reader takes them, to a place and to its consumer groups."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.model import GroupOffsets, Place
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_groups, open_place


def place_of(options: Mapping[str, str]) -> Place:
    """The log directory of ``path``, or the cluster of ``kafka.bootstrap.servers`` and what clients are told.

    :raises OptionError: for options that are wrong.
    """
    return open_place(_checked(options))


def groups_of(options: Mapping[str, str]) -> GroupOffsets:
    """The consumer groups there; see :func:`place_of`."""
    return open_groups(_checked(options))


def _checked(options: Mapping[str, str]) -> PlaceOptions:
    UserOptions(options, Use.ADMIN).check_names()
    return place_options(options)
