"""Kafka's options for the partition that a row goes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.user_options import UserOptions

_PRODUCER_PACKAGE = "org.apache.kafka.clients.producer."

Distribution = Literal["key", "sticky", "round-robin"]
"""``key``: by hash, null keys in batches; ``sticky``: all in batches; ``round-robin``: row by row."""

_JAVA_PARTITIONERS: Mapping[str, Distribution] = {
    "internals.DefaultPartitioner": "key",
    "UniformStickyPartitioner": "sticky",
    "RoundRobinPartitioner": "round-robin",
}


def distribution(user: UserOptions) -> Distribution:
    """The distribution of rows without a partition.

    :raises OptionError: for a Java class that has no equal here.
    """
    name = user.value("kafka.partitioner.class")
    ignores_keys = user.value("kafka.partitioner.ignore.keys")
    if name is None:
        return "sticky" if ignores_keys else "key"
    if "partitioner" in user:
        raise OptionError(
            "Only one of 'partitioner' and 'kafka.partitioner.class' can be given", hint="Leave one out."
        )
    known = _JAVA_PARTITIONERS.get(name.removeprefix("kafkashaded.").removeprefix(_PRODUCER_PACKAGE))
    if known is None:
        raise OptionError(
            "Option 'kafka.partitioner.class' names a Java class, which cannot be run here",
            hint="Give a Python callable as the option 'partitioner', such as package.module:callable.",
        )
    return known
