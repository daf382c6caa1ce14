"""Imports what users name in options."""

from __future__ import annotations

import importlib
from typing import Any

from pyspark_kafkalog.errors import OptionError


def imported(what: str, path: str, *, form: str) -> Any:
    """The object at ``path``, ``package.module:name``.

    :param what: what the object is, for errors.
    :param form: the form of the path, for errors.
    :raises OptionError: if it can't be imported or is not callable.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise OptionError(
            f"The {what} {path!r} cannot be imported: {e}",
            hint=f"Give {form!r}, which Spark's Python workers must be able to import.",
        ) from e
    if not callable(found):
        raise OptionError(f"The {what} {path!r} is not callable")
    return found
