"""Functions of the user's, by import path or by value: loaded, and called so that an error names them."""

from __future__ import annotations

import base64
import importlib
import inspect
import os
import pickle
import re
import sys
from typing import Any

from pyspark_kafkalog.errors import KafkaLogError, OptionError

BY_VALUE = "by-value:"
"""The prefix of an option that holds a function: its name, its Python and the pickled function follow."""
COMMAND = "kafkalog"
_OF_JAVA = re.compile(r"(?:com|org|io|net|kafka|kafkashaded)\.")
"""The packages of most Java classes."""
_THIS_PACKAGE = os.path.join(os.path.dirname(__file__), "")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of this Python: another one would run the function's code wrongly, or crash."""


def imported(what: str, path: str, *, form: str) -> Any:
    """The object at ``path``, ``package.module:name``.

    :param what: what the object is. Errors begin with it, and say no more of the path than it does.
    :param form: the form of the path, for errors.
    :raises OptionError: if it can't be imported or is not callable.
    """
    if path.startswith(BY_VALUE):
        return _unpickled(what, path)
    module, _, name = path.partition(":")
    hint = f"Give {form}, which Spark's Python workers must be able to import."
    if _OF_JAVA.match(module):
        hint = f"A Java class can't run here. {hint}"
    elif os.path.basename(sys.argv[0]) == COMMAND:
        hint += f" {COMMAND} looks for it in the folders of PYTHONPATH."
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as e:  # from the user's code
        if not (isinstance(e, ModuleNotFoundError) and f"{module}.".startswith(f"{e.name}.")):
            reason = f"{type(e).__name__}{_words(e)}"
            raise OptionError(f"{what} cannot be imported: {reason}", hint=hint) from e
        reason = "there is no such module"
    else:
        if callable(found):
            return found
        reason = "its module has no such callable"
    raise OptionError(f"{what} cannot be imported: {reason}", hint=hint)


def check_takes(what: str, found: Any, *given: str) -> None:
    """Refuse what can't be called with these arguments, before it is called.

    :param what: as of :func:`imported`.
    :raises OptionError: if its signature says so.
    """
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of some callables in C
        return
    try:
        signature.bind(*given)
    except TypeError as e:
        raise OptionError(
            f"{what} does not take what it is called with: {e}",
            hint=f"It is called with ({', '.join(given)}).",
        ) from None


def shown(path: str) -> str:
    """The path as errors show it; of a function that is sent by value only its name."""
    return path.split(":")[1] if path.startswith(BY_VALUE) else path


def _unpickled(what: str, text: str) -> Any:
    _, _, python, pickled = text.split(":")
    if python != PYTHON:
        raise OptionError(
            f"{what} was sent by Python {python}, but this is Python {PYTHON}",
            hint="The driver and Spark's Python workers need the same one: see PYSPARK_PYTHON.",
        )
    try:
        return pickle.loads(base64.b64decode(pickled))
    except Exception as e:  # of the user's modules, and of another Python
        raise OptionError(
            f"{what} cannot be loaded: {type(e).__name__}{_words(e)}",
            hint="Spark's Python workers must have what it imports.",
        ) from e


class PlugIn:
    """A function at an import path, or sent by value.

    :param what: what it is for, as errors say it before the path, such as ``transform``.
    :raises OptionError: if it can't be imported or is not callable.
    """

    def __init__(self, what: str, path: str) -> None:
        self._name = f"The {what} {shown(path)!r}"
        self.function = imported(self._name, path, form="package.module:function")

    def __call__(
        self, *given: Any, kind: type[KafkaLogError] = KafkaLogError, hint: str | None = None, **place: Any
    ) -> Any:
        """The result of the function.

        :param kind: the class of the error, and ``hint`` what it tells the user to do.
        :param place: where the rows are from, for the error.
        :raises KafkaLogError: if the function raises anything.
        """
        try:
            return self.function(*given)
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            raise self.error(raised(e), kind=kind, hint=hint, **place) from e

    def check_takes(self, *given: str) -> None:
        """See :func:`check_takes`."""
        check_takes(self._name, self.function, *given)

    def error(
        self, did: str, *, kind: type[KafkaLogError] = KafkaLogError, hint: str | None = None, **place: Any
    ) -> KafkaLogError:
        """The error of a function that ``did`` something wrong; parameters as of a call."""
        return kind(f"{self._name} {did}", hint=hint, **place)


def raised(error: BaseException) -> str:
    """The error of a user's function as text: its kind, the line of the user's module, and its message."""
    return f"raised {type(error).__name__}{_place_in_code(error)}{_words(error)}"


def _words(error: BaseException) -> str:
    """The message of an error, after a colon; empty if it has none, or if its own code fails to tell."""
    try:
        text = str(error)
    except Exception:
        return ""
    return f": {text}" if text else ""


def _place_in_code(error: BaseException) -> str:
    """The line of the user's module that raised, as Spark shows no traceback of errors on purpose."""
    trace = error.__traceback__
    first = None if trace is None else trace.tb_next
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_THIS_PACKAGE):
        first = first.tb_next  # a class of the user's may be derived from one of ours
    if first is None:
        return ""
    file, line = first.tb_frame.f_code.co_filename, first.tb_lineno
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line} of {file})"
