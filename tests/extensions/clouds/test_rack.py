"""The rack of a process: given, from its environment, a cloud's metadata, or the user's function."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from pyspark_kafkalog import by_value
from pyspark_kafkalog.broker.fetch import rack
from pyspark_kafkalog.broker.fetch.rack import rack_of
from pyspark_kafkalog.errors import KafkaLogError, OptionError
from pyspark_kafkalog.extensions.clouds import metadata
from pyspark_kafkalog.options.settings import place_options
from pyspark_kafkalog.tools.doctor.look import look
from tests.extensions.clouds.metadata_services import MetadataServices, metadata_services

BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
ZONES = {
    "aws": ("/latest/meta-data/placement/availability-zone-id", "use1-az4\n", "use1-az4"),
    "gcp": ("/computeMetadata/v1/instance/zone", "projects/12/zones/us-east1-b", "us-east1-b"),
    "azure": ("/metadata/instance/compute/zone", "2", "2"),
}
returned: object = "rack-of-function"


def function() -> object:
    """What a user's function returns, or raises."""
    if isinstance(returned, Exception):
        raise returned
    return returned


FUNCTION = f"{__name__}:function"


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    rack._racks().values.clear()
    yield
    rack._racks().values.clear()


@pytest.fixture
def services() -> Iterator[MetadataServices]:
    with metadata_services() as server:
        server.answers = {path: answer for path, answer, _ in ZONES.values()}
        yield server


@pytest.mark.parametrize("given", ["", "rack-1", "use1-az1", "aws-1"])
def test_a_rack_is_itself(given: str) -> None:
    assert rack_of(given) == given


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("ZONE", " east ")
    assert rack_of("env:ZONE") == "east"
    monkeypatch.delenv("OTHER_ZONE", raising=False)
    with caplog.at_level(logging.WARNING):
        assert rack_of("env:OTHER_ZONE") == ""
        assert rack_of("env:OTHER_ZONE") == ""
    (warning,) = caplog.messages
    assert warning.endswith("the environment has no OTHER_ZONE")


@pytest.mark.parametrize("cloud", ZONES)
def test_from_the_metadata_of_a_cloud_asked_once(services: MetadataServices, cloud: str) -> None:
    path, _, zone = ZONES[cloud]
    assert [rack_of(cloud), rack_of(cloud)] == [zone, zone]
    assert [asked.split("?")[0] for asked in services.asked if "token" not in asked] == [f"GET {path}"]


@pytest.mark.parametrize("cloud", ZONES)
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_service_is_asked_again(services: MetadataServices, cloud: str, status: int) -> None:
    services.failures = [status, status]
    assert rack_of(cloud) == ZONES[cloud][2]


@pytest.mark.parametrize("cloud", ZONES)
@pytest.mark.parametrize(
    ("failures", "reason"),
    [([403] * 9, "HTTP status 403"), ([503] * 9, "HTTP status 503"), ([301], "HTTP status 301")],
)
def test_without_an_answer_there_is_no_rack(
    services: MetadataServices,
    cloud: str,
    failures: list[int],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    services.failures = [*failures]
    with caplog.at_level(logging.WARNING):
        assert rack_of(cloud) == ""
    (warning,) = caplog.messages
    assert warning.endswith(f"{cloud} does not tell the zone of this machine: {reason}")
    assert len(services.asked) <= 3


def test_a_machine_without_zones_has_no_rack(services: MetadataServices) -> None:
    """As Azure says of regions that have none."""
    services.answers[ZONES["azure"][0]] = ""
    assert rack_of("azure") == ""


def test_what_is_not_a_zone_is_not_one(services: MetadataServices) -> None:
    """As a network's own page says that answers for any name."""
    for path, _, _ in ZONES.values():
        services.answers[path] = "<html>Log in</html>"
    assert [rack_of(cloud) for cloud in ZONES] == [""] * 3


def test_a_slow_service_is_not_waited_for(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata, "_TIMEOUT", 0.05)
    services.delay = 0.5
    assert rack_of("gcp") == ""
    assert "does not tell the zone" in caplog.text


def test_elsewhere_there_is_no_rack(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    assert rack_of("aws") == ""
    assert caplog.messages[0].endswith(": Connection refused")


def test_from_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rack_of(FUNCTION) == "rack-of-function"
    rack._racks().values.clear()
    monkeypatch.setitem(globals(), "returned", None)
    assert rack_of(FUNCTION) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [(7, "returned a int, expected a str"), (OSError("no zone"), "raised OSError.*no zone")],
)
def test_a_function_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, given: object, message: str) -> None:
    monkeypatch.setitem(globals(), "returned", given)
    with pytest.raises(KafkaLogError, match=f"kafka.client.rack '{FUNCTION}' {message}"):
        rack_of(FUNCTION)


@pytest.mark.parametrize("text", ["env:", "env:A B", "no path:f", "package.module:"])
def test_what_is_not_a_rack_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.client\.rack"):
        place_options({**BROKERS, "kafka.client.rack": text})


@pytest.mark.parametrize(
    ("given", "state", "found"),
    [
        ("rack-1", "fine", "rack-1"),
        ("env:NOT_THERE", "unknown", "env:NOT_THERE: not known here"),
        (by_value(lambda: None), "unknown", "lambda: not known here"),
        ("tests:nothing", "problem", "module has no such callable"),
    ],
)
def test_the_doctor_shows_it(given: str, state: str, found: str) -> None:
    findings = look({**BROKERS, "kafka.client.rack": given}, "mark")["findings"]
    (shown,) = (one for one in findings if one["what"] == "kafka.client.rack")
    assert shown["state"] == state
    assert found in shown["found"]
    assert len(shown["found"]) < 100


@pytest.mark.parametrize("cloud", ["AWS", "Gcp", "AZURE"])
def test_a_cloud_in_capitals_is_that_cloud(services: MetadataServices, cloud: str) -> None:
    assert rack_of(cloud) == ZONES[cloud.lower()][2]


def test_one_that_was_not_known_is_asked_for_again_later(
    services: MetadataServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker lives for days, and its first question may have come while the service was busy."""
    services.failures = [503] * 3
    assert [rack_of("gcp"), rack_of("gcp")] == ["", ""]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + rack._ASK_AGAIN + 1)
    assert rack_of("gcp") == ZONES["gcp"][2]
