"""The site, made by ci/docs: ``sphinx-build -W -c docs . build/site``.

The root is the repository: a link to a page, a test or a module is the same path here and on a code host.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from myst_parser.sphinx_ import Parser
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pyspark_kafkalog import __version__  # noqa: E402

project = "pyspark-kafkalog"
version = release = __version__
copyright = "pyspark-kafkalog contributors, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["*.md", "docs/*.md", "notebooks/README.md", "notebooks/*.ipynb", "tests/parity/PARITY.md"]
root_doc = "docs/index"
myst_heading_anchors = 4
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"

html_theme = "furo"
html_title = f"pyspark-kafkalog {version}"
html_show_sourcelink = False
html_copy_source = False
# Lines of 92 characters fit beside the sidebar.
html_theme_options = {"light_css_variables": {"code-font-size": "78%"}}


class Notebook(Parser):
    """A Jupyter notebook as a page: its text, its code, and what the code printed and drew."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: object) -> None:
        """Parse the cells as Markdown."""
        super().parse("\n\n".join(_markdown(json.loads(inputstring)["cells"])), document)


def _markdown(cells: list[dict]) -> Iterator[str]:
    for cell in cells:
        text = "".join(cell["source"])
        yield text if cell["cell_type"] == "markdown" else f"````python\n{text}\n````"
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                yield f"![A plot](data:image/png;base64,{''.join(data['image/png']).strip()})"
            elif output.get("name") == "stdout" or "text/plain" in data:
                printed = "".join(output.get("text") or data["text/plain"]).strip("\n")
                yield f"````text\n{printed}\n````"


def setup(app: Sphinx) -> None:
    """Let notebooks be pages."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(Notebook)
