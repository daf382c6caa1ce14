"""Fixtures that cost seconds and are shared by all tests: a Spark session, Kafka brokers of several kinds."""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from pyspark_kafkalog.tools.try_out.local_broker import REGISTERED_SOON
from tests.almost_kafka import SERVICES, AlmostKafkaBroker
from tests.almost_kafka_suites import Suites
from tests.kafka import Broker, spark_kafka_connector_jars
from tests.kafka_cluster import Cluster
from tests.kafka_jars import OLDEST_KAFKA_VERSION, spark_avro_jars
from tests.kafka_old import OldBroker, ZooKeeperServer
from tests.kafka_secure import SecureBroker
from tests.kafka_service import KafkaService, running
from tests.registries import AWS_CREDENTIALS, FormatRegistry, format_registry
from tests.schema_registry import SchemaRegistryServer, schema_registry
from tests.sessions import OF_SHORT_LIVED_JVMS, local_session

# How long an example takes depends on what else the machine does, and says nothing of the code.
settings.register_profile("kafkalog", deadline=None)
settings.load_profile("kafkalog")

# NumPy's overflows are errors in processes that tests and Spark start, too, as setup.cfg makes them here.
os.environ["PYTHONWARNINGS"] = "error:overflow encountered:RuntimeWarning"
os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(OF_SHORT_LIVED_JVMS))

BROKERS = pytest.StashKey[list[Broker]]()
"""The brokers that a test made for itself."""


FIXED_SEED = 1
"""The seed without ``--soak``: what passed once passes again, so that a failure is a change's."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run only what takes long, with a new seed")
    parser.addoption(
        "--like", choices=SERVICES, help="run what has a shared broker with one that looks like this"
    )
    parser.addoption(
        "--collection", action="store_true", help="run only files that use the fixture collection"
    )
    parser.addoption("--seed", type=int, help=f"the seed (default: {FIXED_SEED}; with --soak a new one)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # The workers of pytest-xdist get the options of the process that starts them, and with them its seed.
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(10**6) if config.option.soak else FIXED_SEED
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if config.option.like:
        config.pluginmanager.register(Suites(config.option.like))
    # A job in the background of a shell ignores Ctrl-C, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (--seed)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need Spark, choose those of the tier, and put files that take long first.

    ``--reruns`` counts for the tests that may have processes beside: others have no excuse.

    The last files decide how long one worker of pytest-xdist waits for the other; those that share servers
    are one worker's.
    """
    chosen, others = [], []
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if not any(map(item.get_closest_marker, ("slow", "long", "spark", "broker"))):
            item.add_marker(pytest.mark.flaky(reruns=0))
        wanted = _is_of_tier(item, soak=config.option.soak)
        wanted = wanted and (not config.option.collection or _uses_collection(item.path))
        (chosen if wanted else others).append(item)
    config.hook.pytest_deselected(items=others)
    long = {item.path for item in chosen if any(map(item.get_closest_marker, ("slow", "spark", "broker")))}
    items[:] = sorted(chosen, key=lambda item: (_servers_of(item.path) is None, item.path not in long))


@functools.cache
def _servers_of(path: Path) -> str | None:
    """The servers of a file's tests that only one worker of pytest-xdist should have: idle ones cost, too."""
    text = path.read_text()
    shared = {
        "cluster and old broker": ("kafka_cluster import", "old_broker"),
        "secure broker": ("secure_broker",),
        "zookeeper": ("zookeeper_broker",),
        "schema registry": ("registry: SchemaRegistryServer",),
    }
    return next((servers for servers, words in shared.items() if any(word in text for word in words)), None)


@functools.cache
def _uses_collection(path: Path) -> bool:
    """Whether a file has tests that :mod:`tests.fixtures_dir` gives more cases with the whole collection."""
    return re.search(r"(fixtures_dir|large_messages\.cases) import", path.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """All files that share servers are one worker's; the others get file by file."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _servers_of(config.rootpath / file) or file

    return Scheduling(config, log)


def _is_of_tier(item: pytest.Item, *, soak: bool) -> bool:
    """Marked ``soak``, a test is the soak's alone; with the fixture ``soak``, both run it, the soak in full.

    Properties are tried by both, as each seed gives other examples.
    """
    if not soak:
        return item.get_closest_marker("soak") is None
    drawn = isinstance(item, pytest.Function) and hasattr(item.obj, "hypothesis")
    return drawn or bool(item.get_closest_marker("soak")) or "soak" in getattr(item, "fixturenames", ())


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Whether this is the soak, in which tests take all their rounds."""
    return bool(request.config.option.soak)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What all that is random in a test comes from; a new one in each soak."""
    return int(request.config.option.seed)


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


_STREAMING = "org.apache.spark.sql.execution.streaming"
_PACKAGES = ("checkpointing.", "")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session whose workers run this very interpreter, also from a virtualenv that is not active.

    It has Spark's own ``kafka`` and ``from_avro``, too, which tests compare with: a process has one JVM, with
    its first jars. Workers have the JVM's environment, with credentials of AWS that only doubles take.
    """
    jars = [*spark_kafka_connector_jars(), *spark_avro_jars()]
    with mock.patch.dict(os.environ, AWS_CREDENTIALS):
        session = local_session("tests", tmp_path_factory.mktemp("spark"), jars=jars)
    # The default starts 24 processes of readlink for each query. PySpark 4.0 has it in another package.
    names = [f"{_STREAMING}.{package}FileSystemBasedCheckpointFileManager" for package in _PACKAGES]
    manager = next(filter(session._jvm.org.apache.spark.util.Utils.classIsLoadable, names))
    session.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_broker(request: pytest.FixtureRequest) -> Callable[..., Broker]:
    """Makes the brokers that many tests share; with ``--like``, their clients meet another service."""
    like = request.config.option.like
    return functools.partial(AlmostKafkaBroker, SERVICES[like]) if like else Broker


@pytest.fixture(scope="session")
def broker(
    shared_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A running broker for tests that use topics of their own and never stop it."""
    with running(shared_broker(tmp_path_factory.mktemp("broker"))) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistryServer]:
    """A running schema registry, for tests that use subjects of their own."""
    with schema_registry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def registry_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], FormatRegistry]]:
    """Makes the registry of a name, such as ``glue``, behind a relay; the real one starts if needed."""
    with ExitStack() as stack:

        def made(name: str) -> FormatRegistry:
            return stack.enter_context(format_registry(name, lambda: request.getfixturevalue("registry")))

        yield made


@pytest.fixture(scope="session")
def started_broker(
    shared_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    with running(shared_broker(tmp_path_factory.mktemp("stoppable-broker"), REGISTERED_SOON)) as broker:
        yield broker


@pytest.fixture
def stoppable_broker(started_broker: Broker) -> Iterator[Broker]:
    """A running broker for tests that use topics of their own, and may stop, kill and start it."""
    yield started_broker
    if not started_broker.running:
        started_broker.start()


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(started_cluster: Cluster) -> Iterator[Cluster]:
    """Three running brokers, which a test may kill, and a proxy before each; healed for the next test."""
    yield started_cluster
    started_cluster.heal()


@pytest.fixture(scope="session")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldBroker]:
    """A running broker of Kafka 2.8."""
    with running(OldBroker(tmp_path_factory.mktemp("old-broker"))) as broker:
        yield broker


@pytest.fixture(scope="session")
def zookeeper_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldBroker]:
    """A running broker of Kafka 1.1, whose consumers can keep their offsets in the newest ZooKeeper."""
    folder = tmp_path_factory.mktemp("zookeeper-broker")
    zookeeper = ZooKeeperServer(folder / "zookeeper")
    broker = OldBroker(folder / "broker", OLDEST_KAFKA_VERSION, zookeeper, "/kafka")
    with running(zookeeper), running(broker):
        yield broker


@pytest.fixture
def ended_sessions() -> Iterator[None]:
    """Wait for the ends of sessions with ZooKeeper: Hypothesis sees their threads draw random numbers."""
    yield
    for thread in threading.enumerate():
        if thread.name == "kafkalog zookeeper":  # it ends one, which may take seconds
            thread.join(60)


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A running broker that asks who its clients are."""
    with running(SecureBroker(tmp_path_factory.mktemp("secure") / "broker")) as broker:
        yield broker


@pytest.fixture
def new_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Broker]]:
    """Makes brokers, not started yet, that a test has for itself: each start takes two seconds."""
    brokers = request.node.stash.setdefault(BROKERS, [])

    def make(settings: Mapping[str, object] | None = None) -> Broker:
        brokers.append(Broker(tmp_path / f"broker-{len(brokers)}", {**REGISTERED_SOON, **(settings or {})}))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.stop(kill=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what the brokers of a failed test logged."""
    report = yield
    if report.failed:
        shared = [its for its in getattr(item, "funcargs", {}).values() if isinstance(its, KafkaService)]
        for service in {*shared, *item.stash.get(BROKERS, [])}:
            report.sections.append((f"log of {service.bootstrap}", service.output_tail()))
    return report


@pytest.fixture(params=["directory", pytest.param("brokers", marks=pytest.mark.broker)])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The options of an empty directory, or of a running broker."""
    if request.param == "directory":
        return {"path": str(tmp_path)}
    return {"kafka.bootstrap.servers": request.getfixturevalue("broker").bootstrap}
