"""Ids of topics, clusters and members, as Kafka's ``Uuid`` prints them: URL-safe base64 without padding."""

from __future__ import annotations

import base64
import uuid


def random_uuid() -> str:
    """A random id that does not begin with a dash, as ``Uuid.randomUuid`` makes them."""
    while (text := uuid_to_text(uuid.uuid4())).startswith("-"):
        pass
    return text


def uuid_to_text(value: uuid.UUID) -> str:
    """The id as ``Uuid.toString`` prints it."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> uuid.UUID:
    """Inverse of :func:`uuid_to_text`; ``text`` has 22 characters of the alphabet."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
