"""Errors on purpose reach Spark without tracebacks; all others keep theirs."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType, SimpleNamespace

import pytest
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader

from pyspark_kafkalog.broker.wire.sockets import ClosedPortError
from pyspark_kafkalog.errors import BrokerConnectionError, KafkaLogError
from pyspark_kafkalog.spark import reader, source, stream_reader, writer
from pyspark_kafkalog.spark.worker import short_errors

HIDDEN = "SPARK_HIDE_TRACEBACK"


def failing(error: Exception) -> int:
    try:
        raise OSError("beneath")
    except OSError as e:
        raise error from e


@short_errors
def returns(error: Exception, *, named: bool = False) -> list[int]:
    return [failing(error)]


@short_errors
def generates(error: Exception, *, named: bool = False) -> Iterator[int]:
    yield 1
    yield failing(error)


def raised(function: Callable[[Exception], Iterable[int]], error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        list(function(error))
    return caught.value


@pytest.mark.parametrize("function", [returns, generates])
def test_an_error_on_purpose_is_alone(
    function: Callable[[Exception], Iterable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HIDDEN, raising=False)
    error = raised(function, KafkaLogError("wrong", hint="Mend it."))
    assert (error.__cause__, error.__suppress_context__) == (None, True)
    frames = traceback.extract_tb(error.__traceback__)
    assert [frame.name for frame in frames] == ["raised", "short"]
    assert "beneath" not in "".join(traceback.format_exception(error))
    assert HIDDEN not in os.environ, "this is not a worker of Spark's"


@pytest.mark.parametrize("function", [returns, generates])
def test_a_bug_keeps_its_traceback(
    function: Callable[[Exception], Iterable[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HIDDEN, raising=False)
    monkeypatch.setitem(sys.modules, "__main__", worker())
    error = raised(function, ZeroDivisionError("a bug"))
    assert isinstance(error.__cause__, OSError)
    assert traceback.extract_tb(error.__traceback__)[-1].name == "failing"
    assert HIDDEN not in os.environ


def worker() -> ModuleType:
    main = ModuleType("__main__")
    main.__spec__ = SimpleNamespace(name="pyspark.daemon")  # type: ignore[assignment]
    return main


def test_a_worker_reports_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDDEN, "")
    monkeypatch.setitem(sys.modules, "__main__", worker())
    raised(returns, KafkaLogError("wrong"))
    assert os.environ[HIDDEN] == "1"


def test_users_see_public_names_of_errors() -> None:
    error = raised_as(BrokerConnectionError, ClosedPortError("closed", broker="host:1", hint="Open it."))
    assert type(error) is BrokerConnectionError
    assert str(error) == "closed (broker host:1). Open it."


def raised_as(kind: type[Exception], error: Exception) -> Exception:
    with pytest.raises(kind) as caught:
        returns(error)
    return caught.value


def test_spark_finds_what_it_looks_for_in_a_function() -> None:
    assert list(inspect.signature(returns).parameters) == ["error", "named"]
    assert inspect.isgeneratorfunction(generates)
    assert not inspect.isgeneratorfunction(returns)


def test_every_method_that_spark_calls_has_short_errors() -> None:
    called = (DataSource, DataSourceReader, DataSourceStreamReader, DataSourceArrowWriter)
    kinds = {
        kind
        for module in (source, reader, stream_reader, writer)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, called) and kind.__module__ == module.__name__
    }
    methods = {
        f"{kind.__name__}.{name}": method
        for kind in kinds
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and method.__module__.startswith("pyspark_kafkalog")
    }
    assert len(methods) > 20
    assert [name for name, method in methods.items() if not hasattr(method, "__wrapped__")] == []
