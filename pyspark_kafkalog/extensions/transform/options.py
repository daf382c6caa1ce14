"""The option ``transform``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_kafkalog.options.contracts import RowTransform, Transforms
from pyspark_kafkalog.options.table import from_option
from pyspark_kafkalog.options.user_options import UserOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TransformOptions(Transforms):
    """The function that changes rows: ``path`` is ``module:name``."""

    path: str = from_option("transform")

    @property
    def is_set(self) -> bool:
        """See :attr:`.contracts.Transforms.is_set`."""
        return True

    def load(self, given: pa.Schema, promised: pa.Schema | None = None) -> RowTransform:
        """See :meth:`.contracts.Transforms.load`."""
        from pyspark_kafkalog.extensions.transform.transform import Transform

        return Transform(self.path, given, promised)


def transform_options(user: UserOptions) -> TransformOptions:
    """The function that is given.

    :raises OptionError: if it is not an import path.
    """
    return user.fill(TransformOptions)
