"""What users of kcat, kafka-topics, kafka-consumer-groups, kafka-configs and rpk type, and what they see."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.kafka import Broker
from tests.tools.cli.running import run

pytestmark = pytest.mark.broker


class Task(NamedTuple):
    """What is typed, with TOPIC, GROUP, NEW and HOST for those of the test, and what must be seen, a pattern.

    What is ``told`` does not work at the first try: then it is the one line that says what to type, and
    ``then`` is what a reader makes of it, which works.
    """

    of: str
    typed: str
    seen: str
    told: bool = False
    text: str | None = None
    then: str | None = None


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
        "offsets reset HOST --group GROUP TOPIC --shift-by -1 --dry-run",
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
    Task("rpk topic list NAME", "topics list HOST TOPIC", r"^TOPIC +0 "),
    Task("rpk cluster info", "brokers list HOST", r"^ 1 +127\.0\.0\.1 "),
    Task("rpk group describe", "lag HOST --group GROUP", r"^GROUP +3 "),
)
"""In order: later ones see what earlier ones did."""


def _told(of: str, typed: str, says: str, then: str | None = None) -> Task:
    return Task(of, typed, re.escape(says), told=True, text="k:v\n", then=then)


_CAT, _DESCRIBE = "cat HOST TOPIC", "topics describe HOST TOPIC"
_RESET = "offsets reset HOST --group GROUP"
_DELETE_GROUP = "offsets delete HOST --group GROUP --whole-group"
TOLD = (
    _told("kcat -t -C", "cat HOST -t TOPIC", "Write kafkalog cat host:9092 TOPIC.", _CAT),
    _told(
        "kcat -P -t", "produce HOST -t TOPIC", "Write kafkalog produce host:9092 TOPIC.", "produce HOST TOPIC"
    ),
    _told("kcat -t first", "-t TOPIC -b HOST", "Write kafkalog cat host:9092 TOPIC.", _CAT),
    _told(
        "kcat -Q",
        "cat HOST -Q -t TOPIC:0:5",
        "--since TIME --limit 1 --json.",
        f"{_CAT} --since 1h --limit 1 --json",
    ),
    _told("kcat -C -K", f"{_CAT} -K :", r"Write --format '%k:%s\n'.", rf"{_CAT} --format %k:%s\n"),
    _told("kcat -C -D", f"{_CAT} -D ;", "Write --format '%s;'", f"{_CAT} --format %s;"),
    _told(
        "kcat -s avro",
        f"{_CAT} -s value=avro",
        "Write --value-format confluent-avro -o schema.registry.url=URL.",
    ),
    _told("kcat -P -k", "produce HOST TOPIC -k key", "Write -K :", "produce HOST TOPIC -K :"),
    _told("kcat -P -H", "produce HOST TOPIC -H a=b", "Write --json"),
    _told("rpk topic produce --header", "produce HOST TOPIC --header a=b", "Write --json"),
    _told("kcat -p 0,1", f"{_CAT} -p 0,1", "Repeat -p for each.", f"{_CAT} -p 0 -p 0"),
    _told(
        "kafka-topics --topic",
        "topics describe HOST --topic TOPIC",
        "Write kafkalog topics describe host:9092 TOPIC.",
        _DESCRIBE,
    ),
    _told(
        "kafka-topics --list",
        "topics --bootstrap-server HOST --list",
        "such as kafkalog topics host:9092.",
        "topics HOST",
    ),
    _told(
        "kafka-topics --under-replicated",
        "topics HOST --under-replicated-partitions",
        "Write kafkalog topics describe host:9092.",
        "topics describe HOST",
    ),
    _told("kafka-topics --delete of a pattern", "topics delete HOST t.*", "Illegal topic name 't.*'"),
    _told("kafka-console-producer to a pattern", "produce HOST t.*", "Illegal topic name 't.*'"),
    _told(
        "kafka-console-consumer",
        "console-consumer --topic TOPIC",
        "Write kafkalog cat host:9092 TOPIC.",
        _CAT,
    ),
    _told(
        "kafka-console-consumer --property",
        f"{_CAT} --property print.key=true",
        "or --json",
        f"{_CAT} --json",
    ),
    _told("kafka-console-consumer --group", f"{_CAT} --group g", "Leave it out: cat commits no offsets."),
    _told(
        "kafka-console-consumer --isolation-level",
        f"{_CAT} --isolation-level read_committed",
        "Write --read-committed.",
        f"{_CAT} --read-committed",
    ),
    _told(
        "kafka-console-consumer --include",
        "cat HOST --include t.*",
        "Write kafkalog cat host:9092 TOPIC.",
        _CAT,
    ),
    _told(
        "kafka-console-producer --property",
        "produce HOST TOPIC --property parse.key=true",
        "Write -K SEPARATOR.",
        "produce HOST TOPIC -K :",
    ),
    _told(
        "kafka-console-producer acks",
        "produce HOST TOPIC --request-required-acks all",
        "Write -o acks=all.",
        "produce HOST TOPIC -o acks=all",
    ),
    _told("kafka-consumer-groups --all-groups", "groups HOST --all-groups", "Leave it out", "groups HOST"),
    _told(
        "kafka-consumer-groups of a name",
        "groups HOST GROUP",
        "Did you mean --group GROUP?",
        "groups HOST --group GROUP",
    ),
    _told(
        "kafka-consumer-groups --offsets",
        "groups HOST --offsets",
        "Write kafkalog offsets host:9092 --group GROUP.",
        "offsets HOST --group GROUP",
    ),
    _told(
        "kafka-consumer-groups --by-duration",
        f"{_RESET} --by-duration PT1H",
        "Write --to-datetime 1h",
        f"{_RESET} TOPIC --to-datetime 1h",
    ),
    _told(
        "kafka-consumer-groups --export",
        f"{_RESET} --to-latest --export",
        "Write kafkalog offsets export host:9092 --group GROUP.",
        "offsets export HOST --group GROUP",
    ),
    _told(
        "kafka-get-offsets",
        "get-offsets HOST --topic TOPIC",
        "Write kafkalog topics host:9092.",
        "topics HOST",
    ),
    _told(
        "kafka-log-dirs", "log-dirs HOST", "Write kafkalog topics describe host:9092.", "topics describe HOST"
    ),
    _told("kafka-configs --all", f"{_DESCRIBE} --all", "Leave it out", _DESCRIBE),
    _told(
        "kafka-dump-log --files",
        "dump --files x.log",
        "Write kafkalog dump PLACE TOPIC:PARTITION --records.",
        "dump HOST TOPIC-0 --records",
    ),
    _told(
        "kafka-delete-records",
        "delete-records HOST TOPIC --offset 1",
        "Write kafkalog delete-records host:9092 TOPIC=OFFSET.",
        "delete-records HOST TOPIC=1",
    ),
    _told("kafka-acls", "acls HOST", "Kafka's own tools do that."),
    _told("rpk topic consume", "topics consume HOST TOPIC", "Write kafkalog cat host:9092 TOPIC.", _CAT),
    _told(
        "rpk topic produce",
        "topics produce HOST TOPIC",
        "Write kafkalog produce host:9092 TOPIC.",
        "produce HOST TOPIC",
    ),
    _told("rpk topic create -p -r", "topics create HOST NEW -p 3 -r 1", "Write --partitions N."),
    _told(
        "rpk topic add-partitions",
        "topics add-partitions HOST TOPIC --num 1",
        "Write kafkalog topics alter host:9092 TOPIC --partitions N.",
        "topics alter HOST TOPIC --partitions 2",
    ),
    _told(
        "rpk topic alter-config",
        "topics alter-config HOST TOPIC --set a=b",
        "Write kafkalog topics alter host:9092 TOPIC --set NAME=VALUE.",
        "topics alter HOST TOPIC --set retention.ms=1h",
    ),
    _told(
        "rpk topic trim-prefix",
        "topics trim-prefix HOST TOPIC --offset 1",
        "Write kafkalog delete-records host:9092 TOPIC=OFFSET.",
        "delete-records HOST TOPIC=1",
    ),
    _told(
        "rpk group seek",
        "groups seek HOST GROUP --to start",
        "Write kafkalog offsets reset host:9092 --group GROUP.",
        f"{_RESET} TOPIC --to-earliest",
    ),
    _told(
        "rpk group delete",
        "groups delete HOST GROUP",
        "Write kafkalog offsets delete host:9092 --group GROUP --whole-group.",
        _DELETE_GROUP,
    ),
    _told(
        "kafkactl reset offset",
        "reset offset GROUP",
        "Write kafkalog offsets reset host:9092 --group GROUP.",
        f"{_RESET} TOPIC --to-latest",
    ),
    _told(
        "kafkactl produce --value",
        "produce HOST TOPIC --value v",
        "echo VALUE | kafkalog produce host:9092 TOPIC",
        "produce HOST TOPIC",
    ),
    Task("kcat -o earliest, rpk -o start", "cat HOST TOPIC -o start -c 1", r"\Aone\n\Z"),
    Task(
        "offsets delete of a group",
        "offsets delete HOST --group GROUP",
        "Give TOPIC, --all-topics or --whole-group",
        told=True,
    ),
    Task("alter to what it is", "topics alter HOST TOPIC --partitions 1", "There is nothing to change"),
    Task(
        "produce --json of text",
        "produce HOST TOPIC --json",
        "Line 1: expected an object .* but it is not JSON",
        told=True,
        text="k:v\n",
    ),
)


@pytest.fixture
def names(broker: Broker) -> dict[str, str]:
    """A topic with three records and a group that has read one of them."""
    unique = uuid.uuid4().hex[:8]
    topic, group = f"habit-{unique}", f"habit-group-{unique}"
    broker.create_topic(topic, 1, {"retention.ms": "86400000"})
    at = broker.bootstrap
    assert run("produce", at, topic, "-K", ":", text="k1:one\nk2:two\nk3:three\n").code == 0
    assert run("offsets", "reset", at, "--group", group, topic, "--to-offset", 1, "--execute").code == 0
    return {"TOPIC": topic, "GROUP": group, "NEW": f"new-{unique}", "HOST": at}


def test_people_type_what_they_are_used_to(names: dict[str, str]) -> None:
    at_once = _tried(TASKS, names)
    print(f"{at_once} of {len(TASKS)} tasks work at the first try, {len(TASKS) - at_once} say what to type")
    assert at_once == sum(not task.told for task in TASKS) >= 18


def test_what_is_told_works(names: dict[str, str]) -> None:
    _tried(TOLD, names)


def _tried(tasks: Sequence[Task], names: dict[str, str]) -> int:
    """Type them; how many worked at once."""
    at_once, wrong = 0, []

    def named(text: str) -> str:
        return re.sub("|".join(names), lambda word: names[word[0]], text)

    def typed(command: str, text: str | None) -> Any:
        return run(*named(command).split(" "), text=text)

    for task in tasks:
        done = typed(task.typed, task.text)
        told = task.told and done.code != 0 and len(done.err.splitlines()) == 1
        shown = done.err if task.told or not done.out else done.out
        seen = re.search(named(task.seen), shown, re.MULTILINE) or re.search(task.seen, done.err)
        if not ((done.code == 0 or told) and seen):
            wrong.append(f"{task.of}: kafkalog {task.typed}: {done}")
        elif task.then is not None and (then := typed(task.then, task.text)).code != 0:
            wrong.append(f"{task.of}: kafkalog {task.then}: {then}")
        at_once += done.code == 0
    assert not wrong, "\n".join(wrong)
    return at_once
