"""What holds for every command: places, secrets, exit codes, output to pipes and terminals."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pyspark_kafkalog import saying
from pyspark_kafkalog.errors import OptionError
from pyspark_kafkalog.extensions.log_groups.groups import DirectoryGroups
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.tools.cli import application, output
from pyspark_kafkalog.tools.cli.other_tools import OF_OTHER_TOOLS
from pyspark_kafkalog.tools.cli.parameters import options_for
from pyspark_kafkalog.tools.cli.printable import printable
from tests.tools.cli.running import run
from tests.tools.conftest import U0

COMMAND = [sys.executable, "-m", "pyspark_kafkalog"]


def test_places(tmp_path: Path) -> None:
    folder = tmp_path / "a,b:9"
    folder.mkdir()
    assert options_for(str(folder), (), {}) == {"path": f'["{folder}"]'}
    for brokers in (
        "h:9092",
        "a.b:1,c-d:2",
        "[::1]:9092",
        "SASL_SSL://h:9092",
        "http://h:9092",
        "kafka://h:9092",
    ):
        assert options_for(brokers, (), {}) == {"kafka.bootstrap.servers": brokers}
    for root in (
        "s3://bucket/log",
        "file:/log",
        "hdfs://h:8020",
        "/no/where",
        "memory:",
        "h:x",
        "hdfs://u@h:8020",
        "/a@h:9",
    ):
        assert options_for(root, (), {}) == {"path": root}


@pytest.mark.parametrize(
    "place",
    ["u:SECRET@127.0.0.1:9", "SASL_SSL://u:SECRET@h:9092,i:9", "a:1,u:SECRET@h:9092", "SE/CRET:SECRET@h:1"],
)
def test_a_login_in_front_of_brokers_is_refused_and_not_shown(place: str, tmp_path: Path) -> None:
    for words in (
        ["lag", place],
        ["topics", place],
        ["verify", place],
        ["cat", place, "t"],
        ["backup", place, tmp_path / "backup"],
        ["restore", place, "h:9"],
    ):
        done = run(*words)
        assert (done.code, "something before an @" in done.err) == (2, True), words
        assert "SECRET" not in done.out + done.err
    assert not (tmp_path / "backup").exists()


def test_settings_of_clients() -> None:
    properties = {"security.protocol": "SSL", "bootstrap.servers": "x:1", "key.deserializer": "y"}
    assert options_for("h:1", ("kafka.client.id=a=b", "kafka.security.protocol=PLAINTEXT"), properties) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.client.id": "a=b",
        "kafka.security.protocol": "PLAINTEXT",
    }
    without = (
        "client.id=a=b",
        "security.protocol=PLAINTEXT",
        "schema.registry.url=http://r",
        "key.format=json",
    )
    assert options_for("h:1", without, {}) == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.client.id": "a=b",
        "kafka.security.protocol": "PLAINTEXT",
        "schema.registry.url": "http://r",
        "key.format": "json",
    }
    with pytest.raises(OptionError, match="both name a place"):
        options_for("h:1", ("bootstrap.servers=h:2",), {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["topics"], "Missing argument 'PLACE'"),
        (["topic", "h:1"], "No such command 'topic'"),
        (["topics", "h:1", "--foo"], "No such option"),
        (["topics", "h:1", "-o", "secret"], "expected NAME=VALUE"),
        (["topics", "h:1", "-o", "client.id=secret", "-o", "kafka.Client.Id=b"], "twice, with two values"),
        (
            ["restore", "/log", "h:1", "--rename", "a:b"],
            "'--rename': expected OLD=NEW, the names of topics, such as orders=again. Try",
        ),
        (["lag", "h:1", "--max-lag", "1k"], "'--max-lag': expected a whole number, got '1k'. Try"),
        (["topics", "h:1", "-o", "startingOffset=secret"], "Unknown option 'startingOffset'"),
        (["topics", "h:1", "-o", "kafka.security.protocol=secret"], "'kafka.security.protocol'"),
        (["topics", "/", "-o", "kafka.ssl.key.password=secret"], "is for brokers"),
        (["lag", "h:1", "--max-lag", "-1"], "--max-lag"),
        (["copy", "h:1", "/proc/none"], "got brokers: use kafkalog backup"),
    ],
)
def test_usage_errors_are_one_line(words: list[str], said: str) -> None:
    done = run(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err


def test_without_a_command_there_is_help() -> None:
    assert (run("verify", "--help").code, run("offsets", "--help").code) == (0, 0)
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "\n  verify " in done.err


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common."
        'security.plain.PlainLoginModule required username="u" password="hush";\n'
    )
    done = run("topics", "127.0.0.1:1", "--config", config, "-o", "kafka.request.timeout.ms=100")
    assert done.code == 3
    config.write_text("sasl.jaas.config=hush hush")
    more = run("topics", "127.0.0.1:1", "--config", config, "-o", "kafka.security.protocol=SASL_SSL")
    uri = run("topics", "s3://key:hush@bucket.invalid/x?secret=hush")
    for result in (done, more, uri):
        assert result.code in (2, 3)
        assert "hush" not in result.out + result.err


def test_names_cannot_command_a_terminal(root: Path, groups: DirectoryGroups) -> None:
    groups.commit("\x1b[31m[bold]red", {U0: CommittedOffset(1)})
    assert "\\x1b[31m[bold]red" in run("groups", root).out
    assert printable("é\n漢\x9b") == "é\\n漢\\x9b"


def test_what_takes_long_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(saying, "QUIET_SECONDS", 0.05)
    with saying.said("Looking up groups"):
        time.sleep(0.3)
    assert capsys.readouterr() == ("", "kafkalog: Looking up groups …\n")
    monkeypatch.setattr(saying, "QUIET_SECONDS", 60)
    with saying.said("Looking up groups"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_wait_for_the_first_item_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slowly() -> Iterator[int]:
        for number in range(3):
            time.sleep(0.2)
            yield number

    monkeypatch.setattr(saying, "QUIET_SECONDS", 0.05)
    numbers = output.said_until_first("Looking for records", slowly())
    assert next(numbers) == 0
    assert capsys.readouterr() == ("", "kafkalog: Looking for records …\n")
    assert [*numbers] == [1, 2]
    assert [*output.said_until_first("Looking for records", ())] == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_a_pipe_gets_no_escape_codes_and_needs_no_active_environment(root: Path) -> None:
    environment = {"HOME": str(root), "TERM": "xterm-256color", "PATH": "/usr/bin:/bin", "COLUMNS": "20"}
    script = Path(sys.executable).with_name("kafkalog")  # where pip puts it
    done = subprocess.run([script, "verify", root], env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr.decode() in ("", "kafkalog: Looking up partitions …\n"), "the latter on a busy machine"
    assert b"\x1b" not in done.stdout
    assert [len(line.split()) for line in done.stdout.decode().splitlines()] == [6, 7, 7, 7, 7, 7]


@pytest.mark.slow
def test_a_terminal_gets_a_bar_on_stderr(root: Path) -> None:
    controller, terminal = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "verify", root, "--json"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
        timeout=120,
    )
    os.close(terminal)
    shown = b""
    try:
        while part := os.read(controller, 4096):
            shown += part
    except OSError:  # the end, on Linux
        pass
    os.close(controller)
    assert done.returncode == 0, shown.decode()
    assert b"Verifying" in shown
    assert b"\x1b" not in done.stdout


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error(root: Path) -> None:
    script = f"{sys.executable} -m pyspark_kafkalog dump {root} t-0 --records | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert done.returncode == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has it")
def test_output_that_cannot_be_written(root: Path) -> None:
    """It is a failure, and no damage that was found."""
    for words in (("cat", root, "t"), ("topics", root), ("topics", root, "--json")):
        command = [*COMMAND, *map(str, words)]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 3
        assert done.stderr.splitlines()[-1].startswith("kafkalog: Cannot write the output: No space left")
        assert "Traceback" not in done.stderr
    script = f"{' '.join(COMMAND)} cat {root} t >&-"
    closed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert (closed.returncode, closed.stderr) == (0, "")
    script = f"{' '.join(COMMAND)} verify {root} 2>&-; echo -n $? >&2"
    closed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert closed.stderr == "0"
    script = f"{' '.join(COMMAND)} produce {root} t <&-"
    closed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert (closed.returncode, closed.stderr) == (0, "0 records were written\n")


def test_words_of_other_tools(root: Path) -> None:
    refused = run("groups", root, "g", "h")
    assert (refused.code, "Did you mean --group g --group h?" in refused.err) == (2, True)
    for word in ("list", "ls"):
        assert run("topics", word, root).out == run("topics", root).out
    for word in ("list", "ls", "describe"):
        assert run("offsets", word, root).out == run("offsets", root).out
    like_a_command = run("topics", "create:0", "--json")
    assert (like_a_command.code, "create:0" in like_a_command.err) == (2, True)
    assert "No such command" not in like_a_command.err
    refused = run("compact", "host:9092")
    assert (refused.code, "Expected a log directory, got brokers" in refused.err) == (2, True)
    refused = run("lag", root, "--watch", "nan")
    assert (refused.code, "expected a number of seconds, got nan" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("topics --list", "Write kafkalog topics host:9092"),
        ("topics --bootstrap-server host:9092 --list", "such as kafkalog topics host:9092."),
        ("cat -b host:9092 -t t", "such as kafkalog topics host:9092."),
        ("cat host:9092 t -q", "No such option '-q'. Leave it out."),
        ("cat host:9092 -lead", "No such option '-l'. If -lead is a name, write -- before it, and options"),
        ("delete-records host:9092 -q.1=5", "If -q.1=5 is a name, write -- before it"),
        ("cat -bhost:9092 t", "such as kafkalog topics host:9092."),
        ("cat host:9092 t -f %k:%s", "-f is --follow: write --format for a format."),
        ("cat host:9092 t --max-messages 5", "Write --limit."),
        ("topics alter host:9092 t --add-config retention.ms=1", "Write --set NAME=VALUE."),
        ("topics create host:9092 t --config retention.ms=1", "those of topics by --set."),
        ("topics describ host:9092", "Did you mean"),
        ("topic list", "No such command 'topic'. Write kafkalog topics."),
        ("consume t", "Write kafkalog cat host:9092 TOPIC."),
        ("-L", "kafkalog brokers host:9092."),
        ("topics localhost", "Brokers need a port, got 'localhost'. Write localhost:9092."),
        ("topics b-1.kafka.example.com,b-2.kafka.example.com:9092", "got 'b-1.kafka.example.com'"),
        ("topics broker1", "If broker1 is a host: brokers need a port, such as broker1:9092."),
        ("topics t -o nonsense", "expected NAME=VALUE, such as security.protocol=SSL."),
    ],
)
def test_habits_are_told_what_to_type(typed: str, said: str) -> None:
    done = run(*typed.split())
    assert (done.code in (2, 3), done.out) == (True, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_a_name_that_begins_with_a_dash(tmp_path: Path) -> None:
    run("topics", "create", tmp_path, "--", "-lead")
    assert run("produce", tmp_path, "--", "-lead", text="v").code == 0
    assert run("cat", tmp_path, "--format", "%s", "--", "-lead").out == "v"


def test_what_is_told_exists() -> None:
    """Commands and options that the texts name."""
    words = [word for of_command in OF_OTHER_TOOLS.values() for word in of_command.items()]
    for typed, told in words:
        for name, verb in re.findall(r"kafkalog ([a-z-]+)(?: ([a-z]+)(?![\w:]))?", told):
            known = application.kafkalog.get_command(click.Context(application.kafkalog), name)
            assert known is not None, f"No such command '{name}': {typed}, {told}"
            assert not verb or (isinstance(known, click.Group) and verb in known.commands), (typed, told)


@pytest.mark.parametrize(
    ("command", "typed", "expected"),
    [
        ("topics", "to", {"plain,topics"}),
        (
            "topics",
            "topics ",
            {"plain,alter", "plain,create", "plain,delete", "plain,describe", "plain,show"},
        ),
        ("topics", "topics des", {"plain,describe"}),
        ("topics", "topics describe --js", {"plain,--json"}),
        ("topics", "topics describe /da", {"dir,/da"}),
        ("topics", "topics /da", {"dir,/da"}),
        ("cat", "cat host:9092 t --fol", {"plain,--follow"}),
    ],
)
def test_shells_complete(command: str, typed: str, expected: set[str]) -> None:
    assert run(command, "--help").code == 0
    assert _completions(typed) == (expected, "")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("cat {} ", {"plain,__consumer_offsets", "plain,t", "plain,u"}),
        ("topics delete {} t ", {"plain,__consumer_offsets", "plain,t", "plain,u"}),
        ("topics {} u", {"plain,u"}),
        ("copy {} backup t", {"plain,t"}),
        ("compact {} t", {"plain,t"}),
        ("lag {} --group ", {"plain,g", "plain,other"}),
        ("offsets reset {} --group o", {"plain,other"}),
        ("offsets reset {} --group g t", {"plain,t"}),
        ("cat {}-missing ", set()),
    ],
)
def test_shells_complete_topics_and_groups(root: Path, typed: str, expected: set[str]) -> None:
    assert _completions(typed.replace("{}", str(root))) == (expected, "")


def _completions(typed: str) -> tuple[set[str], str]:
    *before, last = ["kafkalog", *typed.split(" ")]
    variables = {
        "_KAFKALOG_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join([*before, last]),
        "COMP_CWORD": str(len(before)),
    }
    code = "from pyspark_kafkalog.tools.cli.application import kafkalog; kafkalog(prog_name='kafkalog')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split()), done.stderr


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner\n"
        "import pyspark_kafkalog.tools.cli.application as its\n"
        "CliRunner().invoke(its.kafkalog, ['--help']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert not {"pyspark", "pyarrow", "numpy", "numba", "kafka", "rich"} & set(done.stdout.split())
