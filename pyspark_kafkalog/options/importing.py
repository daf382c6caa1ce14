"""What users name by an import path in an option."""

from __future__ import annotations

import importlib
from typing import Any

from pyspark_kafkalog.errors import OptionError


def imported(what: str, path: str, *, form: str) -> Any:
    """What is at ``path``, ``package.module:name``.

    :param what: is named in the error, as is the ``form`` of the path.
    :raises OptionError: if it can't be imported or is not callable.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise OptionError(
            f"The {what} {path!r} cannot be imported: {e}",
            hint=f"Give {form!r}, importable by Spark's Python workers.",
        ) from e
    if not callable(found):
        raise OptionError(f"The {what} {path!r} is not callable")
    return found
