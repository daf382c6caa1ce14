"""Imports point one way, and an outside library has few importers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

import pyspark_kafkalog

ROOT = Path(pyspark_kafkalog.__file__).parent
NAME = ROOT.name
MODULES = sorted(ROOT.rglob("*.py"))
SHELVES = ("extensions", "tools")
_ENTRIES = ("__init__", "__main__", "_version", "testing")
"""What hands on names of all rooms."""
LISTS = tuple(f"{shelf}.__init__" for shelf in SHELVES)
"""The list of each shelf: what it has, imported on first use."""

_PLACE = {"errors", "model", "codec", "options", "filesystem", "garbage", "staging"}
CORE = {
    "errors": set(),
    "garbage": set(),
    "saying": set(),
    "named_origin": set(),
    "sdk_logs": set(),
    "filesystem": {"errors"},
    "plugins": {"errors"},
    "model": {"errors"},
    "options": {"errors", "model", "saying"},
    "codec": {"errors", "model", "garbage"},
    "tls": {"errors", "options"},
    "staging": {"model", "codec", "filesystem"},
    "log": _PLACE,
    "broker": _PLACE | {"plugins", "named_origin", "tls"},
    "places": {"errors", "model", "options", "log", "broker"},
    "read": {"errors", "model", "codec", "options"},
    "write": {"errors", "model", "codec", "options", "plugins"},
    "stream": {"errors", "model", "codec", "options", "filesystem", "read"},
    "client": {"errors", "model", "codec", "options", "saying", "places", "read", "write"},
    "spark": {
        *("errors", "model", "codec", "options", "garbage", "saying", "plugins"),
        *("places", "read", "write", "stream"),
    },
    "make_library": {"codec"},
    "build": {"make_library"},
}
"""For each room of the core those that it may import; its own modules it always may."""
NEEDS = {
    "extensions.audit": {"extensions.large_messages"},
    "extensions.callbacks": set(),
    "extensions.cleanup": set(),
    "extensions.clouds": set(),
    "extensions.exactly_once": set(),
    "extensions.large_messages": {"extensions.audit"},
    "extensions.log_groups": set(),
    "extensions.membership": set(),
    "extensions.transform": set(),
    "extensions.typed_values": {"extensions.large_messages"},
    "extensions.views": {"extensions.audit", "extensions.callbacks", "tools.groups"},
    "extensions.zookeeper": set(),
    "tools.backup": {"extensions.exactly_once", "extensions.log_groups", "tools.cli", "tools.groups"},
    "tools.care": {"extensions.cleanup", "tools.backup", "tools.cli"},
    "tools.checkpoint": {"extensions.exactly_once", "tools.backup", "tools.cli", "tools.groups"},
    "tools.cli": {"tools.groups"},
    "tools.doctor": {"tools.cli"},
    "tools.groups": {
        *("extensions.audit", "extensions.exactly_once", "extensions.large_messages", "tools.cli"),
    },
    "tools.records": {
        *("extensions.large_messages", "extensions.typed_values", "extensions.views"),
        *("tools.care", "tools.cli", "tools.redrive"),
    },
    "tools.redrive": {"extensions.exactly_once", "extensions.log_groups", "tools.cli"},
    "tools.testing": {"tools.try_out"},
    "tools.topics": {"tools.cli", "tools.doctor"},
    "tools.try_out": {"tools.cli"},
}
"""For each extension and tool the others that it names. Of the core each may name all."""

_FILES = {"layout", "checkpoints", "snapshot", "topic_configs", "topic_settings"}
INNER_ROOMS = {
    "broker": {
        "wire": set(),
        "cluster": {"wire"},
        "fetch": {"wire", "cluster"},
        "produce": {"wire", "cluster"},
        "groups": {"wire", "cluster", "fetch"},
        "topics": {"wire", "cluster"},
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
        "obeyed_configs": set(),
        "backup_file": {"layout"},
        "renewal": {"layout", "checkpoints", "backup_file"},
        "journal_file": {"layout"},
        "segment": {"layout", "snapshot"},
        "read": {"segment", "backup_file", "journal_file", "layout", "snapshot", "topic_configs"},
        "publish": {"segment", "read", "lock", "journal_file", "backup_file", "renewal", *_FILES},
        "sink": {"layout", "lock", "read", "publish", "topic_configs"},
        "topics": {"read", "publish", "obeyed_configs"},
    },
}
"""The same for the folders and modules of one room."""

IMPORTERS = {
    "pyspark": {
        "spark",
        *("extensions.large_messages", "extensions.typed_values", "extensions.views"),
        *("tools.backup", "tools.doctor", "tools.groups", "tools.try_out"),
    },
    "pyarrow.fs": {"filesystem", "log", "extensions.audit", "extensions.callbacks", "extensions.log_groups"},
    "fcntl": {"log", "tools.try_out.jars"},
    "kafka": {
        "broker",
        *("extensions.exactly_once", "extensions.membership", "extensions.zookeeper"),
        *("tools.doctor", "tools.redrive", "tools.topics"),
    },
    "kazoo": {"extensions.zookeeper.client"},
    "botocore": {"extensions.clouds", "extensions.typed_values.registries.glue"},
    "google.auth": {"extensions.clouds"},
    "azure": {"extensions.clouds"},
    "pandas": {"spark", "extensions.large_messages", "tools.groups"},
    "matplotlib": {"tools.groups"},
    "numba": {"codec"},
    "llvmlite": {"codec"},
    "ctypes": {"codec"},
    "setuptools": {"build"},
    "pytest": {"testing", "tools.testing"},
}
"""The rooms, or modules, that may import a library."""

HEAVY = {"pyarrow", "numpy", "numba", "pyspark", "kafka", "kazoo"}
LIGHT = {"errors", "model", "options", "places"}
LIGHT_MODULES = {
    "read.commits",
    "read.offsets",
    "read.partitions",
    "read.splits",
    "read.filters",
    "stream.data_loss",
    "stream.planner",
    "tools.groups.lag",
}
"""Rooms and modules that load none of these libraries: Spark plans in many short-lived processes."""

OUTSIDE_WORLD = set(
    "datetime io os pathlib random shutil socket subprocess tempfile threading time".split()  # noqa: SIM905
)
PURE = {
    *("errors", "model", "options", "codec"),
    *("extensions.typed_values.avro", "extensions.typed_values.json", "extensions.typed_values.json_schema"),
    *("extensions.typed_values.protobuf", "extensions.typed_values.columns", "extensions.typed_values.table"),
    *("extensions.typed_values.ddl", "extensions.typed_values.subject_names"),
    "extensions.typed_values.registries.wire",
    *("extensions.large_messages." + name for name in ("assembler", "format", "header_lists", "kernels")),
    *("extensions.large_messages." + name for name in ("output", "reassembler", "segments", "serializers")),
    *("extensions.large_messages." + name for name in ("snapshot", "splitter", "options")),
}
"""Rooms and modules out of reach of files, sockets, clocks and the environment."""
IMPURE_MODULES = {
    *("codec.jit", "codec.library", "model.rows", "options.times"),
    "extensions.typed_values.json.times",
}
"""Two find compiled code, and a place for it; rows hold times; one reads ISO 8601, but no clock; the last one
knows regions, and which day a time without a date is of."""
OPENERS = {"broker.wire.token_files", "tools.doctor.probe"}
"""Modules outside of the log that open a file: one with a login; and one where all else is missing."""
LOGS = {"log", "extensions.log_groups", "extensions.cleanup", "tools.care", "tools.backup"}
"""What works on the files of a log directory."""


def room(module: str) -> str:
    """The room of ``pyspark_kafkalog.<module>``: a folder or file of the core, an extension, or a tool."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in SHELVES else parts[0]


def is_in(module: str, places: Collection[str]) -> bool:
    """Whether a module is one of these, or in one of these folders."""
    return any(f"{module}.".startswith(f"{place}.") for place in places)


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
        for name in imported_by(node):
            yield name, node not in for_checkers


def imported_by(node: ast.AST) -> Iterator[str]:
    """The names that an import statement imports. Other nodes have none."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: relative import"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> Iterator[str]:
    """The modules of this package that a module imports, without the package's name."""
    for name, _ in imports(path):
        if name.startswith(f"{NAME}.") and name != f"{NAME}._version.__version__":
            yield name.removeprefix(f"{NAME}.")


def crossings() -> Iterator[tuple[str, str]]:
    """Modules, with what they import of other rooms."""
    for path in MODULES:
        module = module_of(path)
        if module not in _ENTRIES and module not in LISTS:
            names = [name for name in own_imports(path) if name not in SHELVES]
            yield from ((module, name) for name in names if room(name) != room(module))


def test_imports_point_one_way() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, name in crossings()
        if room(name) in CORE and room(name) not in CORE.get(room(module), CORE)
    ]
    assert not wrong


def test_extensions_and_tools_are_named_by_few() -> None:
    """The core asks for extensions through their list alone, and for no tool."""
    found: dict[str, set[str]] = {}
    for module, name in crossings():
        if room(name) not in CORE:
            found.setdefault(room(module), set()).add(room(name))
    assert found == {place: names for place, names in NEEDS.items() if names}, "the core names none of them"


def test_imports_within_a_room_point_one_way() -> None:
    wrong = []
    for path in MODULES:
        outer, _, inner = module_of(path).partition(".")
        if outer in INNER_ROOMS and inner != "__init__":
            own = inner.split(".")[0]
            allowed = {own, *INNER_ROOMS[outer][own]}
            names = [name.partition(".")[2] for name in own_imports(path) if room(name) == outer]
            wrong += [
                f"{outer}.{inner} imports {name}" for name in names if name.split(".")[0] not in allowed
            ]
    assert not wrong


def test_libraries_have_few_importers() -> None:
    wrong = [
        f"{module_of(path)} imports {name}"
        for path in MODULES
        for name, _ in imports(path)
        for library, importers in IMPORTERS.items()
        if f"{name}.".startswith(f"{library}.") and not is_in(module_of(path), importers)
    ]
    assert not wrong


def test_light_modules_load_no_heavy_library_and_pure_ones_no_outside_world() -> None:
    wrong = []
    for path in MODULES:
        module = module_of(path)
        loaded = {name.split(".")[0] for name, at_run_time in imports(path) if at_run_time}
        if is_in(module, LIGHT | LIGHT_MODULES):
            wrong += [f"{module} loads {name}" for name in loaded & HEAVY]
        if is_in(module, PURE) and module not in IMPURE_MODULES:
            wrong += [f"{module} loads {name}" for name in loaded & OUTSIDE_WORLD]
    assert not wrong


PLAIN = """
import sys
import pyarrow as pa
from pyspark_kafkalog import connect

with connect(sys.argv[1]) as kafka:
    {}
print(*(name for name in sys.modules if name.startswith("pyspark_kafkalog.")))
"""
WRITE, READ = (
    'kafka.write(pa.table({"value": [b"a"]}), "t")',
    'assert kafka.read("t").read_all().num_rows == 1',
)


def test_a_plain_use_loads_the_core_alone(tmp_path: Path) -> None:
    """Only a first look at each value, for a mark of large messages, is of an extension."""
    watching = {"extensions.large_messages", "extensions.large_messages.watching"}
    for use, most, of_others in (WRITE, 100, set()), (READ, 81, watching):
        command = [sys.executable, "-c", PLAIN.format(use), str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        loaded = {name.removeprefix(f"{NAME}.") for name in done.stdout.split()}
        assert {name for name in loaded if name.split(".")[0] in SHELVES} <= {*SHELVES, *of_others}
        assert len(loaded) <= most


@pytest.mark.parametrize(
    ("modules", "unused"),
    [
        (
            ["extensions.typed_values.decoding", "extensions.typed_values.json.reading"],
            ["extensions.typed_values.avro", "extensions.typed_values.protobuf", "schema_registry"],
        ),
        (
            ["extensions.typed_values.decoding", "extensions.typed_values.avro.reading"],
            ["extensions.typed_values.json.decoder"],
        ),
        (["extensions.typed_values.encoding"], ["extensions.typed_values.avro", "schema_registry"]),
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
        if not is_in(module, LOGS | OPENERS | {"filesystem"}):
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
    chain = text.partition("Imports of the core point downward only:")[2].partition(".")[0]
    levels = [set(re.findall(r"[a-z_]+", level)) for level in chain.split("→")]
    assert set().union(*levels) == CORE.keys() - {"build", "make_library"}
    for number, level in enumerate(levels):
        below = set().union(*levels[number + 1 :])
        assert not {room for room in level if not CORE[room] <= below}


def test_a_public_name_stands_for_one_class() -> None:
    found: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(module_of(path))
    assert not {name: modules for name, modules in found.items() if len(modules) > 1}


def test_every_room_named_here_exists() -> None:
    found = {module_of(path) for path in MODULES}
    rooms = {room(module) for module in found} - {*_ENTRIES, *LISTS}
    assert rooms == CORE.keys() | NEEDS.keys()
    for outer, inner in INNER_ROOMS.items():
        named = {module.split(".")[1] for module in found if room(module) == outer}
        assert named - {"__init__"} == inner.keys()
    assert found >= LIGHT_MODULES | IMPURE_MODULES | OPENERS
