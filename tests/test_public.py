"""What users may import: it is there, it is described, and the documents name nothing else."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyspark_kafkalog
from pyspark_kafkalog import (
    AuditedTask,
    Auditor,
    CountingAuditor,
    MessageSegment,
    TopicPartition,
    Visibility,
    decode,
    errors,
)
from tests.documents.blocks import PAGES, code_blocks
from tests.fixtures_dir import SMALL_CASES

ROOT = Path(__file__).parents[1]
NAME = "pyspark_kafkalog"
PUBLIC = [name for name in pyspark_kafkalog.__all__ if name != "__version__"]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob(".github/**/*.md")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_there_and_described(name: str) -> None:
    found = getattr(pyspark_kafkalog, name)
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}("), "a docstring that Python made"
    for method, function in inspect.getmembers(found, inspect.isfunction):
        if not method.startswith("_") and function.__module__.startswith(NAME):
            assert function.__doc__, f"{name}.{method}"


def test_type_checkers_see_what_is_loaded() -> None:
    package = ast.parse(Path(pyspark_kafkalog.__file__).read_text(encoding="utf-8"))
    (for_checkers,) = (node for node in package.body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in ast.walk(for_checkers)
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    loaded = {
        name: f"{NAME}.{module}"
        for module, names in pyspark_kafkalog._LOADED_ON_USE.items()
        for name in names
    }
    assert seen == loaded
    assert sorted(seen) == sorted(PUBLIC)
    assert dir(pyspark_kafkalog) == sorted([*PUBLIC, "__version__"])


def test_every_error_is_public_but_those_that_no_user_sees() -> None:
    found = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.KafkaLogError)
    }
    assert found - set(PUBLIC) == {"OverlapError", "UnconfirmedError"}


@pytest.mark.parametrize(
    "function", [decode, Visibility.__init__, Auditor.audit, Auditor.close, CountingAuditor.audit_key]
)
def test_what_a_signature_names_is_public(function: Any) -> None:
    named = {kind for kind in classes_in(typing.get_type_hints(function)) if kind.__module__.startswith(NAME)}
    assert {kind.__name__ for kind in named} <= set(PUBLIC)


def classes_in(annotations: Mapping[str, Any]) -> Iterator[type]:
    """The classes of which annotations are made."""
    left = list(annotations.values())
    while left:
        annotation = left.pop()
        left += annotation if isinstance(annotation, list) else typing.get_args(annotation)
        if isinstance(annotation, type):
            yield annotation


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_only_what_is_public(document: Path) -> None:
    # Spark quotes an error with the module of its class.
    quoted = r"errors\.\w+Error: "
    named = re.findall(rf"(?<!-m ){NAME}\.(?!{quoted})(\w+)", document.read_text(encoding="utf-8"))
    assert set(named) <= {*PUBLIC, "testing"}


def test_examples_import_only_what_is_public() -> None:
    imported = {
        f"{node.module}.{alias.name}"
        for page in PAGES
        for block in code_blocks(page)
        if block.language == "python" and not block.code.startswith("%")
        for node in ast.walk(ast.parse(block.code))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    ours = {name for name in imported if name.startswith(NAME)}
    assert f"{NAME}.reassemble" in ours
    assert ours <= {f"{NAME}.{name}" for name in PUBLIC}


def example_of(found: Any) -> str:
    """The example in a docstring, which is indented and stands behind ``::``."""
    _, _, rest = inspect.getdoc(found).partition("::\n\n")
    return textwrap.dedent(re.match(r"(?:    .*\n?|\n)+", rest)[0]).strip()


def test_the_example_of_the_decoder_prints_what_a_broker_wrote() -> None:
    example = example_of(decode)
    assert example in [block.code.strip() for block in code_blocks(ROOT / "docs" / "reading.md")]
    one = next(case for case in SMALL_CASES if case.name == "v2-lz4")
    (segment,) = one.segments("v2-lz4-0")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(example.replace("/data/kafka-logs/orders-0/00000000000000000000.log", str(segment)), {})
    lines = [tuple(map(int, line.split())) for line in printed.getvalue().splitlines()]
    assert sum(rows for rows, _ in lines) == len(one.records) > 0
    assert lines[-1][1] == one.records[-1]["offset"] + 1


def test_the_example_of_a_message_segment_reads_what_it_writes() -> None:
    scope: dict[str, Any] = {}
    exec(example_of(MessageSegment), scope)
    piece = MessageSegment(bytes(range(16)), 1, 3, 25, b"abc\n\xff")
    assert scope["deserialize"]("t", scope["serialize"]("t", piece)) == piece
    assert scope["deserialize"]("t", b"Small") is None


def test_the_example_of_an_auditor_counts_by_its_key() -> None:
    scope: dict[str, Any] = {}
    exec(example_of(CountingAuditor), scope)
    auditor: Auditor = scope["ByTenant"](AuditedTask("consumer", "query", 7, "00000"), 1000)
    headers = [[("tenant", b"a")], [("tenant", b"b")], None, [("other", b""), ("tenant", b"a")]]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    records = {"headers": pa.array(headers, kind), "bytes": pa.array([1, 2, 4, 8], pa.int64())}
    auditor.audit(TopicPartition("t", 0), pa.RecordBatch.from_pydict(records))
    counts = auditor.close("SUCCESS")
    assert {(count.key, count.messages, count.bytes) for count in counts} == {
        ("a", 2, 9),
        ("b", 1, 2),
        (None, 1, 4),
    }
