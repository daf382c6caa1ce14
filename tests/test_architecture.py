"""Imports point one way, and an outside library has few importers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import pyspark_kafkalog

ROOT = Path(pyspark_kafkalog.__file__).parent
NAME = ROOT.name
MODULES = sorted(ROOT.rglob("*.py"))

_PLACES = {
    "errors",
    "model",
    "groups",
    "topics",
    "sinks",
    "garbage",
    "codec",
    "options",
    "largemessage",
    "places",
    "transform",
}
_BETWEEN = {"reading", "writing", "streams", "audit"}
ROOMS = {
    "errors": set(),
    "filesystem": {"errors"},
    "garbage": set(),
    "model": {"errors", "rows"},
    "rows": set(),
    "saying": set(),
    "groups": {"errors", "model"},
    "topics": {"errors", "model", "rows"},
    "sinks": {"errors", "model"},
    "staging": {"model", "sinks", "codec", "filesystem"},
    "plugins": {"errors"},
    "clouds": {"errors", "options", "plugins", "named_origin"},
    "transform": {"errors", "plugins"},
    "options": {"errors", "model", "topics"},
    "codec": {"errors", "model", "garbage"},
    "largemessage": {"errors", "model", "plugins", "codec"},
    "values": {"errors", "codec"},
    "log": {
        *("errors", "model", "rows", "sinks", "staging", "topics", "codec", "filesystem", "garbage"),
        "kafka_uuid",
    },
    "broker": {
        *("errors", "model", "sinks", "staging", "topics", "codec", "options", "filesystem", "garbage"),
        *("plugins", "named_origin", "tls", "clouds", "kafka_uuid"),
    },
    "named_origin": set(),
    "kafka_uuid": set(),
    "tls": {"errors", "options"},
    "schema_registry": {"errors", "named_origin", "options", "tls"},
    "places": {"errors", "model", "groups", "sinks", "topics", "options", "log", "broker"},
    "make_library": {"codec"},
    "build": {"make_library"},
    "reading": {
        *("errors", "model", "groups", "topics", "codec", "options", "largemessage", "transform"),
        *("schema_registry", "values"),
    },
    "audit": {"errors", "plugins", "codec", "options", "filesystem", "largemessage"},
    "writing": {
        *("errors", "model", "sinks", "topics", "plugins", "codec", "options", "largemessage", "audit"),
        *("transform", "schema_registry", "values"),
    },
    "streams": {"errors", "model", "groups", "codec", "options", "filesystem", "largemessage", "reading"},
    "backups": _PLACES | _BETWEEN | {"rows", "filesystem", "log"},
    "admin": _PLACES
    | _BETWEEN
    | {"rows", "filesystem", "backups", "log", "broker", "values", "clouds", "plugins", "kafka_uuid"},
    "cli": {"errors", "model", "rows", "groups", "topics", "options", "saying", "admin", "backups", "log"},
    "spark": _PLACES | _BETWEEN | {"saying", "plugins", "admin", "backups", "log"},
}
"""For each room those that it may import; its own modules it always may."""

_FILES = {"layout", "checkpoints", "snapshot", "topic_configs", "topic_settings"}
INNER_ROOMS = {
    "broker": {
        "wire": set(),
        "cluster": {"wire"},
        "fetch": {"wire", "cluster"},
        "produce": {"wire", "cluster"},
        "groups": {"wire", "cluster", "fetch"},
        "transactions": {"wire", "cluster", "fetch", "groups", "produce"},
        "topics": {"wire", "cluster"},
        "zookeeper": {"wire", "cluster", "groups"},
        "place": {"wire", "cluster", "fetch"},
        "delete_records": {"wire", "cluster"},
    },
    "log": {
        "layout": set(),
        "lock": {"layout", "read"},
        "snapshot": set(),
        "checkpoints": {"layout"},
        "topic_configs": {"layout"},
        "topic_settings": {"topic_configs"},
        "backup_file": {"layout"},
        "renewal": {"layout", "checkpoints", "backup_file"},
        "journal_file": {"layout"},
        "segment": {"layout", "snapshot"},
        "read": {"segment", "backup_file", "journal_file", "layout", "snapshot", "topic_configs"},
        "publish": {"segment", "read", "lock", "journal_file", "backup_file", "renewal", *_FILES},
        "backup": {"segment", "read", "publish", "lock", "backup_file", "renewal", *_FILES},
        "groups": {"layout", "lock", "segment", "read", "publish", "topic_settings"},
        "care": {"segment", "read", "publish", "backup", "lock", *_FILES},
        "sink": {"layout", "lock", "read", "publish", "care", "topic_configs"},
        "topics": {"read", "publish", "groups", "topic_settings"},
    },
}
"""The same for the folders and modules of one room."""

IMPORTERS = {
    "pyspark": {"spark"},
    "pyarrow.fs": {"filesystem", "log", "audit"},
    "fcntl": {"log", "admin.jars"},
    "kafka": {"broker"},
    "kazoo": {"broker.zookeeper.client"},
    "pandas": {"spark"},
    "matplotlib": {"spark"},
    "numba": {"codec"},
    "llvmlite": {"codec"},
    "ctypes": {"codec"},
    "setuptools": {"build"},
}
"""The rooms, or modules, that may import a library."""

HEAVY = {"pyarrow", "numpy", "numba", "pyspark", "kafka", "kazoo"}
LIGHT = {"errors", "rows", "model", "groups", "sinks", "topics", "options", "places"}
LIGHT_MODULES = {
    "reading.commits",
    "reading.offsets",
    "reading.partitions",
    "reading.splits",
    "reading.filters",
    "streams.data_loss",
    "streams.planner",
    "streams.lag",
}
"""Rooms and modules that load none of these libraries: Spark plans in many short-lived processes."""

OUTSIDE_WORLD = set(
    "datetime io os pathlib random shutil socket subprocess tempfile threading time".split()  # noqa: SIM905
)
PURE = {"errors", "model", "groups", "topics", "options", "codec", "largemessage", "values"}
"""Rooms out of reach of files, sockets, clocks and the environment."""
IMPURE_MODULES = {"codec.jit", "codec.library", "options.times", "values.json.times"}
"""Two find compiled code, and a place for it; one reads ISO 8601, but no clock; the last one knows regions,
and which day a time without a date is of."""
OPENERS = {"clouds.files", "admin.doctor.probe"}
"""Modules outside of the log that open a file: one with a login; and one where all else is missing."""


def room(module: str) -> str:
    """The room of ``pyspark_kafkalog.<module>``."""
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


def own_imports(path: Path) -> Iterator[str]:
    """The modules of this package that a module imports, without the package's name."""
    for name, _ in imports(path):
        if name.startswith(f"{NAME}.") and name != f"{NAME}._version.__version__":
            yield name.removeprefix(f"{NAME}.")


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module_of(path)} imports {name}"
        for path in MODULES
        for name in own_imports(path)
        if room(module_of(path)) not in ("__init__", "__main__", room(name))
        and room(name) not in ROOMS[room(module_of(path))]
    ]
    assert not wrong


def test_imports_within_a_room_point_one_way() -> None:
    wrong = []
    for path in MODULES:
        outer, _, inner = module_of(path).partition(".")
        if outer in INNER_ROOMS and inner != "__init__":
            allowed = {room(inner), *INNER_ROOMS[outer][room(inner)]}
            names = [name.partition(".")[2] for name in own_imports(path) if room(name) == outer]
            wrong += [f"{outer}.{inner} imports {name}" for name in names if room(name) not in allowed]
    assert not wrong


def test_libraries_have_few_importers() -> None:
    wrong = [
        f"{module_of(path)} imports {name}"
        for path in MODULES
        for name, _ in imports(path)
        for library, importers in IMPORTERS.items()
        if f"{name}.".startswith(f"{library}.") and not {room(module_of(path)), module_of(path)} & importers
    ]
    assert not wrong


def test_light_modules_load_no_heavy_library_and_pure_ones_no_outside_world() -> None:
    wrong = []
    for path in MODULES:
        module = module_of(path)
        loaded = {name.split(".")[0] for name, at_run_time in imports(path) if at_run_time}
        if room(module) in LIGHT or module in LIGHT_MODULES:
            wrong += [f"{module} loads {name}" for name in loaded & HEAVY]
        if room(module) in PURE and module not in IMPURE_MODULES:
            wrong += [f"{module} loads {name}" for name in loaded & OUTSIDE_WORLD]
    assert not wrong


@pytest.mark.parametrize(
    ("modules", "unused"),
    [
        (["reading.decoding", "reading.json_column"], ["values.avro", "schema_registry"]),
        (["reading.decoding", "reading.avro_column"], ["values.json.decoder"]),
        (["writing.encoding"], ["values.avro", "schema_registry"]),
    ],
)
def test_a_format_loads_no_other(modules: list[str], unused: list[str]) -> None:
    code = (
        f"import sys, {', '.join(f'{NAME}.{module}' for module in modules)}; print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {f"{NAME}.{module}" for module in unused} & set(done.stdout.split())


def test_only_the_log_opens_files() -> None:
    wrong = []
    for path in MODULES:
        module = module_of(path)
        if room(module) not in ("filesystem", "log") and module not in OPENERS:
            calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
            wrong += [module for call in calls if ast.unparse(call) in ("open", "os.open", "io.open")]
    assert not wrong


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import a.b, c\nfrom d import e\nif TYPE_CHECKING:\n    from f import g\ndef h():\n    import i\n"
    )
    assert set(imports(path)) == {("a.b", True), ("c", True), ("d.e", True), ("f.g", False), ("i", True)}


def test_the_documented_order_of_imports_is_this_one() -> None:
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    chain = text.partition("Imports point downward only:")[2].partition(".")[0]
    levels = [set(re.findall(r"[a-z_]+", level)) for level in chain.split("→")]
    assert set().union(*levels) == ROOMS.keys() - {"build", "make_library"}
    for number, level in enumerate(levels):
        below = set().union(*levels[number + 1 :])
        assert not {room for room in level if not ROOMS[room] <= below}


def test_every_room_named_here_exists() -> None:
    found = {module_of(path) for path in MODULES}
    assert {room(module) for module in found} - {"__init__", "__main__", "_version"} == ROOMS.keys()
    for outer, inner in INNER_ROOMS.items():
        named = {module.split(".")[1] for module in found if room(module) == outer}
        assert named - {"__init__"} == inner.keys()
    assert found >= LIGHT_MODULES | IMPURE_MODULES | OPENERS
