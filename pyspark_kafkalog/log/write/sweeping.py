"""Remove staged files that nobody needs any more.

A job's own files go when it is over, those of a killed job a day after their last change.
Clocks that can be set, or of two machines, don't count: each machine that writes to the
directory notes what it sees, with the time since it was started, in ``.kafkalog-abandoned``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark_kafkalog.log.durable import replace
from pyspark_kafkalog.log.write.staging import STAGED_NAME, field_of_name

ABANDONED_FILE = ".kafkalog-abandoned"
_ABANDONED_SECONDS = 24 * 3600
_MACHINES = 8
"""The most machines whose notes of a job are kept."""

_log = logging.getLogger("pyspark_kafkalog")


def abort(root: str, job: str) -> None:
    """Remove all that ``job`` has staged. Never raises, as that would hide why the job failed."""
    try:
        _remove(entry for staged_job, entry in _staged(root) if staged_job == field_of_name(job))
    except Exception as e:
        _log.warning("Could not remove the staged files of job %s in %s: %s", job, root, e)


def sweep(root: str, job: str) -> None:
    """Remove the staged files of ``job``, which has just been published.

    For a micro-batch this includes leftovers of the query's earlier ones; files of abandoned
    jobs go, too. The caller holds the directory's lock. Never raises, as that would say that
    the job was not published.
    """
    try:
        others: defaultdict[str, list[os.DirEntry[str]]] = defaultdict(list)
        over = []
        for staged_job, entry in _staged(root):
            if _is_over(staged_job, field_of_name(job)):
                over.append(entry)
            else:
                others[staged_job].append(entry)
        _remove(over)
        _remove_abandoned(root, others)
    except Exception as e:
        _log.warning("Published, but could not remove leftovers in %s: %s", root, e)


def _is_over(job: str, published: str) -> bool:
    query, _, batch = published.rpartition(".")  # the query is empty for a batch job
    job_query, _, job_batch = job.rpartition(".")
    numbers = batch.isdigit() and job_batch.isdigit()
    return job == published or (job_query == query != "" and numbers and int(job_batch) < int(batch))


def _staged(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The staged files, each with its job."""
    with os.scandir(root) as entries:
        for entry in entries:
            match = STAGED_NAME.match(entry.name)
            if match is not None and entry.is_file(follow_symlinks=False):
                yield match["job"], entry


def _remove(entries: Iterable[os.DirEntry[str]]) -> None:
    for entry in entries:
        try:
            os.unlink(entry.path)
        except FileNotFoundError:  # another process has just removed it
            pass
        except OSError as e:
            _log.warning("Could not remove a staged file that is no longer needed: %s", e)


def _remove_abandoned(root: str, jobs: dict[str, list[os.DirEntry[str]]]) -> None:
    """Remove files that this machine has seen unchanged for a day, and note those it sees first."""
    path = os.path.join(root, ABANDONED_FILE)
    before = _read_notes(path)
    if not jobs and not before:
        return
    machine, uptime = _machine(), time.monotonic()
    notes: dict[str, dict[str, Any]] = {}
    for job, entries in jobs.items():
        state = _state(entries)
        note = before.get(job)
        seen = dict(note["seen"]) if note is not None and note["state"] == state else {}
        since = seen.get(machine)
        if since is not None and uptime - since >= _ABANDONED_SECONDS:
            _log.info("Removing staged files of job %s in %s, unchanged for a day", job, root)
            _remove(entries)
            continue
        if since is None or since > uptime:
            seen.pop(machine, None)
            seen[machine] = uptime
        notes[job] = {"state": state, "seen": dict(list(seen.items())[-_MACHINES:])}
    if notes != before:
        replace(path, json.dumps(notes).encode(), path + ".tmp")


def _state(entries: list[os.DirEntry[str]]) -> str:
    """A digest that changes while the job's tasks write."""
    files = []
    for entry in entries:
        status = entry.stat(follow_symlinks=False)
        files.append((entry.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def _machine() -> str:
    """An id of this machine since it was started."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return f"{platform.node()}-{uuid.getnode():x}"


def _read_notes(path: str) -> dict[str, dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            notes = json.load(file)
        return {
            job: {
                "state": note["state"],
                "seen": {name: float(since) for name, since in note["seen"].items()},
            }
            for job, note in notes.items()
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # as if nothing had been seen yet
