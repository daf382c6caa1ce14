"""Remove staged files that nobody needs any more.

A job's own go when it is over. Those of a job that was killed go a day later. How
long nothing has been added to them is told by no clock that can be set, and by no
two machines' clocks: each machine that writes to the directory notes what it sees, with
the time since it was started, in ``.kafkalog-abandoned``.
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
"""Whose notes of a job are kept at most."""

logger = logging.getLogger("pyspark_kafkalog")


def abort(root: str, job: str) -> None:
    """Remove all that ``job`` staged. Never raises, as that would hide why the job failed."""
    try:
        _remove(entry for its, entry in _staged(root) if its == field_of_name(job))
    except Exception as e:
        logger.warning("Could not remove what job %s staged in %s: %s", job, root, e)


def sweep(root: str, job: str) -> None:
    """Remove what ``job``, which has just been published, staged and does not need any more.

    With it go, if it is a micro-batch, the leftovers of the same query's earlier
    ones, and those of jobs that have been abandoned. The caller holds the directory's
    lock. Never raises, as that would say that the job was not published.
    """
    try:
        others: defaultdict[str, list[os.DirEntry[str]]] = defaultdict(list)
        over = []
        for its, entry in _staged(root):
            if _is_over(its, field_of_name(job)):
                over.append(entry)
            else:
                others[its].append(entry)
        _remove(over)
        _remove_abandoned(root, others)
    except Exception as e:
        logger.warning("Published, but leftovers in %s were not removed: %s", root, e)


def _is_over(job: str, published: str) -> bool:
    query, _, batch = published.rpartition(".")  # the query is empty for a batch job
    its_query, _, its_batch = job.rpartition(".")
    numbers = batch.isdigit() and its_batch.isdigit()
    return job == published or (its_query == query != "" and numbers and int(its_batch) < int(batch))


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
        except FileNotFoundError:  # removed by another at this moment
            pass
        except OSError as e:
            logger.warning("Could not remove a staged file that is not needed any more: %s", e)


def _remove_abandoned(root: str, jobs: dict[str, list[os.DirEntry[str]]]) -> None:
    """Remove what this machine has seen unchanged for a day, and note what it sees for the first time."""
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
            logger.info("Removing what the job %s left in %s, unchanged for a day", job, root)
            _remove(entries)
            continue
        if since is None or since > uptime:
            seen.pop(machine, None)
            seen[machine] = uptime
        notes[job] = {"state": state, "seen": dict(list(seen.items())[-_MACHINES:])}
    if notes != before:
        replace(path, json.dumps(notes).encode(), path + ".tmp")


def _state(entries: list[os.DirEntry[str]]) -> str:
    """A digest of what changes as long as the job's tasks write."""
    files = []
    for entry in entries:
        status = entry.stat(follow_symlinks=False)
        files.append((entry.name, status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def _machine() -> str:
    """What tells this machine, as it runs now, from others."""
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
            job: {"state": note["state"], "seen": {its: float(since) for its, since in note["seen"].items()}}
            for job, note in notes.items()
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # as if nothing had been seen yet
