"""docs/commands.md is made from the help of the commands."""

from __future__ import annotations

from pyspark_kafkalog.tools.cli.page import page
from tests.documents.blocks import ROOT


def test_the_page_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert committed == page(), "run python -m pyspark_kafkalog.tools.cli.page > docs/commands.md"
