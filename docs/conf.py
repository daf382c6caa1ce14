"""The site, made by ci/docs: ``sphinx-build -W -c docs . site``.

The root is the repository: a link to a page, a test or a module is the same path here and on a code host.
"""

import configparser
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.transforms import Transform
from myst_parser.sphinx_ import Parser
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pyspark_kafkalog import __version__  # noqa: E402
from pyspark_kafkalog.options.table import BY_NAME  # noqa: E402

START = "docs/index"
NOTEBOOKS = "notebooks/README"
OPTIONS = "docs/options"
MADE_FROM = {
    OPTIONS: "pyspark_kafkalog/options/table.py",
    "docs/commands": "pyspark_kafkalog/tools/cli/page.py",
    **{f"notebooks/{path.stem}": f"notebooks/{path.name}" for path in ROOT.glob("notebooks/[0-9]*.py")},
}
"""The files to edit instead of a page that is made from them."""
FOLDED = "The session of Spark, here or in Databricks"
"""What stands for the first cell of a notebook until it is unfolded."""


def repository() -> str:
    """The address of the repository on a code host: what setup.cfg or CI says, else empty."""
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    urls = dict(
        re.findall(r"^\s*(\w+)\s*=\s*(https://\S+)$", setup["metadata"].get("project_urls", ""), re.M)
    )
    in_ci = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}" if "GITHUB_REPOSITORY" in os.environ else ""
    return str(urls.get("Source", in_ci.format_map(os.environ))).rstrip("/")


project = "pyspark-kafkalog"
version = release = __version__
copyright = "pyspark-kafkalog contributors, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
include_patterns = ["*.md", "docs/*.md", "notebooks/README.md", "notebooks/*.ipynb", "tests/parity/PARITY.md"]
root_doc = START
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"

suppress_warnings = ["ref.python"]
"""Several classes have a field called ``bytes``, as the type is."""
html_theme = "furo"
html_title = f"pyspark-kafkalog {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "static" / "scorer.js")
# Without a repository on a code host, a page shows its source.
html_show_sourcelink = html_copy_source = not repository()
html_theme_options = {"light_css_variables": {"code-font-size": "78%"}}
if repository():
    html_theme_options |= {"source_repository": repository(), "source_branch": "main", "source_directory": ""}

# Output, which is text right after code, is nothing to copy.
copybutton_selector = ", ".join(
    f"{block} pre"
    for block in (
        *(f"div.highlight-{language}" for language in ("python", "sh", "sql", "yaml", "dockerfile")),
        "p + div.highlight-text",
    )
)


class Notebook(Parser):
    """A Jupyter notebook as a page: its text, its code, and what the code printed and drew."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: object) -> None:
        """Parse the cells as Markdown."""
        cells = json.loads(inputstring)["cells"]
        super().parse("\n\n".join(_markdown(cells, Path(document["source"]).name)), document)


def _markdown(cells: list[dict], name: str) -> Iterator[str]:
    download = f"{{download}}`Download {name} <{name}>`"
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            title, rest = text.split("\n", 1) if download else ("", text)
            yield f"{title}\n\n{download}\n\n{rest}"
            download = ""
            continue
        code = f"````python\n{text}\n````"
        if cell["metadata"].get("jupyter", {}).get("source_hidden"):
            yield f"<details>\n<summary>{FOLDED}</summary>\n\n{code}\n\n</details>"
        else:
            yield code
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                yield f"![A plot](data:image/png;base64,{''.join(data['image/png']).strip()})"
            elif output.get("name") == "stdout" or "text/plain" in data:
                printed = "".join(output.get("text") or data["text/plain"]).strip("\n")
                yield f"````text\n{printed}\n````"


_GROUP = re.compile(r"^## (?P<title>.+)\n\n(?P<list>(?:- .+\n|  .+\n)+)", re.M)
_ENTRY = re.compile(r"^- \[(?P<title>[^]]+)\]\((?P<page>[^)#]+)\.md\)", re.M)


def _add_navigation(app: Sphinx, page: str, source: list[str]) -> None:
    """Make the navigation of the lists on the start page, and list each notebook below their page."""
    if page == START:
        for group in _GROUP.finditer(source[0]):
            found = _ENTRY.findall(group["list"])
            # A title that has code is the page's own.
            entries = (target if "`" in title else f"{title} <{target}>" for title, target in found)
            source[0] += _toctree("\n".join(entries), f":caption: {group['title']}")
    elif page == NOTEBOOKS:
        names = "\n".join(path.stem for path in sorted(ROOT.glob("notebooks/[0-9]*.ipynb")))
        source[0] += _toctree(names)


def _toctree(entries: str, *options: str) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", entries, "```", ""])


class Addresses(Transform):
    """Gives a heading that begins with ``<a id="NAME">`` this address, and takes the element away."""

    default_priority = 1

    def apply(self) -> None:
        """Change all headings of the page."""
        for section in self.document.findall(nodes.section):
            title = section[0]
            if (
                isinstance(title[0], nodes.raw)
                and (found := re.fullmatch(r'<a id="(.+)">', title[0].astext()))
                and len(title) > 2
            ):
                name = found[1]
                del title[:2]
                section["ids"] = [name, *(known for known in section["ids"] if known != name)]
                self.document.ids[name] = section
                self.document.myst_slugs[name] = (section.line, name, title.astext())


class Cards(Transform):
    """Makes cards of the lists on the start page."""

    default_priority = 1

    def apply(self) -> None:
        """Give the lists their class, and take away the colon between a link and what it is for."""
        if self.document.settings.env.docname == START:
            for found in self.document.findall(nodes.bullet_list):
                found["classes"].append("cards")
                for item in found:
                    after = item[0][1]
                    item[0].replace(after, nodes.Text(after.astext().removeprefix(": ")))


class NotRun(Transform):
    """Says below a block that the tests don't run it, not in a comment, which people would copy."""

    default_priority = 1

    def apply(self) -> None:
        """Change all blocks of the page."""
        for block in list(self.document.findall(nodes.literal_block)):
            if found := _NOT_RUN.search(block.astext()):
                said = f"Not run by the tests: {found[1]}"
                below = nodes.paragraph("", "", nodes.inline("", said, classes=["not-run"]))
                code = _NOT_RUN.sub("", block.astext(), count=1)
                block[:] = [nodes.Text(code)]
                block.rawsource = code
                block.parent.insert(block.parent.index(block) + 1, below)


_NOT_RUN = re.compile(r"^# not run: (.+)\n", re.M)


def _link_options(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link the first mention of an option in a paragraph to its entry, if its name isn't a common word."""
    if app.builder.format != "html":
        return
    options = app.builder.get_relative_uri(page, OPTIONS)
    for paragraph in doctree.findall(nodes.paragraph):
        links = list(paragraph.findall(nodes.reference))
        linked = {name.astext() for link in links for name in link.findall(nodes.literal)}
        for name in list(paragraph.findall(nodes.literal)):
            text = name.astext()
            if text in _LINKED - linked:
                linked.add(text)
                link = nodes.reference("", "", internal=True, refuri=f"{options}#{text}", classes=["option"])
                name.replace_self(link)
                link += name


_LINKED = {
    option.name
    for option in BY_NAME.values()
    if option.name.startswith("kafka.") or re.search("[a-z][A-Z]", option.name)
}


def _edit_what_it_is_made_from(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: nodes.document | None
) -> None:
    if page in MADE_FROM and repository():
        context["theme_source_edit_link"] = f"{repository()}/edit/main/{MADE_FROM[page]}"


def setup(app: Sphinx) -> None:
    """Let notebooks be pages, and the start page be the navigation."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(Notebook)
    app.add_transform(Addresses)
    app.add_transform(Cards)
    app.add_transform(NotRun)
    app.connect("source-read", _add_navigation)
    app.connect("doctree-resolved", _link_options)
    app.connect("html-page-context", _edit_what_it_is_made_from)
