"""A group whose members share topics: their settings, and those of them that are not streams in Spark."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.campaign.consumer import BEGAN, COMMITTED, REFUSED

MEMBER_SESSION = 6
"""Seconds after which the group goes on without a member that is not heard of."""
BROKER_SETTINGS = {
    # Of members by the consumer protocol, which brokers decide.
    "group.consumer.min.session.timeout.ms": 1000 * MEMBER_SESSION,
    "group.consumer.session.timeout.ms": 1000 * MEMBER_SESSION,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 1000,
}
_TIMES = {"session.timeout.ms": str(1000 * MEMBER_SESSION), "heartbeat.interval.ms": "1000"}
PROTOCOLS: dict[str, dict[str, str]] = {
    "roundrobin": {**_TIMES, "partition.assignment.strategy": "roundrobin"},
    "cooperative-sticky": {**_TIMES, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
"""Settings of every member."""
AT_ONCE = 200
"""Records of a micro-batch, at most: so many may come again after each harm."""
IS_LOST = "groupMembershipLost=rejoin"
"""A query that the group has put out tells so what else it could have done."""


def source_options(protocol: str, *, rejoins: bool) -> dict[str, str]:
    """Options of a stream that is a member."""
    return {
        "groupMembership": "true",
        "groupMembershipLost": "rejoin" if rejoins else "fail",
        "maxOffsetsPerTrigger": str(AT_ONCE),
        **{f"kafka.{name}": value for name, value in PROTOCOLS[protocol].items()},
    }


class Member:
    """A process with a session of its own, which is started again and again."""

    def __init__(self, name: str, command: Iterable[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.is_away = False
        """On purpose."""
        self.starts = 0
        self._command = [sys.executable, "-m", *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    def parts(self) -> list[psutil.Process]:
        """The process and those that it has forked."""
        if not self.runs:
            return []
        assert self._process is not None
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children()]
        except psutil.Error:
            return []

    def said(self) -> str:
        """What it has logged since this was asked last."""
        if not self.starts:
            return ""
        with self.log.open("rb") as log:
            log.seek(self._read)
            said = log.read()
        self._read += len(said)
        return said.decode(errors="replace")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ask it to end, or kill it with all its parts."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number is not signal.SIGKILL:
                os.kill(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(60)
            # What it has forked, or what does not end.
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Members:
    """The members outside Spark, which read and write through the proxies as the streams do."""

    def __init__(
        self,
        folder: Path,
        topics: tuple[str, ...],
        options: Mapping[str, str],
        protocol: str,
    ) -> None:
        """:param options: of the streams of the group, such as the brokers and ``kafka.group.id``."""
        folder.mkdir(parents=True)
        self._rows = folder / "consumer.rows"
        settings = {
            "bootstrap.servers": options["kafka.bootstrap.servers"],
            "group.id": options["kafka.group.id"],
            "topic.metadata.refresh.interval.ms": 5000,
            **PROTOCOLS[protocol],
        }
        consumer = ["tests.campaign.consumer", str(self._rows), ",".join(topics), json.dumps(settings)]
        self.all = {"consumer": Member("consumer", consumer, folder / "consumer.log")}
        self.findings: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start all, and again those that end."""
        self._thread.start()

    def stop(self) -> None:
        """Ask all to end, which leaves the group."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End all at once."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self._over.set()
        with self._lock:
            for member in self.all.values():
                member.end(number)
                self._hear(member)

    def _hear(self, member: Member) -> None:
        """Find what a member that was asked to end, or killed, has said that it should not."""
        if "Traceback" in (said := member.said()):
            self.findings.append(f"{member.name} ended: {said[-1500:]}")

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self._look()

    def _look(self) -> None:
        """Start members that do not run; of those that had no reason to die, find why."""
        with self._lock:
            if self._over.is_set():
                return
            for member in self.all.values():
                if member.is_away or member.runs:
                    continue
                said = member.said()
                if member.starts:
                    self.findings.append(f"{member.name} died: {said[-1500:]}")
                member.start()

    @contextlib.contextmanager
    def away(self, name: str, number: signal.Signals) -> Iterator[None]:
        """A member has ended within, and joins again at the end."""
        member = self.all[name]
        with self._lock:
            member.is_away = True
            member.end(number)
        yield
        with self._lock:
            self._hear(member)
            member.start()
            member.is_away = False

    def steps(self) -> Iterator[tuple[bool, list[Any]]]:
        """Of each step of the consumer whether it is committed, and topic, partition, offset, number."""
        records: list[Any] = []
        for line in self._rows.read_text().splitlines() if self._rows.exists() else ():
            word, *numbers = line.split(" ")
            if word in {BEGAN, COMMITTED, REFUSED}:
                yield word == COMMITTED, records
                records = []
            else:
                records.append((word, *map(int, numbers)))
        yield False, records


def left_uncommitted(log: str, group: str) -> int:
    """How many micro-batches streams of a group have given up, by what they have logged."""
    return len(re.findall(rf"member of group {group} .*its micro-batch stays uncommitted", log))
