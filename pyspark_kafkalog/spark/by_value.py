"""Functions that options hold themselves, for those that workers can't import, as of a notebook's cell."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from pyspark.cloudpickle import cloudpickle

from pyspark_kafkalog.plugins import BY_VALUE, PYTHON


def by_value(function: Callable[..., Any]) -> str:
    """The value of an option that takes ``package.module:function``, for a function of a notebook or script.

    ::

        from pyspark_kafkalog import by_value

        reader.option("transform", by_value(mask))

    What the function uses from the notebook goes with it, as it is now; what it imports must be installed on
    the workers. Give it no secrets: an option's value may be seen in Spark's own logs.

    :param function: what the option would name: a function, or anything else that can be called.
    :raises TypeError: if it can't be called, or not pickled.
    """
    if not callable(function):
        raise TypeError(
            f"Expected a function or a class, got an object of {type(function).__name__}. Give it without"
            " quotes and without calling it: by_value(mask). An import path is an option's value as it is."
        )
    name = re.sub(r"\W", "", getattr(function, "__name__", type(function).__name__)) or "function"
    try:
        pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    except Exception as e:  # of whatever it uses
        raise TypeError(f"The function {name} can't be sent: {type(e).__name__}: {e}") from e
    return f"{BY_VALUE}{name}:{PYTHON}:{base64.b64encode(pickled).decode()}"
