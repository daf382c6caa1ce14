"""Producer ids are used again with the sequence numbers that brokers expect, where they are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from pyspark_kafkalog.broker.cluster.metadata import Identity
from pyspark_kafkalog.broker.produce import ids
from pyspark_kafkalog.broker.produce.ids import ProducerId, borrow, give_back
from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.brokers import ConnectionOptions

CLUSTER = ConnectionOptions(("127.0.0.1:1",))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Brokers:
    """They give ids from 1 on, and say who they are."""

    def __init__(self, cluster_id: str = "c", topic_ids: dict[str, str] | None = None) -> None:
        self.cluster_id = cluster_id
        self.topic_ids = {"t": "id"} if topic_ids is None else topic_ids
        self.given = 0

    def identify(self, topics: Collection[str]) -> Identity:
        return Identity(self.cluster_id, {topic: self.topic_ids[topic] for topic in topics})

    def new(self) -> tuple[int, int]:
        self.given += 1
        return self.given, 0

    def borrow(self) -> ProducerId:
        return borrow(CLUSTER, self.identify, self.new)


@pytest.fixture(autouse=True)
def _no_ids() -> Iterator[None]:
    ids._free.clear()
    yield
    ids._free.clear()


def used() -> tuple[Brokers, ProducerId]:
    """An id that is free again after 8 records to one partition, 2 to another."""
    brokers = Brokers()
    producer_id = brokers.borrow()
    for partition, records in ((T0, 5), (T1, 2), (T0, 3)):
        producer_id.advance(partition, records)
    producer_id.topic_ids = {"t": "id"}
    give_back(CLUSTER, producer_id)
    return brokers, producer_id


def test_an_id_goes_on_with_the_numbers_of_each_partition() -> None:
    brokers, producer_id = used()
    again = brokers.borrow()
    assert again is producer_id
    assert again.sequences == {T0: 8, T1: 2}


def test_an_id_that_is_in_use_is_nobody_elses() -> None:
    brokers, producer_id = used()
    assert [brokers.borrow().id for _ in range(3)] == [producer_id.id, 2, 3]


@pytest.mark.parametrize(
    "others", [Brokers("another cluster"), Brokers(topic_ids={"t": "recreated"})], ids=["cluster", "topic"]
)
def test_an_id_of_a_cluster_that_was_replaced_is_not_used(others: Brokers) -> None:
    used()
    producer_id = others.borrow()
    assert producer_id.cluster_id == others.cluster_id
    assert not producer_id.sequences


def test_sequence_numbers_begin_again_at_0_after_the_greatest() -> None:
    producer_id = ProducerId(1, 0, "c")
    producer_id.advance(T0, 2**31 - 2)
    assert producer_id.sequences[T0] == 2**31 - 2
    producer_id.advance(T0, 5)
    assert producer_id.sequences[T0] == 3
