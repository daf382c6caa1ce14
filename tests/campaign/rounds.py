"""One round: topics, streams, a workload, faults, healing, the end, and the judgement."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka.errors import KafkaError
from kafka.record import MemoryRecords

from tests.campaign.backups import Backups
from tests.campaign.disks import Disk
from tests.campaign.driver import ROW, Driver, Stream
from tests.campaign.faults import Faults
from tests.campaign.histories import (
    Record,
    Topic,
    check,
    check_batch,
    check_committed,
    check_premise,
    check_shared,
)
from tests.campaign.members import AT_ONCE, Members, left_uncommitted, source_options
from tests.campaign.schedule import BROKER_FAULTS, NotDone, Round, Step
from tests.campaign.stores import Stores
from tests.campaign.workload import Topics, Workload, end_offsets, stored_values
from tests.kafka_cluster import Cluster

DRAIN = 150
"""Seconds in which the streams must come to the end, once all is healed."""
SETTLED = 45
"""Seconds after which a batch must see what was acknowledged: no broker is deposed for longer unawares."""
CLIENT = {"kafka.request.timeout.ms": "5000", "kafka.metadata.max.age.ms": "30000"}


@dataclass
class Report:
    """What a round found and did."""

    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    done: list[str] = field(default_factory=list)
    """The faults, with the times at which they were over."""


class Running:
    """A round on its way."""

    def __init__(self, cluster: Cluster, driver: Driver, planned: Round, folder: Path) -> None:
        self._cluster = cluster
        self._driver = driver
        self._round = planned
        self._folder = folder
        self._topics = Topics(planned.number)
        self._workload = Workload(cluster, self._topics)
        stores = Stores(folder / "stores")
        self._backups = Backups(cluster, self._topics, stores, folder)
        self._checkpoints, self._logs = Disk(folder / "checkpoints"), Disk(folder / "logs")
        self._members = self._make_members() if planned.is_shared else None
        self._faults = Faults(
            cluster,
            driver,
            self._workload,
            self._topics,
            stores,
            (self._checkpoints, self._logs),
            self._backups,
            self._members,
            topic_ids=planned.topic_ids,
        )
        self._streams = self._make_streams()
        self._committed: dict[str, dict[tuple[str, int], int]] = {}
        """What was committed when it was looked at last, by stream."""
        self._over = threading.Event()
        self._began = time.monotonic()
        self.report = Report()

    def run(self) -> Report:
        """All of it."""
        try:
            return self._run()
        finally:
            if self._members is not None:
                self._members.kill()
            for disk in (self._checkpoints, self._logs):
                disk.unmount()

    def _run(self) -> Report:
        topics = self._topics
        for topic, partitions in topics.partitions.items():
            self._cluster.make_topic(topic, partitions, topics.configs.get(topic), replication_factor=3)
        self._cluster.wait_until_in_sync()
        self._faults.set_up()
        if self._members is not None:
            self._members.start()
        self._driver.run(self._streams, self._batches(), self._folder / "batches")
        self._workload.start()
        self._backups.start()
        lanes = [threading.Thread(target=self._do, args=(lane,), daemon=True) for lane in self._round.lanes]
        for lane in lanes:
            lane.start()
        try:
            self._watch(lambda: not any(lane.is_alive() for lane in lanes))
        finally:
            self._over.set()
            for lane in lanes:
                lane.join()
            self._cluster.heal()
            self._faults.set_up()
            self._workload.stop()
            self._backups.stop()
        if self._workload.stalled:
            self._find(f"the campaign itself: nothing was acknowledged for long: {self._workload.stalled}")
        self._end()
        self._judge()
        with contextlib.suppress(KafkaError), self._cluster.admin() as admin:
            admin.delete_topics(list(topics.partitions))
        return self.report

    def _make_streams(self) -> list[Stream]:
        safe, side = self._topics.safe, self._topics.side
        strict, tolerant = {"failOnDataLoss": "true"}, {"failOnDataLoss": "false"}
        main = strict if self._round.fail_on_data_loss else tolerant
        copies = {"topic": self._topics.copies, **self._brokers()}
        once = {**copies, "topic": self._topics.copies_once, "delivery.guarantee": "exactly-once"}
        committed = {**main, "kafka.isolation.level": "read_committed"}
        return [
            self._make_stream("to-topic", safe, main, copies),
            self._make_stream("once", (*safe, self._topics.transacted), committed, once),
            self._make_stream("to-directory", safe, main),
            self._make_stream("tolerant", side, tolerant),
            self._make_stream("strict", side, strict, may_die=True),
            *([self._make_shared()] if self._round.is_shared else ()),
        ]

    def _make_shared(self) -> Stream:
        """A member of a group."""
        topics, member = self._topics, source_options(self._round.protocol, rejoins=self._round.rejoins)
        member |= {"kafka.group.id": self._shared_group, "failOnDataLoss": "true"}
        copies = {"topic": topics.copies_shared, **self._brokers()}
        return self._make_stream("shared", topics.safe, member, copies, shared=True)

    def _make_members(self) -> Members:
        return Members(
            self._folder / "members",
            self._topics.safe,
            {**self._brokers(), "kafka.group.id": self._shared_group},
            self._round.protocol,
        )

    @property
    def _shared_group(self) -> str:
        return f"shared-{self._round.number}"

    def _make_stream(
        self,
        name: str,
        topics: tuple[str, ...],
        options: dict[str, str],
        sink: dict[str, str] | None = None,
        *,
        may_die: bool = False,
        shared: bool = False,
    ) -> Stream:
        checkpoint = self._checkpoints.folder / name
        isolation = "read_committed" if self._round.read_committed else "read_uncommitted"
        source = {
            **self._brokers(),
            "kafka.isolation.level": isolation,
            "kafka.group.id": f"{name}-{self._round.number}",
            **options,
            "subscribe": ",".join(topics),
            "startingOffsets": "earliest",
            "checkpointLocation": str(checkpoint),
        }
        directory = {"path": str(self._logs.folder / name), "topic": "copies", "numPartitions": "8"}
        return Stream(name, checkpoint, topics, source, sink or directory, may_die, shared)

    def _brokers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._cluster.proxied_bootstrap, **CLIENT}

    def _batches(self) -> list[dict[str, object]]:
        topics = {**self._brokers(), "subscribe": ",".join(self._topics.safe)}
        directory = {"path": str(self._logs.folder / "to-directory")}
        return [
            {"name": "topics", "source": topics, "value": ROW},
            {"name": "directory", "source": directory, "value": "value"},
        ]

    def _do(self, lane: Iterable[Step]) -> None:
        for step in lane:
            if self._over.wait(step.wait):
                return
            try:
                outcome = self._faults.do(step)
                self.report.counts[f"fault {step.fault}"] += 1
            except NotDone as reason:
                outcome = f"{step.fault} was not done: {reason}"
                self.report.counts[f"not done {step.fault}"] += 1
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                outcome = f"{step.fault} failed: {error!r} ({where.filename}:{where.lineno})"
                self._find(f"the campaign itself: {outcome}")
            self._note(outcome)
            if step.fault in BROKER_FAULTS:
                # One at a time: any two acknowledge only if both are in sync.
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    self._cluster.wait_until_in_sync()

    def _watch(self, over: Callable[[], bool]) -> None:
        """Look at the streams and their groups until it is over."""
        while not over():
            for death in self._driver.look():
                self._find(death)
            self._look_at_groups(self._streams)
            time.sleep(1)

    def _look_at_groups(self, streams: Iterable[Stream]) -> bool:
        """Whether they could be seen."""
        try:
            with self._cluster.admin() as admin:
                groups = admin.list_group_offsets({stream.group: None for stream in streams})
        except (KafkaError, OSError, TimeoutError):
            return False
        for stream in streams:
            self._look_at_group(stream, groups[stream.group])
        return True

    def _look_at_group(self, stream: Stream, group: Mapping[Any, Any]) -> None:
        committed = {(partition.topic, partition.partition): at.offset for partition, at in group.items()}
        if not stream.over and self._topics.remade in self._workload.lossy:
            # The new topic begins at 0, and what was committed in the old one stands until it is passed.
            committed = {place: at for place, at in committed.items() if place[0] != self._topics.remade}
        if stream.shared:
            # Others commit, too.
            self._committed[stream.name] = committed
            return
        verdict = check_committed(committed, stream.finished())
        if stream.has_gone_back:
            # Its group may be ahead until it has caught up.
            stream.has_gone_back = bool(verdict.findings) or stream.is_set_back
            return
        self.report.counts["committed <= finished"] += 1
        self._find(*verdict.findings, of=stream.name)
        self._committed[stream.name] = committed

    def _end(self) -> None:
        """Let all streams come to the end by themselves, and once more as they are stopped and run on."""
        topics = [*self._topics.safe, *self._topics.side, self._topics.transacted]
        ends = end_offsets(self._cluster.bootstrap, topics)
        deadline = time.monotonic() + DRAIN

        def behind() -> list[str]:
            return [
                f"{stream.name} at {topic}-{partition}: {finished.get((topic, partition))} of {end}"
                for stream in self._streams
                if not stream.over
                for finished in [self._committed.get(stream.name, {}) if stream.shared else stream.finished()]
                for (topic, partition), end in ends.items()
                if topic in stream.topics and finished.get((topic, partition), 0) < end
            ]

        self._watch(lambda: not behind() or time.monotonic() > deadline)
        self._find(*behind(), of=f"not at the end {DRAIN} s after healing")
        self._driver.stop()
        if self._members is not None:
            self._members.stop()
        for stream in self._streams:
            if not stream.over:
                why = self._driver.finish(stream, DRAIN)
                self._find(*filter(None, [why]), of=f"{stream.name} run to the end")
                self._cluster.wait_until(
                    lambda watched=stream: self._look_at_groups([watched]), "The groups did not follow"
                )
                self._check_last_commit(stream, ends)

    def _check_last_commit(self, stream: Stream, ends: dict[tuple[str, int], int]) -> None:
        """A query that ended with AvailableNow has committed all."""
        committed = self._committed[stream.name]
        for (topic, partition), end in ends.items():
            if topic in stream.topics and topic != self._topics.remade:
                at = committed.get((topic, partition))
                if at != end:
                    self._find(
                        f"{stream.name} ended and committed {at} of {topic}-{partition}, which ends at {end}"
                    )

    def _judge(self) -> None:
        numbers, groups = self._workload.numbers(), [stream.group for stream in self._streams]
        self._backups.check(numbers, self._workload.aborted, groups)
        self._find(*self._backups.findings, of="backups")
        self.report.counts += self._backups.counts
        known = self._workload.known()
        self._find(*check_premise(known).findings, of="the cluster")
        self.report.counts["records acknowledged"] += self._workload.acknowledged
        self.report.counts["records sent"] += self._workload.sent
        for stream in self._streams:
            if stream.over and not self._workload.lossy:
                self._find(*stream.deaths, of=f"{stream.name} died of data loss that did not happen")
            topics = {n: t for n, t in known.items() if n.split("#")[0] in stream.topics}
            if stream.may_die and not stream.over:
                # It lives, so it says that nothing was lost.
                compacted = self._topics.compacted
                topics = {n: replace(t, may_lose=n == compacted) for n, t in topics.items()}
            history = self._history(stream)
            complete = not (stream.over or stream.shared)
            verdict = check(history, topics, exactly_once=stream.exactly_once, complete=complete)
            self._find(*verdict.findings, of=stream.name)
            self.report.counts[f"records delivered {stream.name}"] += verdict.delivered
            self.report.counts[f"duplicates {stream.name}"] += verdict.duplicates
            self.report.counts[f"deaths {stream.name}"] += len(stream.deaths)
            self.report.counts["histories"] += 1
        for error in self._driver.task_errors():
            is_loss = error.startswith("DataLossError") and self._workload.lossy
            is_put_out = f"no longer a member of group {self._shared_group}" in error
            if not (is_loss or (is_put_out and not self._round.rejoins)):
                self._find(error, of="a task failed")
        if self._members is not None:
            self._judge_group(self._members, known)
        self._judge_batches()

    def _judge_group(self, members: Members, known: Mapping[str, Topic]) -> None:
        """The members together have all, and nothing comes again that was committed once."""
        topics = {name: topic for name, topic in known.items() if name in self._topics.safe}
        (shared,) = (stream for stream in self._streams if stream.shared)
        steps = [(is_committed, [Record(*of) for of in step]) for is_committed, step in members.steps()]
        consumed = [record for _, step in steps for record in step]
        verdict = check({0: consumed}, topics, exactly_once=False, complete=False)
        self._find(*verdict.findings, of="consumer")
        copied = [record for records in self._history(shared).values() for record in records]
        committed = [record for is_committed, step in steps if is_committed for record in step]
        # A run that ends at any moment, or is put out, leaves one micro-batch uncommitted.
        given_up = left_uncommitted(self._driver.log(), self._shared_group)
        limit = 2 * AT_ONCE * (shared.starts + given_up)
        verdict = check_shared({0: consumed, 1: copied}, topics, committed, again=copied, limit=limit)
        self._find(*verdict.findings, of="the shared group")
        self._find(*members.findings)
        for member in members.all.values():
            self.report.counts[f"starts of {member.name}"] += member.starts
        self.report.counts["records delivered consumer"] += len({*consumed})
        self.report.counts["records delivered by several members"] += verdict.duplicates
        self.report.counts["micro-batches given up by members"] += given_up

    def _judge_batches(self) -> None:
        report = self._folder / "batches"
        for line in report.read_text().splitlines() if report.exists() else ():
            try:
                seen = json.loads(line)
            except ValueError:
                continue  # its driver was killed
            name = f"batch of {seen['name']}"
            self.report.counts[name] += 1
            if "error" in seen:
                self._find(seen["error"], of=name)
                continue
            counts = {(s.split()[0], int(s.split()[1])): rows for s, rows in seen["rows"].items()}
            of_topics = seen["name"] == "topics"
            least = self._workload.acknowledged_before(seen["began"] - SETTLED) if of_topics else {}
            self._find(*check_batch(counts, least).findings, of=name)

    def _history(self, stream: Stream) -> dict[int, list[Record]]:
        history: dict[int, list[Record]] = defaultdict(list)
        if "path" in stream.sink:
            values = _directory_values(Path(stream.sink["path"]))
        else:
            values = stored_values(
                self._cluster.bootstrap, stream.sink["topic"], read_committed=stream.exactly_once
            )
        for partition, _, value in values:
            topic, *numbers = value.decode().split()
            source, offset, number = map(int, numbers)
            history[partition].append(Record(self._workload.label(topic, number), source, offset, number))
        return history

    def _find(self, *findings: str, of: str = "") -> None:
        for finding in findings:
            text = f"{of}: {finding}" if of else finding
            self._note(f"FOUND {text}")
            self.report.findings.append(text)

    def _note(self, what: str) -> None:
        self.report.done.append(f"{time.monotonic() - self._began:6.1f} s  {what}")


def _directory_values(root: Path) -> Iterable[tuple[int, int, bytes]]:
    """What is in a log directory, by kafka-python alone: partition, offset and value."""
    for folder in sorted(root.glob("copies-*")):
        for segment in sorted(folder.glob("*.log")):
            batches = MemoryRecords(segment.read_bytes())
            while (batch := batches.next_batch()) is not None:
                for record in batch:
                    yield int(folder.name.split("-")[1]), record.offset, record.value
