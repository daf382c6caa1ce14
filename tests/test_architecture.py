"""Imports point one way, each outside library has one importer, and no module grows too long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyspark_kafkalog

ROOT = Path(pyspark_kafkalog.__file__).parent
NAME = ROOT.name
MODULES = sorted(ROOT.rglob("*.py"))

LAYERS = {
    "errors": set(),
    "model": {"errors"},
    "codec": {"errors", "model"},
    "log": {"errors", "model", "codec"},
    "options": {"errors", "model"},
    "planning": {"errors", "model", "options"},
    "transfer": {"errors", "model", "codec", "log", "options", "planning"},
    "spark": {"errors", "model", "codec", "log", "options", "planning", "transfer"},
    "cli": {"errors", "model", "codec", "log", "options", "planning", "transfer"},
}
"""For each layer those that it may import; its own modules it always may."""

LAYER_OF = {
    "option_names": "options",
    "option_values": "options",
    "offsets_json": "options",
    "splitting": "planning",
    "stream_planning": "planning",
    "reading": "transfer",
    "writing": "transfer",
    "routing": "transfer",
    "start_offsets": "transfer",
}
"""The layer of those modules that it is not named after."""

SOLE_IMPORTERS = {"pyspark": "spark", "kafka": None, "pandas": None}
"""Outside libraries that one layer alone may import, or none."""

LIGHT = {"errors", "model", "options", "planning"}
"""Layers that import nothing outside the standard library: Spark plans in many short-lived processes."""


def layer(module: str) -> str:
    """The layer of ``pyspark_kafkalog.<module>``."""
    part = module.split(".")[0]
    return LAYER_OF.get(part, part)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The names that a module imports, and whether at run time rather than for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_checkers = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node not in for_checkers
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node not in for_checkers


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    own = layer(module_of(path))
    if own == "__init__":
        return
    assert own in LAYERS, f"{path.name} belongs to no layer"
    for name, _ in imports(path):
        if name.startswith(f"{NAME}."):
            other = layer(name.removeprefix(f"{NAME}."))
            own_version = other == "__version__"
            assert own_version or other == own or other in LAYERS[own], f"{own} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_outside_libraries_have_one_importer(path: Path) -> None:
    for name, _ in imports(path):
        library = name.split(".")[0]
        if library in SOLE_IMPORTERS:
            assert layer(module_of(path)) == SOLE_IMPORTERS[library], f"{path.name} imports {name}"


@pytest.mark.parametrize("path", [path for path in MODULES if layer(module_of(path)) in LIGHT], ids=module_of)
def test_light_layers_load_no_heavy_library(path: Path) -> None:
    heavy = {"pyarrow", "numpy", "numba", "pyspark"}
    assert not [name for name, at_run_time in imports(path) if at_run_time and name.split(".")[0] in heavy]


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_modules_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


def test_every_layer_named_here_exists() -> None:
    found = {layer(module_of(path)) for path in MODULES}
    assert found - {"__init__"} <= LAYERS.keys()
    assert LAYER_OF.keys() <= {module_of(path) for path in MODULES}
