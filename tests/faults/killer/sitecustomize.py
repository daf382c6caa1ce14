"""Kills a Spark application, -9, whole or in part, at the n-th step of its commits.

Python imports this module at start when its folder is on PYTHONPATH. Steps are
the calls below that are made while something is published; each leaves a line
in the file ``steps`` of the folder KAFKALOG_KILLER, by which they are counted
over all processes. Its file ``order`` says "<step> <victim>"; who dies after
that step:

- ``worker``: the Python process that commits. Spark lives, and lets another abort.
- ``driver``: that process, and every later one of this package at its first step,
  until the order is taken back. Nothing more is written, as if Spark were dead too.
- ``application``: all processes of the session, Spark's JVM among them.
"""

import fcntl
import importlib
import os
import signal
import sys

_STEPS = ("replace", "fsync", "unlink", "ftruncate", "truncate", "mkdir", "write", "pwrite", "sendfile")
_PUBLISHING = {f"pyspark_kafkalog.log.publish.{name}" for name in ("publish", "journal", "appender")}


def _modules():
    """The modules whose functions are being run, not those being imported: numba writes files then."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name != "<module>":
            yield frame.f_globals.get("__name__", "")
        frame = frame.f_back


def _kill_session():
    """Every process of the session: the driver, its JVM, the Python daemon and workers, and last this one."""
    session, me = os.getsid(0), os.getpid()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != me:
            try:
                if os.getsid(int(entry)) == session:
                    os.kill(int(entry), signal.SIGKILL)
            except ProcessLookupError:
                continue
    os.kill(me, signal.SIGKILL)


def _file(name):
    return os.path.join(os.environ["KAFKALOG_KILLER"], name)


def _step(name):
    with open(_file("steps"), "a+") as steps:
        # Threads publish in parallel.
        fcntl.flock(steps, fcntl.LOCK_EX)
        steps.seek(0)
        number = len(steps.readlines()) + 1
        steps.write(f"{name}\n")
        steps.flush()
        with open(_file("order")) as order:
            step, victim = order.read().split()
        if number == int(step):
            if victim == "application":
                _kill_session()
            if victim == "driver":
                open(_file("dead"), "x").close()
            os.kill(os.getpid(), signal.SIGKILL)


def _wrapped(name, call):
    def step(*args, **kwargs):
        modules = set(_modules())
        if os.path.exists(_file("dead")) and any(m.startswith("pyspark_kafkalog.") for m in modules):
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if modules & _PUBLISHING:
            _step(name)
        return result

    return step


if "KAFKALOG_KILLER" in os.environ:
    for _name in _STEPS:
        setattr(os, _name, _wrapped(_name, getattr(os, _name)))
    if "pyspark.daemon" in sys.orig_argv:
        # Workers are forks of the daemon: one that replaces a killed one need not import for a second.
        for _name in ("log.publish.publish", "spark.writer", "write.rows"):
            importlib.import_module(f"pyspark_kafkalog.{_name}")
