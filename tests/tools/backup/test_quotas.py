"""A real broker sets quotas: backups, reads and restores wait as long as it asks, and lose nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from pyspark_kafkalog import BackupRules, RestoreSettings, connect
from pyspark_kafkalog.broker.wire.answers import read_body, read_header
from pyspark_kafkalog.model import TopicPartition
from tests.broker.producing import connected, consume, digits, numbered, produce, unused_topic
from tests.broker.reading import place, rows
from tests.kafka import Broker, Listener, run_kafka_class
from tests.kafka_process import free_ports
from tests.kafka_proxy import FETCH, PRODUCE, Link, Proxy
from tests.kafka_service import running

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RATE = 400_000
"""Bytes a second of each client id."""
WINDOW = 1
"""Seconds over which the broker takes the mean: so much passes at once."""
PARTITIONS, RECORDS = 4, 500
SIZE = PARTITIONS * RECORDS * 1000
_API_KEYS = {api.API_KEY for api in (ProduceRequest, FetchRequest, ListOffsetsRequest, MetadataRequest)}
_EXACTNESS = 0.02
"""Seconds by which clocks and sleeps may differ."""


class Warden(Proxy):
    """Reads in the responses how long each connection has to be silent, and whether it is."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: dict[int, list[float]] = {FETCH: [], PRODUCE: []}
        """In seconds, by api key."""
        self.early: list[tuple[int, float]] = []
        """Requests that came although their connection was muted: api key, and seconds too early."""
        self._versions: dict[tuple[Link, int], tuple[int, int]] = {}
        self._muted_until: dict[Link, float] = {}

    def _ask(self, link: Link, frame: bytes) -> None:
        key, version, number = (int.from_bytes(frame[a:b], "big") for a, b in ((4, 6), (6, 8), (8, 12)))
        self._versions[link, number] = key, version
        too_early = self._muted_until.get(link, 0.0) - time.monotonic()
        if too_early > _EXACTNESS:
            self.early.append((key, too_early))
        super()._ask(link, frame)

    def _answer(self, link: Link, frame: bytes) -> None:
        key, version = self._versions.pop((link, int.from_bytes(frame[4:8], "big")), (-1, 0))
        if key in _API_KEYS:
            response = RequestHeader(
                request_api_key=key, request_api_version=version, correlation_id=0, client_id=""
            ).get_response_class()
            _, begin = read_header(response, version, frame[4:])
            pause = read_body(response, version, frame[4:], begin).throttle_time_ms / 1000
            if pause > 0:
                self._muted_until[link] = time.monotonic() + pause
                self.pauses.setdefault(key, []).append(pause)
        super()._answer(link, frame)


@dataclass(frozen=True)
class Guarded:
    """A broker, and a way to it that is watched."""

    broker: Broker
    warden: Warden

    def options(self, client_id: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.warden.address, "kafka.client.id": client_id}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker with quotas for all clients but ``unlimited``."""
    warden = Warden()
    (warden.target,) = free_ports(1)
    behind = Listener("PROXIED", "PLAINTEXT", warden.target, warden.address)
    settings = {"quota.window.num": WINDOW + 1, "quota.window.size.seconds": 1}
    with running(Broker(tmp_path_factory.mktemp("quotas"), settings, listeners=[behind])) as broker:
        for name in ["--entity-default"], ["--entity-name", "unlimited"]:
            rate = RATE if name == ["--entity-default"] else 1 << 40
            run_kafka_class(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", broker.bootstrap, "--entity-type", "clients", *name, "--alter"),
                *("--add-config", f"consumer_byte_rate={rate},producer_byte_rate={rate}"),
            )
        yield Guarded(broker, warden)
    warden.stop()


@pytest.fixture(scope="module")
def topic(guarded: Guarded) -> str:
    """A topic of some megabytes, in batches that are much smaller than what may pass at once."""
    topic = unused_topic()
    guarded.broker.create_topic(topic, PARTITIONS)
    unlimited = connected(guarded.broker.bootstrap, client_id="unlimited")
    for number in range(PARTITIONS):
        batch = numbered(RECORDS, size=1000).append_column(
            "partition", pa.array([number] * RECORDS, pa.int32())
        )
        produce(unlimited, topic, [batch], batch_size=20_000)
    return topic


def check_throttled(guarded: Guarded, api_key: int, run: Callable[[], None]) -> None:
    """It takes as long as the quota says, the broker has told so, and nothing is sent against its will."""
    warden = guarded.warden
    warden.pauses[api_key].clear()
    began = time.monotonic()
    run()
    # The window before it may have been empty, and the one after its last second.
    assert time.monotonic() - began > (SIZE - (WINDOW + 1) * RATE) / RATE
    assert sum(warden.pauses[api_key]) > 0
    assert not warden.early


def content(root: Path, topic: str) -> list[bytes]:
    """The bytes of each partition's log."""
    folders = (root / f"{topic}-{number}" for number in range(PARTITIONS))
    return [b"".join(file.read_bytes() for file in sorted(folder.glob("*.log"))) for folder in folders]


@pytest.mark.soak
@pytest.mark.parametrize("threads", [1, 8])
def test_a_backup_heeds_it(guarded: Guarded, topic: str, tmp_path: Path, threads: int) -> None:
    def run() -> None:
        rules = BackupRules(topics=(topic,), threads=threads)
        found = connect(guarded.options(f"backup-{threads}")).logs.backup(str(tmp_path), rules)
        assert [(row.log_end_offset, row.problem) for row in found] == [(RECORDS, None)] * PARTITIONS

    check_throttled(guarded, FETCH, run)
    assert content(tmp_path, topic) == content(guarded.broker.log_dir, topic)


@pytest.mark.long
def test_a_read_heeds_it(guarded: Guarded, topic: str) -> None:
    source = place(guarded.warden.address, {"client_id": "reader"})

    def run() -> None:
        for number in range(PARTITIONS):
            found = [row[3] for row in rows(source, TopicPartition(topic, number))]
            assert found == digits(RECORDS, 1000)

    check_throttled(guarded, FETCH, run)


@pytest.mark.soak
def test_a_restore_heeds_it(guarded: Guarded, topic: str, tmp_path: Path) -> None:
    unlimited = {"kafka.bootstrap.servers": guarded.broker.bootstrap, "kafka.client.id": "unlimited"}
    connect(unlimited).logs.backup(str(tmp_path / "backup"), BackupRules(topics=(topic,)))
    name = unused_topic()

    def run() -> None:
        target = {**guarded.options("restorer"), "kafka.max.in.flight.requests.per.connection": "1"}
        settings = RestoreSettings((topic,), {topic: name}, state=str(tmp_path / "state"))
        connect(tmp_path / "backup").logs.restore(connect(target), settings, execute=True)

    check_throttled(guarded, PRODUCE, run)
    found = [record.value for record in consume(guarded.broker.bootstrap, name)]
    assert found == [*digits(RECORDS, 1000)] * PARTITIONS


@pytest.mark.soak
def test_none_of_many_is_left_without_records(guarded: Guarded, tmp_path: Path) -> None:
    """The largest response takes all that may pass at once; in turn, each would wait for some 20 seconds."""
    many, name = 12, unused_topic()
    guarded.broker.create_topic(name, many)
    unlimited = connected(guarded.broker.bootstrap, client_id="unlimited")
    for number in range(many):
        batch = numbered(500, size=1000).append_column("partition", pa.array([number] * 500, pa.int32()))
        produce(unlimited, name, [batch], batch_size=10_000)
    options = {**guarded.options("many"), "kafkaConsumer.pollTimeoutMs": "15000"}
    rules = BackupRules(topics=(name,), threads=many)
    found = connect(options).logs.backup(str(tmp_path), rules)
    assert [(row.log_end_offset, row.problem) for row in found] == [(500, None)] * many


@pytest.mark.soak
def test_a_batch_larger_than_what_may_pass_at_once(guarded: Guarded, tmp_path: Path) -> None:
    name = unused_topic()
    guarded.broker.create_topic(name, 1)
    unlimited = connected(guarded.broker.bootstrap, client_id="unlimited")
    produce(unlimited, name, [numbered(2, size=RATE * (WINDOW + 1))], batch_size=1000)
    found = connect(guarded.options("large")).logs.backup(str(tmp_path), BackupRules(topics=(name,)))
    assert [(row.log_end_offset, row.problem) for row in found] == [(2, None)]
