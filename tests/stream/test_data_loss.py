"""What a micro-batch has lost, and what its error says."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.model import TopicPartition
from pyspark_kafkalog.options.settings import read_options
from pyspark_kafkalog.stream.data_loss import find_data_loss, log_went_back

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("start", "end", "added", "messages"),
    [
        ({A0: 1}, {A0: 1}, {}, []),
        ({A0: 1}, {A0: 5, A1: 7}, {A1: 0}, []),
        ({A0: 1, A1: 1, B0: 1}, {A0: 1}, {}, ["PARTITIONS_DELETED: a-1, b-0"]),
        ({A0: 1}, {A0: 1, A1: 7}, {A1: 3}, ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO.*3.*a-1"]),
        ({A0: 1}, {A0: 1, A1: 7}, {}, ["INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS.*a-1"]),
        ({A0: 5}, {A0: 2}, {}, ["PARTITION_OFFSET_CHANGED.*5 to 2.*a-0"]),
        ({A0: 5, A1: 1}, {A0: 2}, {}, ["PARTITIONS_DELETED", "PARTITION_OFFSET_CHANGED"]),
    ],
)
def test_data_loss_is_found(
    start: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    added: dict[TopicPartition, int],
    messages: list[str],
) -> None:
    losses = list(find_data_loss(start, end, added))
    assert len(losses) == len(messages)
    for loss, message in zip(losses, messages, strict=True):
        with pytest.raises(type(loss), match=message):
            raise loss


def test_where_a_log_went_back_its_new_records_are_what_is_lost() -> None:
    (loss,) = find_data_loss({A0: 5}, {A0: 2}, {})
    went_back = log_went_back(A0, 5, "it differs")
    assert "without the new records below offset 5" in (loss.hint or "")
    assert "at this offset, without the new records below it" in (went_back.hint or "")
    for error in loss, went_back:
        assert "bring the newer one back, or begin with a new checkpoint" in (error.hint or "")
        assert "the lost records" not in str(error)


def test_a_topic_that_was_adopted_is_not_read_from_its_start() -> None:
    (loss,) = find_data_loss({}, {}, {}, ["a"])
    assert "a new checkpoint and startingOffsets=committed" in (loss.hint or "")


def test_long_lists_are_cut() -> None:
    (loss,) = find_data_loss({TopicPartition("t", n): 0 for n in range(1000)}, {}, {})
    assert "t-19 and 980 more" in str(loss)


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"subscribe": "b"}, "a-0, a-1"),
        ({"subscribePattern": "^b"}, "a-0, a-1"),
        ({"assign": '{"a":[0],"b":[0]}'}, "a-1"),
        ({"subscribe": "a,b"}, None),
        ({"subscribePattern": "^[ab]"}, None),
        ({}, None),
    ],
)
def test_a_checkpoint_of_another_subscription_is_named_as_such(
    options: dict[str, str], others: str | None
) -> None:
    """They exist, and going on without them would not help: the checkpoint would forget where it was."""
    selection = read_options({"path": "/log", **options}, batch=True).selection
    losses = list(find_data_loss({A0: 5, A1: 5}, {B0: 0}, {B0: 0}, selection=selection))
    texts = [str(loss) for loss in losses]
    if others is not None:
        assert texts[0].startswith(f"The checkpoint has offsets of {others}, to which this query does not")
        assert "checkpointLocation of its own" in texts[0]
        assert "failOnDataLoss" not in texts[0]
    assert ("have been deleted" in texts[-1]) is (others != "a-0, a-1")
