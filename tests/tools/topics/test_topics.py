"""``kafkalog topics create``, ``delete`` and ``alter``; the list stays what ``topics PLACE`` means."""

from __future__ import annotations

from pathlib import Path

from tests.tools.cli.running import run


def test_a_topic_is_made_changed_and_deleted(root: Path) -> None:
    made = run("topics", "create", root, "new", "newer", "--partitions", 3, "--set", "retention.ms=-1")
    assert made.code == 0, made.err
    assert made.lines == [
        ["TOPIC", "PARTITIONS", "NOTE"],
        ["new", "3", "created"],
        ["newer", "3", "created"],
    ]
    assert len(run("topics", root, "new", "--json").rows) == 3

    change = ("topics", "alter", root, "new", "--partitions", 4, "--unset", "retention.ms")
    dry = run(*change)
    assert dry.lines[1:] == [["new", "partitions", "3", "4"], ["new", "retention.ms", "-1", "-"]]
    assert "Dry run" in dry.err
    assert len(run("topics", root, "new", "--json").rows) == 3
    assert run(*change, "--execute").err == ""
    assert len(run("topics", root, "new", "--json").rows) == 4
    assert run(*change, "--json").rows == []

    dry = run("topics", "delete", root, "t", "new")
    assert [line[:3] for line in dry.lines[1:]] == [["new", "4", "0"], ["t", "2", "14"]]
    assert "Dry run" in dry.err
    assert run("topics", "delete", root, "t", "new", "--execute").code == 0
    assert {row["topic"] for row in run("topics", root, "--json").rows} == {"u", "newer"}


def test_topics_are_described(root: Path) -> None:
    assert run("topics", "alter", root, "t", "--set", "retention.ms=60000", "--execute").code == 0
    shown = run("topics", "describe", root, "t")
    assert shown.code == 0, shown.err
    titles, first, second, empty, *configs = shown.lines
    assert titles == ["TOPIC", "PARTITION", "LEADER", "EPOCH", "SIZE", "SEGMENTS"]
    assert [line[:3] for line in (first, second)] == [["t", "0", "-"], ["t", "1", "-"]]
    assert [line[-1] for line in (first, second)] == ["1", "1"]
    assert not empty
    assert configs == [
        ["TOPIC", "CONFIG", "VALUE", "SOURCE"],
        ["t", "retention.ms", "60000", "DYNAMIC_TOPIC_CONFIG"],
    ]
    both = run("topics", "describe", root, "--json").rows
    assert [(topic["topic"], len(topic["partitions"])) for topic in both] == [("t", 2), ("u", 1)]
    assert both[0]["topicId"] == run("topics", root, "t", "--json").rows[0]["topicId"]
    assert both[1]["configs"] == []
    assert both[1]["partitions"][0]["storedBytes"] > 0
    missing = run("topics", "describe", root, "v")
    assert (missing.code, "No such topic" in missing.err or "v" in missing.err) == (3, True)


def test_a_directory_has_no_brokers(root: Path) -> None:
    refused = run("brokers", root)
    assert (refused.code, "A log directory has no brokers" in refused.err) == (2, True)


def test_show_is_the_default(root: Path) -> None:
    assert run("topics", root).out == run("topics", "show", root).out
    assert run("topics", "--json", root).rows == run("topics", "show", root, "--json").rows
    assert "create" in run("topics", "--help").out


def test_commands_that_can_be_run_again(root: Path) -> None:
    assert run("topics", "create", root, "t").code == 3
    again = run("topics", "create", root, "t", "--if-not-exists", "--json")
    assert again.rows == [{"topic": "t", "partitions": 2, "created": False}]
    assert run("topics", "delete", root, "gone", "--execute").code == 3
    gone = run("topics", "delete", root, "gone", "--if-exists", "--execute")
    assert (gone.code, gone.err) == (0, "kafkalog: There is no topic gone.\n")


def test_a_dry_run_never_executes(root: Path) -> None:
    assert run("topics", "create", root, "kept").code == 0
    for both in ("--dry-run", "--execute"), ("--execute", "--dry-run"):
        refused = run("topics", "delete", root, "kept", *both)
        assert (refused.code, "Give only one of --execute and --dry-run." in refused.err) == (2, True)
    assert run("topics", root, "kept").code == 0


def test_times_and_sizes_have_units(root: Path) -> None:
    values = ("--set", "retention.ms=7d", "--set", "segment.bytes=1g", "--set", "cleanup.policy=compact")
    changes = run("topics", "alter", root, "u", *values, "--dry-run", "--json").rows
    assert {change["name"]: change["new"] for change in changes} == {
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "cleanup.policy": "compact",
    }
    assert run("topics", "create", root, "w", "--set", "retention.ms=1h").code == 0
    (topic,) = run("topics", "describe", root, "w", "--json").rows
    assert [config["value"] for config in topic["configs"]] == ["3600000"]
    assert "is in ms" not in run("topics", "create", root, "x", "--set", "retention.ms=10m").err
    seconds = run("topics", "create", root, "v", "--set", "retention.ms=604800")
    assert "records older than 605 s are deleted. Give a unit, such as 7d" in seconds.err
    for wrong in ("retention.ms=7 fortnights", "retention.ms=d", "cleanup.policy=7d"):
        refused = run("topics", "alter", root, "u", "--set", wrong)
        assert (refused.code, refused.out) == (2, ""), wrong


def test_wrong_commands(root: Path) -> None:
    typo = run("topics", "create", root, "x", "--set", "retention.mss=1")
    assert typo.code == 2
    assert "Did you mean retention.ms" in typo.err
    assert run("topics", "create", root, "x", "--set", "retention.ms").code == 2
    assert run("topics", "alter", root, "t").code == 2
    assert run("topics", "alter", root, "t", "--partitions", 1).code == 2
    assert run("topics", "create", root, "x", "--replication-factor", 2).code == 2
    assert {row["topic"] for row in run("topics", root, "--json").rows} == {"t", "u"}
