"""Imports point one way, each outside library has one importer, and no module grows too long."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import pyspark_kafkalog

ROOT = Path(pyspark_kafkalog.__file__).parent
NAME = ROOT.name
MODULES = sorted(ROOT.rglob("*.py"))

_BELOW_TRANSFER = {"errors", "model", "codec", "largemessage", "log", "options", "broker", "planning"}
LAYERS = {
    "errors": set(),
    "model": {"errors"},
    "codec": {"errors", "model"},
    "largemessage": {"errors", "model", "codec"},
    "log": {"errors", "model", "codec"},
    "options": {"errors", "model"},
    "broker": {"errors", "model", "codec", "options"},
    "planning": {"errors", "model", "options"},
    "transfer": _BELOW_TRANSFER,
    "admin": _BELOW_TRANSFER | {"transfer"},
    "spark": _BELOW_TRANSFER | {"transfer", "admin"},
    "cli": _BELOW_TRANSFER | {"transfer", "admin"},
}
"""For each layer those that it may import; its own modules it always may."""

SOLE_IMPORTERS = {"pyspark": "spark", "pyarrow.fs": "log", "fcntl": "log", "kafka": "broker", "pandas": None}
"""Libraries that one layer alone may import, or none."""

HEAVY = {"pyarrow", "numpy", "numba", "pyspark", "kafka"}
LIGHT = {"errors", "model", "options", "planning"}
"""Layers that load none of these libraries: Spark plans in many short-lived processes."""

OUTSIDE_WORLD = set(
    "datetime io os pathlib random shutil socket subprocess tempfile threading time".split()  # noqa: SIM905
)
PURE = {"errors", "model", "options", "codec", "largemessage"}
"""Layers out of reach of files, sockets, clocks and the environment."""
IMPURE_MODULES = {"codec.jit"}
"""Finds a place for compiled code."""
OPENERS = {"broker.oauth"}
"""Modules outside of the log that open a file: one with a token."""


def layer(module: str) -> str:
    """The layer of ``pyspark_kafkalog.<module>``."""
    return module.split(".")[0]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The names that a module imports, and whether at run time rather than for type checkers."""
    tree = parsed(path)
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
def test_libraries_have_one_importer(path: Path) -> None:
    for name, _ in imports(path):
        for library, importer in SOLE_IMPORTERS.items():
            if f"{name}.".startswith(f"{library}."):
                assert layer(module_of(path)) == importer, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_light_layers_load_no_heavy_library_and_pure_ones_no_outside_world(path: Path) -> None:
    module = module_of(path)
    loaded = {name.split(".")[0] for name, at_run_time in imports(path) if at_run_time}
    if layer(module) in LIGHT:
        assert not loaded & HEAVY
    if layer(module) in PURE and module not in IMPURE_MODULES:
        assert not loaded & OUTSIDE_WORLD


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_only_the_log_opens_files(path: Path) -> None:
    if layer(module_of(path)) == "log" or module_of(path) in OPENERS:
        return
    calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if ast.unparse(call) in ("open", "os.open", "io.open")]


@pytest.mark.parametrize("path", MODULES, ids=module_of)
def test_modules_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import a.b, c\nfrom d import e\nif TYPE_CHECKING:\n    from f import g\ndef h():\n    import i\n"
    )
    assert set(imports(path)) == {("a.b", True), ("c", True), ("d.e", True), ("f.g", False), ("i", True)}


def test_every_layer_named_here_exists() -> None:
    found = {layer(module_of(path)) for path in MODULES}
    assert found - {"__init__"} <= LAYERS.keys()
