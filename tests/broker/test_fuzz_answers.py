"""A slice of the response fuzzer."""

from __future__ import annotations

import ast
import gc
import random
import re
import warnings
from pathlib import Path

import pytest

import pyspark_kafkalog
from tests.broker import fuzz_answers


def test_each_request_has_answers() -> None:
    package = Path(next(iter(pyspark_kafkalog.__path__)))
    sent = {
        alias.name
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith(("kazoo", "botocore"))
        for alias in node.names
        if re.fullmatch(r"\w+Request", alias.name)
    }
    assert sent == {request.__name__ for request, _ in fuzz_answers.SOUND.values()}


def test_sound_answers_are_taken() -> None:
    """Else the fuzzer would show nothing."""
    sent: set[int] = set()
    for number, (_, call) in enumerate(fuzz_answers.CALLS):
        peer = fuzz_answers.Peer(random.Random(number), api_key=-1, breaks=0)
        fuzz_answers.of_newest_versions()
        with fuzz_answers.listening(peer):
            if number == len(fuzz_answers.CALLS) - 1:  # a broker that does not know the password
                break
            call(fuzz_answers.CONNECTION)
        sent |= peer.requested
    assert sent == fuzz_answers.SOUND.keys()


@pytest.mark.long
def test_broken_answers_are_told_as_our_errors(seed: int, soak: bool) -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        report = fuzz_answers.run(seed, 6000 if soak else 600)
        gc.collect()
    print(report)
    assert not warned, "connections are closed, not left to the garbage collector"
    assert not report.faults, f"seed {seed}: {report.faults[:3]}"
    assert sum(report.by_api.values()) > 400
    assert len(report.by_api) > 15
