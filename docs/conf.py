"""The site, made by ci/docs: ``sphinx-build -W -c docs . build/site``.

The root is the repository: a link to a page, a test or a module is the same path here and on a code host.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pyspark_kafkalog import __version__  # noqa: E402

project = "pyspark-kafkalog"
version = release = __version__
copyright = "pyspark-kafkalog contributors, Apache License 2.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = ["*.md", "docs/*.md", "notebooks/README.md", "tests/parity/PARITY.md"]
root_doc = "docs/index"
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"

html_theme = "furo"
html_title = f"pyspark-kafkalog {version}"
html_show_sourcelink = False
html_copy_source = False
