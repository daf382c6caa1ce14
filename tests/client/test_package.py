"""What users import, and that it costs little."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_kafkalog import connect
from pyspark_kafkalog.errors import OptionError
from tests.fixtures_dir import case


def test_places_are_opened_by_the_options_of_the_reader() -> None:
    fixture = case("txn-basic")
    with connect(fixture.directory) as kafka:
        assert {row.topic for row in kafka.topics.partitions()} == {"txn-basic"}
    assert "place" not in vars(kafka)
    with pytest.raises(OptionError, match="Unknown option 'startingOffset'"):
        connect({"path": str(fixture.directory), "startingOffset": "1"}).topics.partitions()
    with pytest.raises(OptionError, match="'subscribe' belongs to a read of records"):
        connect({"path": str(fixture.directory), "subscribe": "t"}).groups.describe()


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("host:9092", {"kafka.bootstrap.servers": "host:9092"}),
        (" h1:1 , h2:2\n", {"kafka.bootstrap.servers": "h1:1,h2:2"}),
        ("SSL://a.b:1,[::1]:2", {"kafka.bootstrap.servers": "SSL://a.b:1,[::1]:2"}),
        ("s3://bucket/logs", {"path": "s3://bucket/logs"}),
        ("no-such-folder", {"path": "no-such-folder"}),
    ],
)
def test_a_place_is_named_by_its_form(place: str, options: dict[str, str]) -> None:
    assert connect(place).options == options


def test_a_folder_may_have_a_name_like_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host:9092").mkdir()
    monkeypatch.chdir(tmp_path)
    assert connect("host:9092").options == {"path": '["host:9092"]'}


def test_a_login_in_a_place_is_not_quoted() -> None:
    with pytest.raises(OptionError, match="something before an @") as e:
        connect("me:secret@host:9092")
    assert "secret@" not in str(e.value)
