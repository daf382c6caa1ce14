"""The words of kcat, Kafka's tools, rpk and kafkactl that people type by habit, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

_PLACE_FIRST = "Brokers come after the command, such as kafkalog topics host:9092."
_CAT = "Write kafkalog cat host:9092 TOPIC."
_PRODUCE = "Write kafkalog produce host:9092 TOPIC."
_DESCRIBE = "Write kafkalog topics describe host:9092."
_ALTER = "Write kafkalog topics alter host:9092 TOPIC"
_DELETE_RECORDS = "Write kafkalog delete-records host:9092 TOPIC=OFFSET."
_RESET = "Write kafkalog offsets reset host:9092 --group GROUP."
_DELETE_GROUP = "kafkalog offsets delete host:9092 --group GROUP --whole-group."
_DELETE = f"Write kafkalog topics delete host:9092 TOPIC, or {_DELETE_GROUP}"
_NOT_HERE = "Kafka's own tools do that."

_OF_ANY: Mapping[str, str] = {
    **dict.fromkeys(("-b", "--bootstrap-server", "--brokers", "--broker-list", "--zookeeper"), _PLACE_FIRST),
    **dict.fromkeys(("-t", "--topic"), "Write {command} host:9092 TOPIC."),
    **dict.fromkeys(("-q", "-u", "-l", "-v", "--verbose", "--sync", "--exclude-internal"), "Leave it out."),
    **dict.fromkeys(("--max-messages", "--num"), "Write --limit."),
    **dict.fromkeys(
        ("-F", "--command-config", "--consumer.config", "--producer.config", "--consumer-config"),
        "Write --config FILE.",
    ),
    **dict.fromkeys(
        ("--consumer-property", "--producer-property", "--command-property"), "Write -o NAME=VALUE."
    ),
    "-C": _CAT,
    "-P": _PRODUCE,
    "-L": "Write kafkalog topics describe host:9092, or kafkalog brokers host:9092.",
    "-G": "Write kafkalog cat host:9092 TOPIC; groups are shown by kafkalog groups host:9092.",
    "-Q": "Write kafkalog cat host:9092 TOPIC --since TIME --limit 1 --json.",
    "-X": "Write -o NAME=VALUE.",
    "--list": "Write kafkalog topics host:9092, or kafkalog groups host:9092.",
    "--describe": "Write kafkalog topics describe host:9092, or kafkalog offsets host:9092 --group GROUP.",
    "--create": "Write kafkalog topics create host:9092 TOPIC.",
    "--alter": f"{_ALTER}.",
    "--delete": _DELETE,
    "--delete-offsets": "Write kafkalog offsets delete host:9092 --group GROUP TOPIC.",
    "--reset-offsets": _RESET,
    "--all-groups": "Leave it out: all groups are shown, and changed one by one by --group.",
    "--from-beginning": "Leave it out: cat begins there.",
    "--add-config": "Write --set NAME=VALUE.",
    "--delete-config": "Write --unset NAME.",
    **dict.fromkeys(
        ("--execute", "--dry-run"), "Leave it out: only commands that can lose something have it."
    ),
    "--partitions": "Write TOPIC:0,1 for partitions 0 and 1.",
}

OF_OTHER_TOOLS: Mapping[str, Mapping[str, str]] = {
    "": _OF_ANY,
    "kafkalog": {
        **dict.fromkeys(("-t", "--topic", "consume", "consumer", "console-consumer"), _CAT),
        **dict.fromkeys(("producer", "console-producer", "import"), _PRODUCE),
        "tail": "Write kafkalog cat host:9092 TOPIC --follow.",
        "topic": "Write kafkalog topics.",
        **dict.fromkeys(("group", "consumer-groups"), "Write kafkalog groups."),
        **dict.fromkeys(("list", "get"), "Write kafkalog topics, or kafkalog groups."),
        **dict.fromkeys(("cluster", "info", "api-versions", "metadata-quorum"), "Write kafkalog brokers."),
        "metadata": "Write kafkalog brokers, or kafkalog topics describe.",
        "ls": "Write kafkalog topics, or kafkalog groups.",
        "help": "Write --help, alone or after a command.",
        "version": "Write --version.",
        "describe": "Write kafkalog topics describe, or kafkalog offsets host:9092 --group GROUP.",
        "configs": "Write kafkalog topics describe, or kafkalog topics alter.",
        "create": "Write kafkalog topics create.",
        "alter": "Write kafkalog topics alter.",
        "delete": _DELETE,
        **dict.fromkeys(("reset", "reset-offsets"), _RESET),
        "get-offsets": "Write kafkalog topics host:9092.",
        "log-dirs": _DESCRIBE,
        **dict.fromkeys(("acls", "transactions", "reassign-partitions", "leader-election"), _NOT_HERE),
    },
    "topics": {
        "consume": _CAT,
        "produce": _PRODUCE,
        "add-partitions": f"{_ALTER} --partitions N.",
        **dict.fromkeys(("config", "alter-config"), f"{_ALTER} --set NAME=VALUE."),
        "trim-prefix": _DELETE_RECORDS,
        "rename": "Kafka renames none. Copy it: kafkalog backup, then kafkalog restore --rename OLD=NEW.",
    },
    "show": dict.fromkeys(
        ("--under-replicated-partitions", "--unavailable-partitions", "--topics-with-overrides"), _DESCRIBE
    ),
    "describe": dict.fromkeys(
        ("--all", "-a", "-c", "-p"),
        "Leave it out: partitions are shown, and configurations that are not Kafka's defaults.",
    ),
    "create": {
        "-p": "Write --partitions N.",
        "-r": "Write --replication-factor N.",
        "-c": "Write --set NAME=VALUE.",
    },
    "cat": {
        "-K": r"Write --format '%k:%s\n'.",
        "-D": "Write --format '%s;', with what ends a record for the semicolon.",
        **dict.fromkeys(("-s", "-r"), "Write --value-format confluent-avro -o schema.registry.url=URL."),
        **dict.fromkeys(("--include", "--whitelist"), _CAT),
        "--property": r"Write --format '%k %s\n', or --json.",
        "--formatter": "Write --format, --json or --value-format.",
        "--group": "Leave it out: cat commits no offsets.",
        "--timeout-ms": "Leave it out: without --follow, cat ends where the topic ends.",
        "--isolation-level": "Write --read-committed.",
        "--key-deserializer": "Write --key-format FORMAT, or --key-as hex.",
        "--value-deserializer": "Write --value-format FORMAT, or --value-as hex.",
    },
    "produce": {
        **dict.fromkeys(("-k", "--key"), "Write -K :, and lines such as key:value."),
        **dict.fromkeys(
            ("-H", "--header", "--headers"), "Write --json, and lines as kafkalog cat --json has."
        ),
        "--value": "Values come from files or stdin: echo VALUE | kafkalog produce host:9092 TOPIC",
        "--property": "Write -K SEPARATOR.",
        "--request-required-acks": "Write -o acks=all.",
    },
    "groups": {
        **dict.fromkeys(("-t", "--topic"), "Write kafkalog lag host:9092 TOPIC."),
        "--state": "Leave it out: states are shown.",
        "--offsets": "Write kafkalog offsets host:9092 --group GROUP.",
        **dict.fromkeys(("delete", "--delete"), f"Write {_DELETE_GROUP}"),
        **dict.fromkeys(("reset", "seek"), _RESET),
    },
    "offsets": dict.fromkeys(("seek", "commit", "set"), _RESET),
    "reset": {
        "--to": "Write --to-offset N, --to-earliest or --to-latest.",
        "--by-duration": "Write --to-datetime 1h for an hour ago.",
        "--export": "Write kafkalog offsets export host:9092 --group GROUP.",
    },
    "dump": {
        "--files": "Write kafkalog dump PLACE TOPIC:PARTITION --records.",
        **dict.fromkeys(("--print-data-log", "--deep-iteration"), "Write --records."),
    },
    "redrive": {"--to": "Leave it out: each dead letter goes back to the topic in its headers."},
    "delete-records": {**dict.fromkeys(("-t", "--topic", "--offset"), _DELETE_RECORDS)},
    "repair": dict.fromkeys(("-t", "--topic"), "Write {command} PLACE TOPIC:PARTITION, such as orders:0."),
    **dict.fromkeys(("compact", "retain"), dict.fromkeys(("-t", "--topic"), "Write {command} PLACE TOPIC.")),
    "verify": {
        **dict.fromkeys(("-t", "--topic"), "Write {command} PLACE TOPIC."),
        **dict.fromkeys(("--repair", "--fix", "--execute"), "Write kafkalog repair PLACE."),
    },
    **dict.fromkeys(
        ("backup", "copy"), dict.fromkeys(("-t", "--topic"), "Write {command} PLACE BACKUP TOPIC.")
    ),
    **dict.fromkeys(
        ("restore", "adopt"), dict.fromkeys(("-t", "--topic"), "Write {command} BACKUP PLACE TOPIC.")
    ),
    "brokers": dict.fromkeys(("-t", "--topic"), _DESCRIBE),
}
"""The advice by command, "" for every other one, and word. ``{command}`` is the command that was given."""
