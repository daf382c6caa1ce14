"""The option ``view``: what a batch read shows instead of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import Selection, selection
from pyspark_kafkalog.options.table import VIEW_USES, Use, Where, from_option
from pyspark_kafkalog.options.user_options import UserOptions
from pyspark_kafkalog.options.values import separated
from pyspark_kafkalog.spark.view import View

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

_GROUP = "kafka.group.id"
_OF_FOLDERS = {
    "metrics": "Give load() the path of metricsLocation.",
    "segments": "Brokers don't show their segments. Give load() a log directory, or use view=batches.",
}
"""Views that no broker can show, and what to do instead."""


@dataclass(frozen=True, slots=True)
class ViewOptions(View):
    """The view to show: a key of :data:`.table.VIEW_USES`, its partitions, and its groups (None: all).

    The other fields are for ``batches``: whether to verify checksums, and the least number of tasks.
    """

    view: str
    selection: Selection
    groups: tuple[str, ...] | None
    check_crcs: bool = from_option("checkCrcs")
    min_partitions: int | None = from_option("minPartitions")

    @property
    def columns(self) -> Mapping[str, str]:
        """See :attr:`.view.View.columns`."""
        from pyspark_kafkalog.extensions.views.views import VIEWS

        return VIEWS[self.view]

    def reader(self, options: Mapping[str, str], schema: StructType) -> DataSourceReader:
        """See :meth:`.view.View.reader`."""
        from pyspark_kafkalog.extensions.views.reader import BatchesReader, ViewReader

        return (BatchesReader if self.view == "batches" else ViewReader)(options, self, schema)


def view_options(options: Mapping[str, str]) -> ViewOptions | None:
    """The requested view; None for records.

    :raises OptionError: for anything unknown, malformed, or not applicable to the view.
    """
    view = UserOptions(options, Use.BATCH_READ).value("view")
    if view is None:
        return None
    user = UserOptions(options, VIEW_USES[view])
    user.check_names()
    if view in _OF_FOLDERS and user.where is not Where.DIRECTORY:
        raise OptionError(f"view={view} reads a folder, not brokers", hint=_OF_FOLDERS[view])
    if view == "audit":
        from pyspark_kafkalog.extensions.audit.counts import check_selection

        check_selection(user)
    return user.fill(ViewOptions, view=view, selection=selection(user), groups=_groups(user.value(_GROUP)))


def _groups(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    groups = tuple(dict.fromkeys(separated(_GROUP, text)))
    if not groups:
        raise OptionError(f"Option {_GROUP!r} names no group")
    return groups
