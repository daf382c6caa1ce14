"""The view that a batch read shows instead of records, if an extension has one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType


class View(ABC):
    """Rows of another kind. The core has none."""

    __slots__ = ()

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """Name and Spark type of its columns, in order."""

    @abstractmethod
    def reader(self, options: Mapping[str, str], schema: StructType) -> DataSourceReader:
        """The reader of the view's rows.

        :param schema: the wanted columns.
        :raises OptionError: if it has no such columns, or for options of the place.
        """
