"""Opens a place and its consumer groups from options, as Spark's reader takes them."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_kafkalog.model import GroupOffsets, Place
from pyspark_kafkalog.options.settings import PlaceOptions, place_options
from pyspark_kafkalog.options.table import Use
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.places import open_groups, open_place


def place_of(options: Mapping[str, str]) -> Place:
    """The log directory in ``path``, or the cluster behind ``kafka.bootstrap.servers``.

    :raises OptionError: for invalid options.
    """
    return open_place(_checked(options))


def groups_of(options: Mapping[str, str]) -> GroupOffsets:
    """The consumer groups of that place; see :func:`place_of`."""
    return open_groups(_checked(options))


def _checked(options: Mapping[str, str]) -> PlaceOptions:
    UserOptions(options, Use.ADMIN).check_names()
    return place_options(options)
