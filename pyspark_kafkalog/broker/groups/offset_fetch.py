"""OffsetFetch, up to version 9: the committed offsets of a group (KIP-447); and offsets in requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from pyspark_kafkalog.broker.cluster.leaders import by_topic
from pyspark_kafkalog.broker.wire.error_codes import ErrorCode, Refused, is_retriable
from pyspark_kafkalog.model import CommittedOffset, TopicPartition

BEFORE_TOPIC_IDS = 9
"""The last version of OffsetCommit and OffsetFetch that names topics."""
FIRST_WITH_GROUPS = 8
"""The first version of OffsetFetch that takes several groups (KIP-709)."""


def offsets_by_topic(
    topic_kind: Any, partition_kind: Any, offsets: Mapping[TopicPartition, CommittedOffset]
) -> list[Any]:
    """The topics of a request that commits these offsets: an OffsetCommit, or one in a transaction."""

    def committed(partition: TopicPartition) -> Any:
        offset = offsets[partition]
        return partition_kind(
            partition_index=partition.partition,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.leader_epoch,
            committed_metadata=offset.metadata,
        )

    return [
        topic_kind(
            name=topic,
            partitions=partitions,
        )
        for topic, partitions in by_topic(offsets, committed).items()
    ]


def offset_fetch_request(
    group: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool = True
) -> Any:
    """The request for these partitions, or for all that ``group`` has committed.

    With ``require_stable`` brokers refuse to answer while a transaction commits one of them.
    It has the fields of one group (until version 7) and those of several groups.
    """
    topics, topics_of_group = None, None
    if partitions is not None:
        listed = by_topic(partitions)
        topics = [
            OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in listed.items()
        ]
        kind = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics
        topics_of_group = [kind(name=topic, partition_indexes=numbers) for topic, numbers in listed.items()]
    groups = [_group(group, topics_of_group)]
    return OffsetFetchRequest(group_id=group, topics=topics, groups=groups, require_stable=require_stable)


def offsets_fetch_request(groups: Sequence[str]) -> Any:
    """The request for all that these groups have committed; before version 8 only for the first of them."""
    return OffsetFetchRequest(
        group_id=groups[0],
        topics=None,
        groups=[_group(group, None) for group in groups],
        require_stable=False,
    )


def _group(group: str, topics: Any) -> Any:
    return OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group, member_id=None, member_epoch=-1, topics=topics
    )


FetchedOffsets = dict[TopicPartition, CommittedOffset | Refused | None]
"""The committed offset of each partition, None if there is none, or its error."""


def read_offset_fetch(response: Any) -> FetchedOffsets | Refused | None:
    """The committed offsets of the one group of a request, or the group's error.

    None while a transaction commits some of it: no error to repeat, as one of its own says that it lasts.
    """
    found = _read_group(response.groups[0] if response.groups else response)
    return None if found == Refused(ErrorCode.UNSTABLE_OFFSET_COMMIT) else found


def read_offsets_fetch(response: Any, groups: Sequence[str]) -> dict[str, FetchedOffsets | Refused]:
    """The committed offsets, or the error, of each of the ``groups`` that the response has."""
    if response.groups:
        return {group.group_id: _read_group(group) for group in response.groups}
    return {groups[0]: _read_group(response)}


def _read_group(group: Any) -> FetchedOffsets | Refused:
    if group.error_code:
        return Refused(group.error_code)
    found: FetchedOffsets = {}
    for topic in group.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code and answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                if is_retriable(answer.error_code):
                    return Refused(answer.error_code)
                found[partition] = Refused(answer.error_code)
            elif answer.committed_offset < 0:
                found[partition] = None
            else:
                found[partition] = CommittedOffset(
                    answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
                )
    return found
