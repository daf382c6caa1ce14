"""Kernels give the same by the library and by numba; a library of another source is not used."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyspark_kafkalog.codec import jit, library
from pyspark_kafkalog.codec import key_kernels as keys
from pyspark_kafkalog.codec import read_kernels as read
from pyspark_kafkalog.codec import text_kernels as text
from pyspark_kafkalog.codec import write_kernels as write
from pyspark_kafkalog.codec.kernel import MODULES, Kernel, kernels
from pyspark_kafkalog.codec.kernel import _Inlined as Inlined
from pyspark_kafkalog.extensions.large_messages import kernels as largemessage
from pyspark_kafkalog.extensions.typed_values.avro import kernels as avro
from pyspark_kafkalog.extensions.typed_values.json import kernels as json
from pyspark_kafkalog.log.segment import append_kernels as append
from tests.codec import fuzz
from tests.extensions.typed_values.avro import fuzz as avro_fuzz
from tests.extensions.typed_values.json import fuzz as json_fuzz

ROOT = Path(__file__).parents[2]
KERNELS = kernels()
needs_library = pytest.mark.skipif(
    not all(library.find(kernel.function, kernel.signature) for kernel in KERNELS),
    reason="No library was compiled from this source here, or another way was chosen",
)


def int64s(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def column(rng: random.Random, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *(rng.choice((0, 1, 7, 63, 64, 300)) for _ in range(rows))]).astype(np.int32)
    validity = (
        np.frombuffer(rng.randbytes(rows // 8 + 1), np.uint8) if rng.random() < 0.5 else np.empty(0, np.uint8)
    )
    return offsets, validity, np.frombuffer(rng.randbytes(int(offsets[-1])), np.uint8)


def strings(rng: random.Random, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A column of plain text, text to escape, and bytes that aren't text."""
    some = (
        b"",
        b"plain",
        b'a "quoted" \\\n\x01',
        "ä€😀".encode(),
        "€".encode()[:2],
        b"\xed\xa0\x80",
        rng.randbytes(9),
    )
    chosen = [rng.choice(some) for _ in range(rows)]
    offsets = np.cumsum([0, *map(len, chosen)]).astype(np.int32)
    return offsets, column(rng, rows)[1], np.frombuffer(b"".join(chosen), np.uint8)


DIGITS = b"0123456789ABCDEF"


def data_of(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def number_texts(rng: random.Random, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A column of numbers as Arrow writes them; no text stands for null."""
    some = (b"", b"-0", b"nan", b"-inf", b"1e+300", b"-2.2250738585072014e-308", b"0.00012", b"12345678.9")
    chosen = [rng.choice((*some, str(rng.uniform(-1e9, 1e9)).encode())) for _ in range(rows)]
    return np.cumsum([0, *map(len, chosen)]).astype(np.int32), data_of(b"".join(chosen))


def calls(rng: random.Random) -> list[tuple[Kernel, tuple[Any, ...]]]:
    """Calls of every kernel: of readers on hostile bytes, of others on what their callers make sure of."""
    data = np.frombuffer(fuzz.hostile(rng), np.uint8)
    data.flags.writeable = False
    size = data.size
    regions = np.array([[rng.randrange(size + 1), size, rng.randrange(40), 5, 40, 9, 1] for _ in range(3)]).T
    messages = np.array([[0, size, rng.randrange(2), 7, 8]]).T if size > 40 else np.empty((5, 0), np.int64)
    rows = rng.randrange(1, 30)
    key, value, names, values = (column(rng, rows) for _ in range(4))
    lists = (np.arange(rows + 1, dtype=np.int32), key[1])
    times = int64s(*(rng.choice((-2, -1, 0, 5, 2**62)) for _ in range(rows)))
    chosen = int64s(*(rng.randrange(rows) for _ in range(rows)))
    plan = (key, value, lists, names, values, times, chosen, rng.choice((0, 200, 1000)))
    partitions = np.array([rng.randrange(3) for _ in range(rows)], np.int32)
    sizes = int64s(*(rng.choice((-1, 0, 5)) for _ in range(rows)))
    starts = int64s(*(rng.randrange(-1, size + 2) for _ in range(4)))
    regions, messages = np.ascontiguousarray(regions), np.ascontiguousarray(messages)
    positions, gathered = value[0][:-1].astype(np.int64), np.zeros(value[2].size, np.uint8)
    names_of_headers = np.frombuffer(b"_lm_lx_lm", np.uint8), np.array([0, 3, 6, 9], np.int32)
    prefixes, with_prefix = np.zeros(66, np.uint8), int64s(0, -1, 1, 2)
    words = strings(rng, rows)
    forms, ends, base64_ends = (
        np.zeros(rows, np.uint8),
        np.zeros(rows + 1, np.int64),
        np.zeros(rows + 1, np.int64),
    )
    jit.compiled(text.measure_json.function, text.measure_json.signature)(*words, forms, ends)
    np.cumsum((np.diff(words[0]) + 2) // 3 * 4, out=base64_ends[1:])
    numbers = int64s(*(rng.randrange(-(2**63), 2**63) >> rng.randrange(64) for _ in range(rows)))
    decimals = numbers, rng.randrange(7), words[1]
    choices = partitions.astype(np.uint8), int64s(0, 0, 5, 7), data_of(b"abcdefg")
    validity = rng.choice((np.empty(0, np.uint8), np.packbits((chosen % 2).astype(np.uint8))))
    varints = numbers, validity, *rng.choice(((-1, -1), (0, 2)))
    unscaled = int64s(*(rng.choice((0, -1, 255, -129, 1 << 62)) for _ in range(2 * rows))), validity, 0
    digests = np.frombuffer(rng.randbytes(16 * 9), np.int64).reshape(2, 9)
    slots = np.zeros((12, 3), np.int64)
    digested = (np.arange(9), int64s(*(rng.choice((-1, 3)) for _ in range(9))), digests)
    of_keys = np.arange(9) % 5, int64s(*(rng.choice((-1, 0, 3, 17)) for _ in range(9)))
    counts = int64s(*sorted(rng.randrange(1, 9) for _ in range(3)))
    headers = np.frombuffer(rng.randbytes(200), np.uint8)
    made: list[tuple[Kernel, tuple[Any, ...]]] = [
        (
            keys.digest_keys,
            (headers, *of_keys, *(rng.randrange(2**63) for _ in range(2)), np.zeros((2, 9), np.int64)),
        ),
        (keys.put_last, (*digested, 0, rng.randrange(1, 12), slots)),
        (keys.find_last, (digested[0], digested[1], digests, 7, slots, np.zeros(9, np.uint8))),
        (
            write.rebuild,
            (
                headers,
                int64s(0, 60, 120),
                counts,
                int64s(-1, 5, -1),
                int64s(0, 7, 2**40),
                value[2],
                *(np.sort(int64s(*(rng.randrange(2**40) for _ in range(9)))) for _ in range(2)),
                np.zeros(9, np.int64),
                int64s(*(rng.choice((-1, 0, 5)) for _ in range(9))),
                np.full(9, min(value[2].size, 20)),
                np.zeros(3 * 61 + 9 * (write.MAX_HEAD + 20), np.uint8),
                np.zeros(3, np.int64),
            ),
        ),
        (read.walk_batches, (data, 0, np.zeros((read.BATCH_COLUMNS, rng.randrange(4)), np.int64))),
        (read.next_frame, (data, rng.randrange(size + 1), size, rng.randrange(10))),
        (
            read.index_records,
            (data, regions, 0, 0, 0, 0, 2**40, np.zeros((9, 20), np.int64)),
        ),
        (read.index_messages, (data, messages, 0, np.zeros((9, 3), np.int64))),
        (read.fill_offsets, (sizes, np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8))),
        (read.whole_records, (data, rng.randrange(9))),
        (
            read.gather,
            (value[2], positions, value[0], gathered),
        ),
        (write.plan, (*plan, *(np.zeros(rows, np.int64) for _ in range(3)))),
        (write.put_ints, (np.zeros(20, np.uint8), int64s(0, 9), int64s(-5, 2**62), 8)),
        (write.murmur2_partitions, (key, rng.randrange(1, 2**31), np.zeros(rows, np.int32))),
        (write.add_lengths, (key, np.zeros(rows, np.int64))),
        (write.sticky_partitions, (np.abs(sizes), rng.randrange(1, 9), 3, 1, 0, np.zeros(rows, np.int32))),
        (write.group_rows, (partitions, np.zeros(3, np.int64), np.zeros(rows, np.int64))),
        (text.measure_json, (*words, np.zeros(rows, np.uint8), np.zeros(rows + 1, np.int64))),
        (text.fill_json, (words[0], words[2], forms, ends, data_of(DIGITS), np.zeros(ends[-1], np.uint8))),
        (
            text.put_java_numbers,
            (*number_texts(rng, rows), int64s(*[0] * (rows + 1)), np.zeros(40 * rows, np.uint8)),
        ),
        (text.fill_base64, (words[0], words[2], base64_ends, np.zeros(base64_ends[-1], np.uint8))),
        (text.measure_decimals, (*decimals, np.zeros(rows, np.int64))),
        (text.put_decimals, (*decimals, 30 * np.arange(rows), np.zeros(30 * rows, np.uint8))),
        (text.measure_choices, (*choices[:2], np.zeros(rows, np.int64))),
        (text.put_choices, (*choices, 5 * np.arange(rows), np.zeros(5 * rows, np.uint8))),
        (avro.measure_varints, (*varints, np.zeros(rows, np.int64))),
        (avro.put_varints, (*varints, 11 * np.arange(rows), np.zeros(11 * rows, np.uint8))),
        (avro.measure_decimals, (*unscaled, np.zeros(rows, np.int64))),
        (avro.put_decimals, (*unscaled, 17 * np.arange(rows), np.zeros(17 * rows, np.uint8))),
        (text.put_constant, (data[:9], 9 * np.arange(rows), np.zeros(9 * rows, np.uint8))),
        (
            text.put_texts,
            (ends, np.zeros(ends[-1], np.uint8) + 7, ends[:-1].copy(), np.zeros(ends[-1], np.uint8)),
        ),
        (largemessage.find_prefixes, (value[2], value[0], np.zeros(rows, np.int64))),
        (
            largemessage.find_lm,
            (*names_of_headers, np.zeros(3, np.int64)),
        ),
        (
            largemessage.copy_slices,
            (data, starts, np.abs(starts) % 9, prefixes, with_prefix, np.zeros(99, np.uint8)),
        ),
        (
            append.append_batches,
            (
                *(int64s(*(rng.randrange(1, 2**12) for _ in range(rows))) for _ in range(3)),
                0,
                rng.randrange(2),
                int64s(3000, 4000, 500, 9, 9),
                int64s(0, rng.choice((0, 900)), 5, 0, -1, -1, 0, 0, -1),
                np.zeros((2, rows), np.int64),
                np.zeros((2, rows + 1), np.int64),
            ),
        ),
    ]
    if (times >= -1).all():
        record_sizes, batch_starts, batch_sizes = (np.zeros(rows, np.int64) for _ in range(3))
        _, count = jit.compiled(write.plan.function, write.plan.signature)(
            *plan, record_sizes, batch_starts, batch_sizes
        )
        made.append(
            (
                write.fill,
                (
                    *plan[:-1],
                    record_sizes,
                    batch_starts[:count],
                    batch_sizes[:count],
                    0,
                    7,
                    1,
                    2**31 - 3,
                    np.zeros(int(batch_sizes[:count].sum()), np.uint8),
                ),
            )
        )
    return made


def calls_of_decoders(rng: random.Random) -> list[tuple[Kernel, tuple[Any, ...]]]:
    """Calls by decoders, which the machine code that is here answers: of hostile values."""
    made: list[tuple[Kernel, tuple[Any, ...]]] = []
    modules = {avro.decode: avro, avro.repeats: avro, json.decode: json}
    kernels = {kernel: kernel.machine_code for kernel in modules}

    def noted(kernel: Kernel) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            copies = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
            made.append((kernel, copies))
            return kernels[kernel](*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kernel, module in modules.items():
            patch.setattr(module, kernel.__name__, noted(kernel))
        avro_fuzz.run(rng.randrange(1 << 30), 20)
        json_fuzz.run(rng.randrange(1 << 30), 20)
    return made


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, list[bytes]]:
    """What a call returns and what it leaves in its arrays, which are copies."""
    copies = [a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments]
    result = function(*copies)
    return result, [copy.tobytes() for copy in copies if isinstance(copy, np.ndarray)]


@needs_library
@pytest.mark.soak
def test_the_library_gives_what_numba_gives(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(300):
        for kernel, arguments in [*calls(rng), *calls_of_decoders(rng)]:
            seen.add(kernel)
            compiled = library.find(kernel.function, kernel.signature)
            assert compiled is not None
            by_numba = outcome(jit.compiled(kernel.function, kernel.signature), arguments)
            assert outcome(compiled, arguments) == by_numba, kernel.__name__
    assert {kernel.__name__ for kernel in KERNELS} - {kernel.__name__ for kernel in seen} == {"index_headers"}


def test_inlined_parts_are_of_their_kernels_module() -> None:
    """The digest of a kernel covers only its own module's source, and so does numba's cache."""
    for module in (import_module(f"pyspark_kafkalog.{name}") for name in MODULES):
        for name, value in vars(module).items():
            if isinstance(value, Inlined) and name != "copy_bytes":
                assert value.__module__ == module.__name__


def test_every_module_with_kernels_is_compiled() -> None:
    folder = ROOT / "pyspark_kafkalog"
    found = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if "\n@kernel(" in path.read_text()
    }
    assert found == set(MODULES)


@needs_library
def test_other_arguments_are_refused() -> None:
    data, table = np.frombuffer(bytes(100), np.uint8), np.zeros((14, 2), np.int64)
    walk = library.find(read.walk_batches.function, read.walk_batches.signature)
    assert walk is not None
    read_only = table.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(bytes(225), np.uint8)[1:].view(np.int64).reshape(14, 2)
    for wrong in (
        (data, 0),
        (bytes(100), 0, table),
        (None, 0, table),
        (data, 0.5, table),
        (data, None, table),
        (data, 2**63, table),
        (data.view(np.int8), 0, table),
        (data[::2], 0, table),
        (data, 0, table.T),
        (data, 0, table[0]),
        (data, 0, read_only),
        (data, 0, unaligned),
        (data, 0, table.astype(">i8")),
    ):
        with pytest.raises((TypeError, OverflowError)):
            walk(*wrong)
    plan = library.find(write.plan.function, write.plan.signature)
    assert plan is not None
    with pytest.raises(TypeError, match="tuple of 3"):
        plan(*[(data, data)] * 11)


@needs_library
def test_arrays_of_other_classes_are_taken() -> None:
    class Other(np.ndarray):
        pass

    data, table = np.frombuffer(bytes(100), np.uint8), np.zeros((14, 2), np.int64)
    same = table.view(np.dtype("q"))
    expected = read.walk_batches(data, 0, table)
    assert read.walk_batches(data.view(Other), 0, same) == expected


def run(code: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LOADED = (
    "import sys, numpy as np; from pyspark_kafkalog.codec import read_kernels as k;"
    "k.walk_batches(np.zeros(9, np.uint8), 0, np.zeros((14, 1), np.int64)); print('numba' in sys.modules)"
)


@pytest.mark.long
@needs_library
def test_the_library_is_used_until_its_source_changes(tmp_path: Path, soak: bool) -> None:
    shutil.copytree(ROOT / "pyspark_kafkalog", tmp_path / "pyspark_kafkalog")
    codec = tmp_path / "pyspark_kafkalog" / "codec"
    assert run(LOADED, tmp_path) == "False"
    assert run(LOADED, tmp_path, PYSPARK_KAFKALOG_JIT="1") == "True"
    assert run(LOADED, tmp_path, NUMBA_BOUNDSCHECK="1") == "True"
    changes = (
        ("read_kernels.py", "next_offset = int64(0)", "next_offset = int64(1)"),
        ("format.py", "MIN_SIZE_V0 = ", "MIN_SIZE_V0 = 1 + "),
        ("jit.py", "forceinline=True", "forceinline=False"),
    )
    for module, old, new in changes if soak else changes[:1]:
        text = (codec / module).read_text()
        assert old in text
        (codec / module).write_text(text.replace(old, new))
        assert run(LOADED, tmp_path) == "True", module
        (codec / module).write_text(text)
    assert run(LOADED, tmp_path) == "False"
    (codec / Path(library.path()).name).write_bytes(b"\x7fELF, cut short")
    assert run(LOADED, tmp_path) == "True"


@pytest.mark.parametrize("field", ["TYPE", "DATA", "NDIM", "DIMENSIONS", "STRIDES", "DTYPE", "FLAGS"])
@pytest.mark.parametrize("offset", [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 1000])
def test_a_numpy_with_another_layout_is_noticed(
    field: str, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.has_fields_in_place()
    if offset == getattr(library, field):
        return
    monkeypatch.setattr(library, field, offset)
    assert not library.has_fields_in_place()


@pytest.mark.long
@needs_library
def test_with_another_layout_numba_compiles(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "pyspark_kafkalog", tmp_path / "pyspark_kafkalog")
    other = "from pyspark_kafkalog.codec import library; library.DATA, library.DIMENSIONS = 32, 16;"
    assert run(f"{other}{LOADED}", tmp_path) == "True"


def test_without_library_and_numba_the_error_names_the_remedy(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "pyspark_kafkalog", tmp_path / "pyspark_kafkalog", ignore=shutil.ignore_patterns("kernels-*")
    )
    code = (
        f"import sys; sys.modules['numba'] = None\ntry:\n    {LOADED}\nexcept ImportError as e:\n    print(e)"
    )
    assert run(code, tmp_path).endswith("Run: pip install numba")


def test_a_private_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    cache.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    folder = cache / "pyspark-kafkalog"
    assert jit.private_folder() == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    other = temporary / f"pyspark-kafkalog-{os.geteuid()}"
    assert jit.private_folder() == str(other)
    other.rmdir()
    other.symlink_to(tmp_path)
    assert jit.private_folder() is None
