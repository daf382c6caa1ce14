"""Links within the repository lead somewhere, and the package's description has none to files."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest

from tests.documents.blocks import PAGES, ROOT

DOCUMENTS = (*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")))
_LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^]]+\]: (\S+)$", re.M)


def links_of(text: str) -> list[str]:
    """The targets of links and pictures, outside of code."""
    without_code = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.M | re.S)
    return [inline or named for inline, named in _LINK.findall(without_code)]


def anchors_of(text: str) -> set[str]:
    """Those of headings, as code hosts and the site make them, and those that the text gives itself."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", re.sub(r"</?a\b[^>]*>", "", without_code), re.M)
    slugs = {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', without_code))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    dead = []
    for link in links_of(document.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            target = (document.parent / path).resolve() if path else document
            if not target.exists() or (anchor and anchor not in anchors_of(target.read_text("utf-8"))):
                dead.append(link)
    assert not dead


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_nothing_but_partitions_is_put_into_the_log_directory_of_the_pages(document: Path) -> None:
    """A broker does not start beside a folder of Parquet, and ``payments-1`` is taken for a partition."""
    text = document.read_text(encoding="utf-8")
    assert not re.findall(r"/tmp/kafkalog/[\w.-]+", text), "write /tmp/out/ and the name"


def test_the_description_has_no_link_that_is_dead_elsewhere() -> None:
    description = importlib.metadata.metadata("pyspark-kafkalog").get_payload()
    assert "First read" in description
    assert not [link for link in links_of(description) if "://" not in link]
