"""How each fault of a schedule is done to the cluster, the topics or the application, and undone."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from tests.campaign.backups import Backups
from tests.campaign.disks import Disk
from tests.campaign.driver import Driver, Stream
from tests.campaign.members import MEMBER_SESSION, Members
from tests.campaign.moved_disks import MovedDisks
from tests.campaign.schedule import NotDone, Step
from tests.campaign.stores import Stores
from tests.campaign.workload import Topics, Workload, end_offsets
from tests.kafka_cluster import Cluster
from tests.kafka_proxy import (
    API_VERSIONS,
    END_TXN,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WITHOUT_TOPIC_IDS,
    Link,
    Proxy,
    delay,
    swallow,
    trickle,
)
from tests.tools.cli.running import command

FOR_EVER = 1_000_000
SESSION = 6
"""Seconds after which a broker that is not heard of leads no more."""
REFUSAL = 90
"""Seconds in which a query must refuse another history, or go on."""
REPORT = 60
"""Seconds in which a report must end on a busy machine; a reader waits three times as long for a leader."""
SPARKS_LOGS = ("offsets", "commits")
"""Of a checkpoint."""
COORDINATING = "__consumer_offsets"
_T = TypeVar("_T")


class Faults:
    """A method for each fault; it returns when the fault is over, with what it hit."""

    def __init__(
        self,
        cluster: Cluster,
        driver: Driver,
        workload: Workload,
        topics: Topics,
        stores: Stores,
        disks: Sequence[Disk],
        backups: Backups,
        members: Members | None,
        *,
        topic_ids: bool,
    ) -> None:
        self._topic_ids = topic_ids
        self._stores = stores
        self._disks = disks
        self._backups = backups
        self._members = members
        self._cluster = cluster
        self._driver = driver
        self._workload = workload
        self._topics = topics

    def do(self, step: Step) -> str:
        """Do a fault, and say what it hit.

        :raises NotDone: if it was not possible.
        """
        hit = getattr(self, step.fault)(step)
        return f"{step.fault} {hit}"

    def pause(self, step: Step) -> str:
        """A broker stands still, is deposed, and goes on some seconds later."""
        with self._deposed(step) as (node, _):
            time.sleep(step.seconds - SESSION)
        return f"broker {node} for {step.seconds - SESSION:.1f} s after others took over"

    def pause_until_planned(self, step: Step) -> str:
        """A deposed broker goes on when streams have planned for what the next leaders took.

        Tasks have asked it for that, and what it answers first it answers in the old epoch.
        """
        with self._deposed(step) as (node, led):
            ends = self._attempt(lambda: end_offsets(self._cluster.bootstrap, list(self._topics.safe)))
            beyond = {place: ends[place] for place in led}
            deadline = time.monotonic() + 3 * step.seconds
            while not self._planned_beyond(beyond):
                if time.monotonic() > deadline:
                    raise NotDone("nothing was planned for what others took")
                time.sleep(0.1)
            # The tasks have begun by then, and wait for its answer.
            time.sleep(2 + 2 * step.choice)
        return f"broker {node}"

    @contextlib.contextmanager
    def _deposed(self, step: Step) -> Iterator[tuple[int, list[tuple[str, int]]]]:
        """A broker stands still within, and leads no more what it led of the safe topics."""
        node = self._node(step)
        led = self._attempt(lambda: self._led_by(node))
        self._cluster.pause(node)
        try:
            # On a busy machine that takes longer than the session.
            self._attempt(lambda: self._cluster.wait_until(lambda: not self._led_by(node), "It still leads"))
            yield node, led
        finally:
            self._cluster.resume(node)

    def kill(self, step: Step) -> str:
        """A broker dies, and is back a while later."""
        node = self._node(step)
        self._cluster.kill(node)
        self._stores.keep(self._cluster.brokers[node].log_dir)
        time.sleep(step.seconds)
        self._cluster.restart(node)
        return f"broker {node} for {step.seconds} s"

    def kill_at_end(self, step: Step) -> str:
        """A broker dies at once when it has answered that a transaction is committed."""
        killed: list[int] = []

        def kill(node: int, link: Link, frame: bytes) -> None:
            link.to_client(frame)
            if not killed:
                killed.append(node)
                self._cluster.kill(node)

        for node, proxy in self._cluster.proxies.items():
            proxy.strike(END_TXN, functools.partial(kill, node), times=FOR_EVER)
        try:
            self._attempt(lambda: self._cluster.wait_until(lambda: bool(killed), "Nothing was committed"))
            time.sleep(step.seconds)
        finally:
            for proxy in self._cluster.proxies.values():
                proxy.strike(END_TXN, Link.to_client)
        self._cluster.restart(killed[0])
        return f"broker {killed[0]} for {step.seconds} s"

    def set_back_broker(self, step: Step) -> str:
        """A broker comes back with its disk as it was when it died earlier, and follows the others."""
        nodes = [node for node, broker in self._cluster.brokers.items() if self._stores.has(broker.log_dir)]
        if not nodes:
            self.kill(step)
            self._attempt(self._cluster.wait_until_in_sync)
            time.sleep(step.seconds)
            nodes = [self._node(step)]
        node = _choose(nodes, step)
        disk = self._cluster.brokers[node].log_dir
        self._cluster.kill(node)
        # Then leaders don't wait for it any more, so all that is acknowledged is elsewhere.
        time.sleep(SESSION + step.seconds)
        self._stores.set_back(disk, step.choice)
        self._stores.forget(disk)
        self._cluster.restart(node)
        return f"broker {node}"

    def restart(self, step: Step) -> str:
        """A broker is shut down cleanly, and started."""
        node = self._node(step)
        self._cluster.brokers[node].stop()
        self._cluster.restart(node)
        return f"broker {node}"

    def move_leaders(self, step: Step) -> str:
        """Other brokers lead the partitions of a topic."""
        topic = _choose([*self._topics.safe, self._topics.copies], step)
        for partition in range(2):
            self._attempt(lambda p=partition: self._cluster.move_leader(topic, p))
        return f"of {topic}"

    def move_coordinator(self, step: Step) -> str:
        """Other brokers coordinate the groups."""
        for partition in range(2):
            self._attempt(lambda p=partition: self._cluster.move_leader(COORDINATING, p))
        return "of all groups"

    def cut(self, step: Step) -> str:
        """A healthy broker can't be reached."""
        node = self._node(step)
        return self._disturbed(node, self._cluster.proxies[node].refuse, step)

    def reset(self, step: Step) -> str:
        """All connections break at once."""
        for proxy in self._cluster.proxies.values():
            proxy.reset_all()
        return "all connections"

    def slow(self, step: Step) -> str:
        """What a broker answers comes late, and slowly."""
        node = self._node(step)

        def slow_down() -> None:
            for api_key in (FETCH, METADATA):
                self._cluster.proxies[node].strike(api_key, trickle(20_000), times=FOR_EVER)
            for api_key in (LIST_OFFSETS, PRODUCE):
                self._cluster.proxies[node].strike(api_key, delay(0.3), times=FOR_EVER)

        return self._disturbed(node, slow_down, step)

    def half_open(self, step: Step) -> str:
        """A broker's connections stay open, and nothing passes; or answers are lost."""
        node = self._node(step)
        proxy = self._cluster.proxies[node]
        if step.choice * 2 % 1 < 0.5:
            return self._disturbed(node, proxy.hold, step)

        def swallow_some() -> None:
            for api_key in (FETCH, METADATA, LIST_OFFSETS, PRODUCE):
                proxy.strike(api_key, swallow, times=1)

        return self._disturbed(node, swallow_some, step)

    def remake_topic(self, step: Step) -> str:
        """A topic is deleted and recreated."""
        topic = self._topics.remade
        with self._workload.making_anew(topic):
            self._attempt(lambda: self._exists(topic) and self._cluster.delete_topic(topic), 90)
            time.sleep(step.choice * 2)
            self._attempt(
                lambda: self._exists(topic) or self._cluster.make_topic(topic, 1, replication_factor=3), 90
            )
        return topic

    def add_partitions(self, step: Step) -> str:
        """A topic gets one more partition."""
        topic = self._topics.growing
        count = self._topics.partitions[topic] + 1
        if count > self._topics.partitions[self._topics.copies]:
            raise NotDone("there are enough")
        self._admin(lambda admin: admin.create_partitions({topic: count}))
        self._topics.partitions[topic] = count
        return f"to {topic}: {count}"

    def delete_records(self, step: Step) -> str:
        """Records that every stream has finished are deleted: no stream loses any."""
        self._workload.shrunk.add(self._topics.expiring)
        streams = [
            stream for stream in self._driver.streams.values() if self._topics.expiring in stream.topics
        ]
        return self._delete(lambda place: min(stream.finished().get(place, 0) for stream in streams))

    def delete_unread(self, step: Step) -> str:
        """All records go, also those that streams have not read."""
        self._workload.lossy.add(self._topics.expiring)
        ends = self._attempt(lambda: end_offsets(self._cluster.bootstrap, [self._topics.expiring]))
        return self._delete(lambda place: ends[place])

    def retain(self, step: Step) -> str:
        """Records expire after seconds."""
        topic = self._topics.expiring
        self._workload.lossy.add(topic)
        return self._configured(topic, "retention.ms", 2000, 604_800_000, step)

    def compact(self, step: Step) -> str:
        """The cleaner compacts what it can, at once."""
        topic = self._topics.compacted
        return self._configured(topic, "min.cleanable.dirty.ratio", 0.01, 0.9, step)

    def kill_driver(self, step: Step) -> str:
        """Kill -9 Spark's driver with all of its processes; another one goes on."""
        with self._driver.killed():
            self._keep()
        return "and all below it"

    def kill_planner(self, step: Step) -> str:
        """Kill -9 the process that plans a query, which dies of it and is started again."""
        if not self._driver.kill_planner(step.choice):
            raise NotDone("none runs")
        return "of a query"

    def kill_workers(self, step: Step) -> str:
        """Kill -9 the processes that run tasks, which Spark tries again."""
        if not self._driver.kill_workers():
            raise NotDone("none runs")
        return "of all tasks"

    def set_back_checkpoint(self, step: Step) -> str:
        """A query's checkpoint is restored from an older copy; the newer one comes back if it is refused."""
        stream = self._whole(step)
        return self._set_back(stream.checkpoint, stream, step)

    def set_back_directory(self, step: Step) -> str:
        """A query's directory is restored from an older copy; the newer one comes back if it is refused."""
        stream = self._whole(step, of_a_directory=True)
        return self._set_back(Path(stream.sink["path"]), stream, step)

    def lose_power(self, step: Step) -> str:
        """Disks lose what was not flushed; an operator removes the files of checkpoints that are empty."""
        if not all(disk.mounted for disk in self._disks):
            raise NotDone("no file system can be mounted")
        for disk in self._disks:
            # A system does so by itself, but only every half minute.
            disk.flush()
        time.sleep(step.seconds)
        with self._driver.killed():
            self._keep()
            snapshots = [disk.snapshot() for disk in self._disks]
            for stream in self._driver.streams.values():
                stream.has_gone_back = True
            if self._topics.expiring in self._workload.shrunk:
                self._workload.lossy.add(self._topics.expiring)
            for disk, snapshot in zip(self._disks, snapshots, strict=True):
                disk.lose_power(snapshot)
            logs = [
                stream.checkpoint / log for stream in self._driver.streams.values() for log in SPARKS_LOGS
            ]
            empty = [file for log in logs for file in log.glob("*") if not file.stat().st_size]
            for file in empty:
                file.unlink()
        return f"of all disks; {len(empty)} files of checkpoints were empty"

    def set_back_group(self, step: Step) -> str:
        """What a group has committed is what it had committed earlier."""
        # A group that has members elsewhere can't be set back.
        stream = _choose([stream for stream in self._driver.streams.values() if not stream.shared], step)
        with self._driver.killed():
            self._keep()
            committed = self._admin(lambda admin: admin.list_group_offsets({stream.group: None}))[
                stream.group
            ]
            earlier = {
                place: OffsetAndMetadata(int(at.offset * step.choice), "", -1)
                for place, at in committed.items()
            }
            self._admin(lambda admin: admin.alter_group_offsets(stream.group, earlier))
        return f"of {stream.name}"

    def kill_backup(self, step: Step) -> str:
        """Kill -9 a run of the backup, which the next one goes on with."""
        if not self._backups.kill():
            raise NotDone("none runs")
        return "on its way"

    def set_back_backup(self, step: Step) -> str:
        """The backup is restored from an older copy of itself, and goes on."""
        if not self._backups.set_back(step.choice):
            raise NotDone("no run was over")
        return "to an older one"

    def respell(self, step: Step) -> str:
        """Kill -9 Spark's driver; queries start again with options spelled otherwise that name the same."""
        with self._driver.killed():
            self._keep()
            for number, stream in enumerate(self._driver.streams.values()):
                stream.spelling = 1 + int(step.choice * 100) + number
        return "of all queries"

    def write_to_backup(self, step: Step) -> str:
        """A copy of the backup is written to, and a broker adopts it."""
        if not self._backups.write_and_adopt(step.choice):
            raise NotDone("there is no backup so far")
        return "that a broker then adopted"

    def swap_disks(self, step: Step) -> str:
        """A broker of its own moves partitions between its disks, beside readers of both."""
        with tempfile.TemporaryDirectory(prefix="kafkalog-disks-") as folder:
            looks = MovedDisks(Path(folder)).swapped_for(step.seconds)
        return f"of a broker, beside {looks} looks"

    def lose_leader(self, step: Step) -> str:
        """The only replica of a partition is gone for good; reports show the rest within seconds."""
        node, alone = self._node(step), f"alone-{step.choice}-{self._topics.kept}"
        self._attempt(lambda: self._exists(alone) or self._make_alone(alone, node))
        self._cluster.kill(node)
        try:
            time.sleep(SESSION)
            self._look_at_reports(alone)
            shutil.rmtree(self._cluster.brokers[node].partition_folder(alone, 0))
        finally:
            self._cluster.restart(node)
        self._attempt(lambda: self._cluster.delete_topic(alone))
        return f"of {alone} on broker {node}"

    def _make_alone(self, topic: str, node: int) -> None:
        self._cluster.make_topic(topic, 1, {"min.insync.replicas": 1}, replication_factor=1)
        with self._cluster.admin() as admin:
            admin.alter_partition_reassignments({TopicPartition(topic, 0): [node]})
        self._cluster.wait_until(lambda: self._cluster.leader(topic) == node, f"{topic} does not move")

    def _look_at_reports(self, alone: str) -> None:
        """Each report ends in time, with the partition that has no leader as a row, and the others."""
        servers, kept = self._cluster.proxied_bootstrap, self._topics.kept
        for words, of_partitions in (
            (("topics", servers, "--json"), True),
            (("offsets", servers, "--json"), False),
            (("lag", servers, "--json"), False),
            (("lag", servers, "--prometheus"), False),
        ):
            began = time.monotonic()
            done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
            took, said = time.monotonic() - began, " ".join(map(str, words))
            if took > REPORT:
                self._backups.findings.append(f"{said} took {took:.0f} s")
            if "Traceback" in done.stderr or done.returncode not in (0, 1):
                self._backups.findings.append(f"{said} ended with {done.returncode}: {done.stderr[-1000:]}")
            elif of_partitions:
                rows = {row["topic"]: row for row in json.loads(done.stdout)["partitions"]}
                if rows[alone]["highWatermark"] is not None or rows[kept]["highWatermark"] is None:
                    self._backups.findings.append(f"{said} shows {rows[alone]} and {rows[kept]}")

    def stop_member(self, step: Step) -> str:
        """A member leaves its group, and joins again."""
        streams = [stream.name for stream in self._driver.streams.values() if stream.shared]
        name = _choose([*self._group.all, *streams], step)
        away = self._driver.away(name) if name in streams else self._group.away(name, signal.SIGTERM)
        with away:
            time.sleep(step.seconds)
        return f"{name} for {step.seconds} s"

    def pause_member(self, step: Step) -> str:
        """A member stands still for longer than its session, and goes on."""
        # Which query a process plans can't be seen.
        parts = {
            "consumer": self._group.all["consumer"].parts(),
            "planners": self._driver.planners(),
        }
        name = _choose(sorted(parts), step)
        if not parts[name]:
            raise NotDone("it does not run")
        seconds = MEMBER_SESSION + step.seconds
        for process in parts[name]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        time.sleep(seconds)
        for process in parts[name]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        return f"{name} for {seconds:.1f} s"

    def kill_member(self, step: Step) -> str:
        """Kill -9 a member; it joins again at once, or after a while."""
        name = _choose([*self._group.all, "planner"], step)
        if name == "planner":
            return f"planner {self.kill_planner(step)}"
        with self._group.away(name, signal.SIGKILL):
            time.sleep(step.seconds)
        return name

    @property
    def _group(self) -> Members:
        if self._members is None:
            raise NotDone("no group shares topics")
        return self._members

    def _whole(self, step: Step, *, of_a_directory: bool = False) -> Stream:
        """A query that writes exactly once, and of which nothing is lost on purpose."""
        return _choose(
            [
                stream
                for stream in self._driver.streams.values()
                if stream.exactly_once
                and not stream.shared
                and not {*stream.topics} & {*self._topics.side}
                and ("path" in stream.sink or not of_a_directory)
            ],
            step,
        )

    def _set_back(self, store: Path, stream: Stream, step: Step) -> str:
        if not self._stores.has(store):
            self.kill_driver(step)
            time.sleep(step.seconds)
        if not self._stores.has(store):
            raise NotDone("nothing had been written")
        with self._driver.killed():
            stream.is_set_back = stream.has_gone_back = True
            self._stores.set_back(store, step.choice)
            before = stream.finished()
        deadline = time.monotonic() + REFUSAL
        while not stream.refused and stream.finished() == before and time.monotonic() < deadline:
            time.sleep(0.5)
        why = stream.refused
        if not why and stream.finished() != before:
            stream.is_set_back = False
            self._stores.forget(store)
            return f"of {stream.name}, which goes on"
        with self._driver.killed():
            self._stores.put_forward(store)
            stream.is_set_back, stream.refused = False, None
            self._keep()
        if not why:
            raise NotDone(f"{stream.name} has planned nothing meanwhile")
        return f"of {stream.name}, which refused: {why[:200]}"

    def _keep(self) -> None:
        """Copy the stores of all queries, which are dead."""
        for stream in self._driver.streams.values():
            self._stores.keep(stream.checkpoint)
            if "path" in stream.sink:
                self._stores.keep(Path(stream.sink["path"]))

    def _delete(self, before: Callable[[tuple[str, int]], int]) -> str:
        topic = self._topics.expiring
        for partition in range(self._topics.partitions[topic]):
            offset = before((topic, partition))
            if offset:
                self._attempt(lambda o=offset, p=partition: self._cluster.delete_records(topic, o, p))
        return f"of {topic}"

    def _configured(self, topic: str, name: str, value: object, usual: object, step: Step) -> str:
        """A topic's setting differs for a while, long enough for what runs every second or two."""
        for setting, seconds in ((value, step.seconds + 4), (usual, 0)):
            resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: str(setting)})
            self._admin(lambda admin, config=resource: admin.alter_configs([config]))
            time.sleep(seconds)
        return f"{topic} by {name}"

    def _disturbed(self, node: int, disturb: Callable[[], None], step: Step) -> str:
        proxy = self._cluster.proxies[node]
        disturb()
        time.sleep(step.seconds)
        proxy.heal()
        self._set_up(proxy)
        return f"broker {node} for {step.seconds} s"

    def set_up(self) -> None:
        """What clients see of the brokers, which are well; they learn it with their next connections."""
        for proxy in self._cluster.proxies.values():
            proxy.heal()  # as of what the round before had set up
            self._set_up(proxy)
            proxy.reset_all()

    def _set_up(self, proxy: Proxy) -> None:
        if not self._topic_ids:
            proxy.strike(API_VERSIONS, WITHOUT_TOPIC_IDS, times=FOR_EVER)

    def _exists(self, topic: str) -> bool:
        with self._cluster.admin() as admin:
            return topic in admin.list_topics()

    def _led_by(self, node: int) -> list[tuple[str, int]]:
        """Which partitions of the safe topics it leads."""
        with self._cluster.admin() as admin:
            described = admin.describe_topics(list(self._topics.safe))
        return [
            (topic["name"], partition["partition_index"])
            for topic in described
            for partition in topic["partitions"]
            if partition["leader_id"] == node
        ]

    def _planned_beyond(self, ends: Mapping[tuple[str, int], int]) -> bool:
        plans = [stream.planned() for stream in self._driver.streams.values()]
        return any(plan.get(place, 0) > end for plan in plans for place, end in ends.items())

    def _node(self, step: Step) -> int:
        return _choose(sorted(self._cluster.brokers), step)

    def _admin(self, ask: Callable[[Any], _T]) -> _T:
        def asked() -> _T:
            with self._cluster.admin() as admin:
                return ask(admin)

        return self._attempt(asked)

    def _attempt(self, ask: Callable[[], _T], seconds: float = 40) -> _T:
        """Ask until the cluster does it, which has faults of its own meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return ask()
            except (KafkaError, TimeoutError, OSError) as error:
                if time.monotonic() > deadline:
                    raise NotDone(f"{type(error).__name__}: {str(error)[:200]}") from error
                time.sleep(0.5)


def _choose(things: Sequence[_T], step: Step) -> _T:
    if not things:
        raise NotDone("there is none now")
    return things[int(step.choice * len(things))]
