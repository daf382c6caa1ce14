"""``doctor(spark)``: what keeps a session, its executors or a place from working, and what to do."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.cloudpickle import cloudpickle

from pyspark_kafkalog.options.user_options import check_is_mapping
from pyspark_kafkalog.spark.features import UNIX_SOCKETS, features
from pyspark_kafkalog.spark.registration import ask_planner
from pyspark_kafkalog.spark.session import cause_in, check_session, is_remote
from pyspark_kafkalog.tools.doctor import probe as by_value
from pyspark_kafkalog.tools.doctor.compare import findings_of, findings_of_executors
from pyspark_kafkalog.tools.doctor.look import check_options, leave_marks, look, remove_marks
from pyspark_kafkalog.tools.doctor.report import Finding, Report, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_UNKNOWN = 16
"""Tasks where the session does not say how many cores there are."""
_MOST_TASKS = 256
_HOLD_SECONDS = 1.0
_DETAIL = 300
"""The number of characters of Spark's error that are shown."""


def doctor(
    spark: SparkSession,
    options: Mapping[str, object] | None = None,
    *,
    timeout: float = 120.0,
    **more_options: object,
) -> Report:
    """Look at the session, the driver and its executors, and at the place that the options name.

    ::

        from pyspark_kafkalog import doctor

        doctor(spark, {"kafka.bootstrap.servers": "host:9092"})

    It shows the features of this Spark. On the driver, and on each executor that it reaches, it looks at
    Python, package, libraries, compiled kernels, and folders that must be written to. It tries the bootstrap
    servers and the addresses that they advertise, step by step (DNS, TCP, TLS, the first request, SASL). It
    checks that executors see the driver's log directory and locations, and that clocks agree. (Brokers don't
    tell their time.) Each line that is not fine says what to do. No secret is shown. Nothing is written
    except marks in the locations, which are removed again.

    :param options: those of a reader or a writer, as for ``options(...)``.
    :param timeout: seconds to wait for the executors; each step to a broker takes 5 seconds at most.
    :raises OptionError: if an argument or an option is wrong.
    """
    check_session(spark)
    check_is_mapping({} if options is None else options)
    given = {
        name: str(value) for name, value in {**(options or {}), **more_options}.items() if value is not None
    }
    check_options(given)
    run = uuid.uuid4().hex
    mark = f".kafkalog-doctor-{run}"
    marked = leave_marks(given, mark)
    try:
        driver = look(given, mark)
        findings = [*_session(spark), *findings_of("client" if is_remote(spark) else "driver", driver)]
        started = time.time()
        seen, failure = _probe(spark, run, given, timeout)
        findings += findings_of_executors(seen, driver, started, time.time())
        findings.append(failure or _reached(spark, {one["executor"] for one in seen}))
    finally:
        remove_marks(marked, mark)
    return Report(tuple(findings))


def _session(spark: SparkSession) -> Iterator[Finding]:
    yield Finding("session", "Spark", State.FINE, f"{spark.version}, with PySpark {pyspark.__version__} here")
    for feature in features():
        if feature.found:
            yield Finding("session", feature.name, State.FINE, "found")
        else:
            remedy = f"Without it: {feature.without}"
            yield Finding("session", feature.name, State.UNKNOWN, "this Spark does not have it", remedy)
    if is_remote(spark):
        yield _planner_of_server(spark)
        return
    executable = spark.sparkContext.pythonExec
    if "PYSPARK_PYTHON" in os.environ or os.path.isabs(executable):
        yield Finding("session", "PYSPARK_PYTHON", State.FINE, executable)
    else:
        yield Finding(
            "session",
            "PYSPARK_PYTHON",
            State.UNKNOWN,
            f"not set: planners and workers run the {executable} of their PATH, this is {sys.executable}",
            "If that is another one: before the session starts, set it to pyspark_kafkalog.worker_python().",
        )
    for name, on in UNIX_SOCKETS.items():
        if spark.sparkContext.getConf().get(name, "false") == on:
            yield Finding("session", name, State.FINE, "on")
        else:
            found = "off: this package does not wait for TCP, other Python code waits 40 ms in each stage"
            remedy = f"To take that away, set {name}={on} before the session starts."
            yield Finding("session", name, State.FINE, found, remedy)


def _planner_of_server(spark: SparkSession) -> Finding:
    """Whether the driver of a Connect server can plan: no more of it can be seen from a client."""
    try:
        ask_planner(spark)
    except Exception as e:  # whatever Spark or the platform raises is the finding
        remedy = "Install the package on the server, for its driver and its executors."
        return Finding("session", "planner of the server", State.PROBLEM, _explained(e, {})[0], remedy)
    found = "it can run the package; where it can connect to is not seen from a client"
    return Finding("session", "planner of the server", State.FINE, found)


def _probe(
    spark: SparkSession, run: str, options: dict[str, str], timeout: float
) -> tuple[list[dict[str, Any]], Finding | None]:
    """The looks of the executors; and a finding if the tasks failed."""
    found: list[dict[str, Any]] = []
    errors: list[Exception] = []

    def collect() -> None:
        try:
            tag(f"kafkalog-doctor-{run}")
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(task, by_value.PROBED).collect()
            found.extend(json.loads(row.seen) for row in rows if row.seen is not None)
        except Exception as e:  # whatever Spark or the platform raises is the finding
            errors.append(e)

    tasks = _tasks(spark)
    task = partial(by_value.probe, run=run, options=options, hold=_HOLD_SECONDS)
    tag = getattr(spark, "addTag", lambda _: None)
    thread = threading.Thread(target=collect, daemon=True)
    cloudpickle.register_pickle_by_value(by_value)  # type: ignore[no-untyped-call]
    try:
        thread.start()
        thread.join(timeout)
    finally:
        cloudpickle.unregister_pickle_by_value(by_value)  # type: ignore[no-untyped-call]
    if thread.is_alive():
        getattr(spark, "interruptTag", lambda _: None)(f"kafkalog-doctor-{run}")
        text, remedy = (
            f"no result after {timeout:.0f} s",
            "Check that the session has executors with free cores.",
        )
    elif errors:
        text, remedy = _explained(errors[0], options)
    else:
        return found, None
    return found, Finding("session", "executors", State.PROBLEM, f"they can't be looked at: {text}", remedy)


def _tasks(spark: SparkSession) -> int:
    """Twice as many as there are cores, so that each executor gets one."""
    try:
        return min(2 * spark.sparkContext.defaultParallelism, _MOST_TASKS)
    except Exception:  # Spark Connect, and platforms that forbid it, each with an error of its own
        return _TASKS_UNKNOWN


def _reached(spark: SparkSession, reached: set[str]) -> Finding:
    count = len(reached)
    try:
        # In local mode the one block manager is the driver's; elsewhere the driver has one, too.
        known = max(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1, 1)
    except Exception:  # as above
        return Finding(
            "session", "executors", State.FINE, f"{count} reached; the session does not say of how many"
        )
    if count >= known:
        return Finding("session", "executors", State.FINE, f"{count} of {known} reached")
    return Finding(
        "session",
        "executors",
        State.UNKNOWN,
        f"{count} of {known} reached",
        "Look again when the others are idle.",
    )


def _explained(error: Exception, options: Mapping[str, str]) -> tuple[str, str]:
    """The line of an error of Spark's that says most, and what to do."""
    text = str(error)
    for value in sorted(filter(None, options.values()), key=len, reverse=True):
        text = text.replace(value, "...")
    if "PYTHON_VERSION_MISMATCH" in text:
        remedy = "Before the session starts, set PYSPARK_PYTHON to an interpreter of the driver's version."
    elif "PACKAGE_NOT_INSTALLED" in text:
        remedy = "Install what it names, here and on all executors."
    elif "pyarrow" in text.lower():
        remedy = "Install the package with its libraries on all executors."
    else:
        remedy = "See the log of the executors."
    return (cause_in(text) or type(error).__name__)[:_DETAIL], remedy
