"""Runs the cases of parity, several at a time: they wait for Spark and the broker more than they compute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.kafka import Broker
from tests.parity.case import Case, Outcome
from tests.parity.lab import Bench, Lab

OutcomeOf = Callable[[Case, str], Outcome]
_AT_A_TIME = 3
_TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a Python worker ten seconds to start, which a busy machine may not do."""
_TRIES = 3


@pytest.fixture(scope="session")
def outcome_of(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OutcomeOf]:
    """Gives what came of a case with a format; all that the chosen tests need are run, once, in order."""
    wanted = dict.fromkeys(pair for item in request.session.items for pair in _pairs(item))
    runs = _Runs(spark, broker, tmp_path_factory.mktemp("parity"))
    try:
        futures = {pair: runs.start(*pair) for pair in wanted}
        yield lambda case, format: futures[case, format].result()
    finally:
        runs.close()


def _pairs(item: pytest.Item) -> list[tuple[Case, str]]:
    """The case and the format that a test asks for, if it does."""
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    case = params.get("case")
    return [(case, str(params["format"]))] if isinstance(case, Case) else []


class _Runs:
    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._threads = ThreadPoolExecutor(_AT_A_TIME)
        self._of_thread = threading.local()
        self._benches: list[Bench] = []

    def start(self, case: Case, format: str) -> Future[Outcome]:
        return self._threads.submit(self._run, case, format)

    def _run(self, case: Case, format: str) -> Outcome:
        for _ in range(_TRIES - 1):
            try:
                outcome = self._run_once(case, format)
            except PySparkException as error:
                if _TOO_BUSY not in str(error):
                    raise
            else:
                if _TOO_BUSY not in str(outcome):
                    return outcome
        return self._run_once(case, format)

    def _run_once(self, case: Case, format: str) -> Outcome:
        lab = Lab(self._bench(), format)
        try:
            return case.run(lab)
        finally:
            lab.close()

    def _bench(self) -> Bench:
        bench: Bench | None = getattr(self._of_thread, "bench", None)
        if bench is None:
            session = self._spark.newSession()
            # Where a thread has no active session, writeStream does not find Python sinks.
            session_class = getattr(session._jvm, "org.apache.spark.sql.classic.SparkSession")
            session_class.setActiveSession(session._jsparkSession)
            bench = self._of_thread.bench = Bench(session, self._broker, self._folder)
            self._benches.append(bench)
        return bench

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for bench in self._benches:
            bench.close()
