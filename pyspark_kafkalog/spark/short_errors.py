"""Errors on purpose as users see them: the text, without the way that it took through this package.

Spark quotes the whole traceback of an error in a Python worker: in the exception of the user's cell,
and several times in its log. For an error of this package that is noise, since its text says where and
what to do. Other errors, a bug here or in a user's partitioner, keep their tracebacks.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from pyspark_kafkalog.errors import KafkaLogError
from pyspark_kafkalog.spark.session import started_module

_Kind = TypeVar("_Kind", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])

_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable that ``spark.sql.execution.pyspark.udf.hideTraceback.enabled`` sets in all of Spark's workers.

PySpark looks at it when it reports an error (``handle_worker_exception`` of ``pyspark.util``).
"""


def with_short_errors(kind: _Kind) -> _Kind:
    """A class decorator: :func:`short_errors` for the public methods, which Spark calls in its workers."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(kind, name, short_errors(member))
    return kind


def short_errors(function: _Function) -> _Function:
    """Wrap a function, whose :class:`KafkaLogError` is then reported without a traceback or causes."""
    short: Any
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def short(*args: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from function(*args, **named)
            except KafkaLogError as e:
                raise _alone(e) from None
    else:

        @wraps(function)
        def short(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except KafkaLogError as e:
                raise _alone(e) from None

    return short  # type: ignore[no-any-return]


def _alone(error: KafkaLogError) -> KafkaLogError:
    """``error`` under its public name, without the frames so far; PySpark then leaves out its own."""
    if started_module().startswith("pyspark."):
        # A worker of Spark's ends with its first error, so this hides no other one.
        os.environ[_HIDE_TRACEBACK] = "1"
    return error.as_public().with_traceback(None)
