"""Where a query that reassembles large messages may start."""

from __future__ import annotations

import pytest

from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.options.settings import ReadOptions, read_options
from pyspark_kafkalog.read.messages import messages_of
from tests.read.fake_place import FakePlace

BROKERS = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "large.message.enabled": "true"}


def check_start(options: ReadOptions, place: FakePlace) -> None:
    messages_of(options).check_start(options, place)


def topic_of(policy: str) -> FakePlace:
    return FakePlace({}, configs={"t": {"cleanup.policy": policy}})


@pytest.mark.parametrize("policy", ["compact", "delete,compact", "delete, Compact"])
def test_an_offset_amid_a_compacted_topic_is_refused(policy: str) -> None:
    options = read_options({**BROKERS, "startingOffsets": '{"t":{"0":-2,"1":5}}'}, batch=False)
    with pytest.raises(OptionError, match=r"compacted topic.*partition t-1, offset 5.*Start at earliest"):
        check_start(options, topic_of(policy))


def test_other_starts_and_other_topics_are_allowed() -> None:
    for start in ("earliest", "latest", '{"t":{"0":-2,"1":-1}}', '{"t":{"0":0}}'):
        options = read_options({**BROKERS, "startingOffsets": start}, batch=False)
        check_start(options, topic_of("compact"))
    options = read_options({**BROKERS, "startingOffsets": '{"t":{"0":5}}'}, batch=False)
    check_start(options, topic_of("delete"))
    check_start(options, FakePlace({}))
    plain = {**BROKERS, "large.message.enabled": "false", "startingOffsets": '{"t":{"0":5}}'}
    check_start(read_options(plain, batch=False), topic_of("compact"))
