"""Backups of a round's topics, made again and again beside the faults, and what comes of the last one."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from pyspark_kafkalog import connect
from pyspark_kafkalog.client.kafka import Kafka
from pyspark_kafkalog.model import CommittedOffset, TopicPartition
from tests.campaign.histories import Verdict, check_committed, check_copy
from tests.campaign.stores import Stores
from tests.campaign.workload import Topics, end_offsets, stored_values
from tests.kafka import Broker
from tests.kafka_cluster import Cluster
from tests.kafka_service import KafkaService
from tests.tools.cli.running import command

_PAUSE = 3.0
_MET_A_FAULT = {1, 3}
"""Exit codes of a run that could not copy all, or reach any broker."""
_LAST = b"-1"
"""The value of a record that is written after all others."""


class Backups:
    """A thread that runs ``kafkalog backup`` for topics that lose nothing; runs may be killed."""

    def __init__(self, cluster: Cluster, topics: Topics, stores: Stores, folder: Path) -> None:
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._topics = topics
        self._stores = stores
        self._folder = folder
        self._log = folder / "backup"
        self._over = threading.Event()
        self._at_rest = threading.Lock()
        """Held while a run writes to the backup."""
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run_again, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, when the present run is over."""
        self._over.set()
        self._thread.join()

    def kill(self) -> bool:
        """Kill -9 the present run. False without one."""
        process = self._process
        if process is None:
            return False
        process.kill()
        return True

    def set_back(self, choice: float) -> bool:
        """Bring back an older copy of the backup between two runs. False without one."""
        with self._at_rest:
            found = self._stores.has(self._log)
            if found:
                self._stores.set_back(self._log, choice)
                self._stores.forget(self._log)
                self._stores.keep(self._log)
            return found

    def write_and_adopt(self, choice: float) -> bool:
        """Write to a copy of the backup, and let a broker adopt it. False without a backup.

        All that a reader of the copy then has must come from the broker, once, and what is acknowledged
        after it.
        """
        copy, topic = self._folder / f"written-{choice}", self._topics.kept
        with self._at_rest:
            if not self._log.is_dir():
                return False
            shutil.copytree(self._log, copy)
        numbers = [-number for number in range(2, 12)]
        rows = pa.table({"value": [b"%d" % number for number in numbers]})
        rows = rows.append_column("partition", pa.array([number % 3 for number in numbers], pa.int32()))
        with connect(str(copy)) as backup:
            backup.write(rows, topic)
            there = {state.topic for state in backup.topics.partitions()}
            original = {name: self._read(backup, name) for name in self._copied if name in there}
        broker = Broker(self._folder / f"adopter-{choice}", heap="256m")
        try:
            self._adopt(broker, copy)
            for name, expected in original.items():
                found = self._numbers(broker, name, name)
                self._find(
                    check_copy(expected, found, {*numbers} if name == topic else set(), set()), of=name
                )
            self._write_on(broker, self._topics.transacted)
        finally:
            broker.discard()
            shutil.rmtree(copy)
        return True

    def check(self, committed: Mapping[str, set[int]], aborted: set[int], groups: Iterable[str]) -> None:
        """Hold the backup, what is restored from it, and a broker that adopts it, against the cluster.

        The workload is over, and the cluster is well.

        :param committed: numbers by topic that consumers were promised.
        :param aborted: numbers of the transacted topic that they must not see.
        :param groups: of the round's streams.
        """
        self._must(self._backup())
        self._must(_run("verify", self._log))
        transacted = self._topics.transacted
        original = {topic: self._numbers(self._cluster, topic, topic) for topic in self._copied}
        renamed = {topic: f"restored-{topic}" for topic in self._copied}
        self._restore(renamed)
        broker = Broker(self._folder / "adopted", heap="256m")
        try:
            self._adopt(broker, self._log)
            for service, names in ((self._cluster, renamed), (broker, {name: name for name in self._copied})):
                for topic, name in names.items():
                    copy = self._numbers(service, name, topic)
                    hidden = aborted if topic == transacted else set()
                    verdict = check_copy(original[topic], copy, committed[topic], hidden)
                    self._find(verdict, of=f"{name} of {service.bootstrap}")
                self._check_groups(service, names.values(), groups)
            self._write_on(broker, transacted)
        finally:
            broker.discard()
        with self._cluster.admin() as admin:
            admin.delete_topics(list(renamed.values()))

    @property
    def _copied(self) -> tuple[str, ...]:
        return (*self._topics.safe, self._topics.transacted)

    def _run_again(self) -> None:
        while not self._over.wait(_PAUSE):
            code, said = self._backup()
            outcome = {0: "whole", -9: "killed"}.get(code, "with a fault")
            self.counts[f"backups {outcome}"] += 1
            if code not in {0, -9, *_MET_A_FAULT} or "Traceback" in said:
                self.findings.append(f"a backup ended with {code}: {said[-1000:]}")

    def _backup(self) -> tuple[int, str]:
        words = command("backup", self._cluster.proxied_bootstrap, self._log, *self._copied)
        with self._at_rest:
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
                self._process = run
                said = run.communicate()[0]
            self._process = None
            if not self._stores.has(self._log):
                self._stores.keep(self._log)
        return run.returncode, said

    def _restore(self, renamed: Mapping[str, str]) -> None:
        words = [word for pair in renamed.items() for word in ("--rename", "=".join(pair))]
        self._must(_run("restore", self._log, self._cluster.bootstrap, *renamed, *words, "--execute"))

    def _adopt(self, broker: Broker, backup: Path) -> None:
        """Let a broker of another cluster adopt a backup."""
        broker.start()
        for topic in self._copied:
            broker.create_topic(topic, self._topics.partitions[topic])
        # A broker has the topic of its groups only when one has committed.
        groups = connect(broker.bootstrap).groups
        groups.commit("first", {TopicPartition(self._topics.kept, 0): CommittedOffset(0)})
        broker.stop()
        self._must(_run("adopt", backup, broker.log_dir, "--execute"))
        broker.start()

    def _write_on(self, broker: Broker, topic: str) -> None:
        """The producer of the old cluster goes on in the new one."""
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, _LAST, partition=0)
        producer.commit_transaction(60)
        last = self._numbers(broker, topic, topic)[0][-1:]
        if last != [int(_LAST)]:
            self.findings.append(f"what was committed after an adoption is not there: {last}")

    def _numbers(self, service: KafkaService, name: str, topic: str) -> dict[int, list[int]]:
        """The numbers in each partition of a topic that has another one's records."""
        numbers: dict[int, list[int]] = defaultdict(list)
        committed = topic == self._topics.transacted
        for partition, _, value in stored_values(service.bootstrap, name, read_committed=committed):
            numbers[partition].append(int(value))
        return numbers

    def _read(self, backup: Kafka, topic: str) -> dict[int, list[int]]:
        """The same, as a reader of the backup has them."""
        isolation = "read_committed" if topic == self._topics.transacted else "read_uncommitted"
        options = {"kafka.isolation.level": isolation}
        rows = backup.read(topic, columns=["partition", "value"], options=options).read_all()
        numbers: dict[int, list[int]] = defaultdict(list)
        for row in rows.sort_by("partition").to_pylist():
            numbers[row["partition"]].append(int(row["value"]))
        return numbers

    def _check_groups(self, service: KafkaService, names: Iterable[str], groups: Iterable[str]) -> None:
        """What groups have committed lies within the logs."""
        ends = end_offsets(service.bootstrap, list(names))
        with service.admin() as admin:
            found = admin.list_group_offsets(dict.fromkeys(groups))
        for group, offsets in found.items():
            committed = {(place.topic, place.partition): at.offset for place, at in offsets.items()}
            inside = {place: offset for place, offset in committed.items() if place in ends}
            self.counts["groups of copies"] += 1
            self._find(check_committed(inside, ends), of=f"group {group} of {service.bootstrap}")

    def _must(self, done: tuple[int, str]) -> None:
        code, said = done
        if code:
            self.findings.append(f"it ended with {code}: {said[-1500:]}")

    def _find(self, verdict: Verdict, *, of: str) -> None:
        self.counts["copies checked"] += 1
        self.findings += [f"{of}: {finding}" for finding in verdict.findings]


def _run(*words: object) -> tuple[int, str]:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    return done.returncode, f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}"
