"""Three brokers on loopback, each behind a proxy: to kill, to move leaders, to disturb connections."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka import TopicPartition

from pyspark_kafkalog.model.kafka_uuid import random_uuid
from tests.kafka import Broker, Listener
from tests.kafka_process import free_ports
from tests.kafka_proxy import Proxy
from tests.kafka_service import KafkaService


class Cluster(KafkaService):
    """Nodes 1, 2 and 3, all of them controllers, each in its own rack ("rack-1" …).

    Clients that bootstrap from ``proxied_bootstrap`` stay behind the proxies; those
    of ``bootstrap``, as the tests' own are, never meet them. Any two nodes make
    a quorum. Internal topics have a replica on every node.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        nodes = (1, 2, 3)
        ports = free_ports(6)
        voters = dict(zip(nodes, ports, strict=False))
        self.proxies = {node: Proxy() for node in nodes}
        self.brokers: dict[int, Broker] = {}
        self._paused: set[int] = set()
        cluster_id = random_uuid()
        for node, port in zip(nodes, ports[3:], strict=True):
            proxied = Listener("PROXIED", "PLAINTEXT", port, self.proxies[node].address)
            self.proxies[node].target = port
            self.brokers[node] = Broker(
                folder / f"node-{node}",
                _settings(node) | dict(settings or {}),
                listeners=[proxied],
                node_id=node,
                voters=voters,
                cluster_id=cluster_id,
                heap="256m",
            )
        self.proxied_bootstrap = ",".join(proxy.address for proxy in self.proxies.values())

    @property
    def bootstrap(self) -> str:
        """The brokers that are not paused: a paused one would accept a request and answer far too late."""
        return ",".join(broker.bootstrap for node, broker in self.brokers.items() if node not in self._paused)

    def start(self) -> None:
        """Start all stopped brokers, and wait until each is known to the others."""
        for broker in self.brokers.values():
            if not broker.running:
                broker.launch()
        for broker in self.brokers.values():
            broker.wait_until_ready()
        self.wait_until(lambda: self._alive() == set(self.brokers), "Not all brokers have registered")

    def restart(self, node: int) -> None:
        """Start a broker that was killed or stopped, and wait until it has registered."""
        self.brokers[node].start()
        self.wait_until(lambda: node in self._alive(), f"Broker {node} has not registered")

    def kill(self, node: int) -> None:
        """Kill a broker (SIGKILL)."""
        self.brokers[node].stop(kill=True)

    def pause(self, node: int) -> None:
        """Pause a broker (SIGSTOP), with its connections open, until :meth:`resume`."""
        os.kill(self.brokers[node].pid, signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        """Continue a paused broker: it still believes that it is leader."""
        os.kill(self.brokers[node].pid, signal.SIGCONT)
        self._paused.discard(node)

    def discard(self) -> None:
        """Kill all brokers; their files are no longer needed."""
        for broker in self.brokers.values():
            broker.discard()
        for proxy in self.proxies.values():
            proxy.stop()

    def heal(self) -> None:
        """Restore what the next test expects: all brokers up, no faults, every partition in sync."""
        for proxy in self.proxies.values():
            proxy.heal()
        for node in list(self._paused):
            self.resume(node)
        self.start()
        self.wait_until_in_sync()

    def wait_until_in_sync(self) -> None:
        """Wait until every partition has a leader, and all its replicas are in sync."""
        self.wait_until(self._in_sync, "Replicas stay out of sync", 60)

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, object] | None = None,
        *,
        replication_factor: int = 3,
    ) -> None:
        """Create a topic, and wait until each partition has a leader and all its replicas."""
        self.make_topic(topic, partitions, configs, replication_factor=replication_factor)
        self.wait_until(self._in_sync, f"Replicas of {topic} stay out of sync")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition, -1 if there is none."""
        return int(self._partition(topic, partition)["leader_id"])

    def active_controller(self) -> int:
        """The node that leads the metadata quorum."""
        with self.admin() as admin:
            (quorum,) = admin.describe_metadata_quorum()["topics"]
        return int(quorum["partitions"][0]["leader_id"])

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Make another in-sync replica the leader, and return its node id."""
        described = self._partition(topic, partition)
        to = to or next(node for node in described["isr_nodes"] if node != described["leader_id"])
        replicas = [to, *(node for node in described["replica_nodes"] if node != to)]
        with self.admin() as admin:
            # Only the order changes, and so the preferred replica.
            admin.alter_partition_reassignments({TopicPartition(topic, partition): replicas})
            admin.elect_leaders(0, {topic: [partition]}, raise_errors=False)
        self.wait_until(
            lambda: self.leader(topic, partition) == to, f"{to} does not lead {topic}-{partition}"
        )
        return to

    def output_tail(self, lines: int = 100) -> str:
        """The last lines that each broker logged."""
        share = lines // len(self.brokers)
        return "\n".join(
            f"broker {node}:\n{broker.output_tail(share)}" for node, broker in self.brokers.items()
        )

    def _alive(self) -> set[int]:
        with self.admin() as admin:
            brokers = admin.describe_cluster()["brokers"]
        return {broker["broker_id"] for broker in brokers if not broker["is_fenced"]}

    def _partition(self, topic: str, partition: int) -> Mapping[str, Sequence[int]]:
        with self.admin() as admin:
            (described,) = admin.describe_topics([topic])
        return next(found for found in described["partitions"] if found["partition_index"] == partition)

    def _in_sync(self) -> bool:
        with self.admin() as admin:
            return all(
                partition["leader_id"] >= 0 and set(partition["isr_nodes"]) == set(partition["replica_nodes"])
                for topic in admin.describe_topics()
                for partition in topic["partitions"]
            )


def _settings(node: int) -> dict[str, object]:
    return {
        "broker.rack": f"rack-{node}",
        # KIP-392: a consumer that gives its rack is sent to the replica there.
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "offsets.topic.replication.factor": 3,
        "transaction.state.log.replication.factor": 3,
        "transaction.state.log.min.isr": 2,
        "min.insync.replicas": 2,
        # Notice a killed broker soon: tests cannot wait for the default of 9 seconds.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "replica.lag.time.max.ms": 4000,
        # Followers report their progress sooner, on which reads from them depend.
        "replica.fetch.wait.max.ms": 100,
        "controller.quorum.election.timeout.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1500,
    }
