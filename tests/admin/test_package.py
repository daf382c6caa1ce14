"""What users import, and that it costs little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyspark_kafkalog import admin
from pyspark_kafkalog.errors import OptionError
from tests.fixtures_dir import case


def test_all_that_is_offered_is_there() -> None:
    for name in admin.__all__:
        assert callable(getattr(admin, name))
    assert dir(admin) == admin.__all__
    assert not hasattr(admin, "no_such_thing")


def test_places_are_opened_by_the_options_of_the_reader() -> None:
    fixture = case("txn-basic")
    place = admin.place_of({"path": str(fixture.directory)})
    assert {row.topic for row in admin.topics(place)} == {"txn-basic"}
    with pytest.raises(OptionError, match="Unknown option 'startingOffset'"):
        admin.place_of({"path": str(fixture.directory), "startingOffset": "1"})
    with pytest.raises(OptionError, match="'subscribe' applies only to reading records"):
        admin.groups_of({"path": str(fixture.directory), "subscribe": "t"})


def test_groups_and_plans_load_neither_arrow_nor_numba() -> None:
    code = (
        "import sys; from pyspark_kafkalog.admin import topics, group_offsets, plan_reset, parse, place_of;"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert not {"pyspark", "pyarrow", "numpy", "numba", "kafka"} & set(done.stdout.split())
