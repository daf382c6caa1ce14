"""Every code block of README and docs/ is run, page by page, with a real broker and a log directory."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pyspark_kafkalog import TopicPartition, connect
from pyspark_kafkalog.model import CommittedOffset
from pyspark_kafkalog.tools.groups.prometheus import prometheus_text
from pyspark_kafkalog.tools.try_out.local_broker import LocalBroker
from tests.documents.blocks import PAGES, README, ROOT, RUN, SHOWN, Block, blocks, code_blocks, comparable
from tests.kafka import Broker
from tests.kafka_service import running

NOT_RUN = {
    "docs/backup.md": 1,
    "docs/deploy.md": 4,
    "docs/install.md": 4,
    "docs/performance.md": 1,
    "docs/platforms.md": 8,
    "docs/recipes.md": 2,
    "docs/security.md": 1,
    "docs/testing.md": 1,
    "docs/typed-values.md": 2,
    "docs/zookeeper.md": 5,
}
"""How many blocks of a page say that they are not run here."""
SOAKED = {"docs/backup.md", "docs/command-line.md", "docs/compaction.md", "docs/repair.md", "docs/topics.md"}
"""Pages of which only the soak runs the blocks: each starts many processes."""
TESTED = {"README.md"}
"""Pages of which ci/test runs the blocks; ci/long runs the others'."""
RECORDS, PARTITIONS = 200, 2
BIN = Path(sys.executable).parent
_FILE = re.compile(r"# (\w+\.py)\n")
"""The first line of a script, which a later block runs as a process of its own."""
RUNNABLE = [page for page in PAGES if code_blocks(page)]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def tier_of(page: Path) -> list[pytest.MarkDecorator]:
    """The mark of the script in ``ci/`` that runs the blocks of a page."""
    name = name_of(page)
    return [] if name in TESTED else [pytest.mark.soak if name in SOAKED else pytest.mark.long]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_run_or_is_no_code(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= RUN | SHOWN


def test_readme_shows_what_its_first_read_prints() -> None:
    _, read, *_ = code_blocks(README)
    assert "|orders|" in (read.printed or "")


def test_pages_of_a_tier_are_there() -> None:
    assert set(map(name_of, RUNNABLE)) >= SOAKED | TESTED


def test_recipes_are_short() -> None:
    found = blocks(ROOT / "docs" / "recipes.md")
    code = {
        block.line: re.sub(r"^# not run: .*\n", "", block.code) for block in found if block.language != "text"
    }
    assert not {line: len(text.splitlines()) for line, text in code.items() if len(text.splitlines()) > 12}


def test_alerts_are_about_metrics_that_there_are() -> None:
    (rules,) = (block for block in blocks(ROOT / "docs" / "recipes.md") if "alert:" in block.code)
    named = set(re.findall(r"kafka\w*_consumergroup_\w+|kafkalog_\w+", rules.code))
    assert named
    assert named <= set(re.findall(r"(?<=# TYPE )\w+", prometheus_text([])))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_yaml_can_be_read(page: Path) -> None:
    yaml = pytest.importorskip("yaml")
    for block in blocks(page):
        if block.language == "yaml":
            yaml.safe_load(block.code)


def test_blocks_that_are_not_run_say_so() -> None:
    found = Counter(name_of(page) for page in PAGES for block in code_blocks(page) if block.not_run)
    assert found == NOT_RUN


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A broker and a log directory with the topic and the group that the pages speak of."""
    directory = tmp_path_factory.mktemp("documents") / "kafka-logs"
    with running(Broker(tmp_path_factory.mktemp("broker"))) as broker:
        for topic in "orders", "orders-copy", "audits":
            broker.create_topic(topic, PARTITIONS)
        for place in {"kafka.bootstrap.servers": broker.bootstrap}, {"path": str(directory)}:
            fill(place)
        yield broker.bootstrap, directory


@pytest.fixture
def empty_broker() -> Iterator[LocalBroker]:
    """What ``kafkalog run-broker`` runs."""
    with LocalBroker() as broker:
        yield broker


def fill(place: Mapping[str, str]) -> None:
    numbers = range(RECORDS)
    orders = pa.RecordBatch.from_pydict(
        {
            "key": [b"c%d" % (number % 20) for number in numbers],
            "value": [b"%d.50" % number for number in numbers],
            "partition": pa.array([number % PARTITIONS for number in numbers], pa.int32()),
        }
    )
    to_directory = {"numPartitions": str(PARTITIONS)} if "path" in place else {}
    connect(place).write([orders], "orders", options=to_directory)
    committed = {TopicPartition("orders", partition): CommittedOffset(60) for partition in range(PARTITIONS)}
    connect(place).groups.commit("etl", committed)


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name_of(page), marks=tier_of(page)) for page in RUNNABLE]
)
def test_the_blocks_of_a_page_do_what_it_says(
    page: Path,
    spark: SparkSession,
    places: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    if page == README:  # it has the line that makes its topic on the broker that it starts
        places = request.getfixturevalue("empty_broker").address, places[1]
    reader = Reader(spark.newSession(), *places, tmp_path)
    if "other:9092" in page.read_text(encoding="utf-8"):
        reader.real["other:9092"] = request.getfixturevalue("broker").bootstrap
        reader.real["https://registry:8081"] = request.getfixturevalue("registry").url
    installs = code_blocks(README)[0]  # of tests/documents/test_first_hour.py
    for block in code_blocks(page):
        if not block.not_run and block != installs:
            printed = reader.run(block, f"{name_of(page)}:{block.line}")
            if block.printed is not None:
                assert comparable(printed) == comparable(block.printed), f"{name_of(page)}:{block.line}"


class Reader:
    """Enters the blocks of a page one after the other, with a session ``spark`` and a DataFrame ``df``."""

    def __init__(self, session: SparkSession, bootstrap: str, directory: Path, folder: Path) -> None:
        self._folder = folder
        self._session = session
        df = session.createDataFrame([("c1", "12.50"), ("c2", "7.00")], "key string, value string")
        self._scope: dict[str, Any] = {"spark": session, "df": df, "__name__": "__main__"}
        for copy in "data", "dead-disk":
            shutil.copytree(directory, folder / copy)
        self.real = {
            "SparkSession.builder.getOrCreate()": "spark",
            "host:9092": bootstrap,
            "/data/kafka-logs": str(folder / "data"),
            "/mnt/dead-disk": str(folder / "dead-disk"),
            '"/checkpoints/': f'"{folder}/checkpoints/',
            " /checkpoints/": f" {folder}/checkpoints/",
            '"/audit"': f'"{folder}/audit"',
            "/tmp/kafkalog": str(folder / "kafkalog"),
            "/tmp/out": str(folder / "out"),
            ".venv/bin/": f"{BIN}/",
        }
        """What stands for a name in the pages."""

    def run(self, block: Block, where: str) -> str:
        """What a block prints."""
        code = block.code
        for name, real in self.real.items():
            code = code.replace(name, real)
        if block.language == "sh":
            return self._shell(code)
        if name := _FILE.match(code):
            (self._folder / name[1]).write_text(code)
            return ""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if block.language == "sql":
                for statement in code.split(";\n"):
                    self._session.sql(statement).show()
            else:
                exec(compile(code, where, "exec"), self._scope)
        for query in self._session.streams.active:
            query.processAllAvailable()
            query.stop()
        return printed.getvalue()

    def _shell(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self._folder,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
