"""The topics of a cluster: see :class:`pyspark_kafkalog.model.topics.Topics`.

Requests go to the controller, which brokers of KRaft also forward to (KIP-590). If an answer is lost, the
request is sent again: then a topic to create may exist, and one to delete be gone, by the request itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pyspark_kafkalog.broker.cluster.cluster import (
    ADDED_BY_TOPIC,
    Cluster,
    cluster_of,
    configs_request,
)
from pyspark_kafkalog.broker.cluster.leaders import call_leaders_once, read_sizes, sizes_request
from pyspark_kafkalog.broker.cluster.metadata import MAX_VERSION as METADATA_VERSION
from pyspark_kafkalog.broker.cluster.metadata import base64_id, metadata_request
from pyspark_kafkalog.broker.topics import requests
from pyspark_kafkalog.broker.topics.requests import Answers, Refusal
from pyspark_kafkalog.broker.wire.deadline import Deadline
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, error_of, is_retriable
from pyspark_kafkalog.errors import (
    BrokerConnectionError,
    KafkaLogError,
    OptionError,
    TopicExistsError,
    UnsupportedVersionError,
)
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.model.topics import (
    OWN_CONFIG,
    ConfigEntry,
    NewTopic,
    TopicDescription,
    TopicPartitionInfo,
)
from pyspark_kafkalog.options.brokers import ConnectionOptions

_WRONG = {
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
}
"""Codes of requests that can never succeed as they are."""
_SOURCES = {
    ADDED_BY_TOPIC: OWN_CONFIG,
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
}
"""The sources of a configuration (ConfigSource); those left out are Kafka's defaults."""
_ASKED_FOR_NAMES = 20
"""Topics that are asked for the names of configurations: some may not be described, or be gone by then."""
_RIGHTS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Grant the principal the right on the topic in the cluster's ACLs:"
    " Create, Delete, Alter, AlterConfigs or DescribeConfigs.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Grant the principal Create on the cluster in its ACLs.",
}


class BrokerTopics:
    """The topics of a cluster, over the calling thread's connections to it."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._options = connection

    @property
    def _cluster(self) -> Cluster:
        return cluster_of(self._options)

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.configs`; passwords are not among them."""
        found = {}
        for resource in self._described(topics):
            found[resource.resource_name] = {
                config.name: config.value
                for config in resource.configs
                if config.config_source == ADDED_BY_TOPIC and config.value is not None
            }
        return found

    def describe(self, topics: Collection[str]) -> list[TopicDescription]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.describe`; a leader is asked for sizes once."""
        response = self._cluster.call(
            metadata_request(topics, create=False), doing="Looking up topics", max_version=METADATA_VERSION
        )
        described = [topic for topic in response.topics if topic.name and topic.partitions]
        found = sorted(described, key=lambda topic: topic.name)
        names = [topic.name for topic in found]
        configs, sizes = self._config_entries(names), self._sizes(found)
        return [
            TopicDescription(
                topic.name,
                base64_id(topic.topic_id),
                configs.get(topic.name),
                tuple(
                    _partition_info(topic.name, partition, sizes)
                    for partition in sorted(topic.partitions, key=lambda one: one.partition_index)
                ),
            )
            for topic in found
        ]

    def _config_entries(self, topics: Collection[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """The configurations that are not defaults, of those topics that may be described."""
        try:
            results = self._describe(topics).results if topics else ()
        except UnsupportedVersionError:
            return {}
        return {
            result.resource_name: tuple(
                ConfigEntry(result.resource_name, config.name, config.value, _SOURCES[config.config_source])
                for config in sorted(result.configs, key=lambda config: config.name)
                if config.config_source in _SOURCES
            )
            for result in results
            if not result.error_code
        }

    def _sizes(self, topics: Collection[Any]) -> dict[TopicPartition, int]:
        partitions = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in topics
            for partition in topic.partitions
            if partition.leader_id >= 0
        ]
        try:
            return call_leaders_once(
                self._cluster,
                partitions,
                lambda epochs: [sizes_request(epochs)],
                lambda responses: read_sizes(responses[0]),
                deadline=Deadline.after_ms(self._options.request_timeout_ms),
            )
        except UnsupportedVersionError:
            return {}

    def config_names(self) -> Collection[str]:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.config_names`: of topics that may be described."""
        topics = sorted(self._cluster.topics())[:_ASKED_FOR_NAMES]
        try:
            results = self._describe(topics).results if topics else ()
        except UnsupportedVersionError:
            return ()
        return {config.name for result in results if not result.error_code for config in result.configs}

    def leader_configs(self, expected: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str | None]]:
        """See :meth:`pyspark_kafkalog.model.topics.ClusterTopics.leader_configs`; for request.timeout.ms."""
        backoff = self._cluster.new_backoff()

        def attempt() -> dict[str, dict[str, str | None]] | BrokerConnectionError:
            self._cluster.refresh(list(expected), deadline=backoff.deadline)
            try:
                return self._from_leaders(expected, backoff.deadline)
            except BrokerConnectionError as e:
                return e

        return backoff.repeat(attempt)

    def create(self, new: Sequence[NewTopic], *, validate_only: bool = False) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.create`; waits until leaders are known.

        :raises OptionError: for numbers and configurations that the brokers refuse.
        """
        needs_defaults = any(topic.partitions is None or topic.replication_factor is None for topic in new)
        refused = self._ask(
            requests.create_request(
                new, timeout_ms=self._options.request_timeout_ms, validate_only=validate_only
            ),
            requests.read_created,
            "Creating topics",
            min_version=requests.FIRST_WITH_DEFAULTS if needs_defaults else 1,
            done_before=ErrorCode.TOPIC_ALREADY_EXISTS,
        )
        if not validate_only:
            self._wait_for_leaders([topic for topic in new if topic.topic not in refused])
        _raise_first(refused, "Creating topic", [topic.topic for topic in new])

    def delete(self, topics: Collection[str]) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.delete`."""
        refused = self._ask(
            requests.delete_request(topics, timeout_ms=self._options.request_timeout_ms),
            requests.read_deleted,
            "Deleting topics",
            max_version=requests.LAST_BY_NAME,
            done_before=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        self._cluster.metadata.deleted(set(topics) - refused.keys())
        _raise_first(refused, "Deleting topic", topics)

    def add_partitions(self, topic: str, count: int, *, validate_only: bool = False) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.add_partitions`; waits until leaders are known."""
        refused = self._ask(
            requests.partitions_request(
                topic, count, timeout_ms=self._options.request_timeout_ms, validate_only=validate_only
            ),
            requests.read_partitions,
            f"Adding partitions to topic {topic}",
        )
        _raise_first(refused, "Adding partitions to topic", [topic])
        if not validate_only:
            self._wait_for_leaders([NewTopic(topic, count)])

    def alter_configs(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.Topics.alter_configs`; it needs Kafka 2.3."""
        refused = self._ask(
            requests.alter_request({topic: changes}, validate_only=validate_only),
            requests.read_altered,
            f"Changing the configurations of topic {topic}",
        )
        _raise_first(refused, "Changing the configurations of topic", [topic])

    def check_configs_alterable(self) -> None:
        """See :meth:`pyspark_kafkalog.model.topics.ClusterTopics.check_configs_alterable`."""
        self._ask(
            requests.alter_request({}, validate_only=True),
            requests.read_altered,
            "Changing the configurations of topics",
        )

    def _described(self, topics: Collection[str]) -> Sequence[Any]:
        return _existing(self._describe(topics)) if topics else ()

    def _describe(self, topics: Collection[str]) -> Any:
        return self._cluster.call(configs_request(topics), doing="Looking up the configurations of topics")

    def _from_leaders(
        self, expected: Mapping[str, Mapping[str, str]], deadline: Deadline
    ) -> dict[str, dict[str, str | None]]:
        found: dict[str, dict[str, str | None]] = {}
        for node_id, topics in self._led(expected).items():
            response = self._cluster.call_broker(node_id, configs_request(topics), deadline)
            described = {result.resource_name: result.configs for result in _existing(response)}
            for topic in topics:
                if topic not in described:
                    raise BrokerConnectionError(f"Broker {node_id} does not know topic {topic} yet")
                configs = {config.name: config for config in described[topic]}
                for name, value in expected[topic].items():
                    if name not in configs or configs[name].value != value:
                        raise BrokerConnectionError(
                            f"Broker {node_id} does not have {name}={value} of topic {topic} yet"
                        )
                found[topic] = {
                    name: config.value if config.config_source == ADDED_BY_TOPIC else None
                    for name, config in configs.items()
                    if name in found.get(topic, configs)
                }
        return found

    def _led(self, topics: Collection[str]) -> dict[int, set[str]]:
        """The topics of which each broker leads a partition."""
        led: dict[int, set[str]] = {}
        for topic in topics:
            known = self._cluster.metadata.topics.get(topic)
            if known is None or not known.leaders:
                raise BrokerConnectionError(f"Topic {topic} has no leader now")
            for leader in known.leaders.values():
                led.setdefault(leader.node_id, set()).add(topic)
        return led

    def _ask(
        self,
        request: Any,
        read: Callable[[Any], Answers],
        doing: str,
        *,
        min_version: int = 0,
        max_version: int | None = None,
        done_before: int = 0,
    ) -> Answers:
        """The errors with which the controller refuses for good; it is asked again while that may help.

        :param done_before: the code that says, after a lost answer, that the request had been carried out.
        """
        cluster, deadline = self._cluster, Deadline.after_ms(self._options.request_timeout_ms)
        is_lost = False

        def attempt() -> Answers | KafkaLogError:
            nonlocal is_lost
            try:
                connection = cluster.connection(self._controller(doing, deadline), deadline=deadline)
                try:
                    response = connection.call(
                        request, min_version=min_version, max_version=max_version, deadline=deadline
                    )
                    with connection.reading():
                        refused = read(response)
                finally:
                    cluster.release(connection)
            except BrokerConnectionError as e:
                is_lost = True
                return e
            if is_lost:
                refused = {name: why for name, why in refused.items() if why.code != done_before}
            retried = [why for why in refused.values() if _is_retried(why)]
            return error_of(retried[0].code, doing, message=retried[0].message) if retried else refused

        backoff = cluster.new_backoff(deadline)
        return backoff.repeat(attempt, first_contact=lambda: not cluster.metadata.brokers)

    def _controller(self, doing: str, deadline: Deadline) -> int:
        """The controller by the newest metadata; in KRaft any broker."""
        self._cluster.refresh([], deadline=deadline)
        response = self._cluster.call(
            metadata_request([], create=False), doing=doing, max_version=METADATA_VERSION, deadline=deadline
        )
        return int(response.controller_id)

    def _wait_for_leaders(self, made: Sequence[NewTopic]) -> None:
        """Wait until a broker knows the leaders of all partitions; they exist all the same if that fails."""

        def attempt(names: list[str]) -> dict[str, KafkaLogError]:
            self._cluster.refresh(names)
            return {
                topic.topic: BrokerConnectionError(f"Topic {topic.topic} was created, but has no leader yet")
                for topic in made
                if not self._has_leaders(topic)
            }

        self._cluster.new_backoff().repeat_each([topic.topic for topic in made], attempt)

    def _has_leaders(self, topic: NewTopic) -> bool:
        known = self._cluster.metadata.topics.get(topic.topic)
        if known is None or known.error_code or len(known.leaders) < (topic.partitions or 1):
            return False
        leaders = (self._cluster.metadata.leader(TopicPartition(topic.topic, n)) for n in known.leaders)
        return all(leader is not None and leader.node_id >= 0 for leader in leaders)


def _partition_info(topic: str, partition: Any, sizes: Mapping[TopicPartition, int]) -> TopicPartitionInfo:
    """A partition of a response to Metadata."""
    number, leader = partition.partition_index, partition.leader_id
    note = ""
    if leader < 0:
        note = "no leader"
    elif len(partition.isr_nodes) < len(partition.replica_nodes):
        note = "under-replicated"
    return TopicPartitionInfo(
        topic,
        number,
        leader=leader if leader >= 0 else None,
        leader_epoch=partition.leader_epoch if partition.leader_epoch >= 0 else None,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas or ()),
        stored_bytes=sizes.get(TopicPartition(topic, number)),
        note=note,
    )


def _existing(response: Any) -> Sequence[Any]:
    """The results of DescribeConfigs, without the topics that do not exist.

    :raises KafkaLogError: for the first topic that was refused for another reason.
    """
    refused = requests.read_described(response)
    others = {name: why for name, why in refused.items() if why.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    _raise_first(others, "Looking up the configurations of topic", ())
    return [result for result in response.results if not result.error_code]


def _is_retried(why: Refusal) -> bool:
    return is_retriable(why.code) and why.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _raise_first(refused: Answers, doing: str, asked: Collection[str]) -> None:
    """:raises KafkaLogError: for the first topic that was refused; it names those for which it was done."""
    if not refused:
        return
    name = min(refused)
    code, message = refused[name]
    error = error_of(code, f"{doing} {name}", message=message, hint=_RIGHTS.get(code))
    if code == ErrorCode.TOPIC_ALREADY_EXISTS:
        error = TopicExistsError(f"{doing} {name}: it exists already")
    elif code in _WRONG:
        error = OptionError(
            f"{doing} {name}: {(message or error.message).removesuffix('.')}", hint=error.hint
        )
    done = sorted(set(asked) - refused.keys())
    if done:
        error = error.with_hint(" ".join(filter(None, [error.hint, f"Done before: {', '.join(done)}."])))
    raise error
