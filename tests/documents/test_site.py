"""The site: its navigation, and, where Sphinx is installed, what ci/docs builds."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_kafkalog.options.table import BY_NAME
from tests.documents.blocks import PAGES, ROOT, RUN, Block, blocks

START = ROOT / "docs" / "index.md"
LETTERS = 110
"""As many fit beside the navigation in a window of 1,280 points."""
ON_A_CODE_HOST = 92
"""As many fit beside what a code host shows at the right of README."""
NOTEBOOKS = sorted(ROOT.glob("notebooks/[0-9]*.ipynb"))


def listed() -> list[Path]:
    """The pages that the lists of the start page name."""
    names = re.findall(r"^- \[[^]]+\]\(([^)#]+\.md)\)", START.read_text(encoding="utf-8"), re.M)
    return [(START.parent / name).resolve() for name in names]


def test_the_navigation_has_every_page_once() -> None:
    pages = {*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))} - {START}
    assert not pages - set(listed()), "add it to a list in docs/index.md"
    assert len(listed()) == len(set(listed()))


def test_groups_of_the_navigation_are_short() -> None:
    groups = re.findall(r"^## .+\n\n((?:- .+\n|  .+\n)+)", START.read_text(encoding="utf-8"), re.M)
    assert sum(group.count("\n- ") + 1 for group in groups) == len(listed())
    assert max(group.count("\n- ") + 1 for group in groups) <= 9


def long_lines(block: Block, most: int) -> list[str]:
    return [line for line in block.code.splitlines() if len(line) > most]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_fits_beside_the_navigation(page: Path) -> None:
    most = ON_A_CODE_HOST if page.name == "README.md" else LETTERS
    shown = [block for block in blocks(page) if block.language in RUN | {"text", "diff", "yaml"}]
    assert not [line for block in shown for line in long_lines(block, most)]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_code_of_notebooks_fits_beside_the_navigation(notebook: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not [line for text in code for line in text.splitlines() if len(line) > LETTERS]


@functools.cache
def built(folder: Path) -> Path:
    """The site, as built on a code host."""
    on_a_host = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "owner/name"}
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", str(folder / "doctrees"), ".", str(folder / "site")],
        cwd=ROOT,
        env={**os.environ, **on_a_host},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    pytest.importorskip("sphinx_copybutton")
    return built(tmp_path_factory.mktemp("documents"))


@pytest.mark.slow
def test_every_option_has_an_address(site: Path) -> None:
    page = (site / "docs" / "options.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert {option.name for option in BY_NAME.values()} <= set(ids)
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_search_finds_the_entry_of_an_option(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    for option in BY_NAME.values():
        found = [(index["docnames"][page], anchor) for page, anchor in index["alltitles"][option.name]]
        assert found == [("docs/options", option.name)]


@pytest.mark.slow
def test_pages_are_edited_where_they_are_made(site: Path) -> None:
    repository = "https://github.com/owner/name/edit/main/"
    for page, edited in {
        "docs/reading.html": "docs/reading.md",
        "docs/options.html": "pyspark_kafkalog/options/table.py",
        "notebooks/3_live_lag.html": "notebooks/3_live_lag.py",
    }.items():
        assert f'href="{repository}{edited}"' in (site / page).read_text(encoding="utf-8"), page


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_can_be_downloaded_and_its_first_cell_is_folded(site: Path, notebook: Path) -> None:
    page = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
    (download,) = re.findall(rf'href="\.\./(_downloads/[^"]+/{notebook.name})"', page)
    assert (site / download).read_bytes() == notebook.read_bytes()
    assert page.index("<details>") < page.index('<div class="highlight-python')


@pytest.mark.slow
def test_options_are_linked_where_pages_name_them(site: Path) -> None:
    page = (site / "docs" / "operate.html").read_text(encoding="utf-8")
    assert 'href="options.html#maxBytesPerTrigger"' in page
    for path in site.glob("docs/*.html"):
        links = re.findall(r"<a [^>]*>(.*?)</a>", path.read_text(encoding="utf-8"), re.S)
        assert not [link for link in links if "<a " in link], path.name


@pytest.mark.slow
def test_blocks_can_be_copied_as_they_are(site: Path) -> None:
    for page in (site / "docs").glob("*.html"):
        assert "# not run:" not in re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")), page.name


@pytest.mark.slow
def test_the_start_page_has_code_pictures_and_cards(site: Path) -> None:
    page = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert 'class="highlight-python' in page
    assert page.count("<img ") >= 2
    assert page.count('<ul class="cards') == len(re.findall(r"^## ", START.read_text("utf-8"), re.M))
    assert "copybutton.js" in page
