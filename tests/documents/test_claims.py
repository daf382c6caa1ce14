"""No page says what another denies, and what pages say of the package is so."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click
import pytest

from pyspark_kafkalog import CheckpointAdmin, GroupAdmin, Kafka, LogCare, Records, TopicAdmin, __version__
from pyspark_kafkalog.tools.cli.application import kafkalog
from tests.documents.blocks import ROOT
from tests.parity.cases import CASES
from tests.parity.elsewhere import ELSEWHERE

README, INSTALL, PLATFORMS, SHELL = (
    "README.md",
    "docs/install.md",
    "docs/platforms.md",
    "docs/command-line.md",
)
NOTEBOOKS = "notebooks/README.md"
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.md"), ROOT / NOTEBOOKS]
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]
ROOMS = {
    "topics": TopicAdmin,
    "groups": GroupAdmin,
    "checkpoints": CheckpointAdmin,
    "records": Records,
    "logs": LogCare,
}
COMMANDS = {
    "adopt": "logs.adopt",
    "backup": "logs.backup",
    "brokers": "brokers",
    "cat": "records.select",
    "checkpoint move": "checkpoints.plan_move",
    "checkpoint rewind": "checkpoints.plan_rewind",
    "checkpoint show": "checkpoints.show",
    "compact": "logs.compact",
    "copy": "logs.backup",
    "delete-records": "logs.delete_records",
    "doctor": "doctor",
    "dump": "records.dump",
    "export": "records.select",
    "forget-queries": "logs.forget_queries",
    "groups": "groups.describe",
    "lag": "groups.lags",
    "offsets delete": "groups.delete_offsets",
    "offsets export": "groups.committed",
    "offsets import": "groups.plan_import",
    "offsets reset": "groups.reset",
    "offsets safe": "groups.safe_offsets",
    "offsets show": "groups.offsets",
    "produce": "write",
    "redrive": "records.redrive",
    "repair": "logs.repair",
    "restore": "logs.restore",
    "retain": "logs.retain",
    "topics alter": "topics.alter",
    "topics create": "topics.create",
    "topics delete": "topics.delete",
    "topics describe": "topics.describe",
    "topics show": "topics.partitions",
    "verify": "records.verify",
}
"""What of ``connect(…)`` does the same as a command."""
OWN_LOOKS = {"lag", "offsets show"}
"""Commands that look again and again, or at several groups, by a function that the room has, too."""
UNTRIED = "(not yet tried there)"
NAMES = {"Databricks", "Fabric", "Glue", "EMR", "Dataproc"}
NUMBERS = dict(zip("two three four five six seven eight nine ten".split(), range(2, 11), strict=True))  # noqa: SIM905
Pages = Mapping[str, str]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def pages() -> Pages:
    return {name_of(page): page.read_text(encoding="utf-8") for page in PAGES}


def sentences(text: str) -> Iterator[str]:
    """Those of a page, without its code blocks and tables."""
    prose = re.sub(r"^```.*?^```$|^\|[^\n]*$", "", text, flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n|\n(?=- )", prose):
        yield from re.split(r"(?<=[.!?]\)) |(?<=[.!?:]) ", " ".join(paragraph.split()))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """The rows of all tables of a page."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def untried(text: str) -> set[str]:
    """The platforms of which the table says that reading and writing were not tried."""
    found: dict[str, bool] = {}
    for row in rows_of(text):
        name = next((name for name in NAMES if re.search(rf"\b{name}\b", row[0])), None)
        if name is not None and len(row) == 6:
            found[name] = found.get(name, True) and bool(re.match("all|reading and writing", row[5]))
    assert found.keys() == NAMES
    return {name for name, is_untried in found.items() if is_untried}


def of_platforms(pages: Pages) -> Iterator[str]:
    """A platform is tried, or it is not."""
    never = untried(pages[PLATFORMS])
    for page, text in pages.items():
        for sentence in sentences(text):
            for name in NAMES:
                # Without its clauses of another subject.
                claims = re.search(
                    rf"\b(runs?|ran|works?|worked|tested|tried)\b[^.;]* (in|on|with) [^.;]*\b{name}\b",
                    sentence,
                )
                denies = re.search(r"\bnot\b[^.;]*\b(tried|tested)\b|\bdocumentation\b|\bfake\b", sentence)
                if claims and not denies and name in never:
                    yield f"{page} says of {name}, which {PLATFORMS} calls not tried: {sentence}"
                if name in sentence and name not in never and re.search(r"\bnot\b[^.;]*\btried\b", sentence):
                    yield f"{page} says that {name} was not tried, {PLATFORMS} that it was: {sentence}"
    if "Databricks" in never:
        for page in README, NOTEBOOKS:
            if not any(
                "Databricks" in one and re.search(r"\bnot\b[^.;]*\btried\b", one)
                for one in sentences(pages[page])
            ):
                yield f"{page} does not say that Databricks was not tried"


def of_versions(pages: Pages) -> Iterator[str]:
    """The PySpark that is installed is the one that is tested, and each page says it."""
    pinned = found_in(r"^pyspark==(\S+)$", read("ci/constraints.txt"))
    minor = pinned.rpartition(".")[0]
    every = found_in(r"set -- ([\d. ]+)$", read("ci/smoke-matrix")).split()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    python = setup["options"]["python_requires"].removeprefix(">=")
    lowest = found_in(r"^pyspark >=([\d.]+),", setup["options.extras_require"]["spark"])
    java = found_in(r'"\$java" -ge (\d+)', read("ci/install"))
    fixed = {
        r"Spark (\d\S*\d); workers": pinned,
        r"[Tt]ests\s+run\s+with,? (?:such as )?PySpark (\d[\d.]*\d)": pinned,
        r"spark-sql-kafka-0-10_2\.13:(\d[\d.]*\d)": pinned,
        r"apache/spark:(\d[\d.]*\d)": pinned,
        r"delta-spark_(\d[\d.]*\d)_": minor,
        r"\bPython (3[\d.]*\d)(?: or newer)(?! for|\. A broken)": python,
        r"\bJava (\d+) or newer": java,
        r"(?<!On )\b(?:PySpark|Spark) (4[\d.]*\d) (?:or|and) newer": lowest,
        r"\bVersion (\d[\d.]*\d)": __version__,
        r"^kafkalog (\d[\d.]*\d) is ready": __version__,
        r"pyspark.kafkalog(?:==|-)(\d[\d.]*\d)\b": __version__,
    }
    for page, text in pages.items():
        for pattern, expected in fixed.items():
            for said in re.findall(pattern, text, flags=re.M):
                if said != expected:
                    yield f"{page} says {said}, and it is {expected}: {pattern}"
        for said in re.findall(r"every mode (?:also|once) with (?:PySpark )?((?:4\.\d,? ?(?:and )?)+)", text):
            versions = set(re.findall(r"4\.\d", said))
            if versions | {minor} != set(every):
                yield f"{page} says {said}, and ci/smoke-matrix runs {every}"
    for page in README, INSTALL:
        if not re.search(rf"[Tt]ests\s+run\s+with,? (?:such as )?PySpark {re.escape(pinned)}", pages[page]):
            yield f"{page} does not say that tests run with PySpark {pinned}"
    first, others = (
        row for row in rows_of(pages[PLATFORMS]) if row[0] in ("pip, Jupyter, own cluster", "the same")
    )
    if first[1] != pinned:
        yield f"{PLATFORMS} says {first[1]}, and {pinned} is tested"
    if {version.rpartition(".")[0] for version in others[1].split(", ")} != set(every):
        yield f"{PLATFORMS} says {others[1]}, and ci/smoke-matrix runs {every}"
    named = next(row for row in rows_of(pages["docs/spark-versions.md"]) if row[1:2] == [f"Spark {lowest}"])
    if re.findall(r"4\.\d", " ".join(named)) != every:
        yield f"docs/spark-versions.md has columns for {named[1:]}, and ci/smoke-matrix runs {every}"


def found_in(pattern: str, text: str) -> str:
    """The one place of a text that fits."""
    (found,) = re.findall(pattern, text, flags=re.M)
    return str(found)


def of_install(pages: Pages) -> Iterator[str]:
    """There is one way in a checkout: with the constraints."""
    for page, text in pages.items():
        code = (
            "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, flags=re.M | re.S))
            + "\n"
            + "\n".join(re.findall(r"`([^`\n]+)`", text))
        )
        for line in code.splitlines():
            is_by_name = f"'pyspark-kafkalog[spark]=={__version__}'" in line  # from an index
            is_install = re.search(r"\.venv/bin/(?:python -m )?pip install", line) and not is_by_name
            if is_install and "ci/constraints.txt" not in line:
                yield f"{page} installs without the constraints: {line}"
    first = {
        page: next(iter(re.findall(r"^```sh\n(.*?)^```$", pages[page], flags=re.M | re.S)))
        for page in (README, INSTALL)
    }
    readme, install = (re.sub(r"^# not run: .*\n", "", first[page], flags=re.M) for page in (README, INSTALL))
    if readme != install:
        yield f"{README} and {INSTALL} install in two ways"
    named = [page for page, text in pages.items() if re.search(r"\bnot on PyPI\b", " ".join(text.split()))]
    is_named_otherwise = re.search(
        r"give its path wherever this page says\s+`pyspark-kafkalog`", pages[PLATFORMS]
    )
    for page, text in pages.items():
        from_there = re.search(r"^\S*pip install pyspark-kafkalog\b", text, flags=re.M)
        if named and from_there and not (page == PLATFORMS and is_named_otherwise):
            yield f"{page} installs from PyPI, and {', '.join(named)} says that it is not there"


def all_commands() -> dict[str, click.Command]:
    """The commands by their words, without the groups of them."""
    context = click.Context(kafkalog)
    found: dict[str, click.Command] = {}
    for name in kafkalog.list_commands(context):
        command = kafkalog.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {verb}": inner for verb, inner in command.commands.items()}
        else:
            found[name] = command
    return found


def of_connect(pages: Pages) -> Iterator[str]:
    """What ``connect`` lacks of the command line is said, and nothing else."""
    said = found_in(
        r"`pyspark_kafkalog\.connect` offers the same to\s+\[Python\]\(api\.md\)([^.]*)\.", pages[SHELL]
    )
    lacking = set(re.findall(r"`([a-z -]+)`", said))
    for name, command in all_commands().items():
        path = COMMANDS.get(name)
        if path is None:
            if name not in lacking:
                yield f"connect has nothing for `kafkalog {name}`, and {SHELL} does not say so"
            continue
        if name in lacking:
            yield f"{SHELL} says that connect lacks {name}, which is {path}"
        room, _, method = path.rpartition(".")
        if not callable(getattr(ROOMS.get(room, Kafka), method, None)):
            yield f"connect has no {path}, for `kafkalog {name}`"
        source = Path(command.callback.__code__.co_filename).read_text() if command.callback else ""
        module = read(
            f"pyspark_kafkalog/{command.callback.__module__.partition('.')[2].replace('.', '/')}.py"
        )
        assert source or module
        if name not in OWN_LOOKS and f".{path}(" not in module:
            yield f"`kafkalog {name}` does not call {path}"
    yield from (f"there is no command {name}" for name in COMMANDS.keys() - all_commands().keys())
    if lacking and not re.search(
        r"offers what the command\s+line does|offers the same", pages[README] + pages[SHELL]
    ):
        yield f"{README} does not say what connect offers"


def of_calls(pages: Pages) -> Iterator[str]:
    """The calls of ``connect(…)`` that are named are there."""
    for page, text in {**pages, "CHANGELOG.md": read("CHANGELOG.md")}.items():
        for first, second in re.findall(r"\bconnect\((?:[^()]|\([^()]*\))*\)\.(\w+)(?:\.(\w+))?", text):
            room = ROOMS.get(first)
            is_there = hasattr(Kafka, first) if room is None else not second or hasattr(room, second)
            if not is_there:
                yield f"{page} names connect(…).{first}{f'.{second}' if second else ''}, which is not there"
        for name in re.findall(r"`admin\.(\w+)", text):
            yield f"{page} names admin.{name}, which no user can import"


def of_dry_runs(pages: Pages) -> Iterator[str]:
    """The commands that only show what they would do are those with ``--execute``."""
    text = " ".join(pages[SHELL].split())
    said = found_in(
        r"([^.]*) only show what they would do, until `--execute` is given", text.replace("`. `", "` `")
    )
    acting = found_in(r"until `--execute` is given\. ([^.]*) act at once", text)
    with_execute = {
        name for name, command in all_commands().items() if any(p.name == "execute" for p in command.params)
    }
    for name, command in all_commands().items():
        first, _, verb = name.partition(" ")
        is_named = re.search(rf"`(?:{first} )?{verb or first}`", said) is not None
        if (name in with_execute) != is_named:
            yield f"{SHELL} says of {name} what its --execute denies"
        if name in with_execute and f"`{name}`" in acting:
            yield f"{SHELL} says that {name} acts at once"
        assert command.help


def of_commands(pages: Pages) -> Iterator[str]:
    """Commands in the blocks of a shell have only options that there are."""
    for page, text in pages.items():
        for block in re.findall(r"^```sh\n(.*?)^```$", text, flags=re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                for typed in re.findall(r"(?:^|[\s(])(?:\S*/)?kafkalog ([^|;&<>()]*)", line):
                    if wrong := not_taken(shlex.split(typed, comments=True)):
                        yield f"{page} has {line.strip()!r}: {wrong}"


def not_taken(words: list[str]) -> str | None:
    """The error of a command, as far as the names of its options and the number of its arguments go."""
    found = all_commands()
    default = {"topics": "topics show", "offsets": "offsets show"}
    name = next((name for name in (" ".join(words[:2]), *words[:1]) if name in found), None)
    rest = words[1:] if name is None else words[len(name.split()) :]
    command = found.get(name or default.get(" ".join(words[:1]), ""))
    if command is None:
        return None if words[0].startswith("-") else f"No such command {words[0]!r}."
    try:
        _, left, _ = command.make_parser(click.Context(command, **kafkalog.context_settings)).parse_args(rest)
    except click.UsageError as e:
        return e.format_message()
    return f"{left[0]!r} is too much." if left else None


def of_numbers(pages: Pages) -> Iterator[str]:
    """What is counted in words or digits is as many as there are."""
    notebooks = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.py"))
    listed = [row for row in rows_of(pages[NOTEBOOKS]) if re.match(r"\[\d", row[0])]
    if len(listed) != len(notebooks):
        yield f"{NOTEBOOKS} lists {len(listed)} of {len(notebooks)} notebooks"
    more = sum(len(cases.names) for cases in ELSEWHERE)
    differ = sum(1 for case in CASES if case.ours)
    rooms = len([room for room in ROOMS if isinstance(getattr(Kafka, room, None), object)])
    counts = {
        r"(\w+) notebooks\b(?! \d)": len(notebooks),
        r"Notebooks\]\(\.\./notebooks/README\.md\): (\w+)\b": len(notebooks),
        r"(\d+) cases\b": len(CASES),
        r"of which (\d+) have the same outcome": len(CASES) - differ,
        r"same outcome and (\d+) differ": differ,
        r"(\d+) more\s+have no counterpart": more,
        r"(\w+) rooms": rooms,
        r"room\.py in (\w+) of them": rooms,
        r"a (\w+) lines each": 12,
    }
    for page, text in pages.items():
        for pattern, expected in counts.items():
            for word in re.findall(pattern, text):
                number = (
                    12 if word == "dozen" else NUMBERS.get(word, int(word) if word.isdigit() else expected)
                )
                if number != expected:
                    yield f"{page} says {word}, and there are {expected}: {pattern}"


CLAIMS: tuple[Callable[[Pages], Iterator[str]], ...] = (
    of_platforms,
    of_versions,
    of_install,
    of_connect,
    of_calls,
    of_dry_runs,
    of_commands,
    of_numbers,
)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_what_pages_say_is_so(claim: Callable[[Pages], Iterator[str]], pages: Pages) -> None:
    assert not list(claim(pages))


WRONG = [
    (of_platforms, README, UNTRIED, "and run there"),
    (of_platforms, README, f", and are in Databricks' source format {UNTRIED}", " and in Databricks"),
    (of_platforms, NOTEBOOKS, "In Databricks itself this has not been", "In Databricks it was"),
    (of_platforms, "docs/deploy.md", "From documentation: on", "It works on"),
    (of_platforms, PLATFORMS, "| reading and writing |", "| |"),
    (of_platforms, PLATFORMS, "From documentation, not tried. [MSK", "This runs on AWS Glue. [MSK"),
    (of_versions, INSTALL, "Tests run with PySpark 4.2.0", "Tests run with PySpark 4.3.0"),
    (of_versions, INSTALL, "also with 4.0, 4.1 and 4.3", "also with 4.0 and 4.1"),
    (of_versions, INSTALL, "PySpark 4.0 or newer", "PySpark 4.1 or newer"),
    (of_versions, README, "such as PySpark 4.2.0", "such as PySpark 4.2.1"),
    (of_versions, README, "is ready on Spark 4.2.0", "is ready on Spark 4.1.0"),
    (of_versions, "CONTRIBUTING.md", "PySpark 4.0, 4.1, 4.2 and 4.3", "PySpark 4.0, 4.1 and 4.2"),
    (of_versions, "CONTRIBUTING.md", "Java 17 or newer", "Java 11 or newer"),
    (of_versions, README, "Python 3.10 or newer", "Python 3.9 or newer"),
    (of_versions, PLATFORMS, "4.0.5, 4.1.4, 4.2.1, 4.3.0", "4.0.5, 4.1.4"),
    (of_versions, NOTEBOOKS, "_2.13:4.2.0", "_2.13:4.1.0"),
    (of_install, INSTALL, "--constraint ci/constraints.txt '.[spark]'", "'.[spark]'"),
    (of_install, NOTEBOOKS, "--constraint ci/constraints.txt jupyterlab", "jupyterlab"),
    (of_install, README, ".venv/bin/pip install --constraint", ".venv/bin/pip install -U --constraint"),
    (of_connect, SHELL, ", all but `run-broker`", ""),
    (of_connect, SHELL, ", all but `run-broker`", ", all but `run-broker` and `doctor`"),
    (of_calls, "docs/troubleshooting.md", '("host:9092").doctor()', '("host:9092").doctors()'),
    (of_calls, "docs/platforms.md", "connect(hubs).write(", "connect(hubs).logs.write("),
    (of_calls, "docs/api.md", "`connect`, `reassemble`", "`admin.compact`, `reassemble`"),
    (of_dry_runs, SHELL, "`delete-records`, ", ""),
    (of_commands, "docs/audit.md", "clicks-audit --set cleanup", "clicks-audit --execute --set cleanup"),
    (of_commands, "docs/topics.md", "clicks --partitions 3 --set", "clicks --partition-count 3 --set"),
    (of_commands, SHELL, "kafkalog brokers host:9092", "kafkalog broker host:9092"),
    (of_numbers, README, "has seven notebooks", "has six notebooks"),
    (of_numbers, README, "the 138 cases", "the 139 cases"),
    (of_numbers, "docs/index.md", "README.md): seven", "README.md): eight"),
    (of_numbers, "docs/from-kafka.md", "116 have the same", "115 have the same"),
    (of_numbers, "CONTRIBUTING.md", "has five rooms", "has four rooms"),
]  # fmt: skip


@pytest.mark.parametrize(("claim", "page", "true", "wrong"), WRONG)
def test_a_page_that_says_something_else_is_found(
    claim: Callable[[Pages], Iterator[str]], page: str, true: str, wrong: str, pages: Pages
) -> None:
    assert true in pages[page]
    assert list(claim({**pages, page: pages[page].replace(true, wrong)}))


def test_a_command_that_connect_lacks_is_found(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Kafka, "doctor")
    assert list(of_connect(pages)) == ["connect has no doctor, for `kafkalog doctor`"]
