"""Consumers of librdkafka that are members of groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from confluent_kafka import Consumer

_PATIENCE = 30
"""Seconds."""


@contextmanager
def member(settings: dict[str, Any]) -> Iterator[Consumer]:
    """A consumer, for a ``with`` block, which closes it.

    It may wait forever if its group rebalances while it closes: then it is left behind.
    """
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        closing = Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(_PATIENCE)
