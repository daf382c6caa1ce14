"""docs/speed.svg is drawn from figures.json."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.benchmarks.chart import FIGURES, svg
from tests.documents.blocks import ROOT

COMMITTED = json.loads(FIGURES.read_text(encoding="utf-8"))


def test_the_picture_is_up_to_date() -> None:
    drawn = (ROOT / "docs" / "speed.svg").read_text(encoding="utf-8")
    assert drawn == svg(COMMITTED), "run python -m tests.benchmarks.chart > docs/speed.svg"


@pytest.mark.parametrize("ratio", [0.5, 1, 2, 16])
def test_a_bar_begins_or_ends_at_1(ratio: float) -> None:
    picture = svg({**COMMITTED, "groups": [{"title": "t", "bars": [{"label": "l", "ratio": ratio}]}]})
    page, bar = (node.attrib for node in ElementTree.fromstring(picture) if node.tag.endswith("rect"))
    (one,) = svg_lines(picture, width="2")
    ends = float(bar["x"]), float(bar["x"]) + float(bar["width"])
    assert one in (pytest.approx(ends[0], abs=0.2), pytest.approx(ends[1], abs=0.2))
    assert ends[1] <= float(page["width"])
    assert (bar["fill"] == "#c44e52") == (ratio < 1)


def svg_lines(picture: str, *, width: str) -> list[float]:
    """Where the upright lines of a width stand."""
    lines = (node.attrib for node in ElementTree.fromstring(picture) if node.tag.endswith("line"))
    return [float(line["x1"]) for line in lines if line["stroke-width"] == width]
