"""A live cluster: connections to its brokers, and records to and from them as whole batches.

Of kafka-python this needs the protocol and the mechanisms of SASL. Its package loads all of its clients,
too, which takes longer than all else here, in each of Spark's short-lived processes. So the package itself
is loaded as soon as somebody asks it for something, and its modules without it.

It reads its schemas by functions that Python 3.11 and 3.12 warn of. Users whose tests take warnings for
errors can't help that, so they are read without the warning.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_lock = threading.RLock()
_LOADING = "__loading__"
"""The attribute of a package whose ``__init__`` runs, and must not begin once more."""


class _LazyPackage(ModuleType):
    """A package whose ``__init__`` runs when it is asked for a name that it lacks.

    As a module of importlib's LazyLoader, but that already loads when one of its modules is imported.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _lock:
            if type(self) is _LazyPackage and not self.__dict__.get(_LOADING):
                assert self.__spec__ is not None
                assert self.__spec__.loader is not None
                self.__dict__[_LOADING] = True
                try:
                    self.__spec__.loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]
                finally:
                    del self.__dict__[_LOADING]
        return object.__getattribute__(self, name)


def _load_lazily(name: str) -> None:
    """Put a package where imports find it, unless it is loaded already, or missing."""
    spec = None if name in sys.modules else find_spec(name)
    if spec is not None:
        package = module_from_spec(spec)
        package.__class__ = _LazyPackage
        sys.modules[name] = package


def _quietly(read: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, without the warning of how it reads a file of its package."""

    @functools.wraps(read)
    def reads(*args: Any, **named: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
            return read(*args, **named)

    return reads


_load_lazily("kafka")

from kafka.protocol import schemas  # noqa: E402 - loads no more of it

schemas.load_json = _quietly(schemas.load_json)
