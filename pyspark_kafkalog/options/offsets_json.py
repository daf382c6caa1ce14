"""Spark's JSON forms of partitions and offsets (its Kafka connector's JsonUtils).

``{"topicA":[0,1]}`` names partitions, ``{"topicA":{"0":23,"1":-1}}`` gives each
an offset or a timestamp. Written JSON is canonical, sorted by topic and partition
number, because Spark compares offsets as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.model import TopicPartition, check_topic

_Value = TypeVar("_Value")
Offsets = dict[TopicPartition, int]
"""An offset for each partition; where it stands for progress, the next one to read."""

PLANNED = -4
"""Stands for LATEST when a batch is planned, as the end of every partition."""
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

_PARTITION = re.compile("0|[1-9][0-9]{0,9}")


def parse_partitions(text: str, *, option: str) -> tuple[TopicPartition, ...]:
    """The partitions that ``{"topicA":[0,1]}`` names, sorted, each once.

    :raises OptionError: naming ``option``, if ``text`` has a different form.
    """
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, numbers in _object(text, option, example).items():
        check_topic(topic)
        if not isinstance(numbers, list) or not all(_is_integer(number, 0, MAX_INT) for number in numbers):
            expected = (
                f"expected a list of partition numbers for topic {topic!r}, got {json.dumps(numbers)[:100]}"
            )
            raise _unexpected(option, expected, example)
        found.update(TopicPartition(topic, number) for number in numbers)
    return tuple(sorted(found))


def parse_offsets(
    value: str | Mapping[str, Any],
    *,
    option: str,
    lowest: int = 0,
) -> Offsets:
    """The number that ``{"topicA":{"0":23}}`` gives each partition, in canonical order.

    :param value: JSON text, or what ``json.loads`` made of it.
    :param option: the name that errors give to ``value``.
    :param lowest: the least number allowed.
    :raises OptionError: if ``value`` has a different form.
    """
    example = '{"topicA":{"0":23,"1":0}}' if lowest == 0 else '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'

    def read(topic_partition: TopicPartition, number: Any) -> int:
        if not _is_integer(number, lowest, MAX_LONG):
            raise _unexpected(
                option,
                f"expected a whole number of at least {lowest} for {topic_partition}, got {number!r}",
                example,
            )
        return int(number)

    return parse_values(value, read, option=option, example=example)


def parse_values(
    value: str | Mapping[str, Any],
    read: Callable[[TopicPartition, Any], _Value],
    *,
    option: str,
    example: str,
) -> dict[TopicPartition, _Value]:
    """The values by partition in ``{"topicA":{"0":23}}``, each read by ``read``, in canonical order.

    :raises OptionError: if ``value`` has a different form.
    """
    values = {}
    for topic, partitions in (_object(value, option, example) if isinstance(value, str) else value).items():
        check_topic(topic)
        if not isinstance(partitions, Mapping):
            raise _unexpected(option, f"expected an object of partitions for topic {topic!r}", example)
        for partition, number in partitions.items():
            if not _PARTITION.fullmatch(partition) or int(partition) > MAX_INT:
                raise _unexpected(
                    option, f"expected a partition number for topic {topic!r}, got {partition!r}", example
                )
            topic_partition = TopicPartition(topic, int(partition))
            values[topic_partition] = read(topic_partition, number)
    return dict(sorted(values.items()))


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """``offsets`` as the object that ``json.dumps`` turns into Spark's canonical form."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _object(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as e:
        raise _unexpected(option, f"it is not JSON{where_not_json(text, e)}", example) from e
    if not isinstance(value, dict):
        raise _unexpected(option, "it is not a JSON object", example)
    return value


def where_not_json(text: str, error: Exception) -> str:
    """The place of an error in JSON, or what is wrong there; empty for text that does not begin like JSON."""
    if not isinstance(error, json.JSONDecodeError):
        return f": {error}"
    if not text.lstrip().startswith(("{", "[")):
        return ""
    if error.pos >= len(text.rstrip()):
        return ": it ends before its last bracket"
    if text[error.pos] == "'":
        return f": it has single quotes, at character {error.pos + 1}"
    return f", at character {error.pos + 1}"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name appears twice in one object")
    return result


def _is_integer(value: object, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


def _unexpected(option: str, reason: str, example: str) -> OptionError:
    return OptionError(
        f"Cannot use the value of {option!r}: {reason}", hint=f"Write it as, for example, {example}."
    )
