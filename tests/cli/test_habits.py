"""What users of kcat, kafka-topics, kafka-consumer-groups, kafka-configs and rpk type, and what they see."""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

import pytest

from tests.cli.running import run
from tests.kafka import Broker

pytestmark = pytest.mark.broker


class Task(NamedTuple):
    """What is typed, with TOPIC, GROUP, NEW and HOST for those of the test, and what must be seen, a pattern.

    What is ``told`` does not work at the first try: then it is the one line that says what to type.
    """

    of: str
    typed: str
    seen: str
    told: bool = False
    text: str | None = None


TASKS = (
    Task("kcat -L", "brokers HOST", r"^ 1 +127\.0\.0\.1 +\d+ .* yes$"),
    Task("kcat -C -o beginning -c 2 -e", "cat HOST TOPIC -o beginning -c 2 -e", r"\Aone\ntwo\n\Z"),
    Task("kcat -C -o -1 -e", "cat HOST TOPIC -o -1 -e", r"\Athree\n\Z"),
    Task(
        "kcat -C -J -c 1", "cat HOST TOPIC -J -c 1", r'\A\{"topic":"TOPIC",.*"key":"k1","payload":"one"\}\n\Z'
    ),
    Task("kcat -C -o 1 -c 1 -p 0", "cat HOST TOPIC -o 1 -c 1 -p 0", r"\Atwo\n\Z"),
    Task("kcat -C -f", r"cat HOST TOPIC -f %k:%s\n", "write --format for a format", told=True),
    Task("kcat -P -K:", "produce HOST TOPIC -K: -p 0", r"\A1 record was written\n\Z", text="k4:four\n"),
    Task("kcat -X security.protocol=…", "cat HOST TOPIC -o security.protocol=PLAINTEXT -c 1", r"\Aone\n\Z"),
    Task("kafka-topics --list", "topics list HOST", r"^TOPIC +0 "),
    Task("kafka-topics --describe", "topics describe HOST TOPIC", r"^TOPIC +0 +1 +0 +1 +1 "),
    Task(
        "kafka-topics --create",
        "topics create HOST NEW --partitions 2 --replication-factor 1 --set retention.ms=1h",
        r"^NEW +2 +created$",
    ),
    Task(
        "kafka-topics --create --config",
        "topics create HOST NEW --config retention.ms=3600000",
        "those of topics by --set",
        told=True,
    ),
    Task("kafka-topics --alter", "topics alter HOST NEW --partitions 3", r"^NEW +partitions +2 +3$"),
    Task("kafka-topics --delete", "topics delete HOST NEW --execute", r"^NEW +2 "),
    Task("kafka-consumer-groups --list", "groups list HOST", r"^GROUP +Empty"),
    Task(
        "kafka-consumer-groups --describe",
        "offsets describe HOST --group GROUP",
        r"^GROUP +TOPIC +0 +1 .* 3$",
    ),
    Task("kafka-consumer-groups --members", "groups HOST --group GROUP --members", r"^GROUP +Empty"),
    Task(
        "kafka-consumer-groups --reset-offsets",
        "offsets reset HOST --group GROUP --topic TOPIC --shift-by -1 --dry-run",
        r"^GROUP +TOPIC +0 +1 +0",
    ),
    Task(
        "kafka-configs --alter --add-config",
        "topics alter HOST TOPIC --add-config retention.ms=3600000",
        "Write --set NAME=VALUE",
        told=True,
    ),
    Task(
        "kafka-configs --describe", "topics describe HOST TOPIC", r"^TOPIC +retention\.ms +86400000 +DYNAMIC"
    ),
    Task("rpk topic consume -n 1", "cat HOST TOPIC -n 1", r"\Afour\n\Z"),
    Task("rpk cluster info", "brokers list HOST", r"^ 1 +127\.0\.0\.1 "),
    Task("rpk group describe", "lag HOST --group GROUP", r"^GROUP +3 "),
)
"""In order: later ones see what earlier ones did."""


@pytest.fixture
def names(broker: Broker) -> dict[str, str]:
    """A topic with three records and a group that has read one of them."""
    unique = uuid.uuid4().hex[:8]
    topic, group = f"habit-{unique}", f"habit-group-{unique}"
    broker.create_topic(topic, 1, {"retention.ms": "86400000"})
    at = broker.bootstrap
    assert run("produce", at, topic, "-K", ":", text="k1:one\nk2:two\nk3:three\n").code == 0
    assert (
        run("offsets", "reset", at, "--group", group, "--topic", topic, "--to-offset", 1, "--execute").code
        == 0
    )
    return {"TOPIC": topic, "GROUP": group, "NEW": f"new-{unique}", "HOST": at}


def test_people_type_what_they_are_used_to(names: dict[str, str]) -> None:
    at_once, wrong = 0, []

    def named(text: str) -> str:
        return re.sub("|".join(names), lambda word: names[word[0]], text)

    for task in TASKS:
        done = run(*named(task.typed).split(" "), text=task.text)
        told = task.told and len(done.err.splitlines()) == 1
        shown = done.err if task.told or not done.out else done.out
        if (done.code == 0 or told) and re.search(named(task.seen), shown, re.MULTILINE):
            at_once += done.code == 0
        else:
            wrong.append(f"{task.of}: kafkalog {task.typed}: {done}")
    print(f"{at_once} of {len(TASKS)} tasks work at the first try, {len(TASKS) - at_once} say what to type")
    assert not wrong
    assert at_once == sum(not task.told for task in TASKS) >= 18
